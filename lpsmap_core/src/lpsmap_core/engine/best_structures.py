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
from lpsmap_core.kernels.records import Structures
from lpsmap_core.layout.layout import Bucket, Part
from lpsmap_core.layout.ragged import offsets_of, sums
from lpsmap_core.local.active.oracle_results import entries_of
from lpsmap_core.local.oracles import (
    dense,
    sparse_structures,
    with_finite_scores,
    write_additionals,
)
from lpsmap_core.local.vertices import Vertices
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import out_of_time


def solve_by_oracles(part: Part, eta: FloatArray, eta_v: FloatArray) -> BestStructures | None:
    """Return the best structures of a part whose components are single factors.

    None if a component has several factors, or one factor has a variable twice; if there are
    negative scores so large that sums with them lose the others; if a factor has no structure
    without forbidden entries, or an invalid one; or if the time ran out.
    """
    if not part.all_direct or hugely_negative(part, eta, eta_v) is not None:
        return None
    best = []
    for b, bucket in enumerate(part.buckets):
        slots, own = _slot_scores(bucket, eta), eta_v[part.additionals_of(b)]
        structures = _best_allowed(bucket, slots, own)
        if structures is None:
            return None
        best.append(structures)
    return None if out_of_time() else BestStructures(part, eta, eta_v, best)


def _slot_scores(bucket: Bucket, eta: FloatArray) -> FloatArray:
    """Return the scores of a bucket's slots; `eta` itself if they are all variables in order."""
    is_negated = bucket.negated.any()
    if not is_negated and len(bucket.variable) == len(eta) and _count_up(bucket.variable):
        return eta
    slots = eta[bucket.variable]
    if is_negated:
        np.negative(slots, out=slots, where=bucket.negated)
    return slots


@leaf
def _count_up(numbers: IntArray) -> bool:
    """Return whether numbers are 0, 1, 2 and so on."""
    ordered = True
    for i in range(len(numbers)):
        ordered &= numbers[i] == i
    return ordered


def _best_allowed(bucket: Bucket, slots: FloatArray, eta_v: FloatArray) -> Structures | None:
    """Return the best structures of a bucket; None if one is invalid or not allowed."""
    if max(largest_magnitude(slots), largest_magnitude(eta_v)) < np.inf:
        structures = sparse_structures(bucket, slots, eta_v)
    else:
        forbidden = np.isneginf(eta_v)
        structures = sparse_structures(bucket, *with_finite_scores(bucket, slots, eta_v, forbidden))
        # exactly: with costs of 1e9, a part of 1e-10 of a forbidden entry pays for others
        w, n = dense(bucket, structures)
        held = (np.isneginf(slots) & (w > 0.0)).any() or (forbidden & (n > 0.0)).any()
        if held or ((slots == np.inf) & (w < 1.0)).any():
            return None
    return structures if _clip_slots(structures, bucket.offsets) else None


class BestStructures(SolvedGraph):
    """The best structure of every factor of a part whose components are single factors.

    Parameters
    ----------
    part, eta, eta_v
        As for `Engine.solve`.
    best
        For each bucket, the structures.
    """

    quadratic = 0.0

    def __init__(
        self, part: Part, eta: FloatArray, eta_v: FloatArray, best: list[Structures]
    ) -> None:
        self.part, self._eta, self._eta_v, self._best = part, eta, eta_v, best
        self._v = np.zeros(part.n_additionals)
        for b, (bucket, structures) in enumerate(zip(part.buckets, best, strict=True)):
            offsets = bucket.offsets, bucket.additional_offsets
            write_additionals(structures, *offsets, self._v[part.additionals_of(b)])
        self.iterations = np.ones(part.n_components, dtype=np.int64)
        self.primal_residual, self.dual_residual = np.zeros((2, part.n_components))

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component: all are solved."""
        return np.full(self.part.n_components, Status.SOLVED, dtype=object)

    def marginals(self) -> FloatArray:
        """Return the values of the variables."""
        values = np.empty(self.part.n_variables)
        for bucket, structures in zip(self.part.buckets, self._best, strict=True):
            _write_values(structures, bucket.offsets, bucket.variable, bucket.negated, values)
        return values

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
        structures = self._best[b]
        _, position = entries_of(structures, rows)
        entry, value = structures.entry[position].astype(np.int64), structures.value[position]
        return Vertices(rows, np.ones(len(rows)), offsets_of(structures.size[rows]), entry, value)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals are forbidden."""
        return np.isneginf(self._eta), np.isneginf(self._eta_v)

    def gap(self) -> FloatArray:
        """Return zeros: no structure is better."""
        return np.zeros(self.part.n_components)

    def assignment_bound(self) -> FloatArray:
        """Return the scores of the structures."""
        part, n, values = self.part, self.part.n_components, self.marginals()
        gain = np.where(values > 0.0, self._eta, 0.0) * values
        gain_v = np.where(self._v > 0.0, self._eta_v, 0.0) * self._v
        return sums(part.component, gain, n) + sums(part.additional_component, gain_v, n)

    def end(self) -> WarmStart:
        """Return the structures as a start; factors on their own need no duals."""
        n = self.part.n_components
        known = np.ones(n, dtype=bool)
        return WarmStart(self.marginals(), np.zeros(self.part.n_links), np.zeros(n), known)


# -------------------------------------------------------------------- sparse structures


@leaf
def _clip_slots(structures: Structures, offsets: IntArray) -> bool:
    """Clip the values of slots to [0, 1]; return whether that is rounding."""
    n_wrong = 0
    for f in range(len(offsets) - 1):
        arity = offsets[f + 1] - offsets[f]
        for k in range(structures.start[f], structures.start[f] + structures.size[f]):
            if structures.entry[k] < arity:
                value = structures.value[k]
                n_wrong += not -MARGINAL_TOLERANCE <= value <= 1.0 + MARGINAL_TOLERANCE
                structures.value[k] = min(1.0, max(0.0, value))
    return n_wrong == 0


@leaf
def _write_values(
    structures: Structures,
    offsets: IntArray,
    variable: IntArray,
    negated: BoolArray,
    out: FloatArray,
) -> None:
    """Write the values of the variables of a bucket."""
    for f in range(len(offsets) - 1):
        first, end = offsets[f], offsets[f + 1]
        for i in range(first, end):
            out[variable[i]] = 1.0 if negated[i] else 0.0
        for k in range(structures.start[f], structures.start[f] + structures.size[f]):
            i = first + structures.entry[k]
            if i < end:
                out[variable[i]] = 1.0 - structures.value[k] if negated[i] else structures.value[k]
