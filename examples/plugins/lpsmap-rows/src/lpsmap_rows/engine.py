"""A quadratic program over all rows of a graph, by the alternating direction method of multipliers.

If linear constraints describe all factors, LP-SparseMAP is

    min 1/2 ||mu - eta||^2   s.t.   0 <= mu <= 1,   low <= A mu <= high.

One matrix is inverted, and each iteration multiplies with it (Stellato et al. 2020).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core import Engine, Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, Vertices, WarmStart, slots_of

__all__ = ["RowsEngine"]

RELAXATION = 1.6
"""Factor by which the values of rows are extrapolated before clipping."""

TIGHT = 1e-7
"""A row whose multiplier is larger is tight: it holds with equality."""


def rows_of(part: Part) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return A, low and high over the part's variables; a negated slot is 1 minus its variable."""
    blocks: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for bucket in part.buckets:
        for number, declaration in enumerate(bucket.declarations):
            constraints = declaration.linear_constraints()
            assert constraints is not None
            n_slots = int(declaration.offsets[-1])
            variable, sign = np.zeros(n_slots, dtype=np.int64), np.zeros(n_slots)
            for f in np.flatnonzero(bucket.declaration == number):
                target = slots_of(declaration, int(bucket.row[f]))
                source = slice(*bucket.offsets[f : f + 2])
                variable[target] = bucket.variable[source]
                sign[target] = np.where(bucket.negated[source], -1.0, 1.0)
            row, column, n_rows = constraints.row, constraints.column, len(constraints.low)
            matrix = np.zeros((n_rows, part.n_variables))
            entries = constraints.coefficient * sign[column]
            np.add.at(matrix, (row, variable[column]), entries)
            shift = np.bincount(row, np.minimum(entries, 0.0), n_rows)
            shift -= np.bincount(row, np.minimum(constraints.coefficient, 0.0), n_rows)
            blocks.append((matrix, constraints.low + shift, constraints.high + shift))
    a, low, high = zip(*blocks, strict=True)
    return np.concatenate(a), np.concatenate(low), np.concatenate(high)


class RowsSolution(SolvedGraph):
    """The solution of a part. The bounds of variables are the last rows of its matrix."""

    def __init__(self, part: Part, eta: FloatArray) -> None:
        matrix, low, high = rows_of(part)
        n, forbidden = part.n_variables, np.isneginf(eta)
        self.part, self.eta = part, np.where(forbidden, 0.0, eta)
        self.matrix = np.concatenate([matrix, np.eye(n)])
        self.low = np.concatenate([low, np.zeros(n)])
        self.high = np.concatenate([high, np.where(forbidden, 0.0, 1.0)])
        nonzero = self.matrix != 0.0
        self.component = np.where(nonzero.any(axis=1), part.component[nonzero.argmax(axis=1)], 0)

    def run(self, options: Options) -> None:
        """Iterate until the residuals of all components are small."""
        n, a = self.part.n_components, self.matrix
        step = 1.0 + float(np.abs(self.eta).mean())
        inverse = np.linalg.inv(np.eye(a.shape[1]) + step * a.T @ a)
        values, y = np.zeros((2, len(a)))
        for i in range(1, options.max_iter + 1):
            self.iterations = np.full(n, i)
            self.mu = inverse @ (self.eta + a.T @ (step * values - y))
            relaxed = RELAXATION * (a @ self.mu) + (1.0 - RELAXATION) * values
            before, values = values, np.clip(relaxed + y / step, self.low, self.high)
            y += step * (relaxed - values)
            primal, dual = np.zeros((2, n))
            np.maximum.at(primal, self.component, np.abs(a @ self.mu - values))
            change = step * np.abs(a.T @ (values - before))
            np.maximum.at(dual, self.part.component, change)
            if max(primal.max(), dual.max()) <= options.tol:
                break
        self.primal_residual, self.dual_residual = primal, dual
        self.converged = np.maximum(primal, dual) <= options.tol
        self.tight = (np.abs(y) > TIGHT) | (self.low == self.high)

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component: converged if its residuals are small."""
        status = np.full(self.part.n_components, Status.ITERATION_LIMIT, dtype=object)
        status[self.converged] = Status.CONVERGED
        return status

    def marginals(self) -> FloatArray:
        """Return the values of variables, clipped to their bounds."""
        return np.clip(self.mu, 0.0, 1.0)

    def additionals(self) -> FloatArray:
        """Return an empty array: the engine supports no additionals."""
        return np.zeros(0)

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Project a vector onto the directions that do not change the tight rows."""
        selected = d if chosen is None else np.where(chosen[self.part.component], d, 0.0)
        rows = self.matrix[self.tight]
        return selected - np.linalg.pinv(rows) @ (rows @ selected), d_v

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Raise a TypeError: rows do not determine structures."""
        raise TypeError("engine 'rows' has no structures. Solve with engine='compiled' for them.")


class RowsEngine(Engine):
    """Solves graphs in which linear constraints describe all factors."""

    name = "rows"

    def refuses(self, part: Part, options: Options) -> str | None:
        """Refuse LP-MAP, additionals, and types without linear constraints on slots."""
        if options.quadratic != 1.0:
            return "engine: 'rows' needs the quadratic term; expected 'auto' for LP-MAP."
        for bucket in part.buckets:
            constraints = [declaration.linear_constraints() for declaration in bucket.declarations]
            if bucket.n_additionals or any(c is None or c.n_auxiliary for c in constraints):
                name = bucket.type.__name__
                return f"engine: 'rows' needs linear constraints on slots, which {name} lacks."
        return None

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> RowsSolution:
        """Solve without a warm start. Skipped components are solved with scores of zero."""
        solved = RowsSolution(part, np.where(skip[part.component], 0.0, eta))
        solved.run(options)
        return solved
