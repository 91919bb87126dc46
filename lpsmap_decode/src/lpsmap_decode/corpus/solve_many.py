"""Solve many graphs by the workers of an executor."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import closing
from typing import Any

from lpsmap_core import Assignment, FactorGraph, NamedGraph, Solution
from lpsmap_core.api import checked_count, checked_flag
from lpsmap_decode.corpus.batches import Batch, Batches
from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.corpus.progress import shown
from lpsmap_decode.corpus.work import (
    SPARSEMAP,
    TASKS,
    Done,
    Job,
    Problem,
    solve_as,
    solve_batch,
    travelling,
)
from lpsmap_decode.corpus.workers import Workers

__all__ = ["solve_many"]

Outcomes = Generator[Outcome, None, None]

MOST_DEATHS = 3
"""Problems that may end their workers before any is solved: it seems then that none can start."""


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
    """Solve many graphs, each by itself, and yield what came of each.

    Parameters
    ----------
    problems
        Graphs, `NamedGraph`, paths of files with models, or anything that `build` makes a graph of.
        They are read as they are needed, so that there may be any number.
    executor
        Who solves them: an executor of `concurrent.futures`, such as dask's
        ``client.get_executor()``; a function that makes one; a number of processes; or None for
        this process, one problem after the other.
    task
        ``"sparsemap"``, ``"lp-map"`` or ``"map"``: as `FactorGraph.solve`, `FactorGraph.solve_map`,
        and the latter with ``exact=True``.
    build
        Makes the graph of a problem, where the problem is solved: what is sent there is small then.
    extract
        Called with the solved graph and what the solve returned, where it was solved. What it
        returns is sent back as `Outcome.extracted`, such as structures as words.
    ordered
        Whether outcomes come in the order of the problems, else as they are there.
    batch_size
        How many problems go to a worker at a time; None for as many as take it about half a second.
    progress
        Whether to show a bar on the terminal. It takes the extra ``progress``.
    **options
        Of the verb, such as ``max_time`` for each. With an executor, ``threads`` is 1 unless given.

    Yields
    ------
    Outcome
        One for every problem. A problem that cannot be solved has its error there; the others do
        not suffer from it.

    Raises
    ------
    TypeError
        If an argument is of another type than it should be, or the task takes no such option.
    ValueError
        If one is out of range.
    BrokenExecutor
        If an executor that was given broke, as a pool of processes does when one of them is killed.
        Where solve_many makes the executor, it makes another one, and repeats what was not done.

    Notes
    -----
    Where processes are started, the script is imported in them: as always with
    `concurrent.futures`, it must start its work below ``if __name__ == "__main__":``.
    """
    if task not in TASKS:
        raise ValueError(f"solve_many: task: got {task!r}; expected one of {', '.join(TASKS)}.")
    checked_flag("ordered", ordered), checked_flag("progress", progress)
    number = None if batch_size is None else checked_count("batch_size", batch_size, ", or None")
    workers = Workers(executor)
    if not workers.here:
        options = {"threads": 1, **options}
    solve_as(task, _anything(), options)  # which checks the options
    job = Job(task, options, build, extract, os.getpid())
    if workers.by_pickle and workers.renewable:
        pickle.dumps(job)  # what cannot be is told here, not for every problem
    stream = (Problem(i, problem, False) for i, problem in enumerate(problems))
    batches = Batches(
        map(_packed, stream) if workers.by_pickle else stream, _size, 1 if workers.here else number
    )
    corpus = _Corpus(workers, job, batches)
    total = len(problems) if isinstance(problems, Sized) else None
    return _in_order(_told(corpus, progress, total)) if ordered else _told(corpus, progress, total)


class _Corpus:
    """The batches on their way.

    When a worker dies, whatever was on its way is suspect, and done again alone: a problem that
    ends its worker once more is the culprit.
    """

    def __init__(self, workers: Workers, job: Job, batches: Batches) -> None:
        self._workers, self._job, self._batches = workers, job, batches
        self._running: dict[Future[Done], Batch] = {}
        self._again: deque[Batch] = deque()
        self._suspects: deque[Batch] = deque()
        self._alone = False  # whether a suspect runs
        self._n_solved = self._n_culprits = 0

    def outcomes(self) -> Outcomes:
        """Yield outcomes as they are there."""
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
        """Submit batches while there is room; return whether any is on its way."""
        while len(self._running) < (1 if self._suspects else self._workers.most_batches):
            if self._alone and self._running:
                break
            self._alone = bool(self._suspects)
            waiting = self._suspects or self._again
            batch = waiting.popleft() if waiting else self._batches.take()
            if not batch:
                break
            self._running[self._submitted(batch)] = batch
        return bool(self._running)

    def _submitted(self, batch: Batch) -> Future[Done]:
        try:
            return self._workers.executor.submit(solve_batch, self._job, batch)
        except BrokenExecutor as error:  # a worker died while it waited for work
            future: Future[Done] = Future()
            future.set_exception(error)
            return future

    def _results(self, future: Future[Done], batch: Batch) -> Iterator[Outcome]:
        """Yield the outcomes of a batch, or see to it that its problems go one by one."""
        error = future.exception()
        if error is None:
            done = future.result()
            self._batches.learn(batch, done.seconds)
            self._n_solved += len(batch)
            yield from done.outcomes
        elif len(batch) > 1:  # one of them could not travel, or dask gave them up
            self._again.extend([problem] for problem in batch)
        else:
            yield Outcome(batch[0].number, error=error)

    def _after_a_death(self, died: list[Batch]) -> Iterator[Outcome]:
        """Renew the executor, and see to it that what was on its way is done again."""
        if not self._workers.renewable:
            raise BrokenExecutor(
                "solve_many: the executor broke: a worker died, or it was shut down. Give a "
                "function that makes one, such as executor=lambda: ProcessPoolExecutor(4), or a "
                "number of processes: then another is made, and what was not done is done again."
            )
        if not self._alone:
            self._suspects.extend(died)
        elif len(died[0]) > 1:
            self._suspects.extendleft([problem] for problem in reversed(died[0]))
        else:
            self._n_culprits += 1
            if not self._n_solved and self._n_culprits >= MOST_DEATHS:
                raise BrokenExecutor(
                    f"solve_many: {self._n_culprits} workers died before they solved anything. If "
                    'this is a script, start its work below `if __name__ == "__main__":`.'
                )
            error = BrokenExecutor(
                "its worker died twice, the second time with this problem alone. It may take more "
                "memory than there is, or crash."
            )
            yield Outcome(died[0][0].number, error=error)
        self._workers.renew()


def _died(future: Future[Done]) -> bool:
    """Whether the executor broke, rather than a problem or its way there."""
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor)


def _told(corpus: _Corpus, progress: bool, total: int | None) -> Outcomes:
    """Yield outcomes, and show how many there are."""
    with shown(progress, total) as advance, closing(corpus.outcomes()) as outcomes:
        for outcome in outcomes:
            advance(outcome)
            yield outcome


def _in_order(outcomes: Outcomes) -> Outcomes:
    """Yield outcomes in the order of their problems."""
    early: dict[int, Outcome] = {}
    following = 0
    with closing(outcomes):
        for outcome in outcomes:
            early[outcome.index] = outcome
            while following in early:
                yield early.pop(following)
                following += 1


def _packed(problem: Problem) -> Problem:
    """Return a problem as bytes; one that cannot be pickled becomes its error."""
    try:
        content = pickle.dumps(problem.content)
    except Exception as error:
        content = pickle.dumps(travelling(error))
    return Problem(problem.number, content, pickled=True)


def _size(problem: Problem) -> int:
    return len(problem.content) if problem.pickled else 1


def _anything() -> FactorGraph:
    """Return a graph that is solved at once."""
    graph = FactorGraph()
    graph.variable(1)
    return graph
