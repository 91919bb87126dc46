"""Compiled kernels that solve and differentiate the active sets of one bucket."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.kernels.records import Structures
from lpsmap_core.local.active.gram import (
    GramWorkspace,
    find_direction,
    forward_residual,
    make_gram_workspace,
    refactorise,
)
from lpsmap_core.local.active.memory import (
    ActiveSet,
    LocalProblem,
    SetsRecord,
    has_triangle,
    is_full,
    n_newcomers,
    problem_of,
    set_of,
    sets_at,
    with_triangle,
)
from lpsmap_core.local.active.smoothing import (
    asked_at,
    begin_smoothing,
    may_smooth,
    move_centre,
)
from lpsmap_core.local.active.weights import add_waiting, optimise, refine, write_mixture
from lpsmap_core.local.finite_scores import (
    ORACLE_MULTIPLE,
    clip_scores,
    exchange_rate,
    make_finite,
)
from lpsmap_core.local.local_solver import (
    OPTIMAL,
    OPTIMAL_TO_ROUNDING,
    RUNNING,
    SHORT_RUN,
    UNTIL_SOLVED,
)
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import interrupted, stopped

GAP_ROUNDING = 1e-13
"""An optimality gap below this multiple of the summed magnitudes is rounding."""

STALL = 100.0
"""A gap up to this multiple of its rounding is rounding, too, if no structure can use it."""

PUSH = 2.0
"""Step by which a waiting structure moves the point of the next oracle call, in units of the step
that closes its own gap. Of 1/2 to 8, values from 1 to 4 took the fewest calls."""

POLL_ENTRIES = 1_000_000
"""Entries of matrices between two polls for interrupts and deadlines."""

ITERATIONS_OF_A_DIMENSION, MIN_LIMIT = 10, 1_000
"""Iterations per dimension, and the smallest limit. A face has at most as many dimensions as its
factor has slots and additionals. Each takes about one iteration, or three if structures join and
leave."""

EXCHANGES = 50
"""Factor of the limit if there are additionals. Among structures with the same marginals the
additional scores decide, and a set exchanges them like the simplex method. Sequences of 50 words
took up to 160 iterations per dimension with scores of 1e-5."""

MIN_FIRST_LIMIT, ROUNDS_OF_A_START = 5, 3
"""Smallest number of iterations of a start, and the number of times that a large set takes in
structures. Early local problems need no complete solution, because their sets stay warm for the
next ones. A component converges only once its local problems are solved."""


# -------------------------------------------------------------------- kernels: the outer steps


@leaf
def iteration_limit(limit: int, f: int, count: int, problem: LocalProblem) -> int:
    """Return the number of iterations of a factor with an active set of `count` structures.

    The `limit` may be `UNTIL_SOLVED` or `SHORT_RUN`.
    """
    if limit == SHORT_RUN:
        return max(MIN_FIRST_LIMIT, ROUNDS_OF_A_START * n_newcomers(count))
    if limit != UNTIL_SOLVED:
        return limit
    n_additionals = problem.additional_offsets[f + 1] - problem.additional_offsets[f]
    dimension = int(problem.offsets[f + 1] - problem.offsets[f] + n_additionals)
    times = EXCHANGES if n_additionals > 0 else 1
    return times * (ITERATIONS_OF_A_DIMENSION * dimension + MIN_LIMIT)


@kernel
def restart(
    sets: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    limit: int,
    caps: IntArray,
) -> None:
    """Move the active sets to their optimum for new scores; structures of weight zero leave.

    Also sets the iterations that are left to each set; `caps` has upper bounds on them, by position
    in `rows`, or is empty.
    """
    problem, record = problem_of(sets, a, eta_v), sets_at(sets)
    work = make_gram_workspace(sets, rows)
    for i in range(len(rows)):
        f = rows[i]
        active_set, lo, hi = set_of(sets, f), problem.offsets[f], problem.offsets[f + 1]
        active_set.status[0], active_set.waiting[0] = RUNNING, 0
        record.iterations_left[f] = iteration_limit(limit, f, active_set.active[0], problem)
        if len(caps) > 0:
            record.iterations_left[f] = min(record.iterations_left[f], caps[i])
        if active_set.active[0] == 0:
            for place in range(len(active_set.order)):
                active_set.order[place] = place
            write_mixture(active_set, problem.inverse_delta[lo:hi], z[lo:hi])
        else:
            if not has_triangle(active_set):
                refactorise(active_set, problem.inverse_delta[lo:hi], work)
            for k in range(active_set.active[0]):
                place = active_set.order[k]
                active_set.theta[place] = _linear_term(f, place, problem, active_set)
            optimise(active_set, problem.inverse_delta[lo:hi], z[lo:hi], work)
            write_mixture(active_set, problem.inverse_delta[lo:hi], z[lo:hi])
        begin_smoothing(f, problem, z, record)
        _write_scores(f, problem, z, record)
        if interrupted():
            break


@kernel
def advance(
    sets: Any, running: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
) -> tuple[int, bool]:
    """Add each factor's candidate structure, or find its active set optimal.

    Moves the factors that go on to the front of `running`. Returns their number, and whether an
    active set is full. On an interrupt, the remaining sets stay unchanged.
    """
    if stopped():  # the candidates may not be written
        return 0, False
    problem, record = problem_of(sets, a, eta_v), sets_at(sets)
    work, n, full = make_gram_workspace(sets, running), 0, False
    for f in running:
        active_set = set_of(sets, f)
        record.iterations_left[f] -= 1
        last = record.iterations_left[f] <= 0
        _join(f, problem, active_set, record, z, work, last)
        full |= is_full(active_set)
        if active_set.status[0] == RUNNING and not last:
            running[n] = f
            n += 1
        if interrupted():
            active_set.status[0] = RUNNING
            break
    return n, full


@leaf
def _join(
    f: int,
    problem: LocalProblem,
    active_set: ActiveSet,
    record: SetsRecord,
    z: FloatArray,
    work: GramWorkspace,
    last: bool,
) -> None:
    """Let a factor's candidate wait, or add all that wait, or find the set optimal.

    A waiting structure moves the point of the next oracle call away from the optimum of the set, so
    that the oracle returns another structure. The set then moves to its optimum once for all of
    them.
    """
    lo, hi, count = problem.offsets[f], problem.offsets[f + 1], active_set.active[0]
    inverse_delta, copies = problem.inverse_delta[lo:hi], z[lo:hi]
    place = active_set.order[count + active_set.waiting[0]]
    copy_candidate(f, place, active_set, record.candidates, hi - lo)
    active_set.theta[place] = _linear_term(f, place, problem, active_set)
    gap, rounding = 1.0, 0.0
    if count > 0:
        gap, rounding = optimality_gap(f, place, problem, active_set, z)
    if active_set.waiting[0] == 0 and may_smooth(f, record):
        move_centre(f, place, problem, active_set, z, record)
    if gap > rounding:
        active_set.waiting[0] += 1
        if active_set.waiting[0] < n_newcomers(count) and not last:
            _push(place, gap, active_set, inverse_delta, record.scores[lo:hi])
            return
    smooths, record.smooths[f] = record.smooths[f], 0
    if active_set.waiting[0] == 0:
        # cheap updates may have made the weights drift: refine them before the set is optimal
        if smooths or refine(active_set, inverse_delta, copies, work):
            _write_scores(f, problem, z, record)
        else:
            active_set.status[0] = OPTIMAL
        return
    improved = add_waiting(gap, active_set, inverse_delta, copies, work)
    write_mixture(active_set, inverse_delta, copies)
    if improved:
        exchanged = active_set.active[0] <= count
        record.exchanges[f] += exchanged
        record.smooths[f] = exchanged and may_smooth(f, record)
    elif (
        not (refine(active_set, inverse_delta, copies, work) or smooths) and gap <= STALL * rounding
    ):
        active_set.status[0] = OPTIMAL_TO_ROUNDING
    _write_scores(f, problem, z, record)


@leaf
def _push(
    place: int, gap: float, active_set: ActiveSet, inverse_delta: FloatArray, scores: FloatArray
) -> None:
    """Lower the scores for the next oracle call, as a step towards a waiting structure would."""
    begin, squares = place * active_set.width, 0.0
    end = begin + active_set.of_variables[place]
    for e in range(begin, end):
        squares += (active_set.value[e] * inverse_delta[active_set.entry[e]]) ** 2
    if squares == 0.0:
        return
    for e in range(begin, end):
        i = active_set.entry[e]
        scores[i] -= PUSH * gap / squares * active_set.value[e] * inverse_delta[i] ** 2


@leaf
def optimality_gap(
    f: int, place: int, problem: LocalProblem, active_set: ActiveSet, z: FloatArray
) -> tuple[float, float]:
    """Return the gap between a structure and the active ones at `z`, and its rounding.

    All active structures have the same score at the optimum of their set; the score of the heaviest
    one is the reference.
    """
    heaviest = 0
    for k in range(active_set.active[0]):
        if active_set.p[k] > active_set.p[heaviest]:
            heaviest = k
    level, size = _score_at(f, active_set.order[heaviest], problem, active_set, z)
    score, magnitude = _score_at(f, place, problem, active_set, z)
    return score - level, GAP_ROUNDING * (max(magnitude, size) + 1.0)


@leaf
def _score_at(
    f: int, place: int, problem: LocalProblem, active_set: ActiveSet, z: FloatArray
) -> tuple[float, float]:
    """Return a structure's score <a - z, w> + <eta_v, n>, and the sum of its terms' magnitudes."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin = place * active_set.width
    middle = begin + active_set.of_variables[place]
    score, magnitude = 0.0, 0.0
    for e in range(begin, middle):
        link = lo + active_set.entry[e]
        a = problem.a[link]
        if abs(a) < np.inf:
            w = active_set.value[e] * problem.inverse_delta[link]
            score += (a - z[link]) * w
            magnitude += abs(a * w)
    first = problem.additional_offsets[f] - (hi - lo)
    for e in range(middle, begin + active_set.size[place]):
        term = problem.eta_v[first + active_set.entry[e]] * active_set.value[e]
        score += term
        magnitude += abs(term)
    return score, magnitude


