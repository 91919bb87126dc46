"""A second engine: dense NumPy over all structures of small factors, without polish, and slow.

It shares nothing with core's engine but the seam. The weights of all structures are split into two
copies (Boyd et al. 2011, section 5): one is consistent, ``C mu = M p``, which makes a linear system
of the rest of the problem; the other lies in the factors' simplices. A solution's derivative is
that of the linear system on its face, the structures of positive weight: from equal weights on, the
loop leaves out none that ties with them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import Engine, Options, SolvedGraph, Status, hookimpl
from lpsmap_core.api import Part, Vertices, WarmStart
from lpsmap_core.testing.oracle import Oracle
from stress_graphs import structures_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

RELAXATION, PERIOD, RATIO = 1.6, 25, 5.0
"""Over-relaxation; the step size is looked at every so often, and follows unequal residuals."""

POSITIVE = 1e-7
"""Weights above this are not zero."""

ASKED = 30
"""How often an oracle is asked for the additionals that go with the same variables."""


class Table(NamedTuple):
    """The structures of all factors as columns."""

    m: FloatArray
    """(links, structures) copies of the variables."""
    n: FloatArray
    """(additionals, structures)"""
    factor: IntArray
    """The factor of every structure, counted over all buckets; and its bucket and row there."""
    bucket: IntArray
    row: IntArray


def tabulate(part: Part, forbidden: BoolArray, forbidden_v: BoolArray) -> Table:
    """Ask all factors for their structures, and leave out what is forbidden."""
    m, n, place = [], [], []
    for b, bucket in enumerate(part.buckets):
        for f in range(bucket.n_factors):
            declaration = bucket.declarations[bucket.declaration[f]]
            found = structures_of(Oracle(declaration, int(bucket.row[f])), ASKED)
            assert found is not None, "too many structures for a dense engine"
            links = part.spans.first_link[b] + np.arange(bucket.offsets[f], bucket.offsets[f + 1])
            extra = bucket.additional_offsets[f : f + 2] + part.spans.first_additional[b]
            copies = np.zeros((part.n_links, len(found[0])))
            copies[links] = np.where(part.negated[links], 1.0 - found[0], found[0]).T
            additionals = np.zeros((len(forbidden_v), len(found[0])))
            additionals[slice(*extra)] = found[1].T
            m.append(copies)
            n.append(additionals)
            place += [(part.spans.first_factor[b] + f, b, f)] * len(found[0])
    table = Table(np.hstack(m), np.hstack(n), *np.array(place).T)
    off = (table.m > 0.0)[forbidden[part.link_variable]].any(axis=0)
    off |= (table.n != 0.0)[forbidden_v].any(axis=0)
    return Table(*(array[..., ~off] for array in table))


def null_space(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the vectors that a matrix maps to zero."""
    _, sizes, rows = np.linalg.svd(matrix)
    return rows[int((sizes > 1e-9).sum()) :].T


def project(x: FloatArray, owner: IntArray) -> FloatArray:
    """Project the numbers of every owner onto the simplex."""
    _, owner, count = np.unique(owner, return_inverse=True, return_counts=True)
    place = np.arange(len(x)) - (np.cumsum(count) - count)[owner]
    padded = np.full((len(count), count.max()), x.min() - 2.0)  # too little to enter
    padded[owner, place] = x
    ordered = np.sort(padded)[:, ::-1]
    levels = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, count.max() + 1)
    last = (ordered > levels).sum(axis=1) - 1
    return np.maximum(x - levels[np.arange(len(count)), last][owner], 0.0)


