"""Sentences drawn from a dependency model."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest

from lpsmap_search import Corpus, expected_counts
from lpsmap_search.synthetic import sampled_sentences, verb_noun_adjective
from lpsmap_search.tagged_sentence import ROOT


def test_parameters_of_the_small_language_sum_to_one() -> None:
    model, parameters = verb_noun_adjective()
    assert model.sums(parameters) == pytest.approx(np.ones(len(model.first) - 1), rel=1e-14)
    number = {name: m for m, name in enumerate(model.names)}
    for name, value in (
        ("V left N", 0.9),
        ("N right V", 0.3),
        ("N left no child continue", 0.35),
        ("V right child stop", 0.85),
    ):
        assert parameters[number[name]] == pytest.approx(value), name


def test_sentences_are_drawn_with_their_probabilities(rng: np.random.Generator) -> None:
    """Held to the sum over all trees: the inside algorithm knows nothing of the drawing."""
    model, parameters = verb_noun_adjective()
    n, longest = 2000, 3
    drawn = sampled_sentences(model, parameters, n, rng, max_words=longest)
    seen = collections.Counter("".join(sentence.tags) for sentence in drawn)
    texts = [
        "".join(tags) for k in range(longest) for tags in itertools.product("VNA", repeat=k + 1)
    ]
    scores = np.log(parameters)
    p = np.exp([expected_counts(Corpus(model, [text]), scores)[0] for text in texts])
    p /= p.sum()
    frequency = np.array([seen[text] / n for text in texts])
    assert set(seen) <= set(texts)
    # five standard errors
    assert (abs(frequency - p) <= 5.0 * np.sqrt(p * (1.0 - p) / n)).all()


def test_trees_are_drawn_with_their_children(rng: np.random.Generator) -> None:
    """Nouns are most often children of verbs, on their left; trees are projective."""
    model, parameters = verb_noun_adjective()
    drawn = sampled_sentences(model, parameters, 200, rng, max_words=6)
    arcs: collections.Counter[str] = collections.Counter()
    for sentence in drawn:
        heads = sentence.heads
        assert heads is not None and heads.count(ROOT) == 1
        for child, head in enumerate(heads):
            if head != ROOT:
                side = "left" if child < head else "right"
                arcs[f"{sentence.tags[head]} {side} {sentence.tags[child]}"] += 1
                between = range(min(child, head) + 1, max(child, head))
                assert all(heads[k] in between or heads[k] in (child, head) for k in between)
    assert arcs.most_common(1)[0][0] == "V left N"


def test_parameters_without_short_trees_are_refused(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpsmap_search.synthetic.MAX_DRAWS", 10)
    model, _ = verb_noun_adjective()
    endless = np.array([name.endswith("continue") for name in model.names], dtype=np.float64)
    with pytest.raises(ValueError, match="max_words: got 3, but 10 trees in a row were longer"):
        sampled_sentences(model, endless, 1, rng, max_words=3)
