"""Checks of local solutions: optimal, equal for all solvers, and independent of other factors."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.records import LOWER, UPPER
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.local.solvers import (
    derivatives_of,
    has_array_code,
    has_kernels,
    overrides,
)
from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import LocalProblems, Solved, local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import ByteArray, FloatArray

EXACT = 1e-9
"""Allowed error of a solution, as a multiple of the magnitudes of its factor's scores."""


def check_certificate(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """One MAP call at a local solution proves it optimal, for all degrees.

    With z = M p / delta, v = N p the local problem ``min 1/2 ||z - a||^2 - <eta_v, v>`` is convex.
    By its gradient, (z, v) is optimal if and only if no structure y has ``<(a - z) / delta, m_y> +
    <eta_v, n_y>`` above ``<a - z, z> + <eta_v, v>``.
    """
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    oracles, sizes = oracles_of(factor), problems.largest()
    for name, solver in problems.solvers().items():
        solved = problems.solve(solver)
        _require_solved(name, solver, problems, solved)
        for f in problems.everything:
            slots, extra = problems.slots(f), problems.extra(f)
            z, delta, slope = solved.z[slots], problems.delta[slots], (problems.a - solved.z)[slots]
            _require_in_box(name, problems, f, z * delta)
            eta_v = problems.eta_v[extra]
            best = oracles[problems.bucket.row[f]](slope / delta, eta_v).score(slope / delta, eta_v)
            score = float(slope @ z + eta_v @ solved.v[extra])
            if abs(best - score) > EXACT * sizes[f]:
                raise broken(
                    "for the scores ((a - z) / delta, eta_v) a local solution scores as much as "
                    "the best structure: not less, because the solution minimises 1/2 ||z - a||^2 "
                    "- <eta_v, v> over mixtures delta * z = M p, v = N p of structures, and not "
                    "more, because it is such a mixture",
                    f"{name}: score {best:.10g} of the best structure, score {score:.10g} of "
                    f"z = {z.tolist()}",
                    "equal scores",
                    problems.where(f),
                )


def check_override_is_complete(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A type that overrides the derivative overrides it for each form of its closed form.

    Otherwise the engine cannot use one of the forms.
    """
    cls = type(factor)
    in_kernels, in_arrays = derivatives_of(cls)
    kernels, arrays = cls.projection_kernel is not None, overrides(cls, "solve_sparsemap")
    incomplete = [
        ("jvp_kernel", "projection_kernel", in_kernels and not kernels),
        ("jvp", "solve_sparsemap", in_arrays and not arrays),
        ("projection_kernel", "jvp_kernel", kernels and not has_kernels(cls)),
        ("solve_sparsemap", "jvp", arrays and not has_array_code(cls)),
    ]
    for present, missing, is_incomplete in incomplete:
        if not is_incomplete:
            continue
        raise broken(
            "a type that overrides the derivative does so for every form of the solution, because "
            "its derivative reads faces that the inherited one, which uses codes, cannot read",
            f"{present} without {missing}",
            "both, or no overridden derivative",
            repr(factor),
        )


def check_override_is_generic(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Closed forms, and a type's own solver, agree with the active set on the MAP oracle."""
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    solvers, sizes = problems.solvers(), problems.largest()
    generic = problems.solve(solvers.pop("active set"))
    for name, solver in solvers.items():
        solved = problems.solve(solver)
        _require_solved(name, solver, problems, solved)
        for f in problems.everything:
            slots, extra = problems.slots(f), problems.extra(f)
            error = np.abs(solved.z[slots] - generic.z[slots]).max(initial=0.0)
            gain = float(problems.eta_v[extra] @ (solved.v[extra] - generic.v[extra]))
            if error > EXACT * sizes[f] or abs(gain) > EXACT * sizes[f]:
                raise broken(
                    "a closed form, or a local solver, agrees with the generic active set on "
                    "solve_map, because it is only a faster way to the same unique solution",
                    f"{name}: z = {solved.z[slots].tolist()}, v = {solved.v[extra].tolist()}",
                    f"z = {generic.z[slots].tolist()}, v = {generic.v[extra].tolist()} (or a v of "
                    "equal score)",
                    problems.where(f),
                )


def check_faces(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A slot whose face is a bound is at that bound exactly, and does not move.

    Derivatives depend on the face, and users on exact zeros. Other codes are free for the type.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws)
    for name, solver in problems.solvers().items():
        if not isinstance(solver, (ArrayForm, CompiledForm)):
            continue  # other solvers have no faces of slots
        solved, upper, face = problems.solve(solver), 1.0 / problems.delta, solver.face
        product = problems.multiply(solver, problems.drawn(rng))
        not_at_bound = (face == LOWER) & (solved.z != 0.0) | (face == UPPER) & (solved.z != upper)
        moves = ((face == LOWER) | (face == UPPER)) & (product.z != 0.0)
        for wrong, numbers in ((not_at_bound, solved.z), (moves, product.z)):
            if wrong.any():
                _reject_faces(problems, name, face, int(np.argmax(wrong)), numbers)


def _reject_faces(
    problems: LocalProblems, name: str, face: ByteArray, slot: int, numbers: FloatArray
) -> NoReturn:
    f = int(np.searchsorted(problems.bucket.offsets, slot, side="right")) - 1
    slots = problems.slots(f)
    raise broken(
        "a slot of face LOWER is exactly 0, a slot of face UPPER is exactly 1 / delta, and both "
        "are 0 in products with the Jacobian, because derivatives are computed on the face",
        f"{name}: face {face[slots].tolist()}, z or the product = {numbers[slots].tolist()}",
        "exact bounds, and zeros there in the product",
        problems.where(f),
    )


def check_rows(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Solvers and Jacobians write only for the given rows."""
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    rows = problems.everything[::2]
    of_rows = _owned(problems, rows)
    ones = Solved(np.ones_like(problems.a), np.ones_like(problems.eta_v))
    solution = (
        "a kernel writes z and v for exactly the given rows, because finished factors keep their "
        "solutions"
    )
    product = (
        "a product with the Jacobian is written for exactly the given rows, because the other rows "
        "belong to other threads"
    )
    for name, solver in problems.solvers().items():
        for rule, got in (
            (solution, problems.solve(solver, rows)),
            (product, problems.multiply(solver, ones, rows)),
        ):
            written = [~np.isnan(numbers) for numbers in got]
            if any((one != other).any() for one, other in zip(written, of_rows, strict=True)):
                raise broken(
                    rule,
                    f"{name}: wrote {_places(*written)}",
                    f"{_places(*of_rows)}, of factors {rows.tolist()}; NaN counts as not written",
                    repr(factor),
                )


def check_batching(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A factor has the same solution in a batch, ragged or not, as alone."""
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    sizes = problems.largest()
    batches = {}
    for name, solver in problems.solvers().items():
        batches[name] = problems.solve(solver)
        _require_solved(name, solver, problems, batches[name])
    for f in problems.everything[: 4 * factor.n_factors]:
        alone = problems.select(np.array([f]))
        for name, solver in alone.solvers().items():
            solved, batch = alone.solve(solver), batches[name]
            z, v = batch.z[problems.slots(f)], batch.v[problems.extra(f)]
            eta_v = alone.eta_v
            error = np.abs(solved.z - z).max(initial=0.0)
            if not (error <= EXACT * sizes[f] and abs(eta_v @ (solved.v - v)) <= EXACT * sizes[f]):
                raise broken(
                    "the solution of a factor depends only on its scores and parameters, because "
                    "the other factors of its batch are arbitrary",
                    f"{name}: in the batch z = {z.tolist()}, v = {v.tolist()}",
                    f"as alone, z = {solved.z.tolist()}, v = {solved.v.tolist()}",
                    problems.where(f),
                )


def check_warm_start(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A solver that solved other problems finds the solution of a new one.

    The engine solves the same factors many times for slightly changed scores. A closed form may
    start from the face of its last solution, in ``face`` and ``branch``.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws)
    near = problems.moved(*(0.1 * x for x in problems.drawn(rng)))
    far = problems.moved(-2.0 * problems.a, -2.0 * problems.eta_v)
    sizes = problems.largest()
    new = {name: problems.solve(solver) for name, solver in problems.solvers().items()}
    for name, solver in problems.solvers().items():
        for before in (near, far):
            before.solve(solver)
            solved = problems.solve(solver)
            for f in problems.everything:
                slots = problems.slots(f)
                error = np.abs(solved.z[slots] - new[name].z[slots]).max(initial=0.0)
                if not error <= EXACT * sizes[f]:
                    raise broken(
                        "a solution depends on its problem and not on earlier problems of its "
                        "solver, because it is unique",
                        f"{name}: z = {solved.z[slots].tolist()} after other problems",
                        f"z = {new[name].z[slots].tolist()}",
                        problems.where(f),
                    )


def _owned(problems: LocalProblems, rows: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return flags of the slots and of the additionals that belong to some factors."""
    u = np.zeros(len(problems.a), dtype=bool)
    v = np.zeros(len(problems.eta_v), dtype=bool)
    for f in rows:
        u[problems.slots(f)] = v[problems.extra(f)] = True
    return u, v


def _places(slots: FloatArray, additionals: FloatArray) -> str:
    """Describe the slots and additionals with a true flag."""
    text = f"slots {np.flatnonzero(slots).tolist()}"
    if not additionals.size:
        return text
    return f"{text} and additionals {np.flatnonzero(additionals).tolist()}"


def _require_solved(
    name: str, solver: LocalSolver, problems: LocalProblems, solved: Solved
) -> None:
    unsolved = solver.unsolved()
    if unsolved.size:
        raise broken(
            "without a limit, the local problem of a small factor is solved, because it has few "
            "structures",
            f"{name}: {unsolved.size} factors without a solution after many iterations",
            "solutions; check whether solve_map returns the best structure, and whether a solver "
            "that `iterates` sets `status` to OPTIMAL",
            problems.where(int(unsolved[0])),
        )
    if not (np.isfinite(solved.z).all() and np.isfinite(solved.v).all()):
        wrong = int(np.argmax(~np.isfinite(np.append(solved.z, solved.v))))
        raise broken(
            "all entries of a local solution are written and finite, because solutions of factors "
            "are averaged",
            f"{name}: z = {solved.z.tolist()}, v = {solved.v.tolist()}",
            f"finite numbers everywhere (entry {wrong} is not finite)",
            repr(problems.bucket.declarations[0]),
        )


def _require_in_box(name: str, problems: LocalProblems, f: int, m: FloatArray) -> None:
    if (m < -1e-9).any() or (m > 1.0 + 1e-9).any():
        raise broken(
            "marginals delta * z lie in [0, 1], because they are probabilities of variables",
            f"{name}: delta * z = {m.tolist()}",
            "numbers of 0 to 1",
            problems.where(f),
        )