@leaf
def _linear_term(f: int, place: int, problem: LocalProblem, active_set: ActiveSet) -> float:
    """Return theta = <a, w> + <eta_v, n> of a structure, without forced variables.

    Without `eta_v`, the additionals are left out.
    """
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    begin = place * active_set.width
    middle = begin + active_set.of_variables[place]
    total = 0.0
    for e in range(begin, middle):
        link = lo + active_set.entry[e]
        if abs(problem.a[link]) < np.inf:
            total += problem.a[link] * problem.inverse_delta[link] * active_set.value[e]
    first = problem.additional_offsets[f] - (hi - lo)
    end = begin + active_set.size[place] if len(problem.eta_v) > 0 else middle
    for e in range(middle, end):
        total += problem.eta_v[first + active_set.entry[e]] * active_set.value[e]
    return total


@leaf
def _write_scores(f: int, problem: LocalProblem, z: FloatArray, record: SetsRecord) -> None:
    """Write the scores (a - x) / delta for the next oracle call; x is `z`, or see `smoothing`."""
    lo, hi = problem.offsets[f], problem.offsets[f + 1]
    # slices with nonnegative indices can be vectorised
    a, copies, inverse = problem.a[lo:hi], z[lo:hi], problem.inverse_delta[lo:hi]
    score = record.scores[lo:hi]
    for j in range(hi - lo):
        score[j] = (a[j] - copies[j]) * inverse[j]
    if record.smooths[f] != 0:
        for i in range(lo, hi):
            record.scores[i] = (problem.a[i] - asked_at(i, f, z, record)) * problem.inverse_delta[i]
    make_oracle_scores_finite(f, problem, score)


