"""Validation of the results of engines: a bug of a plugin is not reported as the user's."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.status import Status
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray

__all__ = ["validate_solved"]

ENGINE_TOLERANCE = 1e-3
"""Distance by which values may lie outside their range, for the tolerance of an engine."""


def validate_solved(engine: Engine, part: Part, solved: object, bad: BoolArray) -> None:
    """Validate the result of an engine for a part.

    Parameters
    ----------
    engine
        The engine.
    part
        The part that it was given.
    solved
        Its result.
    bad
        Components that were skipped; their values are not validated.

    Raises
    ------
    RuntimeError
        If the result is not a valid solved graph. The message names the engine, the fault and the
        expected result.
    """
    if not isinstance(solved, SolvedGraph):
        raise _wrong_solution(engine, f"an object of type {type(solved).__name__}", "a SolvedGraph")
    n_components = part.n_components
    given = solved.status()
    status = np.asarray(given, dtype=object)
    shape = getattr(given, "shape", None)
    if shape != (n_components,) or not set(map(type, status.tolist())) <= {Status}:
        expected = f"an array of {n_components} Status, one per component"
        raise _wrong_solution(engine, f"status {given!r:.80}", expected)
    for name in ("iterations", "primal_residual", "dual_residual"):
        shape = getattr(getattr(solved, name, None), "shape", None)
        if shape != (n_components,):
            raise _wrong_solution(engine, f"{name} of shape {shape}", f"shape {(n_components,)}")
    trusted = ((status == Status.SOLVED) | (status == Status.CONVERGED)) & ~bad
    arrays = (
        ("marginals", solved.marginals(), trusted[part.component], 1.0),
        ("additionals", solved.additionals(), part.on_additionals(trusted), np.inf),
    )
    for name, found, mine, most in arrays:
        values = np.asarray(found)
        if getattr(found, "shape", None) != mine.shape or values.dtype.kind != "f":
            got = f"{name} of shape {values.shape} and {values.dtype}, in a {type(found).__name__}"
            raise _wrong_solution(engine, got, f"an array of floats of shape {mine.shape}")
        wrong = np.flatnonzero(
            mine & ~((values >= -ENGINE_TOLERANCE) & (values <= most + ENGINE_TOLERANCE))
        )
        if wrong.size:
            e = wrong[0]
            of = part.component if name == "marginals" else part.additional_component
            got = f"{name} with {values[e]:g} in component {of[e]}, "
            got += f"whose status is {status[of[e]].name}"
            expected = "numbers of 0 to 1" if most == 1.0 else "numbers of 0 or more"
            raise _wrong_solution(engine, got, f"{expected}, or another status")


def _wrong_solution(engine: Engine, got: str, expected: str) -> RuntimeError:
    cls = type(engine)
    return RuntimeError(
        f"engine {engine.name!r} returned {got}; expected {expected}. This is a bug of "
        f"{cls.__module__}.{cls.__qualname__}, not of the scores: report it to its author, and "
        "solve with engine='auto'."
    )
