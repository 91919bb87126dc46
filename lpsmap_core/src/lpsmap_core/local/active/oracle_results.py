"""Calls of MAP oracles, and validation of their results."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import numpy as np

from lpsmap_core.kernels.records import Factors, Scores, Structures
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import offsets_of, sums
from lpsmap_core.local.active.memory import sets_at
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import row_view
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.by_address import by_value
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import interrupted, raise_interrupt, stopped
from lpsmap_jit.native import invoke

SCORE_TOLERANCE = 1e-5
"""Amount relative to the scores by which a result may be worse than the one before, for oracles in
float32."""

NO_ADDITIONALS = np.empty(0)

CALL_LINKS = 100_000
"""Maximum number of links of the factors in one call of an oracle, if no factor has more."""

NOT_WRITTEN = -1
"""The size of a structure before a kernel writes it."""


def vertex_sizes(bucket: Bucket) -> IntArray:
    """Return the largest number of nonzeros of a vertex for each factor of a bucket."""
    sizes = np.asarray(bucket.type.vertex_sizes(bucket.factors))
    shape = (bucket.n_factors,)
    if sizes.shape != shape or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise ValueError(
            f"{bucket.type.__name__}.vertex_sizes returned {sizes.tolist()!r:.60}; expected "
            f"{bucket.n_factors} integers of 0 or more: for each factor, the largest number of "
            "nonzeros of a vertex."
        )
    return sizes.astype(np.int64, copy=False)


def allocate_structures(width: IntArray) -> Structures:
    """Allocate the outputs of oracles: one structure per factor, of up to `width` nonzeros."""
    offsets = offsets_of(width)
    return Structures(
        start=offsets[:-1],
        entry=np.empty(offsets[-1], dtype=np.int32),
        value=np.empty(offsets[-1]),
        size=np.full(len(width), NOT_WRITTEN),
    )


def entries_of(structures: Structures, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return which of `rows` has each nonzero of their structures, and the nonzeros' positions.

    A structure that is not written yet has none.
    """
    size = np.maximum(structures.size[rows], 0)
    offsets = offsets_of(size)
    position = np.repeat(structures.start[rows] - offsets[:-1], size) + np.arange(offsets[-1])
    return np.repeat(np.arange(len(rows)), size), position


# -------------------------------------------------------------------- compiled oracles


def call_map_kernel(bucket: Bucket, rows: IntArray, scores: Scores, structures: Structures) -> None:
    """Call a type's ``map_kernel``, which writes the best structures of some factors."""
    assert bucket.type.map_kernel is not None
    clear_sizes(rows, structures)
    bucket.type.map_kernel(rows, bucket.factors, scores, structures)
    raise_interrupt()
    wrong = -1 if stopped() else first_invalid_structure(rows, bucket.factors, structures)
    if wrong >= 0:
        raise_invalid_structure(bucket, int(rows[wrong]), structures)


@leaf
def clear_sizes(rows: IntArray, structures: Structures) -> None:
    """Clear the sizes of structures, to detect structures that a kernel does not write."""
    for f in rows:
        structures.size[f] = NOT_WRITTEN


@leaf
def first_invalid_structure(rows: IntArray, factors: Factors, structures: Structures) -> int:
    """Return the position in `rows` of the first factor with an invalid structure; -1 without one.

    An invalid structure would lead to reads and writes outside of the factor's arrays.
    """
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    for i in range(len(rows)):
        f = rows[i]
        begin, size = structures.start[f], structures.size[f]
        end = structures.start[f + 1] if f + 1 < len(structures.start) else len(structures.entry)
        if size < 0 or size > end - begin:
            return i
        n = offsets[f + 1] - offsets[f] + additional_offsets[f + 1] - additional_offsets[f]
        n_wrong = 0
        for e in range(begin, begin + size):
            entry = structures.entry[e]
            n_wrong += entry < 0 or entry >= n or not abs(structures.value[e]) < np.inf
        if n_wrong > 0:
            return i
    return -1


