"""The steps of active sets, compiled: what happens to the sets of one bucket in a solve.

Compiled loops know the sets by their record (see `lpsmap_core.kernels.native`), from which the
functions here read where everything is; without compilation, by the object itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_core.kernels.compile import COMPILED, general_position, kernel, leaf
from lpsmap_core.kernels.interrupts import halt, interrupted, stopped
from lpsmap_core.kernels.native import (
    CALL,
    FAILED,
    FIRST_FREE,
    FORBIDS,
    STATUS,
    bytes_at,
    call_python,
    floats,
    floats_at,
    int32s_at,
    ints_at,
    invoke,
)
from lpsmap_core.local.active.gram import append, fill_gram, residual_direction
from lpsmap_core.local.active.memory import ActiveSet, carve
from lpsmap_core.local.active.weights import exchange, refine, settle, welcome
from lpsmap_core.local.forced import ORACLE, decide

__all__ = [
    "ARRAYS",
    "ASK",
    "GROW",
    "MAP",
    "N_PARAMETERS",
    "RUNNING",
    "Candidates",
    "complete",
    "measure",
    "multiply_active_sets",
    "read_out",
    "solve_active_sets",
]

IndexArray = npt.NDArray[np.int32]

RUNNING, OPTIMAL, STALLED = 0, 1, 2
"""Status of a factor's local problem."""

ROUNDING = 1e-13
"""An optimality gap below this multiple of the summed magnitudes is rounding."""

TIED = 1e-12
"""A structure is tied with the active ones if it scores no worse than this, relatively."""

TILT = 1e-8
"""Relative change of the scores that shows the oracle's other choices among tied structures."""

MOST_TIED = 200
"""Limit of tilted oracle calls for a factor."""

SHARE = 100_000
"""Links of the factors that an oracle is called for at once, unless one alone has more."""

LOOK_PERIOD = 1_000_000
"""Entries of matrices between two looks at whether to go on."""


class Problem(NamedTuple):
    """What the kernels need to know of a bucket and of its current scores."""

    offsets: IntArray
    additional_offsets: IntArray
    inverse_delta: FloatArray
    a: FloatArray
    """Infinite in forced slots. All structures of a feasible face agree on these, so that they are
    left out of sums whose differences matter."""
    eta_v: FloatArray
    forbids: bool
    """Whether any slot may be forced, or any additional barred."""
    barred: ByteArray


class Candidates(NamedTuple):
    """The oracle's latest structure of every factor, its nonzeros from ``start[f]`` on."""

    start: IntArray
    entry: IndexArray
    value: FloatArray
    size: IntArray


# -------------------------------------------------------------------- the sets, from their handle

GROW, ASK = 0, 1
"""What compiled loops call Python for."""

MAP, N_PARAMETERS, ARRAYS = FIRST_FREE, FIRST_FREE + 1, FIRST_FREE + 2
_SCORES, _CANDIDATES, _SETS, _BARRED = ARRAYS + 10, ARRAYS + 12, ARRAYS + 20, ARRAYS + 30
"""Positions in the record: the oracle's address, and addresses and lengths of arrays."""

