"""The messages of ``lpsmap solve`` on a terminal, and the history for its plot."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import click
import numpy as np

import lpsmap_core
from lpsmap_core.api import FloatArray
from lpsmap_decode.component_results import Parts
from lpsmap_decode.formats.file_format import NamedGraph
from lpsmap_decode.results.assignment import OWN_SEARCH, Assignment
from lpsmap_decode.results.search_limits import SearchProgress


class ProgressLog:
    """Records the progress of a search, and prints it on standard error if `aloud`."""

    def __init__(self, aloud: bool) -> None:
        self._aloud = aloud
        self._begin = time.monotonic()
        self._history: list[tuple[float, int, float, float]] = []
        self._last: dict[int, tuple[float, float]] = {}

    def read(self, path: Path, named: NamedGraph) -> None:
        """Report a file that was read."""
        graph, types = named.graph, Counter[str]()
        for factor in graph.factors:
            types[type(factor).__name__] += factor.n_factors
        kinds = ", ".join(f"{n} {name}" for name, n in types.items()) or "none"
        self._say(f"lpsmap {lpsmap_core.__version__}")
        self._say(
            f"{path}: {graph.n_variables} binary variables in {len(named.variables)} blocks; "
            f"factors: {kinds}; {self.seconds:.2f} s"
        )

    def given(self, named: NamedGraph) -> None:
        """Report a conditioned graph."""
        free = int(np.isfinite(named.graph.flat_scores()).sum())
        self._say(f"given the evidence: {free} variables that are neither known nor forbidden")

    def search(self, component: int, how_far: SearchProgress) -> None:
        """Record the progress of a search; report it if score or bound changed."""
        now = how_far.score, how_far.bound
        if self._last.get(component) == now:
            return
        self._last[component] = now
        self._history.append((self.seconds, component, *now))
        best = "none yet" if how_far.score == -np.inf else f"{how_far.score:.9g}"
        self._say(
            f"component {component}: best {best}, bound {how_far.bound:.9g}, "
            f"gap {relative_gap(*now)}, {how_far.n_nodes} nodes, {self.seconds:.1f} s"
        )

    def end(self, found: Assignment, parts: Parts) -> None:
        """Report the result."""
        proved, nodes = found.found & found.proved, int(found.n_nodes.sum())
        took = f"{nodes} nodes, {self.seconds:.2f} s"
        total, bound = float(parts.score.sum()), float(found.bound.sum()) + parts.free
        if found.solver != OWN_SEARCH or self._history:
            self._say(f"by {found.solver}, which {found.reason}")
        if (np.isneginf(found.bound) & ~found.found).any():
            self._say(f"no assignment is allowed; {took}")
        elif proved.all():
            self._say(f"optimum {total:.9g}, proved; {took}")
        else:
            best = f"best {total:.9g}" if found.found.all() else "no assignment yet"
            self._say(
                f"stopped: {best}, bound {bound:.9g}, gap "
                f"{relative_gap(total, bound)}; {int(proved.sum())} of {len(proved)} "
                f"components proved; {took}"
            )

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begin

    def history(self, found: Assignment, parts: Parts) -> FloatArray:
        """Return times, best scores and bounds of the whole graph, as rows.

        They start when every searched component has a bound, and end with the result.
        """
        score, bound = found.score.copy(), found.bound.copy()
        free, n = parts.free, len({c for _, c, _, _ in self._history})
        met: set[int] = set()
        rows = []
        for seconds, component, best, highest in self._history:
            score[component], bound[component] = best, highest
            met.add(component)
            if len(met) == n:
                rows.append((seconds, float(score.sum()) + free, float(bound.sum()) + free))
        rows.append((self.seconds, float(parts.score.sum()), float(found.bound.sum()) + free))
        return np.array(rows)

    def _say(self, words: str) -> None:
        if self._aloud:
            click.echo(words, err=True)


def relative_gap(score: float, bound: float) -> str:
    """Return the gap between a bound and a score, in percent of the score, or of the bound."""
    if not np.isfinite(score) or not np.isfinite(bound):
        return "open"
    size = abs(score) or abs(bound) or 1.0
    return f"{100.0 * max(bound - score, 0.0) / size:.3g} %"
