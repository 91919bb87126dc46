"""Training of latent-variable models with what the distribution depends on."""

from __future__ import annotations

import numpy as np

from lpsmap_core import installed
from lpsmap_search import Corpus, DependencyModelWithValence, global_search


def test_a_small_corpus_is_certified() -> None:
    corpus = Corpus(DependencyModelWithValence("VN"), ["VN", "V"])
    found = global_search(corpus, gap=0.01)
    assert found.proved
    assert found.bound >= found.objective
    np.testing.assert_allclose(corpus.model.sums(found.parameters), 1.0)


def test_the_command_is_offered() -> None:
    assert "induce" in installed().commands
