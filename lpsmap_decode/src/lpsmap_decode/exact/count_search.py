"""The best assignment of a component of count constraints, by its linear program.

A node of the search fixes some variables. The dual simplex method bounds it by a vertex, which is
often integral; otherwise the search branches on a fractional variable. Every node continues from
the tableau of the node before, mostly for few pivots. The bound of the multipliers is computed from
the program itself, so rounding errors of the tableau do not affect it; if they are large, the node
is solved again from a new tableau.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    Part,
    offsets_of,
    out_of_time,
)
from lpsmap_decode.counts.simplex import (
    FOUND,
    NOTHING_FITS,
    CountProgram,
    fits,
    new_tableau,
    next_vertex,
    vertex_bound,
)
from lpsmap_decode.exact.component_copies import copies_of
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.search import Evaluation, Space, Unfinished
from lpsmap_decode.tolerances import BOUND_ROUNDING, INTEGRAL
from lpsmap_dynamic import counts_of

__all__ = ["CountSpace"]

MAX_VARIABLES = 2000
"""Maximum number of variables of a component."""

MIN_VIOLATION = 1e-6
"""Minimum violation that proves infeasibility."""

DRIFT = 1e-10
"""Difference of a vertex' score from its bound, relative to the sum of the absolute scores, beyond
which the tableau has too large rounding errors."""


class CountSpace(Space[FloatArray, BoolArray]):
    """The search space of assignments of a component, bounded by its linear program.

    A node is an array of scores of the variables that are not forbidden, infinite where they are
    fixed; an answer is an array of flags of all variables.

    Parameters
    ----------
    part, component
        The part, and the number of the component in it.
    eta
        Scores of the component's variables; ``-inf`` forbids.
    """

    patience = 2.0

    def __init__(self, part: Part, component: int, eta: FloatArray) -> None:
        self._open: BoolArray = eta > -np.inf
        self._program = _program_of(part, component, eta)
        self._eta = self._program.eta
        self._y, self._reduced = np.zeros(len(self._program.low)), np.empty(len(self._eta))
        self._tableau = new_tableau(self._program)
        self._size = 1.0 + float(np.abs(self._eta).sum())
        self._rounding = BOUND_ROUNDING * self._size

    @classmethod
    def probed(cls, part: Part, component: int, eta: FloatArray) -> CountSpace:
        """Return the space without the variables that probing finds off in all assignments.

        Probing takes as long as some nodes; a smaller tableau saves time at all nodes.
        """
        alone = Component(copies_of(part, component, 1), eta, np.empty(0), np.zeros(len(eta)))
        off = (alone.implied == 0) & ~alone.exhausted
        return cls(part, component, np.where(off, -np.inf, eta))

    @staticmethod
    def serves(part: Part, component: int) -> bool:
        """Return whether a component can be searched in this way."""
        n = part.first_variable[component + 1] - part.first_variable[component]
        return bool(counts_of(part).covered[component] and n <= MAX_VARIABLES)

    def root(self) -> FloatArray:
        """Return the root node."""
        return self._eta

    def evaluate(
        self, nodes: Sequence[FloatArray], score: float, known: bool = False
    ) -> Sequence[Evaluation[FloatArray, BoolArray]] | Unfinished[BoolArray]:
        """Bound a node by a vertex, round it, fix variables by their reduced scores, and branch.

        Whether an assignment is `known` does not matter.
        """
        (eta,) = nodes
        program = self._program._replace(eta=eta)
        bound, x = self._bound(program)
        chosen, found = np.zeros(len(self._open), dtype=bool), -np.inf
        chosen[self._open] = x > 0.5
        if fits(program, np.where(x > 0.5, 1.0, 0.0)):
            found = float(self._eta[x > 0.5].sum())
        if out_of_time():
            return Unfinished(chosen, found)
        if bound == -np.inf:
            return [Evaluation(-np.inf)]
        if bound <= max(score, found + 2.0 * self._rounding):  # the vertex is an assignment
            return [Evaluation(bound, (), chosen, found)]
        decided = np.where(self._reduced > 0.0, np.inf, -np.inf)
        settled = (np.abs(self._reduced) > bound - score) & np.isfinite(eta)
        return [Evaluation(bound, _branch(np.where(settled, decided, eta), x), chosen, found)]

    def excluding(
        self, node: FloatArray, last: Evaluation[FloatArray, BoolArray]
    ) -> Iterator[tuple[float, FloatArray]]:
        """Yield bounds and parts of the node evaluated last, with all its assignments but one.

        Variables that are on come first: fixing them often decides the others.
        """
        assert last.answer is not None
        on, eta = last.answer[self._open], node.copy()
        bounds = last.bound - np.maximum(np.where(on, self._reduced, -self._reduced), 0.0)
        free = np.flatnonzero(np.isfinite(node))
        for v in free[np.argsort(~on[free], kind="stable")].tolist():
            value, other = (np.inf if on[v] else -np.inf), eta.copy()
            other[v] = -value
            yield float(bounds[v]), other
            eta[v] = value

    def _bound(self, program: CountProgram) -> tuple[float, FloatArray]:
        """Return a bound and a vertex, and write the reduced scores."""
        eta, y, reduced = program.eta, self._y, self._reduced
        on = float(self._eta[eta == np.inf].sum()) + self._rounding
        is_new = self._tableau.n_lines[0] == 0
        for last in (True,) if is_new else (False, True):
            outcome, x = next_vertex(program, self._tableau, y), self._tableau.x.copy()
            if out_of_time():
                self._tableau = new_tableau(self._program)
                return np.inf, x
            if outcome == FOUND:
                bound = vertex_bound(program, y, reduced) + on
                if last or bound - float(self._eta @ x) <= DRIFT * self._size:
                    return bound, x
            if outcome == NOTHING_FITS:
                nothing = program._replace(eta=np.where(np.isinf(eta), eta, 0.0))
                if vertex_bound(nothing, y, reduced) < -MIN_VIOLATION:
                    return -np.inf, x
            self._tableau = new_tableau(self._program)
        y[:] = 0.0
        bound = vertex_bound(program, y, reduced) + on
        return bound, np.where(np.isinf(eta), eta > 0.0, 0.5)


def _program_of(part: Part, component: int, eta: FloatArray) -> CountProgram:
    """Return the program of a component over the variables that are not forbidden."""
    counts, is_open = counts_of(part), eta > -np.inf
    own = slice(*counts.first[component : component + 2].tolist())
    sizes = counts.end[own] - counts.begin[own]
    row = np.repeat(np.arange(len(sizes)), sizes)
    link = np.repeat(counts.begin[own] - offsets_of(sizes)[:-1], sizes) + np.arange(len(row))
    variable = counts.variable[link] - int(part.first_variable[component])
    kept = is_open[variable]
    offsets = offsets_of(np.bincount(row[kept], minlength=len(sizes)))
    return CountProgram(
        eta=eta[is_open],
        first=0,
        variable=(np.cumsum(is_open) - 1)[variable[kept]],
        negated=counts.negated[link[kept]],
        begin=offsets[:-1],
        end=offsets[1:],
        low=counts.low[own],
        high=counts.high[own],
    )


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
