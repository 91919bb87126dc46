"""`Pair`: a score for two variables that are both on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from lpsmap_core import (
    FREE,
    LOWER,
    TIED,
    UPPER,
    Direction,
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    LocalScores,
    LocalSolution,
    Product,
    Scores,
    Structures,
    Variables,
    kernel,
    leaf,
    stack,
)
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    bound_slack,
    bound_slack_array,
    exact_at_bounds,
    face_codes,
)
from lpsmap_dynamic import HypergraphBuilder, HypergraphFactor, Row, Tables, as_scores
from lpsmap_factors_logic.broadcast_scores import broadcast_scores
from lpsmap_factors_logic.logic_factor import without_negated

SECOND, FIRST, EQUAL, BOTH, APART, COMPLEMENTS = 0, 1, 2, 3, 4, 5
"""Branches, by the marginal of both variables being on: m2, the smaller; m1, the smaller;
``m1 = m2``; and for a negative score ``m1 + m2 - 1``; 0; 0 with ``m1 + m2 = 1``."""

BLOCK = 256
"""Maximum number of factors that are solved together if their indices are consecutive."""


@kernel
def _best_assignments(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Choose the best of the four assignments of two variables."""
    start, entry, value, size = structures
    for r in rows:
        lo, at = factors.offsets[r], start[r]
        x1, x2 = scores.eta_u[lo], scores.eta_u[lo + 1]
        both = x1 + x2 + scores.eta_v[factors.additional_offsets[r]]
        first, second, best = False, False, 0.0
        if x1 > best:
            first, best = True, x1
        if x2 > best:
            first, second, best = False, True, x2
        if both > best:
            first = second = True
        n = 0
        if first:
            entry[at] = 0
            n = 1
        if second:
            entry[at + n] = 1
            n += 1
        if first and second:
            entry[at + 2] = 2
            n = 3
        for k in range(n):
            value[at + k] = 1.0
        size[r] = n


