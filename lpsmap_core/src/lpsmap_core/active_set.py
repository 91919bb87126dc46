"""The generic active set: SparseMAP of any factor with a MAP oracle (Niculae et al. 2018, A.2).

Solves, for many factors at once, in lock-step with their oracle,

    minimise 1/2 ||z - a||^2 - <eta_v, v>   s.t.  delta * z = M p,  v = N p,  p in the simplex

over a growing and shrinking set of structures per factor: the oracle's best structure joins, the
weights move to the optimum of the set, and structures whose weight falls to zero on the way leave.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import COMPILED, general_position, kernel, leaf
from lpsmap_core.factor import Factor
from lpsmap_core.gram import (
    Problem,
    Store,
    append,
    copy_store,
    fill_gram,
    make_store,
    residual_direction,
)
from lpsmap_core.layout import Bucket
from lpsmap_core.native import (
    CALL,
    FAILED,
    FIRST_FREE,
    JVP,
    RECORD_SIZE,
    SOLVE,
    STATUS,
    Callback,
    address_of,
    arrays_at,
    call_python,
    floats_at,
    int32s_at,
    ints_at,
    invoke,
    pack,
    uint32s_at,
)
from lpsmap_core.vertices import Vertices, weighted_vertices
from lpsmap_core.weights import exchange, refine, settle, welcome

__all__ = ["FIRST_CAPACITY", "ActiveSets"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
IndexArray = npt.NDArray[np.int32]

RUNNING, OPTIMAL, STALLED = 0, 1, 2

ROUNDING = 1e-13
"""An optimality gap below this multiple of the summed magnitudes is rounding."""

TIED = 1e-12
"""A structure is tied with the active ones if it scores no worse than this, relatively."""

TILT = 1e-8
"""Relative change of the scores that shows the oracle's other choices among tied structures."""

FIRST_CAPACITY = 4
"""Structures that a set has room for before it grows."""

MOST_TIED = 200
"""Limit of tilted oracle calls for a factor."""


class Candidates(NamedTuple):
    """The oracle's latest structure of every factor, its nonzeros from ``start[f]`` on."""

    start: IntArray
    entry: IndexArray
    value: FloatArray
    size: IntArray


