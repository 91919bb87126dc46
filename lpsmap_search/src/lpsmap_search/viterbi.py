"""The best structures of all sentences of a corpus, and their counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.corpus import Corpus, Derivations


class Workspace(NamedTuple):
    """The workspace of a pass, for all items."""

    best: FloatArray
    """For each item, the score of its best derivation."""
    choice: IntArray
    """For each item, the hyperedge of its best derivation."""
    times: FloatArray
    """For each item, its count in the best structures."""
    own: FloatArray
    """For each kind of hyperedge, its score, then its count in the best structures."""


def new_workspace(derivations: Derivations) -> Workspace:
    """Allocate the workspace for a corpus."""
    n, n_kinds = len(derivations.first_edge) - 1, len(derivations.first_of_kind) - 1
    return Workspace(np.empty(n), np.empty(n, dtype=np.int64), np.empty(n), np.empty(n_kinds))


def viterbi(corpus: Corpus, scores: FloatArray) -> tuple[float, FloatArray]:
    """Return the total score of the best structures of all sentences, and their counts.

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
        (M,) counts of the parameters in the best structures.

    Raises
    ------
    ValueError
        If the scores are not of shape (M,), or one is NaN or infinite.
    """
    scores = checked_scores(corpus, scores)
    derivations, counts = corpus.derivations, np.empty(len(scores))
    return float(best_counts(derivations, scores, new_workspace(derivations), counts)), counts


def checked_scores(corpus: Corpus, scores: FloatArray) -> FloatArray:
    """Validate scores of all parameters, and convert them for kernels.

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
    workspace: Workspace,
    counts: FloatArray,
) -> float:
    """Write the counts of the best structures of all sentences, and return their total score.

    Parameters
    ----------
    derivations
        The hypergraphs of the sentences.
    scores
        (M,) of the parameters.
    workspace
        Workspace for all items.
    counts
        (M,) the output.
    """
    score_kinds(derivations, scores, workspace.own)
    total = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        _pass(derivations, begin, end, workspace)
        total += derivations.multiplicity[s] * workspace.best[end - 1]
    _count_choices(derivations, workspace, counts)
    return total


@leaf
def score_kinds(derivations: Derivations, scores: FloatArray, kind_scores: FloatArray) -> None:
    """Write the score of each kind of hyperedges."""
    first = derivations.first_of_kind
    for kind in range(len(kind_scores)):
        score = 0.0
        for k in range(first[kind], first[kind + 1]):
            score += scores[derivations.uses_of_kind[k]]
        kind_scores[kind] = score


@leaf
def add_by_kind(derivations: Derivations, times: FloatArray, counts: FloatArray) -> None:
    """Write counts of the parameters, given counts of the kinds of hyperedges."""
    first = derivations.first_of_kind
    counts[:] = 0.0
    for kind in range(len(times)):
        for k in range(first[kind], first[kind + 1]):
            counts[derivations.uses_of_kind[k]] += times[kind]


@leaf
def _pass(derivations: Derivations, begin: int, end: int, workspace: Workspace) -> None:
    """Find the best hyperedge of every item of a sentence; ties go to the first."""
    first_edge, tails, kind = derivations.first_edge, derivations.tails, derivations.kind
    best, choice, times, kind_scores = workspace
    best[begin] = times[begin] = 0.0
    for item in range(begin + 1, end):
        most, chosen = -np.inf, first_edge[item]
        for e in range(first_edge[item], first_edge[item + 1]):
            score = best[tails[2 * e]] + best[tails[2 * e + 1]] + kind_scores[kind[e]]
            if score > most:
                most, chosen = score, e
        best[item], choice[item], times[item] = most, chosen, 0.0


@leaf
def _count_choices(derivations: Derivations, workspace: Workspace, counts: FloatArray) -> None:
    """Write the counts of the parameters in the derivations by the chosen hyperedges.

    On entry `times` is zero; sentences without a derivation are not counted. Items are in
    topological order, up to the goal.
    """
    tails, kind = derivations.tails, derivations.kind
    best, choice, times, often_of_kind = workspace
    often_of_kind[:] = 0.0
    for s in range(len(derivations.multiplicity)):
        begin, goal = derivations.first_item[s], derivations.first_item[s + 1] - 1
        times[goal] = derivations.multiplicity[s] if best[goal] > -np.inf else 0.0
        for item in range(goal, begin, -1):
            often = times[item]
            if often == 0.0:
                continue
            e = choice[item]
            often_of_kind[kind[e]] += often
            times[tails[2 * e]] += often
            times[tails[2 * e + 1]] += often
    add_by_kind(derivations, often_of_kind, counts)
