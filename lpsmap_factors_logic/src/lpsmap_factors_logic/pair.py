"""Two variables and a score for both being on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, is_array_api_obj

from lpsmap_core.compile import kernel, leaf
from lpsmap_core.factor import FREE, LOWER, TIED, UPPER, Factor, LocalSolution
from lpsmap_core.graph import FactorGraph
from lpsmap_core.variables import Variables, stack
from lpsmap_factors_logic.tolerance import bounded, faces, slack, slack_array

__all__ = ["Pair"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FaceArray = npt.NDArray[np.int8]

SECOND, FIRST, EQUAL, BOTH, APART, COMPLEMENTS = 0, 1, 2, 3, 4, 5
"""What both-on is in a solution: the second marginal, which is the lower; the first; their common
value; and for a negative score ``m1 + m2 - 1``; 0; 0, with ``m1 + m2 = 1``."""


class Pair(Factor):
    """Two variables whose being both on has a score of its own.

    Local problem, with marginals ``m = delta * z``: ``argmin 1/2 ||z - a||^2 - w m12`` over
    ``0 <= m <= 1`` and ``max(0, m1 + m2 - 1) <= m12 <= min(m1, m2)`` (Niculae & Martins 2020, Eq.
    140 and proposition 10). For ``w = 0``, where any such m12 is optimal, it is the largest.

    Parameters
    ----------
    first, second
        Variables whose shapes broadcast: every pair of entries is a factor.
    scores
        Scores w, of either sign, that broadcast to the variables' shape: a number, or an array of
        NumPy or any array-API library, through which gradients flow.

    Raises
    ------
    TypeError
        If `first` or `second` are not Variables.
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

    def __init__(self, first: Variables, second: Variables, scores: Any) -> None:
        variables = stack([first, second])
        super().__init__(variables, _broadcast(scores, variables.shape[:-1]))

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
        """Return an assignment as an array, and whether both are on."""
        return np.array(y, dtype=np.float64), np.array([y[0] * y[1]], dtype=np.float64)

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
        face = faces(xp, m, slack_array(xp, 0.0, size))
        m = bounded(xp, m, xp.ones_like(m), face)
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

        Free slots move by ``e_i e_i^T`` with ``e_i = (.., 1, .., delta_i)`` if m12 depends on them;
        tied ones together, by ``t t^T / (t_1^2 + t_2^2)`` with ``(1 / delta_1, 1 / delta_2, 1)`` or
        ``(1 / delta_1, -1 / delta_2, 0)`` for ``t``.
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


