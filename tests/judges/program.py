"""The program of a graph over weights of vertices, and an interior point method for it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
from scipy import sparse

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


FAR = 100.0
"""A structure whose reduced cost is below minus this has no weight; see `Program.centred`."""


class Program(NamedTuple):
    """``minimise 1/2 <x, q x> - <c, x>  s.t.  E x = e, x[n:] >= 0``; ``x = (mu, p_1, ...)``."""

    n: int
    quadratic: FloatArray
    c: FloatArray
    equalities: FloatArray
    right: FloatArray
    sizes: list[int]
    link_variables: IntArray

    @classmethod
    def from_graph(cls, eta: FloatArray, factors: Sequence[Any]) -> Program:
        """Return the program of enumerated factors."""
        n, sizes = len(eta), [len(f[2]) for f in factors]
        total = n + sum(sizes)
        c, rows, right, links = np.zeros(total), [], [], []
        c[:n] = eta
        first = n
        for (variables, negated, m, nu, eta_v), size in zip(factors, sizes, strict=True):
            block = slice(first, first + size)
            c[block] = np.asarray(nu, dtype=np.float64) @ np.asarray(eta_v, dtype=np.float64)
            row = np.zeros(total)
            row[block] = 1.0
            rows.append(row)
            right.append(1.0)
            columns = np.asarray(m, dtype=np.float64).T
            for v, flip, column in zip(np.asarray(variables), negated, columns, strict=True):
                row = np.zeros(total)
                row[block] = column
                row[v] = 1.0 if flip else -1.0
                rows.append(row)
                right.append(1.0 if flip else 0.0)
                links.append(int(v))
            first += size
        quadratic = np.zeros(total)
        quadratic[:n] = 1.0
        matrix = np.array(rows).reshape(-1, total)
        return cls(n, quadratic, c, matrix, np.array(right), sizes, np.array(links, dtype=np.int64))

    def solve_centred(self, tolerance: float) -> FloatArray:
        """Return a solution whose optimality was verified with centred scores; see `centred`."""
        for regularization in (1e-8, 1e-12, 1e-10, 1e-14):
            program = self.centred(regularization)
            x = program.solve(tolerance)
            if not (x[self.n :][program.c[self.n :] <= -FAR] > tolerance).any():
                return x
        raise ArithmeticError("solve_graph: a weight that was assumed zero is positive")

    def centred(self, regularization: float) -> Program:
        """Return a program with the same solution, whose scores are near zero.

        By ``E x = e``, ``<E^T y, x>`` is a constant for all multipliers y, so the scores ``c - E^T
        y`` have the same solution. With the multipliers of an interior point, they are marginals
        and reduced costs. The weights of very negative reduced costs vanish, and the optimality
        conditions only require that these costs are negative: they are clipped, finally at -`FAR`.

        Raises
        ------
        ArithmeticError
            If some scores stay large: those of variables outside all factors, or with degenerate
            constraints.
        """
        c = np.array([Fraction(x) for x in self.c.tolist()], dtype=object)
        entries = list(zip(*np.nonzero(self.equalities), strict=True))
        largest, cut = float(np.abs(self.c).max(initial=0.0)), np.inf
        if largest <= FAR:
            return self
        for _ in range(8):
            for weights in np.split(c[self.n :], np.cumsum(self.sizes)[:-1]):
                weights -= weights.max()  # a multiplier of their sum
            near = c.astype(np.float64)
            near[self.n :] = np.maximum(near[self.n :], -cut)
            program = self._replace(c=near)
            if np.abs(near).max(initial=0.0) <= FAR:
                return program
            _, y, _ = program.interior_point(regularization, True)
            exact = [Fraction(x) for x in y.tolist()]  # degenerate constraints make y huge
            for i, j in entries:
                c[j] -= Fraction(float(self.equalities[i, j])) * exact[i]
            cut = max(FAR, 1e-2 * min(cut, largest))
        raise ArithmeticError(f"centred: scores of {np.abs(near).max():.1e} remain")

    def solve(self, tolerance: float) -> FloatArray:
        """Return a solution whose optimality was verified."""
        # On a few degenerate problems the interior point method stalls before it determines which
        # weights vanish, but rarely with two settings.
        for regularization in (1e-8, 1e-12, 1e-10, 1e-14):
            for scaled in (True, False):
                start = self.interior_point(regularization, scaled)
                x, violation = self.polish(*start, tolerance)
                if violation <= tolerance:
                    return x
        raise ArithmeticError(f"solve_graph: optimality conditions violated by {violation:.1e}")

    def interior_point(
        self, regularization: float, scaled: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a solution inside the optimal face, its multipliers, and the weights' slacks."""
        n_p, n_rows = len(self.c) - self.n, len(self.right)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
        settings.static_regularization_constant = regularization
        settings.equilibrate_enable = scaled
        signs = sparse.hstack([sparse.csc_matrix((n_p, self.n)), -sparse.identity(n_p)])
        result = clarabel.DefaultSolver(
            sparse.diags(self.quadratic).tocsc(),
            -self.c,
            sparse.vstack([sparse.csc_matrix(self.equalities), signs]).tocsc(),
            np.concatenate([self.right, np.zeros(n_p)]),
            [clarabel.ZeroConeT(n_rows), clarabel.NonnegativeConeT(n_p)],
            settings,
        ).solve()
        if "Infeasible" in str(result.status):
            raise ArithmeticError(f"solve_graph: factors contradict each other: {result.status}")
        y, slack = np.split(np.array(result.z), [n_rows])
        return np.array(result.x), y, slack

    def polish(
        self, x: FloatArray, y: FloatArray, slack: FloatArray, tolerance: float
    ) -> tuple[FloatArray, float]:
        """Solve for the weights that do not vanish, and correct their choice until it is optimal.

        Return the last point, and its largest violation of an optimality condition.
        """
        scale = max(1.0, float(np.abs(self.c).max(initial=0.0)))
        basic = x[self.n :] > slack / scale
        for _ in range(20):
            candidate, reduced = self._on_face(x, y, basic)
            p = candidate[self.n :]
            residual = np.abs(self.equalities @ candidate - self.right).max(initial=0.0)
            leaving = basic & (p < -tolerance)
            joining = ~basic & (reduced > tolerance * scale)
            slackness = np.abs(reduced[basic]).max(initial=0.0)
            worst = max(residual, -p.min(initial=0.0), reduced.max(initial=0.0) / scale)
            worst = float(max(worst, slackness / scale))
            if worst <= tolerance or not (leaving.any() or joining.any()):
                break
            basic = (basic & ~leaving) | joining
        return candidate, worst

    def _on_face(
        self, x: FloatArray, y: FloatArray, basic: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the solution closest to (x, y) with zeros outside `basic`, and reduced costs."""
        free = np.concatenate([np.ones(self.n, dtype=bool), basic])
        matrix = self.equalities[:, free]
        k, rows = matrix.shape[1], matrix.shape[0]
        corner = np.zeros((rows, rows))
        kkt = np.block([[np.diag(self.quadratic[free]), matrix.T], [matrix, corner]])
        target = np.concatenate([self.c[free], self.right])
        point = np.concatenate([x[free], y])
        inverse = np.linalg.pinv(kkt, rcond=1e-12, hermitian=True)
        for _ in range(3):  # iterative refinement
            point += inverse @ (target - kkt @ point)
        solution = np.zeros_like(x)
        solution[free] = point[:k]
        reduced = self.c - self.quadratic * solution - self.equalities.T @ point[k:]
        return solution, reduced[self.n :]
