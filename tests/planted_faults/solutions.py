"""Faults of solutions of local problems and of their derivatives."""

from __future__ import annotations

import numpy as np

from lpsmap_core import LOWER, Factor, FactorGraph, LocalSolver
from lpsmap_factors_logic import Pair
from planted_faults.registry import caught_by
from sound_types import Closed, ClosedKernel


@caught_by("check_certificate")
class IgnoresDegrees(Closed):
    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, *others):
        return super().solve_sparsemap(a, eta_v, np.ones_like(delta), *others)


@caught_by("check_certificate")
class OutsideThePolytope(Closed):
    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, *others):
        solution = super().solve_sparsemap(a, eta_v, delta, *others)
        return solution._replace(z=np.clip(a, 0.0, 1.0 / delta))


@caught_by("check_override_is_generic")
class AtMostOneOf(Closed):
    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, *others):
        solution = super().solve_sparsemap(a, eta_v, delta, *others)
        box = np.clip(a, 0.0, None)
        return solution._replace(
            z=np.where((box * delta).sum(axis=1, keepdims=True) < 1, box, solution.z)
        )


class PoolsInfiniteScores(LocalSolver):
    """Projects pairs (x, y) onto 1 >= x >= y >= 0, without `make_finite`."""

    def solve(self, rows, a, eta_v, z, v, max_iterations):
        scores, delta = a.reshape(-1, 2)[rows], self.delta.reshape(-1, 2)[rows]
        apart, pooled = scores * delta, (scores / delta).sum(axis=1) / (delta**-2.0).sum(axis=1)
        m = np.where(apart[:, :1] >= apart[:, 1:], apart, pooled[:, None])
        z.reshape(-1, 2)[rows] = np.clip(m, 0.0, 1.0) / delta


@caught_by("check_contradictory_scores")
class OneOnlyAfterTheOther(Factor):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 2)))]

    @classmethod
    def local_solver(cls):
        return PoolsInfiniteScores

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax([0.0, eta_u[0], eta_u[0] + eta_u[1]]))

    def vertex(self, y):
        return (np.arange(2) < y).astype(float), []


@caught_by("check_override_is_complete")
class WithoutDerivative(ClosedKernel):
    jvp_kernel = None


@caught_by("check_faces")
class NearlyZero(Closed):
    @classmethod
    def solve_sparsemap(cls, *problem):
        solution = super().solve_sparsemap(*problem)
        return solution._replace(z=np.maximum(solution.z, 1e-14))


@caught_by("check_faces")
class BoundsThatMove(Closed):
    @classmethod
    def jvp(cls, solution, d_u, *others):
        out_u, out_v = super().jvp(solution, d_u, *others)
        return np.where(solution.face == LOWER, 1e-8 * d_u, out_u), out_v


@caught_by("check_rows")
class SolvesAllRows(ClosedKernel):
    @staticmethod
    def projection_kernel(rows, factors, *records):
        ClosedKernel.projection_kernel(np.arange(len(factors.offsets) - 1), factors, *records)


@caught_by("check_rows")
class DifferentiatesAllRows(ClosedKernel):
    @staticmethod
    def jvp_kernel(rows, factors, *records):
        ClosedKernel.jvp_kernel(np.arange(len(factors.offsets) - 1), factors, *records)


@caught_by("check_batching")
class DependsOnTheBatch(Closed):
    @classmethod
    def solve_sparsemap(cls, a, *others):
        return super().solve_sparsemap(a - a.mean(), *others)


@caught_by("check_warm_start")
class KeepsItsFirstFace(ClosedKernel):
    @staticmethod
    def projection_kernel(rows, factors, scores, solution):
        z, _, face, branch = solution
        old = face.copy()
        ClosedKernel.projection_kernel(rows, factors, scores, solution)
        for r in rows:
            s = slice(factors.offsets[r], factors.offsets[r + 1])
            if branch[r]:
                z[s][old[s] == LOWER] = 0.0
            branch[r] = 1


@caught_by("check_devices")
class ReturnsNumpyArrays(Closed):
    @classmethod
    def solve_sparsemap(cls, *problem):
        solution = super().solve_sparsemap(*problem)
        return solution._replace(z=np.asarray(solution.z))


@caught_by("check_devices")
class CallsNumpysCopy(Closed):
    @classmethod
    def jvp(cls, solution, d_u, *others):
        return super().jvp(solution, d_u.copy(), *others)


@caught_by("check_jvp")
class IdentityForJacobian(Closed):
    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        return d_u, d_v


@caught_by("check_jvp")
class NoCodes(Closed):
    """All slots count as free, and the sum of none stays constant."""

    @classmethod
    def solve_sparsemap(cls, *problem):
        solution = super().solve_sparsemap(*problem)
        return solution._replace(branch=0 * solution.branch)


@caught_by("check_jvp")
class JacobianWithoutDegrees(Closed):
    @classmethod
    def jvp(cls, solution, d_u, d_v, delta, *others):
        return super().jvp(solution, d_u, d_v, np.ones_like(delta), *others)


@caught_by("check_jvp")
class JacobianWithoutAdditionals(Pair):
    projection_kernel = jvp_kernel = None

    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        out_u, out_v = super().jvp(solution, d_u, 0.0 * d_v, *others)
        return out_u, 0.0 * out_v


@caught_by("check_jvp_is_symmetric")
class JacobianOfScoresOnly(Pair):
    projection_kernel = jvp_kernel = None

    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        return super().jvp(solution, d_u, 0.0 * d_v, *others)


@caught_by("check_jvp_is_symmetric")
class SkewJacobian(Closed):
    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        return super().jvp(solution, np.roll(d_u, 1, axis=1), d_v, *others)


@caught_by("check_jvp_is_projection")
class TwiceTheJacobian(Closed):
    @classmethod
    def jvp(cls, *arguments):
        out_u, out_v = super().jvp(*arguments)
        return 2.0 * out_u, out_v