class ActiveSets:
    """The active sets of a bucket: solve, differentiate and read the distributions.

    Parameters
    ----------
    bucket
        Factors whose type has a MAP oracle.
    delta
        For each slot, the square root of its variable's degree.
    """

    vectorised = False

    def __init__(self, bucket: Bucket, delta: FloatArray) -> None:
        self.bucket = bucket
        self.inverse_delta = 1.0 / delta
        factor_type = bucket.type
        width = factor_type.vertex_sizes(
            bucket.offsets, bucket.additional_offsets, bucket.parameters
        )
        self.capacity = FIRST_CAPACITY
        self.store = make_store(np.maximum(width, 1), self.capacity)
        start = np.zeros(len(width), dtype=np.int64)
        np.cumsum(self.store.width[:-1], out=start[1:])
        total = int(self.store.width.sum())
        self.candidates = Candidates(
            start=start,
            entry=np.empty(total, dtype=np.int32),
            value=np.empty(total),
            size=np.zeros(len(width), dtype=np.int64),
        )
        self.scores = np.empty(bucket.n_links)
        self._views: list[tuple[Factor, int]] | None = None
        self._callback = Callback(self._called)
        self.record = np.zeros(RECORD_SIZE, dtype=np.int64)
        self._write_record()

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
        huge: float = np.inf,
    ) -> None:
        """Solve the local problems of `rows`, warm-started from their latest active sets.

        Writes `z` and `v` of these factors. A factor whose iterations ran out keeps status
        ``RUNNING``; one that cannot improve in floating point has ``STALLED``.
        """
        solve_active_sets(self._handle, rows, a, eta_v, z, v, max_iterations, huge)
        self.raise_error()

    def jvp(
        self,
        rows: IntArray,
        d_u: FloatArray,
        d_v: FloatArray,
        out_u: FloatArray,
        out_v: FloatArray,
    ) -> None:
        """Multiply the Jacobians of `rows` on their faces with ``(d_u, d_v)``.

        ``[W; N] Q [W; N]^T`` with ``Q`` the inverse of the Gram matrix on the weights that sum to
        zero (Niculae & Martins 2020, Eq. 38 and 39).
        """
        multiply_active_sets(self._handle, rows, d_u, d_v, out_u, out_v)

    def unsolved(self) -> IntArray:
        """Return the factors whose latest solve ran out of iterations."""
        return np.flatnonzero(self.store.status == RUNNING)

    def complete_faces(
        self, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray, huge: float
    ) -> None:
        """Add, with weight zero, structures that are tied with the active ones at `z`.

        With tied scores a solution can lie on a smaller simplex of structures than its face has
        dimensions, the centre of a square on a diagonal, say; and a solution found to the last
        digit can do without structures whose weights would be smaller than that. Scores tilted at
        right angles to the simplex are the same for all of it, and since `z` lies inside its face,
        larger for some structure of the face unless the simplex has all its dimensions.
        """
        rows = rows[self.store.status[rows] != RUNNING]
        _complete(self._handle, rows, a, eta_v, z, huge)
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what the factor type's own Python code raised inside a compiled loop."""
        self._callback.raise_error()

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of positive weight of the factors in `rows`."""
        return weighted_vertices(self.store, self.capacity, rows)

    # ---------------------------------------------------------------- what compiled loops need

    @property
    def _handle(self) -> Any:
        return self.record if COMPILED else self

    def _write_record(self) -> None:
        """Write what compiled loops need to know of these sets."""
        if not COMPILED:
            return
        bucket, record = self.bucket, self.record
        record[SOLVE] = address_of(solve_active_sets, "solve")
        record[JVP] = address_of(multiply_active_sets, "jvp")
        record[CALL] = self._callback.address
        oracle = bucket.type.map_kernel
        record[_MAP] = 0 if oracle is None else address_of(oracle, "map")
        record[_N_PARAMETERS] = bucket.parameters.shape[1]
        pack(record, STATUS, [self.store.status])
        arrays: list[npt.NDArray[Any]] = [
            bucket.offsets,
            bucket.additional_offsets,
            self.inverse_delta,
            bucket.parameters,
            bucket.link_parameter,
            self.scores,
            *self.candidates,
            *self.store,
        ]
        pack(record, _ARRAYS, arrays)

    def _called(self, what: int, argument: int) -> None:
        """Do for a compiled loop what only Python can."""
        if what == _GROW:
            self.grow()
            return
        rows, eta_v = arrays_at(argument, (np.int64, np.float64))
        self.solve_map(rows, eta_v)

    def grow(self) -> None:
        """Double the room of every active set."""
        old, capacity = self.store, self.capacity
        self.capacity = 2 * capacity
        self.store = make_store(old.width, self.capacity)
        copy_store(old, capacity, self.store, self.capacity)
        self._write_record()

    def copy_from(self, other: ActiveSets) -> None:
        """Start from the sets that another solve of the same factors ended with."""
        self.capacity = other.capacity
        self.store = make_store(other.store.width, self.capacity)
        copy_store(other.store, self.capacity, self.store, self.capacity)
        self._write_record()

    def solve_map(self, rows: IntArray, eta_v: FloatArray) -> None:
        """Write the best structure of every factor in `rows` under the current scores."""
        bucket = self.bucket
        if bucket.type.map_kernel is not None:
            bucket.type.map_kernel(
                rows,
                bucket.offsets,
                self.scores,
                bucket.additional_offsets,
                eta_v,
                bucket.parameters,
                bucket.link_parameter,
                *self.candidates,
            )
            return
        if self._views is None:
            self._views = _row_views(bucket)
        start, index, value, size = self.candidates
        for f in rows:
            factor, row = self._views[f]
            eta_u = factor.shaped(
                row, self.scores[bucket.offsets[f] : bucket.offsets[f + 1]].copy()
            )
            extra = eta_v[bucket.additional_offsets[f] : bucket.additional_offsets[f + 1]].copy()
            m, n = factor.vertex(factor.solve_map(eta_u, extra))
            vertex = np.concatenate([np.ravel(m), np.ravel(n)]).astype(np.float64)
            if len(vertex) != len(extra) + eta_u.size:
                raise ValueError(
                    f"{type(factor).__name__}.vertex returned {np.size(m)} variables and "
                    f"{np.size(n)} additionals; expected {eta_u.size} and {len(extra)}, as many as "
                    "solve_map got scores for."
                )
            nonzero = np.flatnonzero(vertex)
            begin = start[f]
            index[begin : begin + len(nonzero)] = nonzero
            value[begin : begin + len(nonzero)] = vertex[nonzero]
            size[f] = len(nonzero)


def _row_views(bucket: Bucket) -> list[tuple[Factor, int]]:
    return [
        (bucket.declarations[d].row(int(i)), int(i))
        for d, i in zip(bucket.declaration, bucket.row, strict=True)
    ]


# -------------------------------------------------------------------- the sets, from their handle

_GROW, _ASK = 0, 1
"""What compiled loops call Python for."""

_MAP, _N_PARAMETERS, _ARRAYS = FIRST_FREE, FIRST_FREE + 1, FIRST_FREE + 2
_SCORES, _CANDIDATES, _STORE = _ARRAYS + 10, _ARRAYS + 12, _ARRAYS + 20
"""Positions in the record: the oracle's address, and addresses and lengths of arrays."""