@leaf
def make_oracle_scores_finite(f: int, problem: LocalProblem, score: FloatArray) -> None:
    """Make the scores of a factor's slots finite for the oracle, including forced ones."""
    if problem.forbids:
        extra = slice(problem.additional_offsets[f], problem.additional_offsets[f + 1])
        lo, hi = problem.offsets[f], problem.offsets[f + 1]
        multiple = ORACLE_MULTIPLE * exchange_rate(lo, hi, problem.link_parameter)
        make_finite(score, problem.eta_v[extra], problem.forbidden[extra], multiple)
    clip_scores(score)


@kernel
def write_additionals(sets: Any, rows: IntArray, v: FloatArray) -> None:
    """Write v = N p, once at the end of a solve, because there may be many additionals."""
    problem = problem_of(sets, v, v)
    for f in rows:
        active_set = set_of(sets, f)
        extra = v[problem.additional_offsets[f] : problem.additional_offsets[f + 1]]
        if len(extra) == 0:
            continue
        extra[:] = 0.0
        arity = np.uint32(problem.offsets[f + 1] - problem.offsets[f])
        for k in range(active_set.active[0]):
            place = active_set.order[k]
            begin = place * active_set.width
            for e in range(begin + active_set.of_variables[place], begin + active_set.size[place]):
                extra[active_set.entry[e] - arity] += active_set.p[k] * active_set.value[e]


