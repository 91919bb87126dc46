"""Solve many graphs with an executor."""

from __future__ import annotations

import math
import os
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import closing
from typing import Any

from lpsmap_core import FactorGraph, Solution
from lpsmap_core.api import checked_count, checked_flag
from lpsmap_decode.corpus.batches import Batch, Batches
from lpsmap_decode.corpus.jobs import (
    SPARSEMAP,
    TASKS,
    Job,
    Problem,
    picklable_error,
    solve_as,
    solve_batch,
)
from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.corpus.progress import progress_bar
from lpsmap_decode.executors import BatchExecutor
from lpsmap_decode.formats.file_format import NamedGraph
from lpsmap_decode.results.assignment import Assignment

Outcomes = Generator[Outcome, None, None]

READ_AHEAD = 2
"""Maximum number of batches that are read and not yet yielded in order, relative to those under way
at most, which are two for each worker."""

MAX_DEATHS = 3
"""Problems that may crash their workers before any is solved: then workers probably cannot
start."""


def solve_many(
    problems: Iterable[Any],
    executor: Executor | Callable[[], Executor] | int | None = None,
    *,
    task: str = SPARSEMAP,
    build: Callable[[Any], FactorGraph | NamedGraph] | None = None,
    extract: Callable[[FactorGraph, Solution | Assignment], Any] | None = None,
    ordered: bool = True,
    batch_size: int | None = None,
    progress: bool = False,
    **options: Any,
) -> Iterator[Outcome]:
    """Solve many graphs independently, and yield the outcome of each.

    Parameters
    ----------
    problems
        Graphs, `NamedGraph`, paths of model files, or arguments of `build`. They are read lazily,
        so the number may be unlimited: with any executor, at most four batches for each worker are
        read and not yet yielded.
    executor
        An executor of `concurrent.futures`, such as dask's ``client.get_executor()``; a function
        that returns one; a number of processes; or None to solve one problem after the other in
        this process.
    task
        ``"sparsemap"``, ``"lp-map"`` or ``"map"``: `FactorGraph.solve`, `FactorGraph.solve_map`, or
        the latter with ``exact=True``.
    build
        Builds the graph of a problem, in the worker, so that little is sent to it.
    extract
        Called in the worker with the solved graph and the result of the solve. Its result, such as
        decoded structures, is sent back as `Outcome.extracted`.
    ordered
        Whether to yield outcomes in the order of the problems, rather than of completion. While a
        problem is slow, workers then solve the batches that are read, and wait.
    batch_size
        Number of problems that a worker gets at a time; None for as many as take about half a
        second.
    progress
        Whether to show a progress bar on the terminal. Needs the extra ``progress``.
    **options
        Options of the solve, such as ``max_time`` for each. With an executor, ``threads`` defaults
        to 1.

    Yields
    ------
    Outcome
        One for every problem. If a problem fails, its outcome holds the error; the others are not
        affected.

    Raises
    ------
    TypeError
        If an argument has the wrong type, or the task does not accept an option.
    ValueError
        If an argument is out of range.
    BrokenExecutor
        If a given executor broke, as a process pool does when a process is killed. An executor that
        solve_many created is replaced, and unfinished problems are repeated.

    Notes
    -----
    Worker processes import the script: as always with `concurrent.futures`, it must start its work
    below ``if __name__ == "__main__":``.
    """
    if task not in TASKS:
        raise ValueError(f"solve_many: task: got {task!r}; expected one of {', '.join(TASKS)}.")
    checked_flag("ordered", ordered), checked_flag("progress", progress)
    number = None if batch_size is None else checked_count("batch_size", batch_size, ", or None")
    workers = BatchExecutor(executor, "solve_many: executor")
    if not workers.in_process:
        options = {"threads": 1, **options}
    trivial = FactorGraph()
    trivial.variable(1)
    solve_as(task, trivial, options)  # validates the options
    job = Job(task, options, build, extract, os.getpid())
    if workers.needs_pickling and workers.renewable:
        pickle.dumps(job)  # fail here, not for every problem
    stream = (Problem(i, problem, False) for i, problem in enumerate(problems))
    batches = Batches(
        map(_pickled, stream) if workers.needs_pickling else stream,
        _size,
        1 if workers.in_process else number,
    )
    corpus = _Corpus(workers, job, batches)
    total = len(problems) if isinstance(problems, Sized) else None
    outcomes = _with_progress(corpus, progress, total)
    return _in_order(outcomes, corpus) if ordered else outcomes


