"""The best assignment of a component of count constraints, by its linear program.

A node of the search fixes some variables. The dual simplex method bounds it by a vertex, which is
often integral; otherwise the search branches on a fractional variable. The bound of the multipliers
is computed from the program itself, so rounding errors of the tableau do not affect it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    Part,
    out_of_time,
)
from lpsmap_decode.counts.simplex import (
    FOUND,
    NOTHING_FITS,
    CountProgram,
    best_vertex,
    fits,
    vertex_bound,
)
from lpsmap_decode.search import Evaluation, Space, Unfinished
from lpsmap_decode.tolerances import BOUND_ROUNDING, INTEGRAL
from lpsmap_dynamic import counts_of

__all__ = ["CountSpace"]

MOST_VARIABLES = 2000
"""Maximum number of variables of a component."""

LEAST_VIOLATION = 1e-6
"""Minimum violation that proves infeasibility."""


class CountSpace(Space[FloatArray, BoolArray]):
    """The search space of assignments of a component, bounded by its linear program.

    A node is an array of scores, infinite for fixed variables; an answer is an array of flags, one
    per variable.

    Parameters
    ----------
    part, component
        The part, and the number of the component in it.
    eta
        Scores of the component's variables; ``-inf`` forbids.
    """

    def __init__(self, part: Part, component: int, eta: FloatArray) -> None:
        counts = counts_of(part)
        rows = slice(*counts.first[component : component + 2].tolist())
        self._program = CountProgram(
            eta,
            int(part.first_variable[component]),
            counts.variable,
            counts.negated,
            counts.begin[rows],
            counts.end[rows],
            counts.low[rows],
            counts.high[rows],
        )
        self._eta, self._y = eta, np.zeros(rows.stop - rows.start)
        self._rounding = BOUND_ROUNDING * (1.0 + float(np.abs(eta[np.isfinite(eta)]).sum()))

    @staticmethod
    def serves(part: Part, component: int) -> bool:
        """Return whether a component can be searched in this way."""
        n = part.first_variable[component + 1] - part.first_variable[component]
        return bool(counts_of(part).covered[component] and n <= MOST_VARIABLES)

    def root(self) -> FloatArray:
        """Return the root node."""
        return self._eta

    def evaluate(
        self, nodes: Sequence[FloatArray], score: float
    ) -> Sequence[Evaluation[FloatArray, BoolArray]] | Unfinished[BoolArray]:
        """Bound a node by a vertex, round it, fix variables by their reduced scores, and branch."""
        (eta,) = nodes
        program, x, reduced = (
            self._program._replace(eta=eta),
            np.empty(len(eta)),
            np.empty(len(eta)),
        )
        outcome = best_vertex(program, x, self._y)
        if out_of_time():
            chosen = x > 0.5
            fitting = fits(program, np.where(chosen, 1.0, 0.0))
            return Unfinished(chosen, float(self._eta[chosen].sum())) if fitting else Unfinished()
        if outcome == NOTHING_FITS:
            nothing = program._replace(eta=np.where(np.isinf(eta), eta, 0.0))
            if vertex_bound(nothing, self._y, reduced) < -LEAST_VIOLATION:
                return [Evaluation(-np.inf)]
        if outcome != FOUND:
            self._y[:] = 0.0
            x = np.where(np.isinf(eta), eta > 0.0, 0.5)
        on = float(self._eta[eta == np.inf].sum())
        bound = vertex_bound(program, self._y, reduced) + on + self._rounding
        chosen = x > 0.5
        found = -np.inf
        if fits(program, np.where(chosen, 1.0, 0.0)):
            found = float(self._eta[chosen].sum())
        best = max(score, found)
        if bound <= best:
            return [Evaluation(bound, (), chosen, found)]
        decided = np.where(reduced > 0.0, np.inf, -np.inf)
        eta = np.where((np.abs(reduced) > bound - best) & np.isfinite(eta), decided, eta)
        return [Evaluation(bound, _branch(eta, x), chosen, found)]


def _branch(eta: FloatArray, x: FloatArray) -> list[FloatArray]:
    """Return two children of a node: the most fractional variable fixed to 1 and to 0.

    The likelier comes first. A node without open variables has no children.
    """
    doubt = np.where(np.isfinite(eta), 0.5 - np.abs(x - 0.5), -1.0)
    if doubt.max(initial=-1.0) <= INTEGRAL:  # integral but not proved: branch on any open variable
        doubt = np.where(np.isfinite(eta), 1.0, -1.0)
        if not (doubt > 0.0).any():
            return []
    v = int(doubt.argmax())
    on, off = eta.copy(), eta.copy()
    on[v], off[v] = np.inf, -np.inf
    return [on, off] if x[v] > 0.5 else [off, on]
