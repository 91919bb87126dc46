"""`OrOut`, and `AndOut`: the last variable of a row says whether any, or all, others are on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from lpsmap_core import (
    FREE,
    LOWER,
    TIED,
    UPPER,
    Direction,
    Factors,
    LinearConstraints,
    LocalScores,
    LocalSolution,
    Product,
    Scores,
    Structures,
    bounded_sums,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import (
    BOUND_LEVEL,
    BoolArray,
    FloatArray,
    IntArray,
    bound_slack,
    bound_slack_array,
    exact_at_bounds,
    face_codes,
)
from lpsmap_dynamic import HypergraphBuilder, HypergraphFactor, Row, subset_hypergraph
from lpsmap_factors_logic import sum_constrained
from lpsmap_factors_logic.logic_factor import LogicFactor
from lpsmap_factors_logic.simplex import simplex_threshold
from lpsmap_factors_logic.structures import (
    Assignment,
    best_variable,
    write_positive,
    write_single,
)
from lpsmap_factors_logic.sum_constrained import EXACTLY

SEPARATE, SUM, TIES = 0, 1, 2
"""Branches: only the bounds are active; the inputs sum to the output; the highest inputs equal the
output."""


@kernel
def _best_assignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Turn all off, or the output on with the inputs of positive score, or else with the best."""
    for r in rows:
        lo, last = factors.offsets[r], factors.offsets[r + 1] - 1
        inputs, output = scores.eta_u[lo:last], scores.eta_u[last]
        structures.size[r] = 0
        if len(inputs) == 0:
            continue
        total = write_positive(r, inputs, structures)
        if structures.size[r] == 0:
            best = best_variable(inputs)
            write_single(r, best, structures)
            total = inputs[best]
        if not total + output > 0.0:
            structures.size[r] = 0
            continue
        at = structures.start[r] + structures.size[r]
        structures.entry[at], structures.value[at] = len(inputs), 1.0
        structures.size[r] += 1


