"""Validation of the answers of external solvers."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from lpsmap_decode.solvers.map_solver import Answer, MapSolver, Program

__all__ = ["check_answer", "wrong_answer"]

OUTSIDE = 1e-3
"""Maximum distance of values beyond 0 and 1, to allow for the tolerances of solvers."""


def check_answer(solver: MapSolver, program: Program, answer: object) -> Answer:
    """Validate and return the answer of an external solver, with its values in an array.

    Raises
    ------
    RuntimeError
        If the answer is invalid; the message names the solver and the expected value.
    """
    n = len(program.variables)
    if not isinstance(answer, Answer):
        raise wrong_answer(solver, f"an object of type {type(answer).__name__}", "an Answer")
    if not isinstance(answer.bound, Real) or math.isnan(answer.bound):
        raise wrong_answer(
            solver, f"bound {answer.bound!r}", "a number: inf if unknown, -inf if infeasible"
        )
    if not isinstance(answer.n_nodes, (int, np.integer)) or answer.n_nodes < 0:
        raise wrong_answer(solver, f"n_nodes {answer.n_nodes!r}", "a whole number, 0 or more")
    if answer.values is not None:
        values = np.asarray(answer.values)
        answer = answer._replace(values=values)
        if values.shape != (n,) or values.dtype.kind not in "fiub":
            got = f"values of shape {values.shape} and dtype {values.dtype}"
            raise wrong_answer(solver, got, f"numbers of shape {(n,)}")
        if not ((values >= -OUTSIDE) & (values <= 1.0 + OUTSIDE)).all():
            worst = values[~((values >= -OUTSIDE) & (values <= 1.0 + OUTSIDE))][0]
            raise wrong_answer(solver, f"a value of {worst:g}", "values of 0 and 1")
    return answer


def wrong_answer(solver: MapSolver, got: str, expected: str) -> RuntimeError:
    """Return the error for an invalid answer, which names the solver."""
    cls = type(solver)
    return RuntimeError(
        f"solver {solver.name!r} returned {got}; expected {expected}. This is a bug of "
        f"{cls.__module__}.{cls.__qualname__}, not of the scores: report it to its author, and "
        "solve with solver='lpsmap'."
    )
