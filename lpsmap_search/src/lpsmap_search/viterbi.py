"""The best structures of all sentences of a corpus, and what they count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_search.arrays import FloatArray, IntArray
from lpsmap_search.corpus import Corpus, Derivations

__all__ = [
    "Memory",
    "add_by_kind",
    "best_counts",
    "checked_scores",
    "memory_for",
    "score_kinds",
    "viterbi",
]


class Memory(NamedTuple):
    """What a pass works with, for all items."""

    best: FloatArray
    """The score of its best derivation."""
    choice: IntArray
    """The hyperedge of that."""
    times: FloatArray
    """How often the best structures use it."""
    own: FloatArray
    """What hyperedges of a kind score, then how often the best structures use that kind."""


def memory_for(derivations: Derivations) -> Memory:
    """Return memory for the items of a corpus."""
    n, n_kinds = len(derivations.first_edge) - 1, len(derivations.first_of_kind) - 1
    return Memory(np.empty(n), np.empty(n, dtype=np.int64), np.empty(n), np.empty(n_kinds))


def viterbi(corpus: Corpus, scores: FloatArray) -> tuple[float, FloatArray]:
    """Return the total score of every sentence's best structure, and their counts.

    Parameters
    ----------
    corpus
        The sentences.
    scores
        (M,) scores of the parameters, -inf allowed.

    Returns
    -------
    float
        The maximum over structures of ``<scores, counts>``; -inf if a sentence has no structure of
        finite score.
    counts
        (M,) how often the best structures use each parameter.

    Raises
    ------
    ValueError
        If the scores are not of shape (M,), or one is NaN or infinite.
    """
    scores = checked_scores(corpus, scores)
    derivations, counts = corpus.derivations, np.empty(len(scores))
    return float(best_counts(derivations, scores, memory_for(derivations), counts)), counts


def checked_scores(corpus: Corpus, scores: FloatArray) -> FloatArray:
    """Return scores of all parameters as kernels need them.

    Raises
    ------
    ValueError
        If they are not of shape (M,), or one is NaN or infinite.
    """
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    n = corpus.model.n_parameters
    if scores.shape != (n,):
        raise ValueError(
            f"scores: got shape {scores.shape}; expected ({n},), a score for each parameter."
        )
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise ValueError("scores: got NaN or infinity; expected finite numbers or -inf.")
    return scores


@kernel
def best_counts(
    derivations: Derivations,
    scores: FloatArray,
    memory: Memory,
    counts: FloatArray,
) -> float:
    """Write the counts of every sentence's best structure, and return their total score.

    Parameters
    ----------
    derivations
        The sentences' hypergraphs.
    scores
        (M,) of the parameters.
    memory
        Memory for all items.
    counts
        (M,) the result.
    """
    best, choice, times, own = memory
    score_kinds(derivations, scores, own)
    total = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        _pass(derivations, begin, end, memory)
        times[end - 1] = derivations.multiplicity[s] if best[end - 1] > -np.inf else 0.0
        total += derivations.multiplicity[s] * best[end - 1]
    own[:] = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        _count(derivations, begin, end - 1, memory)
    add_by_kind(derivations, own, counts)
    return total


@leaf
def score_kinds(derivations: Derivations, scores: FloatArray, own: FloatArray) -> None:
    """Write what hyperedges of each kind score."""
    first = derivations.first_of_kind
    for kind in range(len(own)):
        score = 0.0
        for k in range(first[kind], first[kind + 1]):
            score += scores[derivations.uses_of_kind[k]]
        own[kind] = score


@leaf
def add_by_kind(derivations: Derivations, times: FloatArray, counts: FloatArray) -> None:
    """Write counts of the parameters, given how often hyperedges of each kind are used."""
    first = derivations.first_of_kind
    counts[:] = 0.0
    for kind in range(len(times)):
        for k in range(first[kind], first[kind + 1]):
            counts[derivations.uses_of_kind[k]] += times[kind]


@leaf
def _pass(derivations: Derivations, begin: int, end: int, memory: Memory) -> None:
    """Find the best hyperedge of every item of a sentence; the first wins among equal ones."""
    first_edge, tails, kind = derivations.first_edge, derivations.tails, derivations.kind
    best, choice, times, own = memory
    best[begin] = times[begin] = 0.0
    for item in range(begin + 1, end):
        most, chosen = -np.inf, first_edge[item]
        for e in range(first_edge[item], first_edge[item + 1]):
            score = best[tails[2 * e]] + best[tails[2 * e + 1]] + own[kind[e]]
            if score > most:
                most, chosen = score, e
        best[item], choice[item], times[item] = most, chosen, 0.0


@leaf
def _count(derivations: Derivations, nothing: int, goal: int, memory: Memory) -> None:
    """Add the kinds that the chosen derivation of a goal uses, ``times[goal]`` times.

    Items stand in topological order, and below the goal.
    """
    tails, kind = derivations.tails, derivations.kind
    for item in range(goal, nothing, -1):
        often = memory.times[item]
        if often == 0.0:
            continue
        e = memory.choice[item]
        memory.own[kind[e]] += often
        memory.times[tails[2 * e]] += often
        memory.times[tails[2 * e + 1]] += often
