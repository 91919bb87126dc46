"""The best assignment of a component whose factors all bound counts, by its linear program.

A node of the search has some variables decided. The dual simplex method bounds it, by a vertex
that is often whole; a variable between its bounds is branched on. What multipliers bound is
computed from the program itself, without what rounding did to the tableau.
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
from lpsmap_decode.search import CutShort, Look, Space

__all__ = ["Counted"]

MOST_VARIABLES = 2000
"""Of a component that is searched in this way."""

WHOLE = 1e-6
"""Distance from 0 and 1 within which a variable counts as whole."""

ROUNDING = 1e-13
"""Added to bounds, in units of the summed magnitudes of the scores: what rounding may hide."""

CERTAIN = 1e-6
"""How far bounds have to miss each other for a proof that nothing fits."""


class Counted(Space[FloatArray, BoolArray]):
    """The assignments of a component's variables.

    A node is its scores, infinite where they are decided; an answer which variables are on.

    Parameters
    ----------
    part, component
        The part that it is of, and its number.
    eta
        Scores of the component's variables; ``-inf`` forbids.
    """

    def __init__(self, part: Part, component: int, eta: FloatArray) -> None:
        counts = part.counts.record
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
        self._rounding = ROUNDING * (1.0 + float(np.abs(eta[np.isfinite(eta)]).sum()))

    @staticmethod
    def serves(part: Part, component: int) -> bool:
        """Return whether this is the way to search a component."""
        n = part.first_variable[component + 1] - part.first_variable[component]
        return bool(part.counts.record.covered[component] and n <= MOST_VARIABLES)

    def root(self) -> FloatArray:
        """Return the node of all assignments."""
        return self._eta

    def look(
        self, nodes: Sequence[FloatArray], score: float
    ) -> Sequence[Look[FloatArray, BoolArray]] | CutShort[BoolArray]:
        """Bound a node by a vertex, round it, decide what cannot be otherwise, and branch."""
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
            return CutShort(chosen, float(self._eta[chosen].sum())) if fitting else CutShort()
        if outcome == NOTHING_FITS:
            nothing = program._replace(eta=np.where(np.isinf(eta), eta, 0.0))
            if vertex_bound(nothing, self._y, reduced) < -CERTAIN:
                return [Look(-np.inf)]
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
            return [Look(bound, (), chosen, found)]
        decided = np.where(reduced > 0.0, np.inf, -np.inf)
        eta = np.where((np.abs(reduced) > bound - best) & np.isfinite(eta), decided, eta)
        return [Look(bound, _branched(eta, x), chosen, found)]


def _branched(eta: FloatArray, x: FloatArray) -> list[FloatArray]:
    """Return a node's two children: the most doubtful variable on and off, the likelier first.

    The node itself has no children if nothing is open: it is whole.
    """
    doubt = np.where(np.isfinite(eta), 0.5 - np.abs(x - 0.5), -1.0)
    if doubt.max(initial=-1.0) <= WHOLE:  # whole, but not proved: any open variable will do
        doubt = np.where(np.isfinite(eta), 1.0, -1.0)
        if not (doubt > 0.0).any():
            return []
    v = int(doubt.argmax())
    on, off = eta.copy(), eta.copy()
    on[v], off[v] = np.inf, -np.inf
    return [on, off] if x[v] > 0.5 else [off, on]
