"""LP-MAP of separate factors: the best structure of each, by one call of its type's oracle.

There is nothing to iterate, and the state of the loop takes longer to set up than many oracles run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.linear import hugely_negative
from lpsmap_core.engine.protocol import SolvedGraph, WarmStart
from lpsmap_core.engine.soundness import MARGINAL_TOLERANCE
from lpsmap_core.engine.status import Status
from lpsmap_core.layout.layout import Bucket, Part
from lpsmap_core.layout.ragged import offsets_of, ranges, sums
from lpsmap_core.local.oracles import best_feasible, best_structures
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.interrupts import out_of_time


def solve_by_oracles(part: Part, eta: FloatArray, eta_v: FloatArray) -> BestStructures | None:
    """Return the best structures of a part whose components are single factors.

    None if a component has several factors, or one factor has a variable twice; if there are
    negative scores so large that sums with them lose the others; if a factor has no structure
    without forbidden entries, or an invalid one; or if the time ran out.
    """
    if not part.all_direct or hugely_negative(part, eta, eta_v) is not None:
        return None
    values, v = np.empty(part.n_variables), np.empty(part.n_additionals)
    for b, bucket in enumerate(part.buckets):
        slots, own = eta[bucket.variable], eta_v[part.additionals_of(b)]
        negated = bool(bucket.negated.any())
        if negated:
            np.negative(slots, out=slots, where=bucket.negated)
        best = _best_allowed(bucket, slots, own)
        if best is None:
            return None
        w, v[part.additionals_of(b)] = best
        values[bucket.variable] = np.where(bucket.negated, 1.0 - w, w) if negated else w
    return None if out_of_time() else BestStructures(part, eta, eta_v, values, v)


def _best_allowed(
    bucket: Bucket, slots: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the best structures of a bucket, dense; None if one is invalid or not allowed."""
    if max(largest_magnitude(slots), largest_magnitude(eta_v)) < np.inf:
        w, n = best_structures(bucket, slots, eta_v)
    else:
        forbidden = np.isneginf(eta_v)
        w, n = best_feasible(bucket, slots, eta_v, forbidden)
        # exactly: with costs of 1e9, a part of 1e-10 of a forbidden entry pays for others
        held = (np.isneginf(slots) & (w > 0.0)).any() or (forbidden & (n > 0.0)).any()
        if held or ((slots == np.inf) & (w < 1.0)).any():
            return None
    if w.min(initial=0.0) < -MARGINAL_TOLERANCE or w.max(initial=0.0) > 1.0 + MARGINAL_TOLERANCE:
        return None
    return np.clip(w, 0.0, 1.0, out=w), n


class BestStructures(SolvedGraph):
    """The best structure of every factor of a part whose components are single factors.

    Parameters
    ----------
    part, eta, eta_v
        As for `Engine.solve`.
    values, v
        Values of the variables, and of the additionals of all buckets, in these structures.
    """

    quadratic = 0.0

    def __init__(
        self, part: Part, eta: FloatArray, eta_v: FloatArray, values: FloatArray, v: FloatArray
    ) -> None:
        self.part, self._eta, self._eta_v, self._values, self._v = part, eta, eta_v, values, v
        self.iterations = np.ones(part.n_components, dtype=np.int64)
        self.primal_residual, self.dual_residual = np.zeros((2, part.n_components))

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component: all are solved."""
        return np.full(self.part.n_components, Status.SOLVED, dtype=object)

    def marginals(self) -> FloatArray:
        """Return the values of the variables."""
        return self._values.copy()

    def additionals(self) -> FloatArray:
        """Return the values of the additionals of all buckets."""
        return self._v

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return zeros: the best structures are piecewise constant in the scores."""
        return np.zeros(len(d)), np.zeros(len(self._v))

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the structures of some factors, with probability 1."""
        bucket, part = self.part.buckets[b], self.part
        arity, n_own = np.diff(bucket.offsets)[rows], np.diff(bucket.additional_offsets)[rows]
        links = ranges(bucket.offsets, rows)
        slots = self._values[bucket.variable[links]]
        slots = np.where(bucket.negated[links], 1.0 - slots, slots)
        own = self._v[part.additionals_of(b)][ranges(bucket.additional_offsets, rows)]
        # the slots of each factor, followed by its additionals
        order = np.argsort(
            np.repeat(np.tile(np.arange(len(rows)), 2), np.append(arity, n_own)), kind="stable"
        )
        numbers = np.concatenate([slots, own])[order]
        offsets = offsets_of(arity + n_own)
        (nonzero,) = numbers.nonzero()
        entry = nonzero - np.repeat(offsets[:-1], arity + n_own)[nonzero]
        begin = np.searchsorted(nonzero, offsets)
        return Vertices(rows, np.ones(len(rows)), begin, entry, numbers[nonzero])

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals are forbidden."""
        return np.isneginf(self._eta), np.isneginf(self._eta_v)

    def gap(self) -> FloatArray:
        """Return zeros: no structure is better."""
        return np.zeros(self.part.n_components)

    def assignment_bound(self) -> FloatArray:
        """Return the scores of the structures."""
        part, n = self.part, self.part.n_components
        gain = np.where(self._values > 0.0, self._eta, 0.0) * self._values
        gain_v = np.where(self._v > 0.0, self._eta_v, 0.0) * self._v
        return sums(part.component, gain, n) + sums(part.additional_component, gain_v, n)

    def end(self) -> WarmStart:
        """Return the structures as a start; factors on their own need no duals."""
        n = self.part.n_components
        known = np.ones(n, dtype=bool)
        return WarmStart(self._values.copy(), np.zeros(self.part.n_links), np.zeros(n), known)