if COMPILED:

    @kernel
    def _store_of(sets: Any) -> Store:
        return Store(
            ints_at(sets, _STORE),
            ints_at(sets, _STORE + 2),
            uint32s_at(sets, _STORE + 4),
            floats_at(sets, _STORE + 6),
            ints_at(sets, _STORE + 8),
            ints_at(sets, _STORE + 10),
            ints_at(sets, _STORE + 12),
            ints_at(sets, _STORE + 14),
            floats_at(sets, _STORE + 16),
            floats_at(sets, _STORE + 18),
            floats_at(sets, _STORE + 20),
            floats_at(sets, _STORE + 22),
            floats_at(sets, _STORE + 24),
            ints_at(sets, _STORE + 26),
        )

    @kernel
    def _candidates_of(sets: Any) -> Candidates:
        return Candidates(
            ints_at(sets, _CANDIDATES),
            int32s_at(sets, _CANDIDATES + 2),
            floats_at(sets, _CANDIDATES + 4),
            ints_at(sets, _CANDIDATES + 6),
        )

    @kernel
    def _scores_of(sets: Any) -> FloatArray:
        return floats_at(sets, _SCORES)  # type: ignore[no-any-return]

    @kernel
    def _problem_of(sets: Any, a: FloatArray, eta_v: FloatArray, huge: float) -> Problem:
        return Problem(
            ints_at(sets, _ARRAYS),
            ints_at(sets, _ARRAYS + 2),
            floats_at(sets, _ARRAYS + 4),
            a,
            eta_v,
            huge,
        )

    @kernel
    def _find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
        """Write the best structures of `rows`; false if Python code raised."""
        if sets[_MAP] == 0:
            arguments = np.empty(4, dtype=np.int64)
            arguments[0], arguments[1] = rows.ctypes.data, len(rows)
            arguments[2], arguments[3] = eta_v.ctypes.data, len(eta_v)
            sets[FAILED] = call_python(sets[CALL], _ASK, np.int64(arguments.ctypes.data))
            return sets[FAILED] == 0  # type: ignore[no-any-return]
        n = len(ints_at(sets, _ARRAYS)) - 1
        candidates = _candidates_of(sets)
        oracle_arguments = (
            rows,
            ints_at(sets, _ARRAYS),
            floats_at(sets, _SCORES),
            ints_at(sets, _ARRAYS + 2),
            eta_v,
            floats_at(sets, _ARRAYS + 6).reshape((n, sets[_N_PARAMETERS])),
            floats_at(sets, _ARRAYS + 8),
            candidates.start,
            candidates.entry,
            candidates.value,
            candidates.size,
        )
        invoke(sets[_MAP], oracle_arguments)
        return True

    @leaf
    def _grow(sets: Any) -> None:
        call_python(sets[CALL], _GROW, 0)