def _broadcast(scores: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast scores by their own library, so that gradients reach them."""
    if not is_array_api_obj(scores):
        scores = np.asarray(scores, dtype=np.float64)
    try:
        return array_namespace(scores).broadcast_to(scores, shape)
    except (ValueError, RuntimeError):
        raise ValueError(
            f"Pair: scores has shape {tuple(scores.shape)}; expected one that broadcasts to "
            f"{shape}, the shape of the pairs."
        ) from None


def _gains(xp: Any, branch: Any) -> Any:
    """Return which slots the both-on marginal moves with, (F, 2) ones and zeros."""
    both = branch == BOTH
    return xp.stack([(branch == FIRST) | both, (branch == SECOND) | both], axis=1) * 1.0


# -------------------------------------------------------------------- kernels


BLOCK = 256
"""Factors whose numbers lie side by side at a time, so that the arithmetic runs on many at once."""


@kernel
def _project(
    rows: IntArray,
    offsets: IntArray,
    a: FloatArray,
    delta: FloatArray,
    additional_offsets: IntArray,
    eta_v: FloatArray,
    parameters: FloatArray,
    link_parameter: FloatArray,
    z: FloatArray,
    v: FloatArray,
    face: FaceArray,
    branch: FaceArray,
) -> None:
    a1, a2, d1, d2 = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    both, face1, face2 = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    case = np.empty(BLOCK)
    for begin in range(0, len(rows), BLOCK):
        block = rows[begin : begin + BLOCK]
        for n in range(len(block)):
            r = block[n]
            i, k = np.uint64(offsets[r]), np.uint64(additional_offsets[r])
            j = i + np.uint64(1)
            a1[n], a2[n], d1[n], d2[n], both[n] = a[i], a[j], delta[i], delta[j], eta_v[k]
        _solve_block(len(block), a1, a2, d1, d2, both, face1, face2, case)
        for n in range(len(block)):
            r = block[n]
            i, k = np.uint64(offsets[r]), np.uint64(additional_offsets[r])
            j = i + np.uint64(1)
            z[i], z[j], v[k] = a1[n], a2[n], both[n]
            face[i], face[j], branch[r] = int(face1[n]), int(face2[n]), int(case[n])


@leaf
def _solve_block(
    size: int,
    a1: FloatArray,
    a2: FloatArray,
    d1: FloatArray,
    d2: FloatArray,
    both: FloatArray,
    face1: FloatArray,
    face2: FloatArray,
    case: FloatArray,
) -> None:
    """Overwrite scores by solutions; write faces and branches, as floats.

    Of a positive score the variable that is lower without it gets all, or both get what makes them
    equal: ``m_i = clip(x_i + q_i share_i)`` (proposition 10 in one formula). A negative one is paid
    in full by both, or by neither, or up to ``m1 + m2 = 1``: what flipping the second variable
    gives (appendix D.3.2), written out, so that small scores keep their digits. Nothing branches,
    so that the compiler can do several factors at once.
    """
    for n in range(size):
        w, x1, x2 = both[n], d1[n] * a1[n], d2[n] * a2[n]
        q1, q2, attractive = d1[n] * d1[n], d2[n] * d2[n], w >= 0.0
        low, high = min(w, 0.0), max(w, 0.0)
        share = (x2 - x1 + q2 * w if attractive else 1.0 - x1 - x2) / (q1 + q2)
        at_low, at_high = share <= low, share >= high
        tied = not (at_low or at_high)
        share = min(max(share, low), high)
        m1, m2 = x1 + q1 * share, x2 + q2 * (w - share if attractive else share)
        partner = m1 if attractive else 1.0 - m1
        m2 = partner if tied else m2

        size1, size2 = abs(x1) + q1 * abs(w), abs(x2) + q2 * abs(w)
        margin1 = slack(0.0, size1 + (size2 if tied else 0.0))
        margin2 = slack(0.0, size2 + (size1 if tied else 0.0))
        low1, low2, high1, high2 = (
            m1 <= margin1,
            m2 <= margin2,
            m1 >= 1 - margin1,
            m2 >= 1 - margin2,
        )
        m1 = 0.0 if low1 else (1.0 if high1 else m1)
        m2 = 0.0 if low2 else (1.0 if high2 else m2)
        inside = TIED * 1.0 if tied else FREE * 1.0
        face1[n] = LOWER * 1.0 if low1 else (UPPER * 1.0 if high1 else inside)
        face2[n] = LOWER * 1.0 if low2 else (UPPER * 1.0 if high2 else inside)
        a1[n], a2[n] = m1 / d1[n], m2 / d2[n]
        overlap = max(0.0, m1 + m2 - 1.0) if at_low else 0.0
        both[n] = min(m1, m2) if attractive else overlap
        step = 2.0 if at_low else (1.0 if at_high else 0.0)
        case[n] = (EQUAL * 1.0 if attractive else COMPLEMENTS * 1.0) - step


@leaf
def _jvp(
    rows: IntArray,
    offsets: IntArray,
    delta: FloatArray,
    additional_offsets: IntArray,
    parameters: FloatArray,
    link_parameter: FloatArray,
    face: FaceArray,
    branch: FaceArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    for r in rows:
        i, k = np.uint64(offsets[r]), np.uint64(additional_offsets[r])
        j = i + np.uint64(1)
        d1, d2, case = delta[i], delta[j], branch[r]
        if case in (EQUAL, COMPLEMENTS):
            t1, t2, t12 = 1.0 / d1, 1.0 / d2, 1.0
            if case == COMPLEMENTS:
                t2, t12 = -t2, 0.0
            moved = 0.0
            if face[i] == TIED:
                moved = (t1 * d_u[i] + t2 * d_u[j] + t12 * d_v[k]) / (t1 * t1 + t2 * t2)
            out_u[i], out_u[j], out_v[k] = t1 * moved, t2 * moved, t12 * moved
            continue
        reach1 = d1 if case in (FIRST, BOTH) else 0.0
        reach2 = d2 if case in (SECOND, BOTH) else 0.0
        out_u[i] = d_u[i] + reach1 * d_v[k] if face[i] == FREE else 0.0
        out_u[j] = d_u[j] + reach2 * d_v[k] if face[j] == FREE else 0.0
        out_v[k] = reach1 * out_u[i] + reach2 * out_u[j]


Pair.projection_kernel = staticmethod(_project)
Pair.jvp_kernel = staticmethod(_jvp)
