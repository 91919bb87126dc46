"""Evaluation of boxes in this process, or by the workers of an executor.

The space is sent to each worker process once. A batch refers to it by a digest; if a worker does
not have it, the batch is submitted again together with the space.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, Union

from lpsmap_core.api import FloatArray, cached_property
from lpsmap_decode import BatchExecutor, Evaluation, Unfinished
from lpsmap_search.box_space import BoxSpace

AnyExecutor = Union[Executor, Callable[[], Executor], int, None]  # noqa: UP007
"""An executor, a function that returns one, a number of processes, or None for this process."""

Evaluations = Sequence[Evaluation[Any, FloatArray]] | Unfinished[FloatArray]

MAX_SPACES = 4
"""Maximum number of spaces cached in a worker process."""


class Workers:
    """Workers that evaluate the boxes of a space, in this process or by an executor.

    Parameters
    ----------
    executor
        An executor, a function that returns one, a number of processes, or None.
    space
        The search space.

    Raises
    ------
    TypeError
        If `executor` is anything else.
    ValueError
        If the number is not positive, or the executor does not accept work.

    Attributes
    ----------
    executor
        The executor at present; `renew` replaces it.
    """

    def __init__(self, executor: AnyExecutor, space: BoxSpace[Any]) -> None:
        self.space = space
        self.executor = BatchExecutor(executor)
        if not self.executor.renewable:
            self._probe()

    def _probe(self) -> None:
        """Validate that the executor accepts work, which also starts its processes."""
        try:
            self.executor.executor.submit(int)
        except RuntimeError as error:
            raise ValueError(
                f"executor: got one that does not accept work ({error}). Create another one, and "
                "shut it down after the search."
            ) from error

    @cached_property
    def _sent(self) -> tuple[str, bytes]:
        """The space for other processes: its digest and pickle."""
        pickled = pickle.dumps(self.space)
        return hashlib.sha256(pickled).hexdigest(), pickled

    def submit(
        self, nodes: Sequence[Any], score: float, again: bool = False
    ) -> Future[BatchResult]:
        """Submit nodes for evaluation.

        Parameters
        ----------
        nodes
            At least one node.
        score
            The score of the best answer so far.
        again
            Whether to send the space, because the worker did not have it.

        Raises
        ------
        RuntimeError
            If the executor broke, or was shut down.
        """
        submit = self.executor.executor.submit
        if not self.executor.needs_pickling:
            return submit(evaluate, self.space, nodes, score)
        key, pickled = self._sent
        return submit(_evaluate_by_key, key, pickled if again else None, nodes, score)

    def renew(self, possible: bool) -> bool:
        """Replace a broken executor by another one, or by this process.

        Parameters
        ----------
        possible
            Whether another executor may succeed.

        Returns
        -------
        bool
            Whether there is another executor.
        """
        if possible and self.executor.renewable:
            self.executor.renew()
            return True
        self.close()
        self.executor = BatchExecutor(None)
        return False

    def close(self) -> None:
        """Shut down an executor that was created here."""
        self.executor.close(finished=False)


class BatchResult(NamedTuple):
    """The result of a worker."""

    evaluations: Evaluations | None
    """None if the worker does not have the space."""
    seconds: float
    """Processor time, so that batches have the same size on a busy machine."""


def evaluate(space: BoxSpace[Any], nodes: Sequence[Any], score: float) -> BatchResult:
    """Evaluate nodes in batches of the size that the space prefers, and measure the time."""
    begin = time.thread_time()
    evaluations: list[Evaluation[Any, FloatArray]] = []
    for first in range(0, len(nodes), space.batch):
        batch = space.evaluate(nodes[first : first + space.batch], score)
        if isinstance(batch, Unfinished):
            return BatchResult(batch, time.thread_time() - begin)
        evaluations += batch
        score = max([score, *(one.score for one in batch if one.answer is not None)])
    return BatchResult(evaluations, time.thread_time() - begin)


_spaces: dict[str, BoxSpace[Any]] = {}
"""The spaces of a worker process by digest, the most recently used last."""


def _evaluate_by_key(
    key: str, pickled: bytes | None, nodes: Sequence[Any], score: float
) -> BatchResult:
    """Evaluate nodes of a space in a worker process."""
    space = _spaces.pop(key, None)
    if space is None:
        if pickled is None:
            return BatchResult(None, 0.0)
        space = pickle.loads(pickled)
    _spaces[key] = space
    for old in list(_spaces)[:-MAX_SPACES]:
        _spaces.pop(old, None)
    return evaluate(space, nodes, score)
