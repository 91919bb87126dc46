"""The dense reference of derivatives: eigenvectors in place of conjugate gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import Solution
from lpsmap_core.engine.compiled import SolvedPart
from lpsmap_core.engine.state import PartState

FloatArray = npt.NDArray[np.float64]


class LocalJacobians(NamedTuple):
    """The local Jacobians of a solution's factors, as dense blocks, and the copies."""

    copies: FloatArray
    """(links, variables) C, the scaled and signed copies of the part's variables."""
    variables: FloatArray
    """(links, links) J, of the copies in their scores."""
    mixed: FloatArray
    """(links, additionals) of the copies in the additionals' scores."""

    @property
    def s(self) -> FloatArray:
        """S = C^T J C (Niculae & Martins 2020, Proposition 3)."""
        return self.copies.T @ self.variables @ self.copies


def _state_of(solution: Solution) -> PartState:
    assert isinstance(solution.solved, SolvedPart)
    return solution.solved.state


def local_jacobians(solution: Solution) -> LocalJacobians:
    """Return the Jacobians that a solution's local solvers hold, column by column."""
    state = _state_of(solution)
    state.complete_faces()
    part, n_additionals = state.part, state.problem.extras.eta.size
    copies = np.zeros((part.n_links, part.n_variables))
    copies[np.arange(part.n_links), part.link_variable] = part.sign / part.delta
    jacobian = np.zeros((part.n_links, part.n_links))
    mixed = np.zeros((part.n_links, n_additionals))
    for b, solver in enumerate(state.solvers):
        links, extras, rows = part.links_of(b), part.additionals_of(b), part.buckets[b].n_factors
        n, n_v = links.stop - links.start, extras.stop - extras.start
        out, out_v = np.zeros((n + n_v, n)), np.zeros((n + n_v, n_v))
        for i, one in enumerate(np.eye(n + n_v)):
            solver.jvp(np.arange(rows), one[:n].copy(), one[n:].copy(), out[i], out_v[i])
        jacobian[links, links], mixed[links, extras] = out[:n], out[n:].T
        np.testing.assert_allclose(out[n:].T, out_v[:n], rtol=0, atol=1e-10)
    np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-10)
    np.testing.assert_allclose(jacobian @ jacobian, jacobian, atol=1e-8)
    return LocalJacobians(copies, jacobian, mixed)


def eigenprojection(s: FloatArray) -> tuple[FloatArray, float]:
    """Return the projection onto the eigenvalue-1 space, and the second eigenvalue."""
    values, vectors = np.linalg.eigh((s + s.T) / 2)
    ones = values > 1 - 1e-8
    assert values.max(initial=0.0) < 1 + 1e-9
    return vectors[:, ones] @ vectors[:, ones].T, float(values[~ones].max(initial=0.0))


class DenseJacobian:
    """The Jacobian of a solution, made without the library's backward pass.

    With P the projection onto the eigenvalue-1 space of S, B the mixed local Jacobians and C the
    copies, ``d mu = P (d eta + C^T B d eta_N)`` and ``d nu = B^T C d mu``. A variable of no factor
    follows its score strictly between 0 and 1.

    Parameters
    ----------
    solution
        A solution whose local solvers still hold its faces.
    """

    def __init__(self, solution: Solution) -> None:
        self._solution = solution
        self.local = local_jacobians(solution)
        self.projection, self.second_eigenvalue = eigenprojection(self.local.s)

    def __call__(
        self, d: FloatArray, d_additionals: Sequence[FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Multiply with a vector, as `Solution.vjp` and `Solution.jvp` do."""
        solution, part = self._solution, self._solution.layout.part
        d_v = part.by_bucket(d_additionals, solution.factors)
        copies, mixed, variables = self.local.copies, self.local.mixed, part.variables
        moved = self.projection @ (d[variables] + copies.T @ (mixed @ d_v))
        inside = (solution.scores > 0.0) & (solution.scores < 1.0)
        out = np.where(inside & (solution.layout.component < 0), d, 0.0)
        out[variables] = moved
        return out, part.by_declaration(mixed.T @ (copies @ moved), solution.factors)
