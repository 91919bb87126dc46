"""Buckets of copies of a declaration, with random local problems."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.layout import Bucket, build_layout
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.closed_form import ArrayForm, CompiledForm
from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.local.solvers import has_array_code, has_kernels, own_solver
from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.draws import random_degrees, random_scores
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_jit.arrays import FloatArray, IntArray

MAX_ITERATIONS = 1000

MIXED, INNER_NOISE = 6, 1e-3
"""Number of structures in a mixture, and the noise of scores around it."""


def bucket_of(factor: Factor, copies: int) -> Bucket:
    """Return the bucket of `copies` copies of a declaration, one after the other."""
    n_variables = int(factor.variables.index.max(initial=-1)) + 1
    return build_layout(n_variables, [factor] * copies).buckets[0]


class Solved(NamedTuple):
    """Solutions of local problems: scaled marginals of slots, marginals of additionals."""

    z: FloatArray
    v: FloatArray


class LocalProblems(NamedTuple):
    """Local problems of a bucket, flat.

    Attributes
    ----------
    bucket
        The factors.
    a, delta
        Scores and scales of the slots.
    eta_v
        Scores of the additionals.
    """

    bucket: Bucket
    a: FloatArray
    delta: FloatArray
    eta_v: FloatArray

    @property
    def everything(self) -> IntArray:
        """All factors."""
        return np.arange(self.bucket.n_factors)

    def solvers(self) -> dict[str, LocalSolver]:
        """Return all solvers of the bucket by name, the active set first; they have to agree."""
        bucket, delta = self.bucket, self.delta
        solvers: dict[str, LocalSolver] = {"active set": ActiveSets(bucket, delta)}
        if bucket.generic:
            return solvers
        if has_kernels(bucket.type):
            solvers["compiled closed form"] = CompiledForm(bucket, delta)
        own = own_solver(bucket.type)
        if own is not None:
            solvers[own.describe(bucket.type).name] = own(bucket, delta)
        if has_array_code(bucket.type):
            solvers["array closed form"] = ArrayForm(bucket, delta)
        return solvers

    def solve(self, solver: LocalSolver, rows: IntArray | None = None) -> Solved:
        """Return a solver's solutions, and NaN for factors that are not in `rows`.

        Marginals of additionals are requested in the way of the loop.
        """
        z, v = np.full(len(self.a), np.nan), np.full(len(self.eta_v), np.nan)
        rows = self.everything if rows is None else rows
        at_once = v[:0] if solver.lists_structures else v
        solver.solve(rows, self.a.copy(), self.eta_v.copy(), z, at_once, MAX_ITERATIONS)
        if solver.lists_structures and len(v):
            solver.write_additionals(rows, v)
        return Solved(z, v)

    def multiply(self, solver: LocalSolver, d: Solved, rows: IntArray | None = None) -> Solved:
        """Return products with the Jacobians at a solver's last solutions; NaN beyond `rows`."""
        out = Solved(np.full_like(d.z, np.nan), np.full_like(d.v, np.nan))
        solver.jvp(self.everything if rows is None else rows, d.z.copy(), d.v.copy(), *out)
        return out

    def drawn(self, rng: np.random.Generator) -> Solved:
        """Draw a vector for products."""
        return Solved(rng.standard_normal(len(self.a)), rng.standard_normal(len(self.eta_v)))

    def moved(self, d_u: FloatArray, d_v: FloatArray) -> LocalProblems:
        """Return the problems with changed scores."""
        return self._replace(a=self.a + d_u, eta_v=self.eta_v + d_v)

    def select(self, rows: IntArray) -> LocalProblems:
        """Return some of the problems."""
        slots = np.concatenate([np.arange(*self.bucket.offsets[[f, f + 1]]) for f in rows])
        extra = np.concatenate(
            [np.arange(*self.bucket.additional_offsets[[f, f + 1]]) for f in rows]
        )
        return LocalProblems(
            self.bucket.select(rows), self.a[slots], self.delta[slots], self.eta_v[extra]
        )

    def largest(self) -> FloatArray:
        """Return 1 plus the sum of the scores' magnitudes of each factor, the scale of rounding."""
        sums = np.ones(self.bucket.n_factors)
        for f in range(self.bucket.n_factors):
            slots, extra = self.slots(f), self.extra(f)
            sums[f] += np.abs(self.a[slots]).sum() + np.abs(self.eta_v[extra]).sum()
        return sums

    def slots(self, f: int | np.int64) -> slice:
        """Return the range of factor f's slots."""
        return slice(*self.bucket.offsets[f : f + 2].tolist())

    def extra(self, f: int | np.int64) -> slice:
        """Return the range of factor f's additionals."""
        return slice(*self.bucket.additional_offsets[f : f + 2].tolist())

    def where(self, f: int | np.int64) -> str:
        """Describe a factor and its problem for a message."""
        slots, extra = self.slots(f), self.extra(f)
        declaration, row = self.bucket.declarations[0], self.bucket.row[f]
        also = f", eta_v = {self.eta_v[extra].tolist()}" if self.eta_v[extra].size else ""
        return (
            f"factor {row} of {declaration!r}, a = {self.a[slots].tolist()}, "
            f"delta = {self.delta[slots].tolist()}{also}"
        )


def local_problems(
    factor: Factor, rng: np.random.Generator, draws: int, decades: float = 2.0
) -> LocalProblems:
    """Draw local problems of all factors of a declaration, with random degrees."""
    bucket = bucket_of(factor, draws)
    arity, extra = np.diff(bucket.offsets), np.diff(bucket.additional_offsets)
    widest = int((arity + extra).max(initial=0))
    scores = random_scores(rng, bucket.n_factors, widest, decades)
    degrees = random_degrees(rng, bucket.n_factors, widest)
    columns = np.arange(widest)
    used = columns < arity[:, None]
    return LocalProblems(
        bucket, scores[used], degrees[used], scores[columns >= widest - extra[:, None]]
    )


def inner_problems(factor: Factor, rng: np.random.Generator, draws: int) -> LocalProblems:
    """Draw local problems whose solutions lie on large faces: near mixtures of random structures.

    With independent scores of all slots, several groups of free slots are rare.
    """
    problems, oracles = local_problems(factor, rng, draws), oracles_of(factor)
    for f in problems.everything:
        slots, extra, oracle = problems.slots(f), problems.extra(f), oracles[problems.bucket.row[f]]
        vertices = np.array([oracle.of(rng.standard_normal(oracle.size)).m for _ in range(MIXED)])
        problems.a[slots] = rng.dirichlet(np.ones(MIXED)) @ vertices / problems.delta[slots]
        problems.a[slots] += INNER_NOISE * rng.standard_normal(oracle.arity)
        problems.eta_v[extra] = INNER_NOISE * rng.standard_normal(oracle.n_additionals)
    return problems
