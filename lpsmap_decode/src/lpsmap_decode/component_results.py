"""Statuses and scores of the parts of a solved graph: components, and variables in no factor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Solution, Status
from lpsmap_core.api import FloatArray
from lpsmap_decode.results.assignment import Assignment
from lpsmap_decode.results.score_units import is_proved

__all__ = ["Parts", "parts_of"]


class Parts(NamedTuple):
    """The components of a solved graph; the variables in no factor, if any, are the last part.

    The scores sum to the score of all values.

    Attributes
    ----------
    status
        A word for each: for a relaxation, the name of its `Status`; for an exact search,
        ``"PROVED"``, ``"FOUND"``, ``"NOT_FOUND"`` or ``"INFEASIBLE"``.
    score
        Objectives, or scores of the assignment.
    bound
        Upper bounds on the score of any assignment after an exact search; else None.
    free
        The score of the variables in no factor; NaN if one of their scores is NaN or ``+inf``.
    ok
        Whether every part is solved, or proved optimal by an exact search.
    """

    status: tuple[str, ...]
    score: FloatArray
    bound: FloatArray | None
    free: float
    ok: bool


def parts_of(found: Solution | Assignment, known: FloatArray | None = None) -> Parts:
    """Return the parts of a solved graph.

    Parameters
    ----------
    found
        The result of the solve.
    known
        For a conditioned graph, whose scores lack them, the scores of the variables that are known
        to be on.
    """
    alone = found.layout.component < 0
    known = np.empty(0) if known is None else known
    scores = np.concatenate([found.scores[alone], known])
    values = np.concatenate([found.values[alone], np.ones(len(known))])
    quadratic = 0.0 if isinstance(found, Assignment) else found.solved.quadratic
    on = values != 0.0  # off variables may be forbidden
    with np.errstate(over="ignore", invalid="ignore"):
        free = float((scores[on] * values[on] - 0.5 * quadratic * values[on] ** 2).sum())
    if not (scores < np.inf).all():
        free = np.nan  # as for components, whatever the values
    extra = [free] if len(scores) else []
    if isinstance(found, Assignment):
        score, bound = np.append(found.score, extra), np.append(found.bound, extra)
        unit = np.append(found.unit, np.ones(len(extra)))
        has, proved = score > -np.inf, is_proved(score, bound, found.gap, unit)
        words = {(True, True): "PROVED", (True, False): "FOUND", (False, True): "INFEASIBLE"}
        pairs = zip(has.tolist(), proved.tolist(), strict=True)
        searched = tuple(words.get(pair, "NOT_FOUND") for pair in pairs)
        return Parts(searched, score, bound, free, bool((has & proved).all()))
    status = found.status.tolist() + [_free_status(free)] * len(extra)
    names = tuple(each.name for each in status)
    score = np.append(found.objective, extra)
    return Parts(names, score, None, free, all(each.ok for each in status))


def _free_status(score: float) -> Status:
    """Return the status of variables in no factor with a total score."""
    if score == -np.inf:  # a variable is known to be on, and forbidden
        return Status.INFEASIBLE
    return Status.SOLVED if np.isfinite(score) else Status.NON_FINITE
