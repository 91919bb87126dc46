"""The loop of branch and bound with several workers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from typing import Any

from lpsmap_core import Deadline
from lpsmap_core.api import FloatArray
from lpsmap_decode import NodeBatch, Search, Unfinished
from lpsmap_search.workers import BatchResult, Workers

SECONDS = 0.02
"""Target duration of a batch: far longer than its transfer to a worker and back."""

POLL = 0.1
"""Seconds between two checks of the time limit and for Ctrl-C."""

LOST = (BrokenExecutor, CancelledError, KeyboardInterrupt)
"""Errors of the executor, rather than of an evaluation."""

MAX_DEATHS = 3
"""Maximum number of deaths of workers before one of them returns a result: then workers probably
cannot start."""


class SearchLoop:
    """Runs a search with workers.

    Parameters
    ----------
    search
        The search; nodes still under evaluation when the loop ends count as open in its state.
    workers
        The workers that evaluate boxes.
    deadline
        When to stop.
    max_nodes
        Maximum total number of evaluated nodes, or None.
    """

    def __init__(
        self,
        search: Search[Any, FloatArray],
        workers: Workers,
        deadline: Deadline,
        max_nodes: int | None,
    ) -> None:
        self._search, self._workers = search, workers
        self._deadline = deadline
        self._most = math.inf if max_nodes is None else max_nodes
        self._out: dict[Future[BatchResult], NodeBatch[Any]] = {}
        self._rate = 0.0  # nodes a second, of one worker
        self._n_open = len(search.state().nodes)  # an upper bound
        self._n_deaths = 0

    def run(self, after: Callable[[], None]) -> None:
        """Run until the search is finished, or a limit is reached.

        Parameters
        ----------
        after
            Called after every evaluated batch.
        """
        try:
            while self._hand_out():
                ended, _ = wait(self._out, timeout=POLL, return_when=FIRST_COMPLETED)
                lost = [error for error in map(_error, ended) if isinstance(error, LOST)]
                if any(isinstance(error, KeyboardInterrupt) for error in lost):
                    self._deadline.end()  # a worker received Ctrl-C first
                if lost and self._deadline.passed:
                    break
                if lost:
                    self._renew_workers()
                else:
                    for future in ended:
                        self._take_in(future)
                if ended:
                    after()
        finally:
            for future in self._out:
                future.cancel()

    def _hand_out(self) -> bool:
        """Submit batches while there is room; return whether to wait for any."""
        while len(self._out) < self._workers.executor.most_batches:
            if self._deadline.passed:
                break
            n_out = sum(map(len, self._out.values()))
            left = self._most - self._search.found.n_nodes - n_out
            if left <= 0:
                break
            n = self._size()
            batch = self._search.take(int(min(n, left)))
            self._n_open = max(self._n_open - len(batch), 0) if len(batch) == n else 0
            if not batch:
                break
            self._submit(batch)
        return bool(self._out) and not self._deadline.passed

    def _size(self) -> int:
        """Return the size of the next batch; it leaves nodes for the other workers."""
        if self._workers.executor.in_process:
            return self._workers.space.batch
        share = self._n_open // self._workers.executor.most_batches
        return max(min(int(self._rate * SECONDS), share), self._workers.space.batch)

    def _submit(self, batch: NodeBatch[Any], again: bool = False) -> None:
        score = self._search.found.score
        try:
            self._out[self._workers.submit(batch.nodes, score, again)] = batch
        except RuntimeError as error:  # a worker died, or the executor was shut down
            future: Future[BatchResult] = Future()
            future.set_exception(BrokenExecutor(str(error)))
            self._out[future] = batch

    def _take_in(self, future: Future[BatchResult]) -> None:
        batch, result = self._out[future], future.result()
        del self._out[future]
        evaluations = result.evaluations
        if evaluations is None:
            self._submit(batch, again=True)
            return
        self._n_deaths = 0
        rate = len(batch) / max(result.seconds, 1e-6)
        self._rate = rate if not self._rate else 0.5 * (self._rate + rate)
        if not isinstance(evaluations, Unfinished):
            self._n_open += sum(len(evaluation.children) for evaluation in evaluations)
        self._search.add(batch, evaluations)

    def _renew_workers(self) -> None:
        """Replace a broken executor, and evaluate its batches again."""
        self._n_deaths += 1
        for future, batch in list(self._out.items()):
            if _found_something(future):
                self._take_in(future)
                continue
            future.cancel()
            del self._out[future]
            self._search.add(batch, Unfinished())
            self._n_open += len(batch)
        if not self._workers.renew(self._n_deaths < MAX_DEATHS):
            warnings.warn(
                "executor: it broke: workers died, or it was shut down. The search continues in "
                "this process. Pass a function that returns an executor, or a number of processes, "
                "so that it can be replaced. In a script, start the work below `if __name__ == "
                '"__main__":`.',
                RuntimeWarning,
                stacklevel=2,
            )


def _error(future: Future[BatchResult]) -> BaseException | None:
    return CancelledError() if future.cancelled() else future.exception()


def _found_something(future: Future[BatchResult]) -> bool:
    done = future.done() and not isinstance(_error(future), LOST)
    return done and future.result().evaluations is not None