@leaf
def copy_candidate(
    f: int, place: int, active_set: ActiveSet, candidates: Structures, arity: int
) -> None:
    """Copy the oracle's structure to a place of the set, variables before additionals."""
    begin, start, size = place * active_set.width, candidates.start[f], 0
    for of_variables in (True, False):
        for e in range(start, start + candidates.size[f]):
            if (candidates.entry[e] < arity) == of_variables:
                active_set.entry[begin + size] = candidates.entry[e]
                active_set.value[begin + size] = candidates.value[e]
                size += 1
        if of_variables:
            active_set.of_variables[place] = size
    active_set.size[place] = size


# -------------------------------------------------------------------- kernels: the derivative


@kernel
def multiply_faces(
    sets: Any,
    rows: IntArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Write [W; N] Q [W; N]^T (d_u, d_v); additionals are left out if `out_v` is empty."""
    problem, memory = problem_of(sets, d_u, d_v), np.empty(0)
    work, n_entries = make_gram_workspace(sets, rows), 0
    for f in rows:
        active_set, lo, hi = set_of(sets, f), problem.offsets[f], problem.offsets[f + 1]
        count = active_set.active[0]
        if len(active_set.chol) == 0:
            size = 1 + count + count * (count + 1) // 2
            if len(memory) < size:
                memory = np.empty(size)
            memory[count] = 0.0
            active_set = with_triangle(active_set, memory)
        if count > 0 and not has_triangle(active_set):
            refactorise(active_set, problem.inverse_delta[lo:hi], work)
        _differentiate(f, problem, active_set, work, out_u, out_v)
        n_entries += active_set.active[0] * active_set.active[0]
        if n_entries > POLL_ENTRIES:
            n_entries = 0
            if interrupted():
                break


@leaf
def _differentiate(
    f: int,
    problem: LocalProblem,
    active_set: ActiveSet,
    work: GramWorkspace,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    lo, hi, count = problem.offsets[f], problem.offsets[f + 1], active_set.active[0]
    first, last = problem.additional_offsets[f], problem.additional_offsets[f + 1]
    out_u[lo:hi] = 0.0
    if len(out_v) > 0:
        out_v[first:last] = 0.0
    if count < 2:
        return
    for k in range(count):
        work.columns[0, k] = _linear_term(f, active_set.order[k], problem, active_set)
    forward_residual(active_set, work)
    find_direction(0.0, active_set, work)
    weights = work.direction
    for k in range(count):
        place = active_set.order[k]
        begin = place * active_set.width
        middle = begin + active_set.of_variables[place]
        for e in range(begin, middle):
            i = active_set.entry[e]
            out_u[lo + i] += weights[k] * active_set.value[e] * problem.inverse_delta[lo + i]
        end = begin + active_set.size[place] if len(out_v) > 0 else middle
        for e in range(middle, end):
            out_v[first + active_set.entry[e] - (hi - lo)] += weights[k] * active_set.value[e]


# -------------------------------------------------------------------- kernels: the structures


@kernel
def measure(sets: Any, rows: IntArray) -> tuple[int, int]:
    """Return the numbers of structures of positive weight and of their nonzeros."""
    n_structures, n_entries = 0, 0
    for f in rows:
        active_set = set_of(sets, f)
        for k in range(active_set.active[0]):
            if active_set.p[k] > 0.0:
                n_structures += 1
                n_entries += active_set.size[active_set.order[k]]
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
        active_set = set_of(sets, f)
        for k in range(active_set.active[0]):
            if active_set.p[k] <= 0.0:
                continue
            owner[s], weight[s] = f, active_set.p[k]
            begin = active_set.order[k] * active_set.width
            for e in range(begin, begin + active_set.size[active_set.order[k]]):
                entry[at], value[at] = active_set.entry[e], active_set.value[e]
                at += 1
            s += 1
            offsets[s] = at
