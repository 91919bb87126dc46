"""Local problems of the logic factors: how to solve them, and the vertices to judge them by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import judges
from lpsmap_core import Direction, Factor, Factors, LocalScores, LocalSolution, Product
from lpsmap_factors_logic import AtMostOne, Budget, Knapsack, Or, OrOut, Pair, Potts, Xor

FloatArray = npt.NDArray[np.float64]

TYPES = [Xor, Or, AtMostOne, Budget, Knapsack, OrOut, Pair, Potts]


class Problems(NamedTuple):
    """Local problems of `F` factors of a type with `K` slots and `A` additionals."""

    type: type[Factor]
    a: FloatArray
    eta_v: FloatArray
    delta: FloatArray
    parameters: FloatArray
    link_parameter: FloatArray | None

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """All of them."""
        return np.arange(len(self.a))

    def factors(self) -> Factors:
        """Return what kernels are told of the factors."""
        per_slot = np.empty(0) if self.link_parameter is None else self.link_parameter.reshape(-1)
        ends = np.arange(len(self.a) + 1)
        return Factors(
            ends * self.a.shape[1],
            ends * self.eta_v.shape[1],
            self.parameters,
            per_slot,
            np.empty(0, dtype=np.int64),
            np.empty((0, 2), dtype=np.int64),
        )

    def scores(self) -> LocalScores:
        """Return the problems as kernels get them."""
        return LocalScores(*(field.reshape(-1) for field in (self.a, self.delta, self.eta_v)))


def solve_compiled(p: Problems, earlier: LocalSolution | None = None) -> LocalSolution:
    """Solve by the type's kernel, into the arrays of an earlier solution or into rubbish."""
    z, v = np.full(p.a.size, np.nan), np.full(p.eta_v.size, np.nan)
    face, branch = np.full(p.a.size, 77, dtype=np.int8), np.full(len(p.a), 77, dtype=np.int8)
    if earlier is not None:
        face, branch = earlier.face.reshape(-1).copy(), earlier.branch.copy()
    assert p.type.projection_kernel is not None
    p.type.projection_kernel(p.rows, p.factors(), p.scores(), LocalSolution(z, v, face, branch))
    shape = p.a.shape
    return LocalSolution(z.reshape(shape), v.reshape(p.eta_v.shape), face.reshape(shape), branch)


def jvp_compiled(
    p: Problems, solution: LocalSolution, d_u: FloatArray, d_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Multiply local Jacobians by the type's kernel."""
    out_u, out_v = np.full(p.a.size, np.nan), np.full(p.eta_v.size, np.nan)
    vectors = d_u.reshape(-1), d_v.reshape(-1)
    direction = Direction(p.delta.reshape(-1), solution.face.reshape(-1), solution.branch, *vectors)
    assert p.type.jvp_kernel is not None
    p.type.jvp_kernel(p.rows, p.factors(), direction, Product(out_u, out_v))
    return out_u.reshape(p.a.shape), out_v.reshape(p.eta_v.shape)


def jacobians(p: Problems, solution: LocalSolution) -> FloatArray:
    """Return the (F, K + A, K + A) local Jacobians of (z, v) in (a, eta_v), row by column."""
    k, n = p.a.shape[1], p.a.shape[1] + p.eta_v.shape[1]
    columns = []
    for unit in np.eye(n):
        d_u = np.tile(unit[:k], (len(p.a), 1))
        d_v = np.tile(unit[k:], (len(p.a), 1))
        columns.append(np.concatenate(jvp_compiled(p, solution, d_u, d_v), axis=1))
    return np.stack(columns, axis=2)


def random_problems(
    rng: np.random.Generator,
    factor_type: type[Factor],
    arity: int,
    n: int,
    scale: float = 1.0,
    *,
    ties: bool = False,
) -> Problems:
    """Draw problems of degrees 1 to 4 and scores about `scale`; on a grid of halves for `ties`."""
    arity = 2 if factor_type is Pair else arity
    arity = 2 * ((arity + 1) // 2) if factor_type is Potts else arity
    a = rng.normal(size=(n, arity))
    a += rng.choice([-1.0, 0.0, 1.0], size=(n, 1))
    eta_v = rng.normal(size=(n, 1 if factor_type in (Pair, Potts) else 0))
    degree = rng.integers(1, 5, size=(n, arity))
    if ties:
        a, eta_v, degree = np.round(2 * a) / 2, np.round(2 * eta_v) / 2, np.ones_like(degree)
    parameters, costs = np.empty((n, 0)), None
    if factor_type is Budget:
        parameters = np.stack([rng.integers(0, arity + 1, n), rng.integers(0, 2, n)], axis=1) * 1.0
    if factor_type is Knapsack:
        costs = np.round(rng.uniform(-1, 4, size=(n, arity)).clip(0), 0 if ties else 8)
        parameters = (costs.sum(axis=1, keepdims=True) * rng.uniform(0, 1, size=(n, 1))).round(2)
    return Problems(factor_type, scale * a, scale * eta_v, np.sqrt(degree), parameters, costs)


def vertices_of(p: Problems, i: int) -> tuple[FloatArray, FloatArray]:
    """Enumerate the vertices of problem `i`."""
    k = p.a.shape[1]
    if p.type is Budget:
        return judges.budget(k, int(p.parameters[i, 0]), exact=bool(p.parameters[i, 1]))
    if p.type is Knapsack:
        assert p.link_parameter is not None
        return judges.knapsack(p.link_parameter[i], p.parameters[i, 0])
    if p.type is Pair:
        return judges.pair()
    if p.type is Potts:
        return judges.potts(k // 2)
    by_type = {
        Xor: judges.xor,
        Or: judges.at_least_one,
        AtMostOne: judges.at_most_one,
        OrOut: judges.or_out,
    }
    return by_type[p.type](k)


def judged(p: Problems, i: int) -> tuple[FloatArray, FloatArray]:
    """Return the judge's z and v of problem `i`."""
    m, n = vertices_of(p, i)
    z, weights = judges.project_polytope(m, n, p.a[i], p.eta_v[i], p.delta[i])
    return z, n.T @ weights