def raise_invalid_structure(bucket: Bucket, f: int, structures: Structures) -> NoReturn:
    """Raise an error about the structure that ``map_kernel`` wrote for factor `f`."""
    factors, name = bucket.factors, bucket.type.__name__
    begin, size = int(structures.start[f]), int(structures.size[f])
    room = int(np.append(structures.start, len(structures.entry))[f + 1]) - begin
    arity, n_additionals = (
        int(offsets[f + 1] - offsets[f])
        for offsets in (factors.offsets, factors.additional_offsets)
    )
    entry, value = (
        array[begin : begin + max(0, min(size, room))]
        for array in (structures.entry, structures.value)
    )
    outside, infinite = (entry < 0) | (entry >= arity + n_additionals), ~np.isfinite(value)
    if size == NOT_WRITTEN:
        got, expected = "no size", f"0 to {room}"
    elif not 0 <= size <= room:
        got, expected = f"the size {size}", f"0 to {room}, the limit from vertex_sizes"
    elif outside.any():
        got = f"the entry {entry[outside][0]}"
        expected = (
            f"0 to {arity + n_additionals - 1}: {arity} variables, then {n_additionals} additionals"
        )
    else:
        got, expected = f"the value {value[infinite][0]}", "a finite number, 1 or a count"
    declaration = bucket.declarations[bucket.declaration[f]]
    raise ValueError(
        f"{name}.map_kernel wrote {got} for factor {bucket.row[f]} of {declaration!r}; expected "
        f"{expected}. `lpsmap check {name}` shows more."
    )


@kernel
def ask_oracle(sets: Any, rows: IntArray, eta_v: FloatArray) -> int:
    """Write the best structures of `rows`, by a compiled oracle.

    Returns the position of the first factor with an invalid structure; -1 without one, or on an
    interrupt.
    """
    record = sets_at(sets)
    factors, candidates, begin = by_value(record.factors), by_value(record.candidates), 0
    scores = Scores(record.scores, eta_v)
    while begin < len(rows):
        end = _end_of_call(rows, begin, factors.offsets)
        called = np.ascontiguousarray(rows[begin:end])
        clear_sizes(called, candidates)
        invoke(record.map_kernel[0], (called, factors, scores, candidates))
        if interrupted():
            return -1
        wrong = first_invalid_structure(called, factors, candidates)
        if wrong >= 0:
            return begin + wrong
        begin = end
    return -1


@leaf
def _end_of_call(rows: IntArray, begin: int, offsets: IntArray) -> int:
    """Return the end of the rows for the next call of an oracle."""
    if offsets[-1] <= CALL_LINKS:
        return len(rows)
    n_links = 0
    for i in range(begin, len(rows)):
        n_links += offsets[rows[i] + 1] - offsets[rows[i]]
        if n_links >= CALL_LINKS:
            return i + 1
    return len(rows)


# -------------------------------------------------------------------- oracles in Python