if COMPILED:

    @kernel
    def _set_of(sets: Any, f: int) -> ActiveSet:
        width, capacity = ints_at(sets, _SETS)[f], ints_at(sets, _SETS + 2)[f]
        block = floats(ints_at(sets, _SETS + 4)[f], ints_at(sets, _SETS + 6)[f])
        active, status = ints_at(sets, _SETS + 8), ints_at(sets, STATUS)
        return carve(block, width, capacity, active[f : f + 1], status[f : f + 1])

    @kernel
    def _status_of(sets: Any) -> IntArray:
        return ints_at(sets, STATUS)  # type: ignore[no-any-return]

    @leaf
    def _largest_capacity(sets: Any, rows: IntArray) -> int:
        capacity, largest = ints_at(sets, _SETS + 2), 0
        for f in rows:
            largest = max(largest, capacity[f])
        return largest

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
    def _problem_of(sets: Any, a: FloatArray, eta_v: FloatArray) -> Problem:
        return Problem(
            ints_at(sets, ARRAYS),
            ints_at(sets, ARRAYS + 2),
            floats_at(sets, ARRAYS + 4),
            a,
            eta_v,
            sets[FORBIDS] != 0,
            bytes_at(sets, _BARRED),
        )

    @kernel
    def _find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
        """Write the best structures of `rows`; false if Python code raised, or if interrupted."""
        if sets[MAP] == 0:
            sets[FAILED] = _call(sets, ASK, rows, eta_v)
            return sets[FAILED] == 0 and not interrupted()
        offsets, begin = ints_at(sets, ARRAYS), 0
        candidates = _candidates_of(sets)
        while begin < len(rows):
            end = _end_of_share(rows, begin, offsets)
            oracle_arguments = (
                rows[begin:end],
                offsets,
                floats_at(sets, _SCORES),
                ints_at(sets, ARRAYS + 2),
                eta_v,
                floats_at(sets, ARRAYS + 6).reshape((len(offsets) - 1, sets[N_PARAMETERS])),
                floats_at(sets, ARRAYS + 8),
                candidates.start,
                candidates.entry,
                candidates.value,
                candidates.size,
            )
            invoke(sets[MAP], oracle_arguments)
            if interrupted():
                return False
            begin = end
        return True

    @leaf
    def _end_of_share(rows: IntArray, begin: int, offsets: IntArray) -> int:
        """Return where the rows end that an oracle is called for at once."""
        if offsets[-1] <= SHARE:
            return len(rows)
        n_links = 0
        for i in range(begin, len(rows)):
            n_links += offsets[rows[i] + 1] - offsets[rows[i]]
            if n_links >= SHARE:
                return i + 1
        return len(rows)

    @kernel
    def _call(sets: Any, what: int, rows: IntArray, eta_v: FloatArray) -> int:
        """Let Python work on some rows; returns 0 unless it raised, on which all come out."""
        arguments = np.empty(4, dtype=np.int64)
        arguments[0], arguments[1] = rows.ctypes.data, len(rows)
        arguments[2], arguments[3] = eta_v.ctypes.data, len(eta_v)
        failed = call_python(sets[CALL], what, np.int64(arguments.ctypes.data))
        if failed:
            halt()
        return failed  # type: ignore[no-any-return]

    @kernel
    def _grow(sets: Any, rows: IntArray) -> bool:
        """Make room for more structures; false if Python code raised."""
        sets[FAILED] = _call(sets, GROW, rows, floats_at(sets, _SCORES))
        return sets[FAILED] == 0  # type: ignore[no-any-return]

else:

    def _set_of(sets: Any, f: int) -> ActiveSet:
        return sets.set_of(f)  # type: ignore[no-any-return]

    def _status_of(sets: Any) -> IntArray:
        return sets.status  # type: ignore[no-any-return]

    def _largest_capacity(sets: Any, rows: IntArray) -> int:
        return max((int(sets.capacity[f]) for f in rows), default=0)

    def _candidates_of(sets: Any) -> Candidates:
        return sets.candidates  # type: ignore[no-any-return]

    def _scores_of(sets: Any) -> FloatArray:
        return sets.scores  # type: ignore[no-any-return]

    def _problem_of(sets: Any, a: FloatArray, eta_v: FloatArray) -> Problem:
        offsets, additional_offsets = sets.bucket.offsets, sets.bucket.additional_offsets
        delta, forbids, barred = sets.inverse_delta, sets.forbids, sets.barred
        return Problem(offsets, additional_offsets, delta, a, eta_v, forbids, barred)

    def _find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
        sets.solve_map(rows, eta_v)
        return not interrupted()

    def _grow(sets: Any, rows: IntArray) -> bool:
        sets.grow(rows)
        return True


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
) -> None:
    """Solve the local problems of `rows`; see `ActiveSets.solve`."""
    problem, candidates = _problem_of(sets, a, eta_v), _candidates_of(sets)
    scores = _scores_of(sets)
    _restart(sets, rows, problem, z, scores)
    running = rows
    for _ in range(max_iterations):
        if len(running) == 0 or stopped() or not _find_candidates(sets, running, eta_v):
            break
        full = _advance(sets, running, problem, candidates, z, scores)
        if full and not _grow(sets, running):
            break
        running = _still_running(sets, running)
    _write_additionals(sets, rows, problem, v)


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
    _jvp(sets, rows, _problem_of(sets, d_u, d_v), out_u, out_v)


