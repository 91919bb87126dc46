"""Checks of local solutions: optimal, the same by every solver, each factor for itself."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.records import LOWER, UPPER
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.protocol import LocalSolver
from lpsmap_core.local.solvers import every_solver
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.levels import (
    derivatives_of,
    has_array_code,
    has_kernels,
    overrides,
)
from lpsmap_core.testing.buckets import LocalProblems, Solved, local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import ByteArray, FloatArray

__all__ = [
    "check_batching",
    "check_certificate",
    "check_faces",
    "check_override_is_complete",
    "check_override_is_generic",
    "check_rows",
    "check_warm_start",
]

EXACT = 1e-9
"""Allowed error of a solution, as a multiple of the magnitudes of its factor's scores."""


def check_certificate(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """One MAP call at a local solution proves it optimal, whatever the degrees.

    With z = M p / delta, v = N p the local problem ``min 1/2 ||z - a||^2 - <eta_v, v>`` is convex,
    and its gradient says that (z, v) is optimal exactly if no structure y has ``<(a - z) / delta,
    m_y> + <eta_v, n_y>`` above ``<a - z, z> + <eta_v, v>``.
    """
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    oracles, sizes = oracles_of(factor), problems.largest()
    for name, solver in _solvers(problems).items():
        found = problems.solve(solver)
        _require_solved(name, solver, problems, found)
        for f in problems.everything:
            slots, extra = problems.slots(f), problems.extra(f)
            z, delta, slope = found.z[slots], problems.delta[slots], (problems.a - found.z)[slots]
            _require_in_box(name, problems, f, z * delta)
            eta_v = problems.eta_v[extra]
            best = oracles[problems.bucket.row[f]](slope / delta, eta_v).score(slope / delta, eta_v)
            here = float(slope @ z + eta_v @ found.v[extra])
            if abs(best - here) > EXACT * sizes[f]:
                raise broken(
                    "under the slope ((a - z) / delta, eta_v) of a local solution no structure "
                    "scores above the solution, because it minimises 1/2 ||z - a||^2 - <eta_v, v> "
                    "over mixtures delta * z = M p, v = N p of them, and the best one not below, "
                    "because the solution is such a mixture",
                    f"{name}: the best structure scores {best:.10g}, z = {z.tolist()} itself "
                    f"{here:.10g}",
                    "equal scores",
                    problems.where(f),
                )


def check_override_is_complete(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A derivative of a type's own comes with the closed form, and in all forms that this has.

    Otherwise the engine does without one of them.
    """
    cls = type(factor)
    in_kernels, in_arrays = derivatives_of(cls)
    kernels, arrays = cls.projection_kernel is not None, overrides(cls, "solve_sparsemap")
    lacking = [
        ("jvp_kernel", "projection_kernel", in_kernels and not kernels),
        ("jvp", "solve_sparsemap", in_arrays and not arrays),
        ("projection_kernel", "jvp_kernel", kernels and not has_kernels(cls)),
        ("solve_sparsemap", "jvp", arrays and not has_array_code(cls)),
    ]
    for there, missing, is_so in lacking:
        if not is_so:
            continue
        raise broken(
            "a derivative of the type's own comes with every form of the solution, because it "
            "reads the face that the solution found, and the inherited one reads codes alone",
            f"{there} without {missing}",
            "both, or neither derivative of the type's own",
            repr(factor),
        )


def check_override_is_generic(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Closed forms, and a type's own solver, find what the active set finds on the MAP oracle."""
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    solvers, sizes = _solvers(problems), problems.largest()
    generic = problems.solve(solvers.pop("active set"))
    for name, solver in solvers.items():
        found = problems.solve(solver)
        _require_solved(name, solver, problems, found)
        for f in problems.everything:
            slots, extra = problems.slots(f), problems.extra(f)
            error = np.abs(found.z[slots] - generic.z[slots]).max(initial=0.0)
            gain = float(problems.eta_v[extra] @ (found.v[extra] - generic.v[extra]))
            if error > EXACT * sizes[f] or abs(gain) > EXACT * sizes[f]:
                raise broken(
                    "a closed form, or a local solver, agrees with the generic active set on "
                    "solve_map, because it is only a faster way to the same unique solution",
                    f"{name}: z = {found.z[slots].tolist()}, v = {found.v[extra].tolist()}",
                    f"z = {generic.z[slots].tolist()}, v = {generic.v[extra].tolist()} (or a v of "
                    "equal score)",
                    problems.where(f),
                )


def check_faces(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A slot whose face is a bound is at that bound exactly, and does not move.

    Derivatives read the face, and a person reads the zeros. Other codes are the type's own.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws)
    solvers = _solvers(problems)
    for name, solver in solvers.items():
        if not isinstance(solver, (ArrayForm, CompiledForm)):
            continue  # has no faces of slots
        found, upper, face = problems.solve(solver), 1.0 / problems.delta, solver.face
        d_u, d_v = rng.standard_normal(len(problems.a)), rng.standard_normal(len(problems.eta_v))
        moved = Solved(np.full_like(d_u, np.nan), np.full_like(d_v, np.nan))
        solver.jvp(problems.everything, d_u, d_v, *moved)
        elsewhere = (face == LOWER) & (found.z != 0.0) | (face == UPPER) & (found.z != upper)
        moves = ((face == LOWER) | (face == UPPER)) & (moved.z != 0.0)
        for wrong, numbers in ((elsewhere, found.z), (moves, moved.z)):
            if wrong.any():
                _refuse_faces(problems, name, face, int(np.argmax(wrong)), numbers)


def _refuse_faces(
    problems: LocalProblems, name: str, face: ByteArray, slot: int, numbers: FloatArray
) -> NoReturn:
    f = int(np.searchsorted(problems.bucket.offsets, slot, side="right")) - 1
    slots = problems.slots(f)
    raise broken(
        "a slot of face LOWER is exactly 0 and one of face UPPER exactly 1 / delta, and neither "
        "moves in products with the Jacobian, because derivatives are taken on the face",
        f"{name}: face {face[slots].tolist()}, z or the product = {numbers[slots].tolist()}",
        "exact bounds, and zeros there in the product",
        problems.where(f),
    )


def check_rows(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Solvers write for the rows that they are asked for and no others."""
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    rows = problems.everything[::2]
    asked_u, asked_v = _owned(problems, rows)
    for name, solver in _solvers(problems).items():
        found = problems.solve(solver, rows)
        written = ~np.isnan(found.z), ~np.isnan(found.v)
        if (written[0] != asked_u).any() or (written[1] != asked_v).any():
            raise broken(
                "a kernel writes z and v for exactly the rows it is asked for, because finished "
                "factors keep their solutions",
                f"{name}: wrote {_places(*written)}",
                f"{_places(asked_u, asked_v)}, of factors {rows.tolist()}; NaN counts as not "
                "written",
                repr(factor),
            )
        d_u, d_v = np.ones_like(problems.a), np.ones_like(problems.eta_v)
        out_u, out_v = np.full_like(d_u, np.nan), np.full_like(d_v, np.nan)
        solver.jvp(rows, d_u, d_v, out_u, out_v)
        if (np.isnan(out_u) == asked_u).any() or (np.isnan(out_v) == asked_v).any():
            raise broken(
                "a Jacobian's product is written for exactly the rows asked for, because others "
                "belong to other threads",
                f"{name}: wrote {_places(~np.isnan(out_u), ~np.isnan(out_v))}",
                f"{_places(asked_u, asked_v)}, of factors {rows.tolist()}; NaN counts as not "
                "written",
                repr(factor),
            )


def check_batching(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A factor in a batch, ragged or not, has the solution that it has alone."""
    problems = local_problems(factor, np.random.default_rng(seed), draws)
    sizes = problems.largest()
    whole = {}
    for name, solver in _solvers(problems).items():
        whole[name] = problems.solve(solver)
        _require_solved(name, solver, problems, whole[name])
    for f in problems.everything[: 4 * factor.n_factors]:
        alone = problems.select(np.array([f]))
        for name, solver in _solvers(alone).items():
            found, batch = alone.solve(solver), whole[name]
            z, v = batch.z[problems.slots(f)], batch.v[problems.extra(f)]
            eta_v = alone.eta_v
            error = np.abs(found.z - z).max(initial=0.0)
            if not (error <= EXACT * sizes[f] and abs(eta_v @ (found.v - v)) <= EXACT * sizes[f]):
                raise broken(
                    "a factor's solution depends on its own scores and parameters only, because "
                    "which others share its batch is chance",
                    f"{name}: in the batch z = {z.tolist()}, v = {v.tolist()}",
                    f"as alone, z = {found.z.tolist()}, v = {found.v.tolist()}",
                    problems.where(f),
                )


def check_warm_start(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A solver that solved other problems before finds what a new one finds.

    The engine solves the same factors again and again for scores that change a little; a closed
    form may start from the face of the last time, which lies in ``face`` and ``branch``.
    """
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws)
    near = problems.moved(
        *(0.1 * rng.standard_normal(len(x)) for x in (problems.a, problems.eta_v))
    )
    far = problems.moved(-2.0 * problems.a, -2.0 * problems.eta_v)
    sizes = problems.largest()
    new = {name: problems.solve(solver) for name, solver in _solvers(problems).items()}
    for name, solver in _solvers(problems).items():
        for before in (near, far):
            before.solve(solver)
            found = problems.solve(solver)
            for f in problems.everything:
                slots = problems.slots(f)
                error = np.abs(found.z[slots] - new[name].z[slots]).max(initial=0.0)
                if not error <= EXACT * sizes[f]:
                    raise broken(
                        "a solution depends on its problem and not on what its solver solved "
                        "before, because it is unique",
                        f"{name}: z = {found.z[slots].tolist()} after other problems",
                        f"z = {new[name].z[slots].tolist()}",
                        problems.where(f),
                    )


def _solvers(problems: LocalProblems) -> dict[str, LocalSolver]:
    return every_solver(problems.bucket, problems.delta)


def _owned(problems: LocalProblems, rows: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return which slots and which additionals belong to some factors."""
    u = np.zeros(len(problems.a), dtype=bool)
    v = np.zeros(len(problems.eta_v), dtype=bool)
    for f in rows:
        u[problems.slots(f)] = v[problems.extra(f)] = True
    return u, v


def _places(slots: FloatArray, additionals: FloatArray) -> str:
    """Say which slots and additionals some booleans mark."""
    found = f"slots {np.flatnonzero(slots).tolist()}"
    if not additionals.size:
        return found
    return f"{found} and additionals {np.flatnonzero(additionals).tolist()}"


def _require_solved(name: str, solver: LocalSolver, problems: LocalProblems, found: Solved) -> None:
    unsolved = solver.unsolved()
    if unsolved.size:
        raise broken(
            "the active set ends on a small factor, because there are few structures to add",
            f"{name}: {unsolved.size} factors without a solution after many iterations",
            "solutions; look whether solve_map returns the best structure",
            problems.where(int(unsolved[0])),
        )
    if not (np.isfinite(found.z).all() and np.isfinite(found.v).all()):
        wrong = int(np.argmax(~np.isfinite(np.append(found.z, found.v))))
        raise broken(
            "a local solution is written in full and finite, because others are averaged with it",
            f"{name}: z = {found.z.tolist()}, v = {found.v.tolist()}",
            f"finite numbers everywhere (entry {wrong} is not)",
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
