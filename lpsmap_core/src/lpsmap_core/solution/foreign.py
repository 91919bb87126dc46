"""What engines and solvers of plugins return, validated: a fault of theirs is not the user's."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from lpsmap_core.decoding.program import Program
from lpsmap_core.decoding.solvers import Answer, MapSolver
from lpsmap_core.engine.protocol import Engine, SolvedGraph
from lpsmap_core.engine.status import Status
from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_core.layout.layout import Part

__all__ = ["bounds_of", "check_answer", "check_solved"]

OUTSIDE = 1e-3
"""How far beyond 0 and 1 values may lie: what a solver's tolerances excuse, and no more."""


def check_answer(solver: MapSolver, program: Program, answer: object) -> Answer:
    """Return the answer of a solver of whole graphs.

    Raises
    ------
    RuntimeError
        If it is not one: the message names the solver, and what it should have returned.
    """
    n = len(program.variables)
    if not isinstance(answer, Answer):
        raise _wrong_answer(solver, f"an object of type {type(answer).__name__}", "an Answer")
    if not isinstance(answer.bound, Real) or math.isnan(answer.bound):
        raise _wrong_answer(
            solver, f"bound {answer.bound!r}", "a number: inf if nothing is known, -inf for none"
        )
    if not isinstance(answer.n_nodes, (int, np.integer)) or answer.n_nodes < 0:
        raise _wrong_answer(solver, f"n_nodes {answer.n_nodes!r}", "a whole number, 0 or more")
    if answer.values is not None:
        values = np.asarray(answer.values)
        if values.shape != (n,) or values.dtype.kind not in "fiub":
            got = f"values of shape {values.shape} and dtype {values.dtype}"
            raise _wrong_answer(solver, got, f"numbers of shape {(n,)}")
        if not ((values >= -OUTSIDE) & (values <= 1.0 + OUTSIDE)).all():
            worst = values[~((values >= -OUTSIDE) & (values <= 1.0 + OUTSIDE))][0]
            raise _wrong_answer(solver, f"a value of {worst:g}", "values of 0 and 1")
    return answer


def _wrong_answer(solver: MapSolver, got: str, expected: str) -> RuntimeError:
    cls = type(solver)
    return RuntimeError(
        f"solver {solver.name!r} returned {got}; expected {expected}. This is a fault of "
        f"{cls.__module__}.{cls.__qualname__}, not of the scores: tell its author, and solve with "
        "solver='lpsmap'."
    )


def check_solved(engine: Engine, part: Part, solved: object, bad: BoolArray) -> None:
    """Validate what an engine returned for a part, `bad` components apart.

    Raises
    ------
    RuntimeError
        If it is not a solved graph: the message names the engine, and what it should have returned.
    """
    if not isinstance(solved, SolvedGraph):
        raise _wrong_solution(engine, f"an object of type {type(solved).__name__}", "a SolvedGraph")
    n_components = part.n_components
    status = np.asarray(solved.status(), dtype=object)
    if status.shape != (n_components,) or not set(map(type, status.tolist())) <= {Status}:
        raise _wrong_solution(
            engine, f"status {status!r:.80}", f"an array of {n_components} Status, one a component"
        )
    for name in ("iterations", "primal_residual", "dual_residual"):
        shape = getattr(getattr(solved, name, None), "shape", None)
        if shape != (n_components,):
            raise _wrong_solution(engine, f"{name} of shape {shape}", f"shape {(n_components,)}")
    trusted = ((status == Status.SOLVED) | (status == Status.CONVERGED)) & ~bad
    arrays = (
        ("marginals", solved.marginals(), part.component, 1.0),
        ("additionals", solved.additionals(), part.additional_component, np.inf),
    )
    for name, found, component, most in arrays:
        values = np.asarray(found)
        if values.shape != component.shape or values.dtype.kind != "f":
            got = f"{name} of shape {values.shape} and dtype {values.dtype}"
            raise _wrong_solution(engine, got, f"floats of shape {component.shape}")
        mine = trusted[component]
        wrong = np.flatnonzero(mine & ~((values >= -OUTSIDE) & (values <= most + OUTSIDE)))
        if wrong.size:
            e = wrong[0]
            got = f"{name} with {values[e]:g} in component {component[e]}, "
            got += f"whose status is {status[component[e]].name}"
            expected = "numbers of 0 to 1" if most == 1.0 else "numbers of 0 or more"
            raise _wrong_solution(engine, got, f"{expected}, or another status")


def bounds_of(solved: SolvedGraph, bad: BoolArray) -> FloatArray:
    """Return what no assignment scores more than, by component; `bad` ones may have any.

    Raises
    ------
    RuntimeError
        If the engine returned something else.
    """
    bound = np.asarray(solved.assignment_bound(), dtype=np.float64)
    if bound.shape != bad.shape or (np.isnan(bound) & ~bad).any():
        name = f"{type(solved).__module__}.{type(solved).__qualname__}"
        raise RuntimeError(
            f"{name}.assignment_bound returned {bound!r:.80}; expected {len(bad)} numbers, inf "
            "where nothing is known. This is a fault of the engine, not "
            "of the scores: tell its author, and solve with engine='auto'."
        )
    return bound


def _wrong_solution(engine: Engine, got: str, expected: str) -> RuntimeError:
    cls = type(engine)
    return RuntimeError(
        f"engine {engine.name!r} returned {got}; expected {expected}. This is a fault of "
        f"{cls.__module__}.{cls.__qualname__}, not of the scores: tell its author, and solve with "
        "engine='auto'."
    )