@kernel
def complete(sets: Any, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray) -> None:
    """Complete the faces of `rows`; see `ActiveSets.complete_faces`."""
    problem, candidates = _problem_of(sets, a, eta_v), _candidates_of(sets)
    scores = _scores_of(sets)
    wave, along, nothing = np.zeros(len(a)), np.zeros(len(a)), np.empty(0)
    adopted = np.zeros(len(problem.offsets) - 1, dtype=np.bool_)
    for attempt in range(MOST_TIED):
        if len(rows) == 0:
            break
        _shake(rows, problem.offsets, attempt, wave)
        multiply_active_sets(sets, rows, wave, nothing, along, nothing)
        _tilt(rows, problem, z, wave, along, scores)
        if not _find_candidates(sets, rows, eta_v):
            break
        if _adopt(sets, rows, problem, candidates, z, adopted) and not _grow(sets, rows):
            break
        rows = _chosen(rows, adopted)


@kernel
def _still_running(sets: Any, rows: IntArray) -> IntArray:
    """Return the rows that still run."""
    status, n = _status_of(sets), 0
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
    sets: Any,
    rows: IntArray,
    problem: Problem,
    z: FloatArray,
    scores: FloatArray,
) -> None:
    """Bring the active sets to new scores: the optimum on each set, shrunk where signs ask it."""
    work = np.empty((2, _largest_capacity(sets, rows)))
    for f in rows:
        own = _set_of(sets, f)
        own.status[0] = RUNNING
        if own.active[0] == 0:
            for place in range(len(own.order)):
                own.order[place] = place
        for k in range(own.active[0]):
            place = own.order[k]
            own.theta[place] = _linear_term(f, place, problem, own)
        if own.active[0] > 0:
            settle(own, work)
        _write_variables(f, problem, own, z, scores)
        if interrupted():
            break


@kernel
def _advance(
    sets: Any,
    rows: IntArray,
    problem: Problem,
    candidates: Candidates,
    z: FloatArray,
    scores: FloatArray,
) -> bool:
    """Take each factor's candidate structure in, or find its active set optimal.

    Returns whether an active set is full. Where interrupted, sets keep what they have.
    """
    work = np.empty((2, _largest_capacity(sets, rows)))
    dense = np.zeros(_largest_arity(rows, problem.offsets))
    full = False
    for f in rows:
        own = _set_of(sets, f)
        _join(f, problem, own, candidates, z, scores, work, dense)
        full |= own.active[0] >= len(own.order) - 1
        if interrupted():
            own.status[0] = RUNNING
            break
    return full


@leaf
def _join(
    f: int,
    problem: Problem,
    own: ActiveSet,
    candidates: Candidates,
    z: FloatArray,
    scores: FloatArray,
    work: FloatArray,
    dense: FloatArray,
) -> None:
    """Take a factor's candidate structure in, or find its active set optimal."""
    lo, hi, count = problem.offsets[f], problem.offsets[f + 1], own.active[0]
    place = own.order[count]
    _copy_candidate(f, place, own, candidates, hi - lo)
    own.theta[place] = _linear_term(f, place, problem, own)
    gap = 0.0
    if count > 0:
        gap, rounding = _optimality_gap(f, place, problem, own, z)
        if gap <= rounding:
            # the weights followed cheap updates so far: look before calling them optimal
            if refine(own, work):
                _write_variables(f, problem, own, z, scores)
            else:
                own.status[0] = OPTIMAL
            return
    fill_gram(place, own, problem.inverse_delta[lo:hi], dense)
    if append(place, own, work[0]):
        own.p[count] = 1.0 if count == 0 else 0.0
        own.active[0] = count + 1
        improved = count == 0 or welcome(gap, own, work)
    else:
        improved = exchange(place, own, work)
    if not improved:
        own.status[0] = STALLED
    _write_variables(f, problem, own, z, scores)


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
            if abs(problem.a[i]) < np.inf:
                largest = max(largest, abs(scores[i]))
        for i in range(lo, hi):
            off = (wave[i] - along[i]) * problem.inverse_delta[i]
            scores[i] += TILT * (largest + 1.0) * off
        _make_finite(f, problem, scores[lo:hi])


