"""Viterbi training to a proved optimum."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpsmap_core import Deadline, SearchProgress, ended_by_ctrl_c
from lpsmap_decode import Search, SearchResult
from lpsmap_search.arrays import FloatArray
from lpsmap_search.box_space import BoxSpace
from lpsmap_search.checkpoint import Autosave, Checkpoint, subject_of
from lpsmap_search.checks import checked_count, checked_flag, checked_number, checked_time
from lpsmap_search.constraints import CountConstraint, checked_constraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.incumbents import Incumbent
from lpsmap_search.progress import shown
from lpsmap_search.relaxations import relaxation_named
from lpsmap_search.search_loop import SearchLoop
from lpsmap_search.workers import GivenExecutor, Workers

__all__ = ["Certified", "global_search"]

ROUNDING = 1e-9
"""By how much a bound may miss the gap."""

MOST_BYTES = 2 << 30
"""Memory of open boxes, about, beyond which the search goes in depth."""

OVERHEAD = 600
"""Bytes of an open box beside its arrays."""


@dataclass(frozen=True)
class Certified:
    """The best parameters that were found, and what no parameters exceed."""

    parameters: FloatArray
    """(M,) probabilities of greatest likelihood for the counts."""
    counts: FloatArray
    """(M,) of the best structures under them."""
    objective: float
    """Their joint log-likelihood."""
    bound: float
    """No parameters and structures have a higher joint log-likelihood."""
    n_nodes: int
    """Boxes that were bounded, those of a checkpoint included."""
    seconds: float
    """How long it took, local search included, and the calls before that a checkpoint continues."""
    proved: bool
    """Whether the bound is within the gap asked for. Else the bound holds, but proves no more than
    it says."""
    interrupted: bool
    """Whether Ctrl-C ended the search."""

    @property
    def gap(self) -> float:
        """``bound - objective``."""
        return self.bound - self.objective

    @property
    def is_void(self) -> bool:
        """Whether the bound says no more than that probabilities are at most one."""
        return self.bound >= 0.0 > self.objective


def global_search(
    corpus: Corpus,
    *,
    relaxation: str = "lagrangian",
    gap: float = 0.01,
    max_time: float | None = None,
    max_nodes: int | None = None,
    n_restarts: int = 20,
    seed: int = 0,
    constraint: CountConstraint | None = None,
    executor: GivenExecutor = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_interval: float = 60.0,
    progress: bool = False,
    report: Callable[[SearchProgress], None] | None = None,
) -> Certified:
    """Find the parameters and structures of greatest joint likelihood, with a proof.

    Viterbi training maximises ``sum_m f_m log p_m`` over structures with counts f and parameters p.
    Branch and bound over boxes of parameters (Gormley & Eisner 2013), each bounded by a relaxation
    that meets structures, which are incumbents. The search is exponential in the worst case. Limits
    and Ctrl-C end it with the best that was found, and a bound that holds.

    Parameters
    ----------
    corpus
        The sentences.
    relaxation
        What bounds a box. ``"lagrangian"``: its oracle is the Viterbi algorithm, see
        `lpsmap_search.lagrangian`. ``"chord"``: a linear program over the hypergraphs.
        ``"mccormick"``: that of the paper, see `lpsmap_search.paper`. HiGHS solves the programs of
        both, which takes the extra ``programs``.
    gap
        The search ends once the bound is within ``gap * max(1, abs(objective))`` of the objective.
    max_time
        Limit of the seconds of this call, or None.
    max_nodes
        Limit of the boxes, those of the checkpoint included, or None.
    n_restarts
        Of Viterbi EM, and of soft EM, for the first incumbent. Ten times as many from perturbations
        of the best follow, and more while that pays, within half of the time.
    seed
        Of its random numbers.
    constraint
        What the counts of the structures have to satisfy, such as `universal_rules`, or None. Its
        multiplier joins the others: every bound holds for all structures that satisfy it, also for
        unequal ones of equal sentences, but no bound may come as near as `gap`, since the best
        mixture of structures can be better than any of them. Then the search ends unproved.
    executor
        Who bounds boxes: an executor of `concurrent.futures`, such as dask's
        ``client.get_executor()``; a function that makes one; a number of processes; or None for
        this process. The boxes of a worker that dies are bounded again: by another executor where
        one can be made, else in this process. Processes import the script: it must start its work
        below ``if __name__ == "__main__":``.
    checkpoint
        A file for the search, or None. If it exists, the search in it goes on: without restarts,
        and with its nodes and seconds counted. It is written now and then and at the end, whatever
        that is, and always whole. A process that is killed loses only what came after. Where it
        cannot be written later on, a warning says so, and the search goes on.
    checkpoint_interval
        Seconds from one writing to the next, at least; longer where it would take over a tenth of
        the time.
    progress
        Whether to show a line on the terminal: objective, bound, gap, nodes and their rate. It
        takes the extra ``progress``.
    report
        Called now and then with the objective, the bound, the number of nodes and the seconds. If
        it raises `KeyboardInterrupt`, the search ends as by Ctrl-C.

    Raises
    ------
    TypeError
        If an option is of another type than it should be.
    ValueError
        If an option is out of range, no structures satisfy the constraint, the executor takes no
        work, or the checkpoint is damaged, of another search or a newer release, or cannot be
        written.
    """
    begin, gap = time.monotonic(), checked_number("gap", gap)
    max_nodes = None if max_nodes is None else checked_count("max_nodes", max_nodes)
    n_restarts = checked_count("n_restarts", n_restarts)
    interval = checked_number("checkpoint_interval", checkpoint_interval)
    space_of, deadline = relaxation_named(relaxation), Deadline(checked_time(max_time))
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    with ended_by_ctrl_c(deadline), shown(checked_flag("progress", progress)) as show:
        space, autosave, state = space_of(corpus, gap, constraint=constraint), None, None
        if checkpoint is not None:
            file = Checkpoint(checkpoint, subject_of(corpus, constraint, relaxation), gap)
            autosave, state = Autosave(file, space, interval), file.read(space)
        workers = Workers(executor, space)
        try:
            begin -= 0.0 if state is None else state.found.seconds
            tell = _Listeners([show] if report is None else [show, report], begin, deadline)
            most_open = _most_open(space)
            if state is None:
                incumbent = Incumbent(corpus, seed, constraint, deadline, tell)
                start = incumbent.found(n_restarts)
                search = Search(space.root(), gap, start, bound=0.0, most_open=most_open)
            else:
                search = Search.resumed(state, gap, most_open)
            _Watched(search, tell, deadline, autosave).run(
                SearchLoop(search, workers, deadline, max_nodes)
            )
        finally:
            workers.close()
    return _certified(corpus, search.found, gap)


def _most_open(space: BoxSpace[Any]) -> int:
    """Return how many boxes the memory should hold."""
    box = sum(array.nbytes for array in space.pack([space.root()]).values())
    return MOST_BYTES // (OVERHEAD + box)


class _Listeners:
    """Tells how far a search is.

    Parameters
    ----------
    listeners
        Who hears of it.
    begin
        When the search's clock showed zero.
    deadline
        Which a listener that raises `KeyboardInterrupt` ends.
    """

    def __init__(
        self,
        listeners: Sequence[Callable[[SearchProgress], None]],
        begin: float,
        deadline: Deadline,
    ) -> None:
        self._listeners, self._begin, self._deadline = listeners, begin, deadline

    @property
    def seconds(self) -> float:
        """What the clock shows."""
        return time.monotonic() - self._begin

    def __call__(self, found: SearchProgress) -> None:
        found.seconds = self.seconds
        try:
            for listener in self._listeners:
                listener(found)
        except KeyboardInterrupt:
            self._deadline.end()


class _Watched:
    """A search whose progress is reported and saved.

    Parameters
    ----------
    search
        The search.
    tell
        Who hears of the progress.
    deadline
        Which Ctrl-C ends.
    autosave
        Where it is saved, or None.
    """

    def __init__(
        self,
        search: Search[Any, FloatArray],
        tell: _Listeners,
        deadline: Deadline,
        autosave: Autosave | None,
    ) -> None:
        self._search, self._listeners, self._deadline = search, tell, deadline
        self._autosave = autosave

    def run(self, loop: SearchLoop) -> None:
        """Run the search, and save how it ends."""
        try:
            self._tell()
            loop.run(self._tell)
        except KeyboardInterrupt:  # of a handler of the user's: the open boxes may be torn
            self._autosave = None
            self._deadline.end()
        finally:
            self._search.found.interrupted = self._deadline.cut
            self._save(at_end=True)

    def _tell(self) -> None:
        self._save()
        self._listeners(self._search.found)

    def _save(self, at_end: bool = False) -> None:
        self._search.found.seconds = self._listeners.seconds
        if self._autosave is not None and (at_end or self._autosave.due):
            self._autosave.save(self._search.state())


def _certified(corpus: Corpus, found: SearchResult[FloatArray], gap: float) -> Certified:
    counts = np.asarray(found.answer)
    return Certified(
        corpus.model.normalised(counts),
        counts,
        found.score,
        found.bound,
        found.n_nodes,
        found.seconds,
        found.bound <= found.score + gap * max(1.0, abs(found.score)) + ROUNDING,
        found.interrupted,
    )