class DenseSolution(SolvedGraph):
    """The weights of all structures; iterates until these are a solution."""

    def __init__(self, part: Part, table: Table, eta: FloatArray, eta_v: FloatArray) -> None:
        self.part, self.table = part, table
        self.copies = np.eye(part.n_variables)[part.link_variable]
        self.weights = project(np.zeros(len(table.factor)), table.factor)
        self.duals, self.step_size = np.zeros_like(self.weights), 1.0 + float(np.abs(eta).mean())
        self.basis = null_space(np.hstack([self.copies, -table.m]))
        self.linear = self.basis.T @ np.concatenate([eta, table.n.T @ eta_v])
        self.component = part.spans.component[table.factor]

    def run(self, options: Options) -> None:
        """Iterate until both residuals of all components are small."""
        of_mu, of_p = np.split(self.basis, [self.part.n_variables])
        n, inverse = self.part.n_components, None
        self.primal_residual, self.dual_residual = np.zeros((2, n))
        for i in range(1, options.max_iter + 1):
            if inverse is None:
                inverse = np.linalg.inv(of_mu.T @ of_mu + self.step_size * of_p.T @ of_p)
            wanted = self.linear + self.step_size * of_p.T @ (self.weights - self.duals)
            consistent = of_p @ (inverse @ wanted)
            relaxed = RELAXATION * consistent + (1.0 - RELAXATION) * self.weights
            weights = project(relaxed + self.duals, self.table.factor)
            self.duals += relaxed - weights
            primal, dual = np.zeros((2, n))
            np.maximum.at(primal, self.component, np.abs(consistent - weights))
            np.maximum.at(dual, self.component, self.step_size * np.abs(weights - self.weights))
            self.weights, self.iterations = weights, np.full(n, i)
            self.primal_residual, self.dual_residual = primal, dual
            if max(primal.max(), dual.max()) <= options.tol:
                break
            ratio = primal.max() / max(dual.max(), 1e-300)
            if i % PERIOD == 0 and not 1.0 / RATIO <= ratio <= RATIO:
                factor = 2.0 if ratio > 1.0 else 0.5
                self.step_size *= factor
                self.duals, inverse = self.duals / factor, None
        self.converged = np.maximum(self.primal_residual, self.dual_residual) <= options.tol

    def status(self) -> npt.NDArray[np.object_]:
        """Return whether the residuals are small."""
        return np.where(self.converged, Status.CONVERGED, Status.ITERATION_LIMIT)

    def marginals(self) -> FloatArray:
        """Return the means of the copies."""
        means = self.copies.T @ (self.table.m @ self.weights) / self.copies.sum(axis=0)
        return np.clip(means, 0.0, 1.0)

    def additionals(self) -> FloatArray:
        """Return what the weights make of the additionals."""
        return self.table.n @ self.weights

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the root of the Jacobian and its transpose."""
        part, factor, face = self.part, self.table.factor, self.weights > POSITIVE
        sums = (np.arange(factor.max() + 1)[:, None] == factor[face]).astype(np.float64)
        nothing = np.zeros((len(sums), part.n_variables))
        agree = np.hstack([self.copies, -self.table.m[:, face]])
        of_mu, of_p = np.split(
            null_space(np.vstack([agree, np.hstack([nothing, sums])])), [part.n_variables]
        )
        root = np.vstack([of_mu, self.table.n[:, face] @ of_p]) @ np.linalg.pinv(of_mu, 1e-9)
        given = [d, d_v if len(d_v) else np.zeros(len(self.table.n))]
        owner = part.component_of_numbers
        mask = np.ones(len(owner), dtype=bool) if chosen is None else chosen[owner]
        product = root @ (root.T @ np.where(mask, np.concatenate(given), 0.0))
        return product[: len(d)], product[len(d) :]

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the columns of positive weight, in the factors' own signs."""
        table, part = self.table, self.part
        mine = (table.bucket == b) & np.isin(table.row, rows) & (self.weights > 0.0)
        owner, value, entry, sizes = table.row[mine], [], [], [0]
        for column in np.flatnonzero(mine):
            links = part.links_of(b).start + part.buckets[b].offsets[table.row[column] + np.r_[0:2]]
            first = part.buckets[b].additional_offsets[table.row[column] + np.r_[0:2]]
            m = table.m[slice(*links), column]
            m = np.where(part.negated[slice(*links)], 1.0 - m, m)
            n = table.n[part.additionals_of(b)][slice(*first), column]
            vertex = np.concatenate([m, n])
            entry.append(np.flatnonzero(vertex))
            value.append(vertex[entry[-1]])
            sizes.append(len(entry[-1]))
        joined = np.concatenate([*entry, np.empty(0, int)]), np.concatenate([*value, np.empty(0)])
        return Vertices(owner, self.weights[mine], np.cumsum(sizes), *joined)


class DenseEngine(Engine):
    """Dense linear algebra over all structures; for problems with a quadratic term."""

    name = "dense"

    def refuses(self, part: Part, options: Options) -> str | None:
        """Refuse LP-MAP."""
        if options.quadratic != 1.0:
            return "engine: 'dense' needs the quadratic term; expected 'auto' for LP-MAP."
        return None

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> DenseSolution:
        """Solve from nothing; what is to be skipped has scores of zero."""
        forbidden, forbidden_v = np.isneginf(eta), np.isneginf(eta_v)
        table = tabulate(part, forbidden, forbidden_v)
        eta, eta_v = np.where(forbidden, 0.0, eta), np.where(forbidden_v, 0.0, eta_v)
        solved = DenseSolution(part, table, eta, eta_v)
        solved.run(options)
        return solved


lpsmap_api_version = 3


@hookimpl
def lpsmap_engines() -> list[type[Engine]]:
    """Return the engine."""
    return [DenseEngine]