@kernel
def _adopt(
    sets: Any,
    rows: IntArray,
    problem: Problem,
    candidates: Candidates,
    z: FloatArray,
    adopted: BoolArray,
) -> bool:
    """Take each factor's candidate in with weight zero if it is tied and independent.

    Notes in `adopted` which were; returns whether an active set is full.
    """
    work = np.empty(_largest_capacity(sets, rows))
    dense = np.zeros(_largest_arity(rows, problem.offsets))
    full = False
    for f in rows:
        own, lo, hi = _set_of(sets, f), problem.offsets[f], problem.offsets[f + 1]
        adopted[f] = False
        place = own.order[own.active[0]]
        _copy_candidate(f, place, own, candidates, hi - lo)
        gap, rounding = _optimality_gap(f, place, problem, own, z)
        if gap < -TIED / ROUNDING * rounding:
            continue
        fill_gram(place, own, problem.inverse_delta[lo:hi], dense)
        if append(place, own, work):
            own.p[own.active[0]] = 0.0
            own.active[0] += 1
            adopted[f] = True
            full |= own.active[0] >= len(own.order) - 1
        if interrupted():
            break
    return full


@leaf
def _largest_arity(rows: IntArray, offsets: IntArray) -> int:
    largest = 0
    for f in rows:
        largest = max(largest, offsets[f + 1] - offsets[f])
    return largest


@leaf
def _optimality_gap(
    f: int, place: int, problem: Problem, own: ActiveSet, z: FloatArray
) -> tuple[float, float]:
    """Return how far a structure beats the active ones at `z`, and what rounding may account for.

    All active structures score the same at the optimum of their set, so that the heaviest of them
    is the yardstick.
    """
    heaviest = 0
    for k in range(own.active[0]):
        if own.p[k] > own.p[heaviest]:
            heaviest = k
    level, size = _score_at(f, own.order[heaviest], problem, own, z)
    score, magnitude = _score_at(f, place, problem, own, z)
    return score - level, ROUNDING * (max(magnitude, size) + 1.0)


@leaf
def _score_at(
    f: int, place: int, problem: Problem, own: ActiveSet, z: FloatArray
) -> tuple[float, float]:
    """Return a structure's score <a - z, w> + <eta_v, n>, and the sum of its terms' magnitudes."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin = place * own.width
    middle = begin + own.of_variables[place]
    score, magnitude = 0.0, 0.0
    for e in range(begin, middle):
        link = lo + own.entry[e]
        a = problem.a[link]
        if abs(a) < np.inf:
            w = own.value[e] * problem.inverse_delta[link]
            score += (a - z[link]) * w
            magnitude += abs(a * w)
    first = problem.additional_offsets[f] - (hi - lo)
    for e in range(middle, begin + own.size[place]):
        term = problem.eta_v[first + own.entry[e]] * own.value[e]
        score += term
        magnitude += abs(term)
    return score, magnitude


@leaf
def _linear_term(f: int, place: int, problem: Problem, own: ActiveSet) -> float:
    """Return theta = <a, w> + <eta_v, n> of a structure, without forced variables.

    Without `eta_v`, the additionals are left out.
    """
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin = place * own.width
    middle = begin + own.of_variables[place]
    total = 0.0
    for e in range(begin, middle):
        link = lo + own.entry[e]
        if abs(problem.a[link]) < np.inf:
            total += problem.a[link] * problem.inverse_delta[link] * own.value[e]
    first = problem.additional_offsets[f] - (hi - lo)
    end = begin + own.size[place] if len(problem.eta_v) > 0 else middle
    for e in range(middle, end):
        total += problem.eta_v[first + own.entry[e]] * own.value[e]
    return total


@leaf
def _write_variables(
    f: int, problem: Problem, own: ActiveSet, z: FloatArray, scores: FloatArray
) -> None:
    """Write z = W p, and the scores (a - z) / delta that the oracle sees next."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    copies = z[lo:hi]
    copies[:] = 0.0
    for k in range(own.active[0]):
        place, weight = own.order[k], own.p[k]
        begin = place * own.width
        index = own.entry[begin : begin + own.of_variables[place]]
        value = own.value[begin : begin + own.of_variables[place]]
        for e in range(len(index)):
            copies[index[e]] += weight * value[e]
    a, inverse, score = problem.a[lo:hi], problem.inverse_delta[lo:hi], scores[lo:hi]
    for j in range(hi - lo):
        copies[j] *= inverse[j]
        score[j] = (a[j] - copies[j]) * inverse[j]
    _make_finite(f, problem, score)


@leaf
def _make_finite(f: int, problem: Problem, score: FloatArray) -> None:
    """Give the oracle finite scores of a factor's forced slots."""
    if problem.forbids:
        extra = slice(problem.additional_offsets[f], problem.additional_offsets[f + 1])
        decide(score, problem.eta_v[extra], problem.barred[extra], ORACLE)


