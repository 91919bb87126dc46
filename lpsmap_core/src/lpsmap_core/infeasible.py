"""Proof that the constraints of a component contradict each other.

Let r be numbers on the links that sum to zero over the links of every variable. On consistent
copies of any marginals <r, C mu> = 0. If the largest <r, z> over each factor's own polytope sums to
less than zero, no point of the polytopes is consistent. The gap between the variables' means and
their copies is such an r, and in a contradictory component it converges to one that proves it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.state import MOST_STRUCTURES, PartState, sums

__all__ = ["InfeasibilityTest"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FIRST_TEST = 60
"""The first iteration at which to test; then at every doubling."""

SUSPECT = 1e-3
"""Primal residual below which a component counts as on its way."""

SHARPNESS = 1e6
"""Scale of the scores at which a projection stands in for the largest <r, z>."""


class InfeasibilityTest:
    """Tests the running components of a part from time to time."""

    def __init__(self, state: PartState) -> None:
        self.state = state
        self.next_iteration = FIRST_TEST

    def find(self, running: BoolArray) -> BoolArray:
        """Mark running components that are proven infeasible; return which."""
        self.next_iteration *= 2
        progress = self.state.problem.progress
        suspect = running & (progress.primal > SUSPECT)
        if suspect.any():
            suspect &= self._support(suspect) < 0.0
            progress.infeasible[suspect] = True
        return suspect

    def _support(self, suspect: BoolArray) -> FloatArray:
        """Return for each component an upper bound of its largest <r, z>, with ||r||_inf = 1.

        With z_t the projection of t r, <r, z> <= <r, z_t> + ||z||^2 / (2 t) for every z.
        """
        state, part = self.state, self.state.part
        owner = part.component[part.link_variable]
        copies = part.sign * state.problem.iterate.z + part.shift
        degree = np.diff(part.variable_offsets)
        means = sums(part.link_variable, copies, part.n_variables) / degree
        gap = means[part.link_variable] - copies
        size = np.zeros(part.n_components)
        np.maximum.at(size, owner, np.abs(gap))
        gap /= np.where(size > 0.0, size, 1.0)[owner]
        scores, z = SHARPNESS * part.sign * gap, np.zeros(part.n_links)
        unsure = np.zeros(part.n_components, dtype=bool)
        for b, (bucket, solver) in enumerate(zip(part.buckets, state.solvers, strict=True)):
            chosen, links = np.flatnonzero(suspect[bucket.component]), state.links_of(b)
            if chosen.size:
                no_v, v = np.zeros(bucket.n_additionals), np.empty(bucket.n_additionals)
                solver.solve(chosen, scores[links], no_v, z[links], v, MOST_STRUCTURES, np.inf)
                unsure[bucket.component[np.intersect1d(chosen, solver.unsolved())]] = True
        best = gap * (part.sign * z + part.shift)
        slack = 0.5 / SHARPNESS / part.delta**2
        bound = sums(owner, best + slack, part.n_components)
        return np.where(unsure, np.inf, bound)