else:

    def _store_of(sets: Any) -> Store:
        return sets.store  # type: ignore[no-any-return]

    def _candidates_of(sets: Any) -> Candidates:
        return sets.candidates  # type: ignore[no-any-return]

    def _scores_of(sets: Any) -> FloatArray:
        return sets.scores  # type: ignore[no-any-return]

    def _problem_of(sets: Any, a: FloatArray, eta_v: FloatArray, huge: float) -> Problem:
        offsets, additional_offsets = sets.bucket.offsets, sets.bucket.additional_offsets
        return Problem(offsets, additional_offsets, sets.inverse_delta, a, eta_v, huge)

    def _find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
        sets.solve_map(rows, eta_v)
        return True

    def _grow(sets: Any) -> None:
        sets.grow()


# -------------------------------------------------------------------- kernels: whole solves


@kernel
def solve_active_sets(
    sets: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    v: FloatArray,
    max_iterations: int,
    huge: float,
) -> None:
    """Solve the local problems of `rows`; see `ActiveSets.solve`."""
    problem, candidates = _problem_of(sets, a, eta_v, huge), _candidates_of(sets)
    store, scores = _store_of(sets), _scores_of(sets)
    _restart(rows, problem, store, z, scores)
    running = rows
    for _ in range(max_iterations):
        if len(running) == 0 or not _find_candidates(sets, running, eta_v):
            break
        if _advance(running, problem, store, candidates, z, scores):
            _grow(sets)
            store = _store_of(sets)
        running = _still_running(running, store.status)
    _write_additionals(rows, problem, store, v)