@leaf
def _project(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    begin = 0
    while begin < len(rows):
        end = _end_of_block(rows, begin)
        block = slice(rows[begin], rows[begin] + end - begin)
        slots = slice(2 * block.start, 2 * block.stop)
        _solve_block(
            LocalScores(scores.a[slots], scores.delta[slots], scores.eta_v[block]),
            LocalSolution(
                solution.z[slots], solution.v[block], solution.face[slots], solution.branch[block]
            ),
        )
        begin = end


@leaf
def _end_of_block(rows: IntArray, begin: int) -> int:
    """Return the end of a block of rows with consecutive indices."""
    end = min(begin + BLOCK, len(rows))
    n_elsewhere = 0
    for n in range(begin, end):
        n_elsewhere += rows[np.uint64(n)] != rows[begin] + n - begin
    return end if n_elsewhere == 0 else begin + 1


@leaf
def _solve_block(scores: LocalScores, solution: LocalSolution) -> None:
    """Solve consecutive factors.

    A positive score is divided between the variables: the one with the smaller marginal gets all of
    it, or both get shares that make their marginals equal, ``m_i = clip(x_i + q_i share_i)``
    (Niculae & Martins 2020, proposition 10 in one formula). A negative score is subtracted in full
    from both, from neither, or as far as ``m1 + m2 = 1``. This is the result of negating the second
    variable (appendix D.3.2), written out such that small scores keep their precision. There are no
    branches, so that the compiler vectorises the loop.
    """
    a, delta, eta_v = scores
    z, v, face, branch = solution
    for n in range(len(branch)):
        i, j, k = np.uint64(2 * n), np.uint64(2 * n + 1), np.uint64(n)
        d1, d2, w = delta[i], delta[j], eta_v[k]
        x1, x2 = d1 * a[i], d2 * a[j]
        q1, q2, attractive = d1 * d1, d2 * d2, w >= 0.0
        low, high = min(w, 0.0), max(w, 0.0)
        share = (x2 - x1 + q2 * w if attractive else 1.0 - x1 - x2) / (q1 + q2)
        at_low, at_high = share <= low, share >= high
        tied = not (at_low or at_high)
        share = min(max(share, low), high)
        m1, m2 = x1 + q1 * share, x2 + q2 * (w - share if attractive else share)
        partner = m1 if attractive else 1.0 - m1
        m2 = partner if tied else m2

        size1, size2 = abs(x1) + q1 * abs(w), abs(x2) + q2 * abs(w)
        margin1 = bound_slack(0.0, size1 + (size2 if tied else 0.0))
        margin2 = bound_slack(0.0, size2 + (size1 if tied else 0.0))
        low1, low2, high1, high2 = (
            m1 <= margin1,
            m2 <= margin2,
            m1 >= 1 - margin1,
            m2 >= 1 - margin2,
        )
        m1 = 0.0 if low1 else (1.0 if high1 else m1)
        m2 = 0.0 if low2 else (1.0 if high2 else m2)
        inside = TIED if tied else FREE
        face[i] = LOWER if low1 else (UPPER if high1 else inside)
        face[j] = LOWER if low2 else (UPPER if high2 else inside)
        z[i], z[j] = m1 / d1, m2 / d2
        overlap = max(0.0, m1 + m2 - 1.0) if at_low else 0.0
        v[k] = min(m1, m2) if attractive else overlap
        step = 2 if at_low else (1 if at_high else 0)
        branch[k] = (EQUAL if attractive else COMPLEMENTS) - step


@leaf
def _jvp(rows: IntArray, factors: Factors, direction: Direction, product: Product) -> None:
    begin = 0
    while begin < len(rows):
        end = _end_of_block(rows, begin)
        block = slice(rows[begin], rows[begin] + end - begin)
        slots = slice(2 * block.start, 2 * block.stop)
        _multiply_block(
            Direction(
                direction.delta[slots],
                direction.face[slots],
                direction.branch[block],
                direction.d_u[slots],
                direction.d_v[block],
            ),
            Product(product.out_u[slots], product.out_v[block]),
        )
        begin = end


@leaf
def _multiply_block(direction: Direction, product: Product) -> None:
    """Multiply the Jacobians of consecutive factors.

    The result is the sum of both formulas of `Pair.jvp`, of which one is zero, without branches.
    """
    delta, face, branch, d_u, d_v = direction
    out_u, out_v = product
    for n in range(len(branch)):
        i, j, k = np.uint64(2 * n), np.uint64(2 * n + 1), np.uint64(n)
        d1, d2, x1, x2, x12, case = (
            delta[i],
            delta[j],
            d_u[i],
            d_u[j],
            d_v[k],
            branch[k],
        )
        tied, equal = face[i] == TIED, case == EQUAL
        t1, t2 = d2 if tied else 0.0, d1 if tied else 0.0
        t2 = t2 if equal else -t2
        t12 = d1 * t1 if equal else 0.0
        moved = (t1 * x1 + t2 * x2 + t12 * x12) / (d1 * d1 + d2 * d2)
        reach1 = d1 if (case == FIRST) | (case == BOTH) else 0.0
        reach2 = d2 if (case == SECOND) | (case == BOTH) else 0.0
        along1 = x1 + reach1 * x12 if face[i] == FREE else 0.0
        along2 = x2 + reach2 * x12 if face[j] == FREE else 0.0
        out_u[i], out_u[j] = along1 + t1 * moved, along2 + t2 * moved
        out_v[k] = reach1 * along1 + reach2 * along2 + t12 * moved


def _as_tables(factors: Factors) -> Tables:
    """Return the pairs as tables of four entries, of which the first has the score.

    Parameters
    ----------
    factors
        All factors of a bucket.
    """
    n = len(factors.offsets) - 1
    twice, first_entry = (np.full(n, 2), np.ones(2 * n, np.int64)), np.zeros(n, np.int64)
    return Tables(*twice, False, first_entry, np.zeros(4), np.array([0, -1, -1, -1]))


class Pair(HypergraphFactor):
    """Two variables with an additional score if both are on.

    Local problem, with marginals ``m = delta * z``: ``argmin 1/2 ||z - a||^2 - w m12`` over
    ``0 <= m <= 1`` and ``max(0, m1 + m2 - 1) <= m12 <= min(m1, m2)`` (Niculae & Martins 2020, Eq.
    140 and proposition 10). For ``w = 0``, every such m12 is optimal, and the largest is chosen.

    Parameters
    ----------
    first, second
        Variables whose shapes broadcast: every pair of entries is a factor.
    vars_i, vars_j, additionals
        The names of `first`, `second` and `scores` in the earlier library.
    scores
        Scores w of any sign that broadcast to the variables' shape: a number, or an array (NumPy or
        any array-API library), to which gradients flow. For a single pair also an array of one
        number, such as ``t[0:1]``.

    Raises
    ------
    TypeError
        If `first` or `second` are not Variables, or `scores` does not hold real numbers.
    ValueError
        If shapes do not broadcast.

    Examples
    --------
    >>> import lpsmap
    >>> fg = lpsmap.FactorGraph()
    >>> u = fg.variable_from([0.9, 0.8])
    >>> factor = fg.add(lpsmap.Pair(u[0], u[1], -0.3))
    >>> solution = fg.solve()
    >>> print(u.value.round(6))
    [0.6 0.5]
    """

    map_kernel = staticmethod(_best_assignments)
    as_tables = staticmethod(_as_tables)
    projection_kernel = staticmethod(_project)
    jvp_kernel = staticmethod(_jvp)

    @without_negated
    def __init__(
        self,
        first: Variables | None = None,
        second: Variables | None = None,
        scores: Any = None,
        *,
        vars_i: Variables | None = None,
        vars_j: Variables | None = None,
        additionals: Any = None,
    ) -> None:
        first = _one_of("first", first, "vars_i", vars_i)
        second = _one_of("second", second, "vars_j", vars_j)
        scores = _one_of("scores", scores, "additionals", additionals)
        variables = stack([first, second])
        super().__init__(variables, _broadcast(scores, variables.shape[:-1]))

    def arguments(self) -> dict[str, Any]:
        """Return None for the arguments of `__init__` that are other names."""
        return {"vars_i": None, "vars_j": None, "additionals": None}

    @property
    def first(self) -> Variables:
        """The first variables."""
        return self.variables[..., 0]

    @property
    def second(self) -> Variables:
        """The second variables."""
        return self.variables[..., 1]

    @property
    def scores(self) -> Any:
        """The scores as declared."""
        return self.additionals

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        u = FactorGraph().variable((2, 3))
        return [cls(u[0], u[1], np.zeros(3))]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, int]:
        """Return the best of the four assignments."""
        (x1, x2), w = eta_u, eta_v[0]
        score = {(0, 0): 0.0, (1, 0): x1, (0, 1): x2, (1, 1): x1 + x2 + w}
        return max(score, key=lambda y: float(score[y]))

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return assignment `y` as an array, and whether both variables are on."""
        return np.array(y, dtype=np.float64), np.array([y[0] * y[1]], dtype=np.float64)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of the four assignments."""
        for slots in ([], [0], [1]):
            build.edge("pair", slots=slots)
        build.edge("pair", slots=[0, 1], additionals=[0])
        return "pair"

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints ``m12 <= m1``, ``m12 <= m2`` and ``m1 + m2 - 1 <= m12``."""
        return LinearConstraints.deferred(self._three_rows)

    def _three_rows(self) -> LinearConstraints:
        n, rows = self.n_factors, np.arange(3 * self.n_factors).reshape(3, -1)
        first, second = 2 * np.arange(n), 2 * np.arange(n) + 1
        both = 2 * n + np.arange(n)
        row = np.stack([*rows, *rows, rows[2]])
        column = np.stack([both, both, both, first, second, first, second])
        sign = np.array([1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0])
        high = np.repeat([0.0, 0.0, 1.0], n)
        return LinearConstraints(row.ravel(), column.ravel(), np.repeat(sign, n), -np.inf, high)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Solve the local problems in array-API code; see `_solve_block`."""
        xp = array_namespace(a)
        x, q, w = delta * a, delta * delta, eta_v
        x1, x2, q1, q2 = x[:, :1], x[:, 1:], q[:, :1], q[:, 1:]
        attractive, zero = w >= 0, xp.zeros_like(w)
        share = xp.where(attractive, x2 - x1 + q2 * w, 1 - x1 - x2) / (q1 + q2)
        low, high = xp.where(attractive, zero, w), xp.where(attractive, w, zero)
        at_low, at_high = share <= low, (share >= high) & (share > low)
        share = xp.where(at_low, low, xp.where(at_high, high, share))
        tied = ~(at_low | at_high)
        case = xp.where(attractive, EQUAL, COMPLEMENTS) - xp.where(at_low, 2, 0)
        branch = xp.astype(case - xp.where(at_high, 1, 0), xp.int8)[:, 0]

        m1 = x1 + q1 * share
        m2 = x2 + q2 * xp.where(attractive, w - share, share)
        m2 = xp.where(tied, xp.where(attractive, m1, 1 - m1), m2)
        m = xp.concat([m1, m2], axis=1)
        size = xp.abs(x) + q * xp.abs(w)
        size = xp.where(tied, xp.sum(size, axis=1, keepdims=True), size)
        face = face_codes(xp, m, bound_slack_array(xp, 0.0, size))
        m = exact_at_bounds(xp, m, xp.ones_like(m), face)
        lower = xp.where(m[:, :1] < m[:, 1:], m[:, :1], m[:, 1:])
        overlap = xp.clip(m[:, :1] + m[:, 1:] - 1, min=0.0)
        v = xp.where(attractive, lower, xp.where(at_low, overlap, zero))
        face = xp.where(tied & (face == FREE), xp.full_like(face, TIED), face)
        return LocalSolution(m / delta, v, face, branch)

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
        """Multiply local Jacobians, of (z1, z2, m12) in (a1, a2, w).

        The Jacobian of a free slot is ``e_i e_i^T``, with ``e_i = (.., 1, .., delta_i)`` if m12
        depends on the slot. That of tied slots is ``t t^T / (t_1^2 + t_2^2)``, where ``t`` is
        ``(1 / delta_1, 1 / delta_2, 1)`` or ``(1 / delta_1, -1 / delta_2, 0)``.
        """
        xp = array_namespace(d_u)
        branch = solution.branch
        reach = _gains(xp, branch) * delta
        free, tied = solution.face == FREE, solution.face == TIED
        along = xp.where(free, d_u + reach * d_v, 0.0)
        sign = xp.where(branch == COMPLEMENTS, -1.0, 1.0)[:, None]
        t = xp.where(tied, xp.concat([1 / delta[:, :1], sign / delta[:, 1:]], axis=1), 0.0)
        equal = xp.where(branch == EQUAL, 1.0, 0.0)[:, None]
        norm = xp.sum(t * t, axis=1, keepdims=True)
        moved = xp.sum(t * d_u, axis=1, keepdims=True) + xp.where(norm > 0, equal * d_v, 0.0)
        moved = moved / xp.where(norm > 0, norm, 1.0)
        return along + t * moved, xp.sum(reach * along, axis=1, keepdims=True) + equal * moved


def _one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    """Return the value of an argument that has two names."""
    if (value is None) == (other is None):
        number = "neither" if value is None else "both"
        raise TypeError(f"Pair: got {number} of {name} and {other_name}; expected one of them.")
    return other if value is None else value


def _broadcast(scores: Any, shape: tuple[int, ...]) -> Any:
    """Return the scores with one entry for every pair."""
    if isinstance(scores, Variables):
        raise TypeError(
            f"Pair: scores is {scores!r}; expected numbers, the scores of both variables being on: "
            "a Pair takes two views and these, such as Pair(a, b, 0.5)."
        )
    scores = as_scores("Pair: scores", scores)
    if tuple(scores.shape) == (1,) and shape == ():  # a slice of one score, for one pair
        return scores[0]
    return broadcast_scores("Pair: scores", scores, shape, "the pairs")


def _gains(xp: Any, branch: Any) -> Any:
    """Return the slots on which m12 depends, as (F, 2) ones and zeros."""
    both = branch == BOTH
    return xp.stack([(branch == FIRST) | both, (branch == SECOND) | both], axis=1) * 1.0
