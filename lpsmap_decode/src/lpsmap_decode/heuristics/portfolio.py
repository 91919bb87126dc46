"""All heuristics of a component, in turns: the one that has taken the least time for what it found.

A heuristic is a function of a component that offers assignments, and yields often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import Watch
from lpsmap_decode.heuristics.block_search import search_blocks
from lpsmap_decode.heuristics.completion import complete_columns
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.lagrangian import price_rows
from lpsmap_decode.heuristics.neighbourhoods import search_neighbourhoods
from lpsmap_decode.heuristics.states import search_states
from lpsmap_decode.networks.network import networks_of

__all__ = ["Portfolio"]

Heuristic = Callable[[Component], Iterator[None]]

ALL: tuple[Heuristic, ...] = (price_rows, complete_columns)

LINEAR_IMPROVING: tuple[Heuristic, ...] = (search_neighbourhoods,)
"""Heuristics that improve an assignment of components that rows describe."""

TABLES: tuple[Heuristic, ...] = (search_states, search_blocks)
"""Heuristics for networks of tables."""

STRICT_TABLES: tuple[Heuristic, ...] = (search_states, search_blocks, complete_columns)
"""Heuristics for networks of tables that forbid entries."""

REWARD = 0.5
"""Factor of the time that counts after an improvement."""


class Portfolio:
    """The heuristics of a component, which can be continued."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self._waiting: tuple[Heuristic, ...] | None = None
        self._running: list[Iterator[None]] = []
        self._seconds: list[float] = []

    def run(self, deadline: Deadline, until_found: bool = False) -> None:
        """Run the heuristics until a deadline, a proof, or, `until_found`, an assignment."""
        component = self.component
        with Watch(within=deadline):
            while not (deadline.passed or component.exhausted or (until_found and component.found)):
                if self._waiting is None:
                    first, self._waiting = _heuristics_of(component)
                    self._start(first)
                if component.found:
                    self._start(self._waiting)
                    self._waiting = ()
                if not self._running:
                    return
                self._step()

    def _start(self, heuristics: tuple[Heuristic, ...]) -> None:
        """Start heuristics, whose turns begin beside those that have taken the least time."""
        self._seconds += [min(self._seconds, default=0.0)] * len(heuristics)
        self._running += [heuristic(self.component) for heuristic in heuristics]

    def _step(self) -> None:
        i = min(range(len(self._running)), key=self._seconds.__getitem__)
        before, begin = self.component.score, time.perf_counter()
        try:
            next(self._running[i])
        except StopIteration:
            del self._running[i], self._seconds[i]
            return
        self._seconds[i] += time.perf_counter() - begin
        if self.component.score > before:
            self._seconds[i] *= REWARD


def _heuristics_of(component: Component) -> tuple[tuple[Heuristic, ...], tuple[Heuristic, ...]]:
    """Return the heuristics that suit a component: at once, and once there is an assignment."""
    if networks_of(component.part).covered[0]:
        return STRICT_TABLES if np.isneginf(component.eta_v).any() else TABLES, ()
    return ALL, LINEAR_IMPROVING if component.is_linear else ()
