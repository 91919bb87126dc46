"""Parsing with the dependency model, and the accuracy of trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.structures import structures_of
from lpsmap_search.tagged_sentence import GAP, ROOT
from lpsmap_search.viterbi import checked_scores


def parse(
    model: DependencyModelWithValence, sentences: Sequence[Sequence[str]], scores: FloatArray
) -> list[tuple[int, ...]]:
    """Return the best tree of each sentence.

    Parameters
    ----------
    model
        The model.
    sentences
        Sequences of tags.
    scores
        (M,) scores of the parameters, such as their logarithms; -inf allowed.

    Returns
    -------
    list
        For each sentence, the heads of its words, from 0; -1 for the root.

    Raises
    ------
    ValueError
        If there are no sentences, one is empty or has no tree of finite score, a tag is unknown,
        the scores are not of shape (M,), or one is NaN or infinite.
    """
    corpus = Corpus(model, sentences)
    graph, factor = structures_of(corpus, checked_scores(corpus, scores))
    parses: dict[tuple[int, ...], tuple[int, ...]] = {}
    for sentence, trees in zip(corpus.sentences, graph.gibbs(factor).k_best(1), strict=True):
        if not len(trees):
            raise ValueError("scores: a sentence has no tree of finite score.")
        words = np.arange(len(sentence))
        heads = trees.variables.reshape(len(words), len(words)).argmax(axis=1)
        parses[sentence] = tuple(np.where(heads == words, ROOT, heads).tolist())
    return [parses[model.encode(sentence)] for sentence in sentences]


def directed_accuracy(
    predicted: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]
) -> float:
    """Return the share of words whose predicted head is the expected one.

    This is unlabelled directed dependency accuracy; arcs from the root are included, words without
    an expected head are not.

    Parameters
    ----------
    predicted, expected
        For each sentence, the heads of its words, from 0; -1 for the root, -100 for an expected
        head that is not known.

    Raises
    ------
    ValueError
        If the sentences do not agree in number or length, or there are no expected heads.
    """
    if len(predicted) != len(expected):
        raise ValueError(
            f"predicted: got {len(predicted)} sentences; expected {len(expected)}, the number in "
            "expected."
        )
    right = total = 0
    for number, (ours, theirs) in enumerate(zip(predicted, expected, strict=True)):
        if len(ours) != len(theirs):
            raise ValueError(
                f"predicted: sentence {number} has {len(ours)} heads; expected {len(theirs)}."
            )
        known = [int(a) == int(b) for a, b in zip(ours, theirs, strict=True) if b != GAP]
        right, total = right + sum(known), total + len(known)
    if not total:
        raise ValueError("expected: got no words with a head; expected at least one.")
    return right / total
