"""Subsets of limited size."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    Scores,
    Structures,
    Variables,
    bounded_sums,
    kernel,
    largest_arity,
)
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    checked_flag,
    sum_constrained_jvp,
)
from lpsmap_dynamic import (
    HypergraphBuilder,
    HypergraphFactor,
    Row,
    min_subset_paths,
    project_budget_rows,
    subset_hypergraph,
)
from lpsmap_factors_struct.quickselect import best_indicator, best_subset


@kernel
def _best_subsets(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best subset of every factor in `rows`."""
    offsets, parameters = factors.offsets, factors.parameters
    start, entry, value, size = structures
    largest = largest_arity(rows, offsets)
    spare = np.empty(largest)
    for r in rows:
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        k, exact = int(parameters[r, 0]), parameters[r, 1] != 0
        size[r] = best_subset(eta_u, k, exact, spare, start[r], entry, value)


class TopK(HypergraphFactor):
    """Subsets of exactly, or at most, k of n elements, as structures.

    The marginals are those of a budget constraint: the projection of the scores onto ``{0 <= z <=
    1, sum z = k}`` or ``<= k``, in closed form (Niculae & Martins 2020, appendix D.1.3). The factor
    adds a sparse distribution over subsets with these marginals. A function of whole subsets can be
    averaged exactly over this distribution (Correia et al. 2020, section 4.2). The oracle selects
    the k largest scores in O(n).

    Parameters
    ----------
    variables
        Elements, of shape ``(..., n)``: a subset for every entry of the leading axes. Or a sequence
        of views, which are stacked on a new last axis.
    k
        Integers that broadcast to the leading axes' shape: the size of the subsets. Without
        `exact`, a size larger than the number of elements is no limit.
    exact
        Whether subsets must have `k` elements, rather than at most `k`.
    lengths
        Integers of the leading axes' shape: subset b is a subset of ``[b, :lengths[b]]``.
    mask
        Booleans that broadcast to ``variables.shape``: the elements to choose from.

    Raises
    ------
    TypeError
        If `variables` are not Variables, `k` does not hold numbers, or `exact` is not a bool.
    ValueError
        If `variables` has no axes, a length is negative or exceeds `n`, or `k` is not an integer,
        negative, or with `exact` larger than the number of elements.

    Notes
    -----
    A subset's label is the tuple of its elements' variables, zeros and ones.
    """

    map_kernel = staticmethod(_best_subsets)
    projection_kernel = staticmethod(project_budget_rows)
    jvp_kernel = staticmethod(sum_constrained_jvp)

    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        k: npt.ArrayLike,
        exact: bool = True,
        *,
        lengths: npt.ArrayLike | None = None,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths, mask=mask)
        exact = checked_flag("TopK: exact", exact)
        counts, n = self.counts("k", k), np.diff(self.offsets)
        wrong = np.flatnonzero(counts > n)
        if exact and wrong.size:
            f = wrong[0]
            raise ValueError(
                f"TopK: k is {counts[f]} for factor {f} of {n[f]} elements; expected 0 to "
                f"{n[f]}. Set it per factor, or pass exact=False."
            )
        self.k = np.minimum(counts, n)
        self.exact = self.per_factor("exact", exact)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 5)), [2, 1, 0], lengths=[5, 3, 1]),
            cls(graph.variable((2, 4)), 2, exact=False, mask=np.array([True, True, False, True])),
        ]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the variables of the best subset."""
        return best_indicator(eta_u, int(self.k), bool(self.exact))

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the variables as an array."""
        return np.array(y, dtype=np.float64), np.empty(0)

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the sizes of the largest subsets."""
        return factors.parameters[:, 0].astype(np.int64)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of the subsets of limited size."""
        most = int(row["k"])
        least = most if row["exact"] else 0
        return subset_hypergraph(build, row.event_shape[0], least, most)

    def min_paths(self) -> IntArray:
        """Return a lower bound of the number of paths of every factor's hypergraph."""
        most = self.k.astype(np.int64)
        least = np.where(self.exact, most, 0)
        return min_subset_paths(np.diff(self.offsets), least, most)

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that subsets have k elements, or at most k."""
        return bounded_sums(self, np.where(self.exact, self.k, -np.inf), self.k)
