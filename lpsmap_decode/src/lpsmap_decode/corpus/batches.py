"""Split a stream of problems into batches of about equal duration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lpsmap_decode.corpus.jobs import Problem

SECONDS = 0.5
"""Target duration of a batch: far longer than its transfer to a worker and back."""

MAX_PROBLEMS = 1000
"""Maximum number of problems in a batch."""

Batch = list[Problem]


class Batches:
    """Takes batches from a stream of problems, whose sizes predict their durations.

    Parameters
    ----------
    problems
        The stream.
    size
        A function that returns the size of a problem.
    number
        Problems per batch; None for as many as take about half a second, estimated from earlier
        batches.
    """

    def __init__(
        self, problems: Iterable[Problem], size: Callable[[Problem], int], number: int | None
    ) -> None:
        self._problems: Iterator[Problem] = iter(problems)
        self._size, self._number = size, number
        self._kept: Problem | None = None  # a problem that did not fit into the last batch
        self._rate = 0.0  # size a second

    def take(self) -> Batch:
        """Return the next batch; it is empty at the end of the stream."""
        batch: Batch = []
        room, most = self._rate * SECONDS, self._number or MAX_PROBLEMS
        while len(batch) < most and (problem := self._next()) is not None:
            room -= self._size(problem)
            if batch and self._number is None and room < 0.0:
                self._kept = problem
                break
            batch.append(problem)
        return batch

    def learn(self, batch: Batch, seconds: float) -> None:
        """Record the duration of a batch; the latest counts as much as all earlier ones."""
        rate = sum(map(self._size, batch)) / max(seconds, 1e-6)
        self._rate = rate if not self._rate else (self._rate + rate) / 2.0

    def _next(self) -> Problem | None:
        problem, self._kept = self._kept, None
        return next(self._problems, None) if problem is None else problem