class PythonOracles:
    """The Python oracles of a bucket without a compiled oracle, called factor by factor.

    A vertex with a number that is not finite and a structure worse than the one before are errors
    of the type. Without validation they would appear as errors of the solver, or as wrong results.

    Parameters
    ----------
    bucket
        The factors.
    candidates
        The outputs; they are kept until the next call.
    """

    def __init__(self, bucket: Bucket, candidates: Structures) -> None:
        self._bucket, self._candidates = bucket, candidates
        self._factors = [
            row_view(bucket.declarations[d], int(i))
            for d, i in zip(bucket.declaration, bucket.row, strict=True)
        ]
        self._labels: list[Hashable] = [None] * bucket.n_factors
        self._earlier = self._labels.copy()
        self._checks_best = "check_map_is_best" not in bucket.type.expected_failures

    def solve(self, rows: IntArray, scores: FloatArray, eta_v: FloatArray) -> None:
        """Write the best structure of every factor in `rows`, given scores of all slots."""
        offsets, additional_offsets = self._bucket.offsets, self._bucket.additional_offsets
        known = self._candidates.size[rows] != NOT_WRITTEN
        before, weight = self._scores(rows, scores, eta_v)
        extra = NO_ADDITIONALS
        for f in rows.tolist():
            if interrupted():
                return
            factor = self._factors[f]
            eta_u = scores[offsets[f] : offsets[f + 1]].copy().reshape(factor.event_shape)
            if self._bucket.n_additionals:
                extra = eta_v[additional_offsets[f] : additional_offsets[f + 1]].copy()
            label = factor.solve_map(eta_u, extra)
            self._earlier[f], self._labels[f] = self._labels[f], label
            self._write(f, _vertex(factor, label, eta_u.size, len(extra)))
        score, weight_now = self._scores(rows, scores, eta_v)
        worse = known & (score < before - SCORE_TOLERANCE * (weight + weight_now))
        for f in rows[~np.isfinite(score) | (worse & self._checks_best)].tolist():
            self._raise_invalid(f)

    def _scores(
        self, rows: IntArray, scores: FloatArray, eta_v: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the candidates of `rows`, and the summed magnitudes of their terms.

        A structure that is not written yet has the score 0.
        """
        bucket, (owner, position) = self._bucket, entries_of(self._candidates, rows)
        f = rows[owner]
        slot = bucket.offsets[f] + self._candidates.entry[position]
        additional = bucket.additional_offsets[f] + slot - bucket.offsets[f + 1]
        is_slot, own = additional < bucket.additional_offsets[f], np.empty(len(f))
        own[is_slot], own[~is_slot] = scores[slot[is_slot]], eta_v[additional[~is_slot]]
        with np.errstate(all="ignore"):  # what is not finite is an error of the type
            terms = self._candidates.value[position] * own
            return sums(owner, terms, len(rows)), sums(owner, np.abs(terms), len(rows))

    def _write(self, f: int, vertex: FloatArray) -> None:
        start, entry, value, size = self._candidates
        (nonzero,) = vertex.nonzero()
        begin, end = start[f], start[f] + len(nonzero)
        entry[begin:end] = nonzero
        value[begin:end] = vertex[nonzero]
        size[f] = len(nonzero)

    def _raise_invalid(self, f: int) -> NoReturn:
        name, label = self._bucket.type.__name__, self._labels[f]
        start, _, value, size = self._candidates
        if not np.isfinite(value[start[f] : start[f] + size[f]]).all():
            raise ValueError(
                f"{name}.vertex returned a number that is not finite for the structure {label!r}; "
                "expected zeros and ones."
            )
        raise ValueError(
            f"{name}.solve_map contradicts itself: it returned {label!r}, but the structure "
            f"{self._earlier[f]!r} of the call before has a higher score; expected the best "
            f"structure. `lpsmap check {name}` shows for which scores."
        )


def _vertex(factor: Factor, label: Hashable, arity: int, n_additionals: int) -> FloatArray:
    """Return a structure's variables and additionals in one array."""
    parts = factor.vertex(label)
    if not isinstance(parts, (tuple, list)) or len(parts) != 2:
        raise TypeError(
            f"{type(factor).__name__}.vertex returned {parts!r:.60}; expected a pair of arrays, "
            "the variables and the additionals of the structure."
        )
    m, n = (vertex_numbers(factor, part) for part in parts)
    if m.size != arity or n.size != n_additionals:
        raise ValueError(
            f"{type(factor).__name__}.vertex returned {m.size} variables and {n.size} additionals; "
            f"expected {arity} and {n_additionals}, the numbers of scores that solve_map got."
        )
    return np.concatenate([m.reshape(-1), n.reshape(-1)]) if n_additionals else m.reshape(-1)


def vertex_numbers(factor: Factor, part: object) -> FloatArray:
    """Return one of the two arrays of a vertex, validated and converted to float64."""
    try:
        return np.asarray(part).astype(np.float64, casting="same_kind", copy=False)
    except (TypeError, ValueError) as error:  # words, complex numbers, rows of different lengths
        raise TypeError(
            f"{type(factor).__name__}.vertex returned {part!r:.60}; expected an array of real "
            "numbers, zeros and ones."
        ) from error
