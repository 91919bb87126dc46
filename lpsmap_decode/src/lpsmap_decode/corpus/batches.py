"""Problems of a stream, in batches that take about as long each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lpsmap_decode.corpus.work import Problem

__all__ = ["Batch", "Batches"]

SECONDS = 0.5
"""How long a batch should take: far longer than its way to a worker and back."""

MOST = 1000
"""Problems of a batch."""

Batch = list[Problem]


class Batches:
    """Takes batches from a stream of problems, whose sizes say how long they may take.

    Parameters
    ----------
    problems
        The stream.
    size
        The size of a problem.
    number
        How many problems a batch has; None for as many as take about half a second, by what earlier
        ones took.
    """

    def __init__(
        self, problems: Iterable[Problem], size: Callable[[Problem], int], number: int | None
    ) -> None:
        self._problems: Iterator[Problem] = iter(problems)
        self._size, self._number = size, number
        self._kept: Problem | None = None  # what did not fit into the last batch
        self._rate = 0.0  # size a second

    def take(self) -> Batch:
        """Return the next batch; an empty one if nothing is left."""
        batch: Batch = []
        room, most = self._rate * SECONDS, self._number or MOST
        while len(batch) < most and (problem := self._next()) is not None:
            room -= self._size(problem)
            if batch and self._number is None and room < 0.0:
                self._kept = problem
                break
            batch.append(problem)
        return batch

    def learn(self, batch: Batch, seconds: float) -> None:
        """Take note of how long a batch took; the latest counts as much as all before."""
        rate = sum(map(self._size, batch)) / max(seconds, 1e-6)
        self._rate = rate if not self._rate else (self._rate + rate) / 2.0

    def _next(self) -> Problem | None:
        problem, self._kept = self._kept, None
        return next(self._problems, None) if problem is None else problem
