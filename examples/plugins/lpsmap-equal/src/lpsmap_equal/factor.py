"""Variables that are all on or all off, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from lpsmap_core import TIED, Factor, FactorGraph, LocalSolution, boxed_solution

__all__ = ["Equal"]


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
        The variables that take part; see `lpsmap_core.Factor`.
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
        w = 1 / delta
        norm = xp.sum(w * w, axis=1, keepdims=True)
        norm = xp.where(norm > 0, norm, 1.0)  # an empty row has norm 0
        t = xp.sum(w * a, axis=1, keepdims=True) / norm
        size = xp.sum(xp.abs(w * a), axis=1, keepdims=True) / norm
        return boxed_solution(t, delta, size, code=TIED)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable(4)),
            cls(graph.variable((3, 5)), lengths=[5, 1, 3]),
            cls(graph.variable((2, 3)), mask=[[True, False, True], [True, True, True]]),
        ]