class _Corpus:
    """The batches under way.

    When a worker dies, every batch under way is suspect, and repeated alone: a problem that then
    kills its worker again is the culprit.

    Attributes
    ----------
    following
        The number of the problem that is yielded next; infinity if outcomes are yielded in the
        order of completion.
    """

    def __init__(self, workers: BatchExecutor, job: Job, batches: Batches) -> None:
        self._workers, self._job, self._batches = workers, job, batches
        self.following = math.inf
        self._last_numbers: deque[int] = deque()  # of batches that are read and not yet yielded
        self._running: dict[Future[list[Outcome]], Batch] = {}
        self._again: deque[Batch] = deque()
        self._suspects: deque[Batch] = deque()
        self._alone = False  # whether a suspect is running
        self._n_solved = self._n_culprits = 0

    def outcomes(self) -> Outcomes:
        """Yield outcomes in the order of completion."""
        finished = False
        try:
            while self._hand_out():
                ended, _ = wait(self._running, return_when=FIRST_COMPLETED)
                if any(map(_died, ended)):
                    ended, _ = wait(self._running)  # the others follow at once
                died = [self._running[future] for future in ended if _died(future)]
                for future in ended:
                    batch = self._running.pop(future)
                    if not _died(future):
                        yield from self._results(future, batch)
                if died:
                    yield from self._after_a_death(died)
            finished = True
        finally:
            for future in self._running:
                future.cancel()
            self._workers.close(finished)

    def _hand_out(self) -> bool:
        """Submit batches while there is room; return whether any is under way."""
        while len(self._running) < (1 if self._suspects else self._workers.most_batches):
            if self._alone and self._running:
                break
            self._alone = bool(self._suspects)
            waiting = self._suspects or self._again
            batch = waiting.popleft() if waiting else self._next()
            if not batch:
                break
            self._running[self._submitted(batch)] = batch
        return bool(self._running)

    def _next(self) -> Batch:
        """Return the next batch; it is empty at the end, and while too many are not yet yielded."""
        last = self._last_numbers
        while last and last[0] < self.following:
            last.popleft()
        if len(last) >= READ_AHEAD * self._workers.most_batches:
            return []
        batch = self._batches.take()
        if batch:
            last.append(batch[-1].number)
        return batch

    def _submitted(self, batch: Batch) -> Future[list[Outcome]]:
        try:
            return self._workers.executor.submit(solve_batch, self._job, batch)
        except BrokenExecutor as error:  # a worker died while it waited for work
            future: Future[list[Outcome]] = Future()
            future.set_exception(error)
            return future

    def _results(self, future: Future[list[Outcome]], batch: Batch) -> Iterator[Outcome]:
        """Yield the outcomes of a batch; if it failed, queue its problems one by one."""
        error = future.exception()
        if error is None:
            done = future.result()
            self._batches.learn(batch, sum(outcome.seconds for outcome in done))
            self._n_solved += len(batch)
            yield from done
        elif len(batch) > 1:  # a problem could not be pickled, or dask gave up the batch
            self._again.extend([problem] for problem in batch)
        else:
            yield Outcome(batch[0].number, error=error)

    def _after_a_death(self, died: list[Batch]) -> Iterator[Outcome]:
        """Replace the executor, and queue the batches under way again."""
        if not self._workers.renewable:
            raise BrokenExecutor(
                "solve_many: the executor broke: a worker died, or it was shut down. Pass a "
                "function that returns an executor, such as executor=lambda: "
                "ProcessPoolExecutor(4), or a number of processes: then the executor is replaced, "
                "and unfinished problems are repeated."
            )
        if not self._alone:
            self._suspects.extend(died)
        elif len(died[0]) > 1:
            self._suspects.extendleft([problem] for problem in reversed(died[0]))
        else:
            self._n_culprits += 1
            if not self._n_solved and self._n_culprits >= MAX_DEATHS:
                raise BrokenExecutor(
                    f"solve_many: {self._n_culprits} workers died before they solved anything. If "
                    'this is a script, start its work below `if __name__ == "__main__":`.'
                )
            error = BrokenExecutor(
                "its worker died twice, the second time with this problem alone. It may run out of "
                "memory, or crash."
            )
            yield Outcome(died[0][0].number, error=error)
        self._workers.renew()


def _died(future: Future[list[Outcome]]) -> bool:
    """Return whether the executor broke, rather than a problem or its transfer."""
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor)


def _with_progress(corpus: _Corpus, progress: bool, total: int | None) -> Outcomes:
    """Yield outcomes, and show a progress bar."""
    with progress_bar(progress, total) as advance, closing(corpus.outcomes()) as outcomes:
        for outcome in outcomes:
            advance(outcome)
            yield outcome


def _in_order(outcomes: Outcomes, corpus: _Corpus) -> Outcomes:
    """Yield outcomes in the order of their problems."""
    early: dict[int, Outcome] = {}
    following = corpus.following = 0
    with closing(outcomes):
        for outcome in outcomes:
            early[outcome.index] = outcome
            while following in early:
                yield early.pop(following)
                following += 1
            corpus.following = following


def _pickled(problem: Problem) -> Problem:
    """Return a pickled problem; if it cannot be pickled, the error in its place."""
    try:
        content = pickle.dumps(problem.content)
    except Exception as error:
        content = pickle.dumps(picklable_error(error))
    return Problem(problem.number, content, pickled=True)


def _size(problem: Problem) -> int:
    return len(problem.content) if problem.pickled else 1
