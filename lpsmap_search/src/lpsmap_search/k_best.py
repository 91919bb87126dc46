"""The k best structures of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpsmap_core.api import FloatArray, checked_count
from lpsmap_search.corpus import Corpus
from lpsmap_search.count_model import CountModel
from lpsmap_search.structures import structures_of
from lpsmap_search.viterbi import checked_scores


@dataclass(frozen=True)
class RankedStructure:
    """One of the best structures of a sentence."""

    score: float
    counts: FloatArray
    """(M,) counts of the parameters."""
    variables: FloatArray
    """Indicators of the model's variables, such as the arcs of a tree, in the shape of
    `CountModel.variables_shape`; hyperedges if the model has no variables."""


def k_best(
    model: CountModel, sentence: Sequence[Any], scores: FloatArray, k: int
) -> list[RankedStructure]:
    """Return the k best structures of a sentence, the best first (Huang & Chiang 2005).

    Parameters
    ----------
    model
        The model.
    sentence
        A sequence of symbols of the model.
    scores
        (M,) scores of the parameters, such as their logarithms; -inf allowed.
    k
        The number of structures. Fewer are returned if no more have a finite score.

    Raises
    ------
    ValueError
        If k is less than 1, the sentence is empty or has unknown symbols, the scores are not of
        shape (M,), or one is NaN or infinite.
    """
    k, corpus = checked_count("k", k), Corpus(model, [sentence])
    graph, factor = structures_of(corpus, checked_scores(corpus, scores))
    shape = model.variables_shape(corpus.sentences[0])
    return [
        RankedStructure(
            float(structure.score),
            np.asarray(structure.additionals).reshape(-1),
            np.asarray(structure.variables)
            if shape is None
            else structure.variables.reshape(shape),
        )
        for structure in graph.gibbs(factor).k_best(k)[0]
    ]
