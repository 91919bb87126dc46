"""Checks of local Jacobians: against central differences, symmetric, projections."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.local.solvers import derivatives_of, override_level
from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import LocalProblems, Solved, inner_problems, local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.rules import ConformanceError, broken
from lpsmap_jit.arrays import FloatArray

STEP = 1e-6
"""Step of the central differences."""

ERROR = 1e-4
"""Allowed error of the differences, as a multiple of 1 and the derivative's magnitude."""


def check_jvp(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Jacobians agree with central differences in all scores.

    Problems with a kink within the step, where one-sided differences disagree, are skipped.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws, decades=0.5)
    problems = problems.moved(*(1e-2 * x for x in problems.drawn(rng)))
    _check_products(factor, problems, rng)
    _check_products(factor, inner_problems(factor, rng, draws), rng)


def _check_products(factor: Factor, problems: LocalProblems, rng: np.random.Generator) -> None:
    """Compare a random product of every solver with central differences."""
    direction = problems.drawn(rng)
    for name, solver in problems.solvers().items():
        product = _multiply(problems, solver, direction)
        slopes = [_slope(problems, name, direction, step) for step in (STEP, -STEP, STEP / 2)]
        smooth = 0
        for f in problems.everything:
            right, left, half = (_of_factor(problems, f, slope) for slope in slopes)
            largest = 1.0 + np.abs(right).max(initial=0.0)
            kink = max(np.abs(right - x).max(initial=0.0) for x in (left, half))
            if kink > ERROR * largest:
                continue
            smooth += 1
            got = _of_factor(problems, f, product)
            if not np.abs(got - right).max(initial=0.0) <= 2 * ERROR * largest:
                raise _wrong_product(name, problems, f, direction, got, (right + left) / 2)
        if not smooth:
            raise broken(
                "solutions are piecewise affine in the scores, because they are projections onto "
                "a polytope",
                f"{name}: one-sided differences disagree at all of {len(problems.everything)} "
                "random problems",
                "agreement at nearly all problems",
                repr(factor),
            )


def check_jvp_is_symmetric(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Local Jacobians of (z, v) in (a, eta_v) are symmetric.

    They are second derivatives of the maximum of ``<a, z> + <eta_v, v> - 1/2 ||z||^2``. One product
    therefore serves forward and reverse mode.
    """
    for name, problems, solver, rng in _solved(factor, seed, draws):
        first, second = problems.drawn(rng), problems.drawn(rng)
        images = [_multiply(problems, solver, d) for d in (first, second)]
        for f in problems.everything:
            x, y = (_of_factor(problems, f, d) for d in (first, second))
            j_x, j_y = (_of_factor(problems, f, image) for image in images)
            allowed = 1e-8 * (1.0 + np.abs(j_x).sum() + np.abs(j_y).sum())
            if not abs(x @ j_y - y @ j_x) <= allowed:
                raise broken(
                    "the Jacobian of (z, v) in (a, eta_v) is symmetric, because it is a second "
                    "derivative; the backward pass uses it as its transpose",
                    f"{name}: <x, J y> = {x @ j_y:.10g}, <y, J x> = {y @ j_x:.10g}",
                    f"equal numbers, for x = {x.tolist()}, y = {y.tolist()}",
                    problems.where(f),
                )


def check_jvp_is_projection(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The Jacobian of z in a projects onto the directions of the face: ``J (J d) = J d``."""
    for name, problems, solver, rng in _solved(factor, seed, draws):
        d, zeros = rng.standard_normal(len(problems.a)), np.zeros_like(problems.eta_v)
        once = _multiply(problems, solver, Solved(d, zeros)).z
        twice = _multiply(problems, solver, Solved(once.copy(), zeros)).z
        for f in problems.everything:
            slots = problems.slots(f)
            if not np.abs(once[slots] - twice[slots]).max(initial=0.0) <= 1e-7:
                raise broken(
                    "the Jacobian of z in a is a projection, J (J d) = J d, because z is the "
                    "projection of a onto a face that does not move",
                    f"{name}: J d = {once[slots].tolist()}, J J d = {twice[slots].tolist()}",
                    "equal arrays",
                    problems.where(f),
                )


def _solved(
    factor: Factor, seed: int, draws: int
) -> Iterator[tuple[str, LocalProblems, LocalSolver, np.random.Generator]]:
    """Yield every solver with its solved problems."""
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws, decades=0.5)
    for name, solver in problems.solvers().items():
        _solve_with_face(problems, solver)
        yield name, problems, solver, rng


def _solve_with_face(problems: LocalProblems, solver: LocalSolver) -> Solved:
    solved = problems.solve(solver)
    solver.complete_faces(problems.everything, problems.a, problems.eta_v, solved.z)
    return solved


def _multiply(problems: LocalProblems, solver: LocalSolver, d: Solved) -> Solved:
    """Solve the problems and return the product with the Jacobians at the solutions."""
    _solve_with_face(problems, solver)
    return problems.multiply(solver, d)


def _slope(problems: LocalProblems, name: str, d: Solved, step: float) -> Solved:
    """Return the one-sided difference of a solver's solutions over a step."""
    ends = []
    for t in (0.0, step):
        moved = problems.moved(t * d.z, t * d.v)
        ends.append(moved.solve(moved.solvers()[name]))
    return Solved((ends[1].z - ends[0].z) / step, (ends[1].v - ends[0].v) / step)


def _of_factor(problems: LocalProblems, f: int, pair: Solved) -> FloatArray:
    return np.concatenate([pair.z[problems.slots(f)], pair.v[problems.extra(f)]])


def _wrong_product(
    name: str,
    problems: LocalProblems,
    f: int,
    direction: Solved,
    got: FloatArray,
    expected: FloatArray,
) -> ConformanceError:
    cls, advice = problems.bucket.type, ""
    if override_level(cls) == 3 and not any(derivatives_of(cls)) and "closed form" in name:
        advice = "; the derivative follows from face codes: use TIED, or define jvp"
    return broken(
        "a product with a Jacobian is the derivative of (z, v) along a change of (a, eta_v), "
        "because networks are trained with it",
        f"{name}: {got.tolist()}",
        f"{expected.tolist()} by central differences, along "
        f"{_of_factor(problems, f, direction).tolist()}{advice}",
        problems.where(f),
    )
