"""Sums over all structures of a corpus: expected counts and samples."""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.corpus import Corpus, Derivations
from lpsmap_search.viterbi import (
    Workspace,
    add_by_kind,
    checked_scores,
    new_workspace,
    score_kinds,
)


def expected_counts(corpus: Corpus, scores: FloatArray) -> tuple[float, FloatArray]:
    """Return the marginal log-likelihood of a corpus, and the expected counts.

    This is the E-step of soft EM, by the inside-outside algorithm (Baker 1979).

    Parameters
    ----------
    corpus
        The sentences.
    scores
        (M,) logarithms of the parameters, -inf allowed.

    Returns
    -------
    float
        The sum over sentences of ``log sum_y exp <scores, counts(y)>``; -inf if a sentence has no
        structure of finite score.
    counts
        (M,) expected counts under ``p(y) ~ exp <scores, counts(y)>``; zeros if the sum is -inf.

    Raises
    ------
    ValueError
        If the scores are not of shape (M,), or one is NaN or infinite.
    """
    scores = checked_scores(corpus, scores)
    derivations, counts = corpus.derivations, np.zeros(len(scores))
    workspace, local = new_workspace(derivations), np.empty(len(derivations.kind))
    log_likelihood = _inside(derivations, scores, local, workspace)
    if log_likelihood > -math.inf:
        _outside(derivations, local, workspace, counts)
    return float(log_likelihood), counts


def sampled_counts(corpus: Corpus, scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Sample one structure per sentence, ``p(y) ~ exp <scores, counts(y)>``, and return the counts.

    With zero scores, all structures are equally probable. Equal sentences share a structure.

    Parameters
    ----------
    corpus
        The sentences.
    scores
        (M,) logarithms of the parameters, -inf allowed.
    rng
        The random generator.

    Raises
    ------
    ValueError
        If the scores are not of shape (M,), one is NaN or infinite, or a sentence has no structure
        of finite score.
    """
    scores = checked_scores(corpus, scores)
    derivations, counts = corpus.derivations, np.zeros(len(scores))
    workspace, local = new_workspace(derivations), np.empty(len(derivations.kind))
    if _inside(derivations, scores, local, workspace) == -math.inf:
        raise ValueError("scores: a sentence has no structure of finite score.")
    _sample(derivations, local, rng.random(len(workspace.times)), workspace.times, counts)
    return counts


@kernel
def _inside(
    derivations: Derivations, scores: FloatArray, local: FloatArray, workspace: Workspace
) -> float:
    """Write the log-sum over derivations of every item, and the probabilities of its hyperedges."""
    total, _, _, kind_scores = workspace
    score_kinds(derivations, scores, kind_scores)
    first_edge, tails, kind = derivations.first_edge, derivations.tails, derivations.kind
    log_likelihood = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        total[begin] = 0.0
        for item in range(begin + 1, end):
            most = -np.inf
            for e in range(first_edge[item], first_edge[item + 1]):
                local[e] = total[tails[2 * e]] + total[tails[2 * e + 1]] + kind_scores[kind[e]]
                most = max(most, local[e])
            total[item] = most + _normalise(local, first_edge[item], first_edge[item + 1], most)
        log_likelihood += derivations.multiplicity[s] * total[end - 1]
    return log_likelihood


@leaf
def _normalise(local: FloatArray, first: int, last: int, most: float) -> float:
    """Write probabilities for scores; return the logarithm of their mass relative to the best."""
    if most == -np.inf or last == first + 1:
        local[first:last] = 0.0 if most == -np.inf else 1.0
        return 0.0
    mass = 0.0
    for e in range(first, last):
        local[e] = np.exp(local[e] - most)
        mass += local[e]
    for e in range(first, last):
        local[e] /= mass
    return np.log(mass)  # type: ignore[no-any-return]


@kernel
def _outside(
    derivations: Derivations, local: FloatArray, workspace: Workspace, counts: FloatArray
) -> None:
    """Write the expected counts."""
    first_edge, tails, kind = derivations.first_edge, derivations.tails, derivations.kind
    _, _, reach, mass = workspace
    mass[:] = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        reach[begin:end] = 0.0
        reach[end - 1] = derivations.multiplicity[s]
        for item in range(end - 1, begin, -1):
            if reach[item] == 0.0:
                continue
            for e in range(first_edge[item], first_edge[item + 1]):
                share = reach[item] * local[e]
                reach[tails[2 * e]] += share
                reach[tails[2 * e + 1]] += share
                mass[kind[e]] += share
    add_by_kind(derivations, mass, counts)


@kernel
def _sample(
    derivations: Derivations,
    local: FloatArray,
    uniform: FloatArray,
    times: FloatArray,
    counts: FloatArray,
) -> None:
    """Add the counts of one structure per sentence, given a random number in [0, 1) per item.

    An item that a structure uses repeatedly has the same derivation each time.
    """
    first_use, uses, tails = derivations.first_use, derivations.uses, derivations.tails
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        times[begin:end] = 0.0
        times[end - 1] = derivations.multiplicity[s]
        for item in range(end - 1, begin, -1):
            if times[item] == 0.0:
                continue
            e = _drawn(derivations.first_edge, item, local, uniform[item])
            for k in range(first_use[e], first_use[e + 1]):
                counts[uses[k]] += times[item]
            times[tails[2 * e]] += times[item]
            times[tails[2 * e + 1]] += times[item]


@leaf
def _drawn(first_edge: IntArray, item: int, local: FloatArray, below: float) -> int:
    """Return a sampled hyperedge of an item; the last possible one in case of rounding errors."""
    chosen = int(first_edge[item])
    for e in range(first_edge[item], first_edge[item + 1]):
        if local[e] > 0.0:
            chosen = e
            if below < local[e]:
                break
            below -= local[e]
    return chosen