@kernel
def _project(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    """Try the bounds, then the ties, then the sum (Niculae & Martins 2020, lemma 3, twice)."""
    offsets, branch = factors.offsets, solution.branch
    widest = largest_arity(rows, offsets)
    x, q = np.empty(widest), np.empty(widest)
    for r in rows:
        lo, last = np.uint64(offsets[r]), np.uint64(offsets[r + 1] - 1)
        branch[r] = SEPARATE
        highest, total, output = _write_separate(lo, last, scores, solution)
        if highest > output:
            branch[r] = TIES
            total, output = _write_ties(lo, last, scores, solution)
        if total < output:
            branch[r] = SUM
            _write_sum(lo, last, scores, x, q, solution)


@leaf
def _write_separate(
    lo: np.uint64, last: np.uint64, scores: LocalScores, solution: LocalSolution
) -> tuple[float, float, float]:
    """Clip a row; return its highest input, the sum of its inputs, and its output."""
    a, delta, z, face = scores.a, scores.delta, solution.z, solution.face
    highest, total, m = 0.0, 0.0, 0.0
    for i in range(lo, last + np.uint64(1)):
        highest = max(highest, m)
        total += m
        x = delta[i] * a[i]
        m = min(max(x, 0.0), 1.0)
        z[i], face[i] = a[i], FREE
        if x <= 0.0:
            z[i], face[i] = 0.0, LOWER
        elif x >= 1.0 - BOUND_LEVEL:
            z[i], face[i] = 1.0 / delta[i], UPPER
    return highest, total, m


@leaf
def _write_ties(
    lo: np.uint64, last: np.uint64, scores: LocalScores, solution: LocalSolution
) -> tuple[float, float]:
    """Write the output and the inputs above it at their common value tau; leave the others as is.

    Starting from the score of the output, tau grows and the number of inputs above it decreases.
    Returns the sum of the inputs, and the output.
    """
    a, delta, z, face = scores.a, scores.delta, solution.z, solution.face
    tau, before = delta[last] * a[last], last - lo + np.uint64(1)
    while True:
        count, weight = np.uint64(0), 1.0 / (delta[last] * delta[last])
        total = a[last] / delta[last]
        for i in range(lo, last):
            if delta[i] * a[i] > tau:
                total += a[i] / delta[i]
                weight += 1.0 / (delta[i] * delta[i])
                count += np.uint64(1)
        if count >= before:
            break
        before, tau = count, total / weight
    output, total = min(max(tau, 0.0), 1.0), 0.0
    for i in range(lo, last + np.uint64(1)):
        x = delta[i] * a[i]
        if i < last and x <= tau:
            total += min(max(x, 0.0), 1.0)
            continue
        if i < last:
            total += output
        margin = bound_slack(BOUND_LEVEL, x)
        z[i], face[i] = tau / delta[i], TIED
        if tau <= margin:
            z[i], face[i] = 0.0, LOWER
        elif tau >= 1.0 - margin:
            z[i], face[i] = 1.0 / delta[i], UPPER
    return total, output


@leaf
def _write_sum(
    lo: np.uint64,
    last: np.uint64,
    scores: LocalScores,
    x: FloatArray,
    q: FloatArray,
    solution: LocalSolution,
) -> None:
    """Write a row whose inputs sum to the output: an `Xor` with the output negated."""
    a, delta, z, face = scores.a, scores.delta, solution.z, solution.face
    n = np.uint64(0)
    for i in range(lo, last + np.uint64(1)):
        x[n] = delta[i] * a[i] if i < last else 1.0 - delta[i] * a[i]
        q[n] = delta[i] * delta[i]
        n += np.uint64(1)
    t, s = simplex_threshold(n, -np.inf, x, q)
    level = BOUND_LEVEL / n
    for i in range(lo, last + np.uint64(1)):
        w = delta[i] * delta[i]
        score = delta[i] * a[i] if i < last else 1.0 - delta[i] * a[i]
        m, margin = (score - t * w) - s * w, bound_slack(level, score)
        off, on = (LOWER, UPPER) if i < last else (UPPER, LOWER)
        z[i], face[i] = (m if i < last else 1.0 - m) / delta[i], FREE
        if m <= margin:
            z[i], face[i] = (0.0 if i < last else 1.0 / delta[i]), off
        elif m >= 1.0 - margin:
            z[i], face[i] = (1.0 / delta[i] if i < last else 0.0), on


@leaf
def _jvp(rows: IntArray, factors: Factors, direction: Direction, product: Product) -> None:
    offsets, d_u, out_u = factors.offsets, direction.d_u, product.out_u
    delta, face, branch = direction.delta, direction.face, direction.branch
    for r in rows:
        lo, hi = np.uint64(offsets[r]), np.uint64(offsets[r + 1])
        last = hi - np.uint64(1)
        correct = FREE if branch[r] == SUM else TIED
        along, norm = 0.0, 0.0
        for i in range(lo, hi):
            if face[i] == correct:
                w = _direction(branch[r], delta[i], i == last)
                along += w * d_u[i]
                norm += w * w
        shift = along / norm if norm > 0.0 else 0.0
        for i in range(lo, hi):
            out_u[i] = d_u[i] if face[i] == FREE else 0.0
            if face[i] == correct:
                w = _direction(branch[r], delta[i], i == last)
                out_u[i] += -shift * w if correct == FREE else shift * w


@leaf
def _direction(branch: int, delta: float, is_output: bool) -> float:
    """Return a slot's entry of w, the normal of the active sum or the direction of the ties."""
    if branch == SUM:
        return -delta if is_output else delta
    return 1.0 / delta


class OrOut(LogicFactor, HypergraphFactor):
    """The last variable of every row is on if and only if any other is.

    Local problem: ``argmin 1/2 ||z - a||^2`` over ``0 <= z <= 1 / delta`` with
    ``delta_j z_j <= delta_d z_d`` for every input j, and ``sum_j delta_j z_j >= delta_d z_d``
    (Niculae & Martins 2020, Eq. 94 and appendix D.2.6, where the sums of Eq. 95 and 98 are printed
    with the wrong sign). Without inputs the output is off.

    Parameters
    ----------
    variables
        Variables of shape (..., n), or a sequence of views to stack: the inputs, then the output.
    axis
        The axis along which the inputs and the output lie.
    mask
        Booleans that broadcast to ``variables.shape``: the variables that take part. The last of
        them is the output.
    lengths
        For every row, the number of variables that take part, counted from the first. The last of
        them is the output.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    map_kernel = staticmethod(_best_assignments)
    projection_kernel = staticmethod(_project)
    jvp_kernel = staticmethod(_jvp)

    needs_variables = "the output"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Assignment:
        """Return all off, or the output on with the inputs of positive score, or else the best."""
        n = len(eta_u)
        inputs, output = eta_u[:-1], float(eta_u[-1])
        y = np.zeros(n, dtype=np.int64)
        if n > 1:
            chosen = np.flatnonzero(inputs > 0)
            chosen = chosen if chosen.size else np.array([np.argmax(inputs)])
            if inputs[chosen].sum() + output > 0:
                y[chosen] = 1
                y[-1] = 1
        return tuple(y.tolist())

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of no inputs without the output, and of some inputs with it."""
        output = row.event_shape[0] - 1
        build.edge("row")
        if output:
            some = subset_hypergraph(build, output, least=1)
            build.edge("row", [some], slots=[output])
        return "row"

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that every input is at most the output, and their sum at least."""
        return LinearConstraints.deferred(self._inputs_and_output)

    def _inputs_and_output(self) -> LinearConstraints:
        arity, last = np.diff(self.offsets), self.offsets[1:] - 1
        output = np.repeat(last, arity)
        inputs = np.flatnonzero(np.arange(len(output)) != output)
        rows = np.tile(np.arange(len(inputs)), 2)
        columns = np.concatenate([inputs, output[inputs]])
        signs = np.repeat([1.0, -1.0], len(inputs))
        weights = np.ones(len(output))
        weights[last] = -1.0
        none_above = LinearConstraints(rows, columns, signs, np.full(len(inputs), -np.inf), 0.0)
        return LinearConstraints.together(none_above, bounded_sums(self, 0.0, np.inf, weights))

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Solve the local problems in array-API code."""
        xp = array_namespace(a)
        x = delta * a
        m = xp.clip(x, 0.0, 1.0)
        ties = xp.any(m[:, :-1] > m[:, -1:], axis=1, keepdims=True)
        tau, tied = _tie_array(xp, x, delta)
        m = xp.where(ties & tied, xp.clip(tau, 0.0, 1.0), m)
        short = xp.sum(m[:, :-1], axis=1, keepdims=True) < m[:, -1:]
        score = xp.where(ties & tied, tau, x)
        # a clipped slot is not a sum, and free of rounding: it is 0 iff its score is not positive
        at_bound = xp.where(
            ties & tied, bound_slack_array(xp, BOUND_LEVEL, x), xp.where(m > 0, BOUND_LEVEL, 0.0)
        )
        face = face_codes(xp, score, at_bound)
        tie_face = xp.astype(xp.full_like(face, TIED), xp.int8)
        face = xp.where(ties & tied & (face == FREE), tie_face, face)
        z = xp.where(ties & tied, tau / delta, a)

        summed = sum_constrained.project(_flip_last(xp, a, delta), delta, None, 1.0, EXACTLY)
        mirrored = xp.where(
            summed.face == LOWER, UPPER, xp.where(summed.face == UPPER, LOWER, FREE)
        )
        summed_face = xp.concat([summed.face[:, :-1], xp.astype(mirrored[:, -1:], xp.int8)], axis=1)
        face = xp.where(short, summed_face, face)
        z = xp.where(short, _flip_last(xp, summed.z, delta), z)
        branch = xp.where(short, SUM, xp.where(ties, TIES, SEPARATE))[:, 0]
        return LocalSolution(
            exact_at_bounds(xp, z, delta, face), a[:, :0], face, xp.astype(branch, xp.int8)
        )

    @classmethod
    def jvp(
        cls,
        solution: LocalSolution,
        d_u: Any,
        d_v: Any,
        delta: Any,
        parameters: Any,
        link_parameter: Any,
    ) -> tuple[Any, Any]:
        """Multiply local Jacobians.

        They are ``I`` on the free slots, and ``w w^T / <w, w>`` with ``w = 1 / delta`` on the tied
        slots (Niculae & Martins 2020, Eq. 127). Where the sum is active, they are
        ``I - w w^T / <w, w>``, with ``w = delta`` except ``-delta_d`` for the output.
        """
        xp = array_namespace(d_u)
        free, tied = solution.face == FREE, solution.face == TIED
        total = (solution.branch == SUM)[:, None]
        last = xp.concat([delta[:, :-1], -delta[:, -1:]], axis=1)
        w = xp.where(total, xp.where(free, last, 0.0), xp.where(tied, 1 / delta, 0.0))
        norm = xp.sum(w * w, axis=1, keepdims=True)
        along = xp.sum(w * d_u, axis=1, keepdims=True) / xp.where(norm > 0, norm, 1.0)
        return xp.where(free, d_u, 0.0) + xp.where(total, -along, along) * w, d_v


class AndOut(OrOut):
    """The last variable of every row is on if and only if all others are.

    It is the `OrOut` of the negated variables (Niculae & Martins 2020, appendix D.2.6).

    Parameters
    ----------
    variables, axis, mask, lengths
        As in `OrOut`. Without inputs the output is on.

    Raises
    ------
    ValueError
        If a row has no variable.
    """

    def _negations(self) -> BoolArray | bool:
        return True


# -------------------------------------------------------------------- array-API code


def _flip_last(xp: Any, z: Any, delta: Any) -> Any:
    return xp.concat([z[:, :-1], 1 / delta[:, -1:] - z[:, -1:]], axis=1)


def _tie_array(xp: Any, x: Any, delta: Any) -> tuple[Any, Any]:
    """Return the common value of the output and the inputs above it, and the slots that have it.

    This is the largest of the weighted means of the output and the k highest inputs: an input above
    the mean raises it, and an input below lowers it (Niculae & Martins 2020, proposition 8).
    """
    weight = 1 / (delta * delta)
    order = xp.argsort(x[:, :-1], axis=1, descending=True)
    by_score = xp.take_along_axis(weight[:, :-1], order, axis=1)
    high_first = xp.take_along_axis(x[:, :-1], order, axis=1)
    by_score = xp.concat([weight[:, -1:], by_score], axis=1)
    high_first = xp.concat([x[:, -1:], high_first], axis=1)
    sums = xp.cumulative_sum(by_score * high_first, axis=1)
    tau = xp.max(sums / xp.cumulative_sum(by_score, axis=1), axis=1, keepdims=True)
    output = xp.arange(x.shape[1], device=device(x)) == x.shape[1] - 1
    tied = (x > tau) | output
    weight = xp.where(tied, weight, 0.0)
    tau = xp.sum(weight * x, axis=1, keepdims=True) / xp.sum(weight, axis=1, keepdims=True)
    return tau, tied
