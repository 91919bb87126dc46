"""Variables that are all on or all off, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from lpsmap_core import FREE, LOWER, UPPER, Factor, FactorGraph, LocalSolution

__all__ = ["Equal"]

ROUNDING = 1e-12


class Equal(Factor):
    """All variables of every row have the same value.

    Local problem: ``argmin 1/2 ||z - a||^2  s.t.  delta_i z_i = t, 0 <= t <= 1``. With ``w = 1 /
    delta`` the points ``z = t w`` lie on a line, and the projection onto it is ``t = <w, a> / <w,
    w>``, clipped to [0, 1].

    Parameters
    ----------
    variables
        Variables of shape (..., n), or a sequence of views to stack: a factor for every entry of
        the leading axes.
    lengths, mask
        Which of them take part; see `lpsmap_core.Factor`.
    """

    def solve_map(self, eta_u: Any, eta_v: Any) -> bool:
        """Return whether all are on."""
        return bool(eta_u.sum() > 0)

    def vertex(self, y: bool) -> tuple[Any, Any]:
        """Return ones or zeros, and no additionals."""
        return np.full(self.event_shape, y), np.empty(0)

    @classmethod
    def solve_sparsemap(
        cls, a: Any, eta_v: Any, delta: Any, parameters: Any, link_parameter: Any
    ) -> LocalSolution:
        """Project rows onto a segment, in array-API code."""
        xp = array_namespace(a)
        w, norm = _direction(xp, delta)
        t = xp.sum(w * a, axis=1, keepdims=True) / norm
        # t carries the rounding of its sum, so that a bound is near if it is near on that scale
        slack = ROUNDING * xp.clip(xp.sum(xp.abs(w * a), axis=1, keepdims=True) / norm, min=1.0)
        lower, upper = t <= slack, t >= 1 - slack
        t = xp.where(lower, 0.0, xp.where(upper, 1.0, t))
        codes = xp.zeros_like(a, dtype=xp.int8)
        face = xp.where(lower, codes + LOWER, xp.where(upper, codes + UPPER, codes + FREE))
        branch = xp.astype(~(lower | upper)[:, 0], xp.int8)
        return LocalSolution(t * w, eta_v, face, branch)

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
        """Project vectors onto the line if t is between its bounds, else to zero."""
        xp = array_namespace(d_u)
        w, norm = _direction(xp, delta)
        moves = xp.astype(solution.branch[:, None], d_u.dtype)
        return moves * w * xp.sum(w * d_u, axis=1, keepdims=True) / norm, d_v

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable(4)),
            cls(graph.variable((3, 5)), lengths=[5, 1, 3]),
            cls(graph.variable((2, 3)), mask=[[True, False, True], [True, True, True]]),
        ]


def _direction(xp: Any, delta: Any) -> tuple[Any, Any]:
    """Return the direction w of every row, (F, K), and its squared norm, (F, 1)."""
    w = 1 / delta
    norm = xp.sum(w * w, axis=1, keepdims=True)
    return w, xp.where(norm > 0, norm, 1.0)  # a row of no variables has the norm 0