@kernel
def _write_additionals(sets: Any, rows: IntArray, problem: Problem, v: FloatArray) -> None:
    """Write v = N p. There may be so many that this is left to the end of a solve."""
    for f in rows:
        own = _set_of(sets, f)
        extra = v[problem.additional_offsets[f] : problem.additional_offsets[f + 1]]
        if len(extra) == 0:
            continue
        extra[:] = 0.0
        arity = np.uint32(problem.offsets[f + 1] - problem.offsets[f])
        for k in range(own.active[0]):
            place = own.order[k]
            begin = place * own.width
            for e in range(begin + own.of_variables[place], begin + own.size[place]):
                extra[own.entry[e] - arity] += own.p[k] * own.value[e]


@leaf
def _copy_candidate(f: int, place: int, own: ActiveSet, candidates: Candidates, arity: int) -> None:
    """Copy the oracle's structure to a place, its variables before its additionals."""
    begin, start, size = place * own.width, candidates.start[f], 0
    for of_variables in (True, False):
        for e in range(start, start + candidates.size[f]):
            if (candidates.entry[e] < arity) == of_variables:
                own.entry[begin + size] = candidates.entry[e]
                own.value[begin + size] = candidates.value[e]
                size += 1
        if of_variables:
            own.of_variables[place] = size
    own.size[place] = size


# -------------------------------------------------------------------- kernels: the derivative


@kernel
def _jvp(sets: Any, rows: IntArray, problem: Problem, out_u: FloatArray, out_v: FloatArray) -> None:
    """Write [W; N] Q [W; N]^T (d_u, d_v), with d_u and d_v in the problem's score arrays.

    Additionals are left out where there is no room for them.
    """
    weights, n_entries = np.empty(_largest_capacity(sets, rows)), 0
    for f in rows:
        own = _set_of(sets, f)
        _differentiate(f, problem, own, weights, out_u, out_v)
        n_entries += own.active[0] * own.active[0]
        if n_entries > LOOK_PERIOD:
            n_entries = 0
            if interrupted():
                break


@leaf
def _differentiate(
    f: int,
    problem: Problem,
    own: ActiveSet,
    weights: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    lo, hi, count = problem.offsets[f], problem.offsets[f + 1], own.active[0]
    first, last = problem.additional_offsets[f], problem.additional_offsets[f + 1]
    out_u[lo:hi] = 0.0
    if len(out_v) > 0:
        out_v[first:last] = 0.0
    if count < 2:
        return
    for k in range(count):
        weights[k] = _linear_term(f, own.order[k], problem, own)
    residual_direction(0.0, weights, own)
    for k in range(count):
        place = own.order[k]
        begin = place * own.width
        middle = begin + own.of_variables[place]
        for e in range(begin, middle):
            i = own.entry[e]
            out_u[lo + i] += weights[k] * own.value[e] * problem.inverse_delta[lo + i]
        end = begin + own.size[place] if len(out_v) > 0 else middle
        for e in range(middle, end):
            out_v[first + own.entry[e] - (hi - lo)] += weights[k] * own.value[e]


# -------------------------------------------------------------------- kernels: what was found


@kernel
def measure(sets: Any, rows: IntArray) -> tuple[int, int]:
    """Return how many structures of positive weight some factors have, and their nonzeros."""
    n_structures, n_entries = 0, 0
    for f in rows:
        own = _set_of(sets, f)
        for k in range(own.active[0]):
            if own.p[k] > 0.0:
                n_structures += 1
                n_entries += own.size[own.order[k]]
    return n_structures, n_entries


@kernel
def read_out(
    sets: Any,
    rows: IntArray,
    owner: IntArray,
    weight: FloatArray,
    offsets: IntArray,
    entry: IntArray,
    value: FloatArray,
) -> None:
    """Write the structures of positive weight of some factors."""
    s, at = 0, 0
    for f in rows:
        own = _set_of(sets, f)
        for k in range(own.active[0]):
            if own.p[k] <= 0.0:
                continue
            owner[s], weight[s] = f, own.p[k]
            begin = own.order[k] * own.width
            for e in range(begin, begin + own.size[own.order[k]]):
                entry[at], value[at] = own.entry[e], own.value[e]
                at += 1
            s += 1
            offsets[s] = at
