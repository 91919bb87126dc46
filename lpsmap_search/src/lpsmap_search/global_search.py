"""Viterbi training to a proved optimum."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpsmap_core import Deadline, ended_by_ctrl_c
from lpsmap_core.api import FloatArray, checked_count, checked_flag
from lpsmap_decode import Search, SearchProgress, SearchResult
from lpsmap_search.checkpoint import Autosave, Checkpoint, subject_of
from lpsmap_search.checks import checked_nonnegative, checked_time
from lpsmap_search.constraints import CountConstraint, checked_constraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.incumbents import Incumbent
from lpsmap_search.progress import status_line
from lpsmap_search.relaxations import relaxation_named
from lpsmap_search.search_loop import SearchLoop
from lpsmap_search.workers import AnyExecutor, Workers

GAP_TOLERANCE = 1e-9
"""Relative tolerance on the gap."""

MAX_BYTES = 2 << 30
"""Approximate memory of open boxes beyond which the search is depth-first."""

OVERHEAD = 600
"""Bytes of an open box in addition to its arrays."""


@dataclass(frozen=True)
class Certified:
    """The best parameters found, with an upper bound."""

    parameters: FloatArray
    """(M,) probabilities of greatest likelihood for the counts."""
    counts: FloatArray
    """(M,) counts of the best structures under the parameters."""
    objective: float
    """The joint log-likelihood of parameters and structures."""
    bound: float
    """No parameters and structures have a higher joint log-likelihood."""
    n_nodes: int
    """Number of evaluated boxes, including those of a checkpoint."""
    seconds: float
    """Duration, including local search and the earlier calls of a checkpoint."""
    proved: bool
    """Whether the bound is within the requested gap. The bound is valid in any case."""
    interrupted: bool
    """Whether Ctrl-C ended the search."""

    @property
    def gap(self) -> float:
        """``bound - objective``."""
        return self.bound - self.objective

    @property
    def is_void(self) -> bool:
        """Whether the bound only states that probabilities are at most one."""
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
    executor: AnyExecutor = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_interval: float = 60.0,
    progress: bool = False,
    report: Callable[[SearchProgress], None] | None = None,
) -> Certified:
    """Find the parameters and structures of greatest joint likelihood, with a proof.

    Viterbi training maximises ``sum_m f_m log p_m`` over structures with counts f and parameters p.
    This is branch and bound over boxes of parameters (Gormley & Eisner 2013), each bounded by a
    relaxation, which also yields structures as incumbents. The search is exponential in the worst
    case. Limits and Ctrl-C end it with the best result so far and a valid bound.

    Parameters
    ----------
    corpus
        The sentences.
    relaxation
        The relaxation that bounds a box. ``"lagrangian"`` uses the Viterbi algorithm as oracle, see
        `lpsmap_search.lagrangian`; ``"chord"`` is a linear program over the hypergraphs;
        ``"mccormick"`` is the relaxation of the paper, see `lpsmap_search.paper`. The last two use
        HiGHS, and need the extra ``programs``.
    gap
        The search ends once the bound is within ``gap * max(1, abs(objective))`` of the objective.
    max_time
        Time limit of this call in seconds, or None.
    max_nodes
        Maximum number of boxes, including those of the checkpoint, or None.
    n_restarts
        Number of restarts of Viterbi EM, and of soft EM, for the first incumbent. Ten times as many
        restarts from perturbations of the best follow, and more while they succeed, within half of
        the time.
    seed
        The seed of random numbers.
    constraint
        A constraint on the counts of the structures, such as `universal_rules`, or None. It is
        relaxed by a multiplier: every bound holds for all structures that satisfy it, also if equal
        sentences have different structures. The gap may not close, since the best mixture of
        structures can be better than any of them. Then the search ends without a proof.
    executor
        An executor of `concurrent.futures`, such as dask's ``client.get_executor()``; a function
        that returns one; a number of processes; or None for this process. If a worker dies, its
        boxes are evaluated again: by another executor if one can be created, otherwise in this
        process. Processes import the script: it must start its work below ``if __name__ ==
        "__main__":``.
    checkpoint
        A file for the state of the search, or None. If it exists, the search is resumed from it,
        without restarts; nodes and seconds accumulate. It is written periodically and at the end,
        always atomically, so that a killed process loses only the work since then. If it cannot be
        written later on, a warning is issued and the search continues.
    checkpoint_interval
        Minimum seconds between two checkpoints; longer if writing would take over a tenth of the
        time.
    progress
        Whether to show a status line on the terminal: objective, bound, gap, nodes and their rate.
        Needs the extra ``progress``.
    report
        Called periodically with the objective, the bound, the number of nodes and the seconds. If
        it raises `KeyboardInterrupt`, the search ends as after Ctrl-C.

    Raises
    ------
    TypeError
        If an option has the wrong type.
    ValueError
        If an option is out of range, no structures satisfy the constraint, the executor does not
        accept work, or the checkpoint is damaged, belongs to another search or a newer release, or
        cannot be written.
    ImportError
        If the relaxation needs highspy, or `progress` needs rich, and it is not installed.
    """
    begin, gap = time.monotonic(), checked_nonnegative("gap", gap)
    max_nodes = None if max_nodes is None else checked_count("max_nodes", max_nodes)
    n_restarts = checked_count("n_restarts", n_restarts)
    interval = checked_nonnegative("checkpoint_interval", checkpoint_interval)
    space_of, deadline = relaxation_named(relaxation), Deadline(checked_time(max_time))
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    with ended_by_ctrl_c(deadline), status_line(checked_flag("progress", progress)) as show:
        space, autosave, state = space_of(corpus, gap, constraint=constraint), None, None
        if checkpoint is not None:
            file = Checkpoint(checkpoint, subject_of(corpus, constraint, relaxation), gap)
            autosave, state = Autosave(file, space, interval), file.read(space)
        workers = Workers(executor, space)
        try:
            begin -= 0.0 if state is None else state.found.seconds
            reporter = _Reporter([show] if report is None else [show, report], begin, deadline)
            box = sum(array.nbytes for array in space.pack([space.root()]).values())
            most_open = MAX_BYTES // (OVERHEAD + box)
            if state is None:
                incumbent = Incumbent(corpus, seed, constraint, deadline, reporter)
                start = incumbent.found(n_restarts)
                search = Search(space.root(), gap, start, bound=0.0, most_open=most_open)
            else:
                search = Search.resumed(state, gap, most_open)
            _run(SearchLoop(search, workers, deadline, max_nodes), search, reporter, autosave)
        finally:
            workers.close()
    return _certified(corpus, search.found, gap)


class _Reporter:
    """Calls listeners with the progress of a search; one that raises `KeyboardInterrupt` ends it.

    Parameters
    ----------
    listeners
        Functions to call with the progress.
    begin
        The start time of the search.
    deadline
        The deadline of the search.
    """

    def __init__(
        self,
        listeners: Sequence[Callable[[SearchProgress], None]],
        begin: float,
        deadline: Deadline,
    ) -> None:
        self._listeners, self._begin, self.deadline = listeners, begin, deadline

    @property
    def seconds(self) -> float:
        """Seconds since the start of the search."""
        return time.monotonic() - self._begin

    def __call__(self, progress: SearchProgress) -> None:
        progress.seconds = self.seconds
        try:
            for listener in self._listeners:
                listener(progress)
        except KeyboardInterrupt:
            self.deadline.end()


def _run(
    loop: SearchLoop,
    search: Search[Any, FloatArray],
    reporter: _Reporter,
    autosave: Autosave | None,
) -> None:
    """Run the loop of a search; report its progress, and save its states."""

    def save(at_end: bool) -> None:
        search.found.seconds = reporter.seconds
        if autosave is not None and (at_end or autosave.due):
            autosave.save(search.state())

    def after_batch() -> None:
        save(at_end=False)
        reporter(search.found)

    try:
        after_batch()
        loop.run(after_batch)
    except KeyboardInterrupt:  # from a user's handler: the open boxes may be inconsistent
        autosave = None
        reporter.deadline.end()
    finally:
        search.found.interrupted = reporter.deadline.cut
        save(at_end=True)


def _certified(corpus: Corpus, result: SearchResult[FloatArray], gap: float) -> Certified:
    counts = np.asarray(result.answer)
    return Certified(
        corpus.model.normalised(counts),
        counts,
        result.score,
        result.bound,
        result.n_nodes,
        result.seconds,
        result.bound <= result.score + gap * max(1.0, abs(result.score)) + GAP_TOLERANCE,
        result.interrupted,
    )
