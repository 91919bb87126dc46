"""What ``lpsmap solve`` tells a terminal on the way, and what its picture is drawn from."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import click
import numpy as np

import lpsmap_core
from lpsmap_core import Assignment, NamedGraph, SearchProgress
from lpsmap_core.api import OWN_SEARCH, FloatArray

__all__ = ["Narration", "relative_gap"]


class Narration:
    """Listens to a search.

    Parameters
    ----------
    aloud
        Whether to tell standard error what is heard.
    """

    def __init__(self, aloud: bool) -> None:
        self._aloud = aloud
        self._begin = time.monotonic()
        self._heard: list[tuple[float, int, float, float]] = []
        self._last: dict[int, tuple[float, float]] = {}

    def read(self, path: Path, named: NamedGraph) -> None:
        """Tell of a file that was read."""
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
        """Tell what evidence leaves."""
        free = int(np.isfinite(named.graph.flat_scores()).sum())
        self._say(f"given the evidence: {free} variables that are neither known nor forbidden")

    def search(self, component: int, how_far: SearchProgress) -> None:
        """Take note of how far a search is; tell if it is further."""
        now = how_far.score, how_far.bound
        if self._last.get(component) == now:
            return
        self._last[component] = now
        self._heard.append((self.seconds, component, *now))
        best = "none yet" if how_far.score == -np.inf else f"{how_far.score:.6f}"
        self._say(
            f"component {component}: best {best}, none above {how_far.bound:.6f}, "
            f"gap {relative_gap(*now)}, {how_far.n_nodes} nodes, {self.seconds:.1f} s"
        )

    def end(self, found: Assignment) -> None:
        """Tell what came of it."""
        proved, nodes = found.found & found.proved, int(found.n_nodes.sum())
        took = f"{nodes} nodes, {self.seconds:.2f} s"
        bound = float(found.bound.sum()) + found.free_score
        if found.solver != OWN_SEARCH or self._heard:
            self._say(f"by {found.solver}, which {found.reason}")
        if (np.isneginf(found.bound) & ~found.found).any():
            self._say(f"no assignment is allowed; {took}")
        elif proved.all():
            self._say(f"optimum {found.total:.9g}, proved; {took}")
        else:
            best = f"best {found.total:.9g}" if found.found.all() else "no assignment yet"
            self._say(
                f"stopped: {best}, none above {bound:.9g}, gap "
                f"{relative_gap(found.total, bound)}; {int(proved.sum())} of {len(proved)} "
                f"components proved; {took}"
            )

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def history(self, found: Assignment) -> FloatArray:
        """Return times, best scores and bounds of the whole graph, as rows.

        They begin when every component that is searched is bounded, and end with what was found.
        """
        score, bound = found.score.copy(), found.bound.copy()
        free, n = found.free_score, len({c for _, c, _, _ in self._heard})
        met: set[int] = set()
        rows = []
        for seconds, component, best, highest in self._heard:
            score[component], bound[component] = best, highest
            met.add(component)
            if len(met) == n:
                rows.append((seconds, float(score.sum()) + free, float(bound.sum()) + free))
        rows.append((self.seconds, found.total, float(found.bound.sum()) + free))
        return np.array(rows)

    def _say(self, words: str) -> None:
        if self._aloud:
            click.echo(words, err=True)


def relative_gap(score: float, bound: float) -> str:
    """Return how far a bound is above a score, in percent of it."""
    if not np.isfinite(score) or not np.isfinite(bound):
        return "open"
    return f"{100.0 * max(bound - score, 0.0) / max(1.0, abs(score)):.3g} %"