@kernel
def multiply_active_sets(
    sets: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Multiply the Jacobians of `rows`; see `ActiveSets.jvp`."""
    _jvp(rows, _problem_of(sets, d_u, d_v, np.inf), _store_of(sets), out_u, out_v)


@kernel
def _complete(
    sets: Any, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray, huge: float
) -> None:
    """Complete the faces of `rows`; see `ActiveSets.complete_faces`."""
    problem, candidates = _problem_of(sets, a, eta_v, huge), _candidates_of(sets)
    store, scores = _store_of(sets), _scores_of(sets)
    wave, along = np.zeros(len(a)), np.zeros(len(a))
    no_v, along_v = np.zeros(len(eta_v)), np.zeros(len(eta_v))
    adopted = np.zeros(len(store.active), dtype=np.bool_)
    for attempt in range(MOST_TIED):
        if len(rows) == 0:
            break
        _shake(rows, problem.offsets, attempt, wave)
        multiply_active_sets(sets, rows, wave, no_v, along, along_v)
        _tilt(rows, problem, z, wave, along, scores)
        if not _find_candidates(sets, rows, eta_v):
            break
        if _adopt(rows, problem, store, candidates, z, adopted):
            _grow(sets)
            store = _store_of(sets)
        rows = _chosen(rows, adopted)


@kernel
def _still_running(rows: IntArray, status: IntArray) -> IntArray:
    """Return the rows that still run."""
    n = 0
    for f in rows:
        n += status[f] == RUNNING
    if n == len(rows):
        return rows
    kept, n = np.empty(n, dtype=np.int64), 0
    for f in rows:
        if status[f] == RUNNING:
            kept[n] = f
            n += 1
    return kept


@kernel
def _chosen(rows: IntArray, chosen: BoolArray) -> IntArray:
    """Return the chosen rows."""
    kept, n = np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        if chosen[f]:
            kept[n] = f
            n += 1
    return kept[:n]


@leaf
def _shake(rows: IntArray, offsets: IntArray, attempt: int, wave: FloatArray) -> None:
    """Write numbers in general position, the same for equal slots of equal attempts."""
    for f in rows:
        for i in range(offsets[f], offsets[f + 1]):
            wave[i] = general_position(i - offsets[f], attempt)


# -------------------------------------------------------------------- kernels: the outer steps


@kernel
def _restart(
    rows: IntArray,
    problem: Problem,
    store: Store,
    z: FloatArray,
    scores: FloatArray,
) -> None:
    """Bring the active sets to new scores: the optimum on each set, shrunk where signs ask it."""
    capacity = len(store.order) // max(1, len(store.active))
    work = np.empty((2, capacity))
    for f in rows:
        store.status[f] = RUNNING
        for k in range(store.active[f]):
            place = store.order[f * capacity + k]
            store.theta[f * capacity + place] = _linear_term(f, place, problem, store, capacity)
        if store.active[f] > 0:
            settle(f, store, capacity, work)
        _write_variables(f, problem, store, capacity, z, scores)


@kernel
def _advance(
    rows: IntArray,
    problem: Problem,
    store: Store,
    candidates: Candidates,
    z: FloatArray,
    scores: FloatArray,
) -> bool:
    """Take each factor's candidate structure in, or find its active set optimal.

    Returns whether an active set is full.
    """
    capacity = len(store.order) // max(1, len(store.active))
    work = np.empty((2, capacity))
    dense = np.zeros(_largest_arity(rows, problem.offsets))
    full = False
    for f in rows:
        count, base = store.active[f], f * capacity
        place = store.order[base + count]
        arity = problem.offsets[f + 1] - problem.offsets[f]
        _copy_candidate(f, place, store, capacity, candidates, arity)
        theta = _linear_term(f, place, problem, store, capacity)
        store.theta[base + place] = theta
        gap = 0.0
        if count > 0:
            gap, rounding = _optimality_gap(f, place, problem, store, capacity, z)
            if gap <= rounding:
                # the weights followed cheap updates so far: look before calling them optimal
                if refine(f, store, capacity, work):
                    _write_variables(f, problem, store, capacity, z, scores)
                else:
                    store.status[f] = OPTIMAL
                continue
        fill_gram(f, place, store, capacity, problem, dense)
        if append(f, place, store, capacity, work[0]):
            store.p[base + count] = 1.0 if count == 0 else 0.0
            store.active[f] = count + 1
            improved = count == 0 or welcome(f, gap, store, capacity, work)
        else:
            improved = exchange(f, place, store, capacity, work)
        if not improved:
            store.status[f] = STALLED
        _write_variables(f, problem, store, capacity, z, scores)
        full |= store.active[f] >= capacity - 1
    return full


@leaf
def _tilt(
    rows: IntArray,
    problem: Problem,
    z: FloatArray,
    wave: FloatArray,
    along: FloatArray,
    scores: FloatArray,
) -> None:
    """Write the scores that the oracle sees at `z`, tilted by the wave's part off the simplex."""
    for f in rows:
        lo, hi = problem.offsets[f], problem.offsets[f + 1]
        largest = 0.0
        for i in range(lo, hi):
            scores[i] = (problem.a[i] - z[i]) * problem.inverse_delta[i]
            if abs(problem.a[i]) < problem.huge:
                largest = max(largest, abs(scores[i]))
        for i in range(lo, hi):
            off = (wave[i] - along[i]) * problem.inverse_delta[i]
            scores[i] += TILT * (largest + 1.0) * off


@kernel
def _adopt(
    rows: IntArray,
    problem: Problem,
    store: Store,
    candidates: Candidates,
    z: FloatArray,
    adopted: BoolArray,
) -> bool:
    """Take each factor's candidate in with weight zero if it is tied and independent.

    Notes in `adopted` which were; returns whether an active set is full.
    """
    capacity = len(store.order) // max(1, len(store.active))
    work = np.empty(capacity)
    dense = np.zeros(_largest_arity(rows, problem.offsets))
    full = False
    for f in rows:
        adopted[f] = False
        place = store.order[f * capacity + store.active[f]]
        arity = problem.offsets[f + 1] - problem.offsets[f]
        _copy_candidate(f, place, store, capacity, candidates, arity)
        gap, rounding = _optimality_gap(f, place, problem, store, capacity, z)
        if gap < -TIED / ROUNDING * rounding:
            continue
        fill_gram(f, place, store, capacity, problem, dense)
        if append(f, place, store, capacity, work):
            store.p[f * capacity + store.active[f]] = 0.0
            store.active[f] += 1
            adopted[f] = True
            full |= store.active[f] >= capacity - 1
    return full


@leaf
def _largest_arity(rows: IntArray, offsets: IntArray) -> int:
    largest = 0
    for f in rows:
        largest = max(largest, offsets[f + 1] - offsets[f])
    return largest


@leaf
def _optimality_gap(
    f: int,
    place: int,
    problem: Problem,
    store: Store,
    capacity: int,
    z: FloatArray,
) -> tuple[float, float]:
    """Return how far a structure beats the active ones at `z`, and what rounding may account for.

    All active structures score the same at the optimum of their set, so that the heaviest of them
    is the yardstick.
    """
    base = f * capacity
    heaviest = 0
    for k in range(store.active[f]):
        if store.p[base + k] > store.p[base + heaviest]:
            heaviest = k
    other = store.order[base + heaviest]
    level, size = _score_at(f, other, problem, store, capacity, z)
    score, magnitude = _score_at(f, place, problem, store, capacity, z)
    return score - level, ROUNDING * (max(magnitude, size) + 1.0)


@leaf
def _score_at(
    f: int, place: int, problem: Problem, store: Store, capacity: int, z: FloatArray
) -> tuple[float, float]:
    """Return a structure's score <a - z, w> + <eta_v, n>, and the sum of its terms' magnitudes."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin = store.start[f] + place * store.width[f]
    middle = begin + store.of_variables[f * capacity + place]
    score, magnitude = 0.0, 0.0
    for e in range(begin, middle):
        link = lo + store.entry[e]
        a = problem.a[link]
        if abs(a) < problem.huge:
            w = store.value[e] * problem.inverse_delta[link]
            score += (a - z[link]) * w
            magnitude += abs(a * w)
    first = problem.additional_offsets[f] - (hi - lo)
    for e in range(middle, begin + store.size[f * capacity + place]):
        term = problem.eta_v[first + store.entry[e]] * store.value[e]
        score += term
        magnitude += abs(term)
    return score, magnitude


@leaf
def _linear_term(f: int, place: int, problem: Problem, store: Store, capacity: int) -> float:
    """Return theta = <a, w> + <eta_v, n> of a structure, without forced variables."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin = store.start[f] + place * store.width[f]
    middle = begin + store.of_variables[f * capacity + place]
    total = 0.0
    for e in range(begin, middle):
        link = lo + store.entry[e]
        if abs(problem.a[link]) < problem.huge:
            total += problem.a[link] * problem.inverse_delta[link] * store.value[e]
    first = problem.additional_offsets[f] - (hi - lo)
    for e in range(middle, begin + store.size[f * capacity + place]):
        total += problem.eta_v[first + store.entry[e]] * store.value[e]
    return total


@leaf
def _write_variables(
    f: int,
    problem: Problem,
    store: Store,
    capacity: int,
    z: FloatArray,
    scores: FloatArray,
) -> None:
    """Write z = W p, and the scores (a - z) / delta that the oracle sees next."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    copies = z[lo:hi]
    copies[:] = 0.0
    for k in range(store.active[f]):
        place = store.order[f * capacity + k]
        weight = store.p[f * capacity + k]
        begin = store.start[f] + place * store.width[f]
        index = store.entry[begin : begin + store.of_variables[f * capacity + place]]
        value = store.value[begin : begin + store.of_variables[f * capacity + place]]
        for e in range(len(index)):
            copies[index[e]] += weight * value[e]
    a, inverse, score = problem.a[lo:hi], problem.inverse_delta[lo:hi], scores[lo:hi]
    for j in range(hi - lo):
        copies[j] *= inverse[j]
        score[j] = (a[j] - copies[j]) * inverse[j]


@leaf
def _write_additionals(rows: IntArray, problem: Problem, store: Store, v: FloatArray) -> None:
    """Write v = N p. There may be so many that this is left to the end of a solve."""
    capacity = len(store.order) // max(1, len(store.active))
    for f in rows:
        extra = v[problem.additional_offsets[f] : problem.additional_offsets[f + 1]]
        if len(extra) == 0:
            continue
        extra[:] = 0.0
        arity = np.uint32(problem.offsets[f + 1] - problem.offsets[f])
        for k in range(store.active[f]):
            place = store.order[f * capacity + k]
            begin = store.start[f] + place * store.width[f]
            middle = begin + store.of_variables[f * capacity + place]
            for e in range(middle, begin + store.size[f * capacity + place]):
                extra[store.entry[e] - arity] += store.p[f * capacity + k] * store.value[e]


@leaf
def _copy_candidate(
    f: int, place: int, store: Store, capacity: int, candidates: Candidates, arity: int
) -> None:
    """Copy the oracle's structure to a place, its variables before its additionals."""
    begin, start, size = store.start[f] + place * store.width[f], candidates.start[f], 0
    for of_variables in (True, False):
        for e in range(start, start + candidates.size[f]):
            if (candidates.entry[e] < arity) == of_variables:
                store.entry[begin + size] = candidates.entry[e]
                store.value[begin + size] = candidates.value[e]
                size += 1
        if of_variables:
            store.of_variables[f * capacity + place] = size
    store.size[f * capacity + place] = size


# -------------------------------------------------------------------- kernels: the derivative


@kernel
def _jvp(
    rows: IntArray, problem: Problem, store: Store, out_u: FloatArray, out_v: FloatArray
) -> None:
    """Write [W; N] Q [W; N]^T (d_u, d_v), with d_u and d_v in the problem's score arrays."""
    capacity = len(store.order) // max(1, len(store.active))
    weights = np.empty(capacity)
    for f in rows:
        lo, hi = problem.offsets[f], problem.offsets[f + 1]
        first, last = problem.additional_offsets[f], problem.additional_offsets[f + 1]
        out_u[lo:hi] = 0.0
        out_v[first:last] = 0.0
        count = store.active[f]
        if count < 2:
            continue
        for k in range(count):
            place = store.order[f * capacity + k]
            weights[k] = _linear_term(f, place, problem, store, capacity)
        residual_direction(f, 0.0, weights, store, capacity)
        for k in range(count):
            place = store.order[f * capacity + k]
            begin = store.start[f] + place * store.width[f]
            middle = begin + store.of_variables[f * capacity + place]
            for e in range(begin, middle):
                i = store.entry[e]
                out_u[lo + i] += weights[k] * store.value[e] * problem.inverse_delta[lo + i]
            for e in range(middle, begin + store.size[f * capacity + place]):
                out_v[first + store.entry[e] - (hi - lo)] += weights[k] * store.value[e]
