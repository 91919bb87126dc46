"""The best structures of all sentences of a corpus, and what they count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_search.arrays import FloatArray, IntArray
from lpsmap_search.corpus import Corpus, Derivations

__all__ = ["Memory", "best_counts", "checked_scores", "memory_for", "viterbi"]


class Memory(NamedTuple):
    """What a pass works with, for all items."""

    best: FloatArray
    """The score of its best derivation."""
    choice: IntArray
    """The hyperedge of that."""
    times: FloatArray
    """How often the best structures use it."""


def memory_for(derivations: Derivations) -> Memory:
    """Return memory for the items of a corpus."""
    n = len(derivations.first_edge) - 1
    return Memory(np.empty(n), np.empty(n, dtype=np.int64), np.empty(n))


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
    best, choice, times = memory
    counts[:] = 0.0
    total = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        _pass(derivations, begin, end, scores, memory)
        total += derivations.multiplicity[s] * best[end - 1]
        if best[end - 1] > -np.inf:
            times[end - 1] = derivations.multiplicity[s]
            _count(derivations, begin, end - 1, choice, times, counts)
    return total


@leaf
def _pass(
    derivations: Derivations,
    begin: int,
    end: int,
    scores: FloatArray,
    memory: Memory,
) -> None:
    """Find the best hyperedge of every item of a sentence; the first wins among equal ones."""
    first_edge, tails = derivations.first_edge, derivations.tails
    first_use, uses = derivations.first_use, derivations.uses
    best, choice, times = memory
    best[begin] = times[begin] = 0.0
    for item in range(begin + 1, end):
        most, chosen = -np.inf, first_edge[item]
        for e in range(first_edge[item], first_edge[item + 1]):
            score = best[tails[2 * e]] + best[tails[2 * e + 1]]
            for k in range(first_use[e], first_use[e + 1]):
                score += scores[uses[k]]
            if score > most:
                most, chosen = score, e
        best[item], choice[item], times[item] = most, chosen, 0.0


@leaf
def _count(
    derivations: Derivations,
    nothing: int,
    goal: int,
    choice: IntArray,
    times: FloatArray,
    counts: FloatArray,
) -> None:
    """Add what the chosen derivation of a goal uses, ``times[goal]`` times.

    Items stand in topological order, and below the goal.
    """
    tails, first_use, uses = derivations.tails, derivations.first_use, derivations.uses
    for item in range(goal, nothing, -1):
        if times[item] == 0.0:
            continue
        e = choice[item]
        for k in range(first_use[e], first_use[e + 1]):
            counts[uses[k]] += times[item]
        times[tails[2 * e]] += times[item]
        times[tails[2 * e + 1]] += times[item]
