"""Evaluation of boxes in this process, or by the workers of an executor.

The space is sent to each worker process once. A batch refers to it by a digest; if a worker does
not have it, the batch is submitted again together with the space.
"""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import numbers
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, NamedTuple, Union

import numpy as np

from lpsmap_decode import CutShort, Look
from lpsmap_search.arrays import FloatArray, IntArray
from lpsmap_search.box_space import Arrays, BoxSpace
from lpsmap_search.checks import checked_count

__all__ = ["GivenExecutor", "Looks", "Workers"]

GivenExecutor = Union[Executor, Callable[[], Executor], int, None]  # noqa: UP007
"""An executor, a function that returns one, a number of processes, or None for this process."""

Looks = Sequence[Look[Any, FloatArray]] | CutShort[FloatArray]

UNKNOWN = 32
"""Assumed number of workers of an executor that does not report it."""

MOST_SPACES = 4
"""Maximum number of spaces cached in a worker process."""


class Workers:
    """An executor, and how to replace it if it breaks.

    Parameters
    ----------
    given
        An executor, a function that returns one, a number of processes, or None.
    space
        The search space.

    Raises
    ------
    TypeError
        If `given` is anything else.
    ValueError
        If the number is not positive, or the executor does not accept work.
    """

    def __init__(self, given: GivenExecutor, space: BoxSpace[Any]) -> None:
        self._space = space
        self._make: Callable[[], Executor] | None = None
        if given is None:
            self._executor: Executor | None = None
        elif isinstance(given, Executor):
            self._executor = given
            self._probe()
        else:
            self._make = given if callable(given) else _pool_of(_checked_processes(given))
            self._executor = self._made()

    def _probe(self) -> None:
        """Validate that the executor accepts work, which also starts its processes."""
        assert self._executor is not None
        try:
            self._executor.submit(int)
        except RuntimeError as error:
            raise ValueError(
                f"executor: got one that does not accept work ({error}). Create another one, and "
                "shut it down after the search."
            ) from error

    def _made(self) -> Executor:
        assert self._make is not None
        executor = self._make()
        if not isinstance(executor, Executor):
            raise TypeError(
                f"executor: got a function that returns {type(executor).__name__}; expected a "
                "concurrent.futures.Executor."
            )
        return executor

    @functools.cached_property
    def _sent(self) -> tuple[str, bytes]:
        """The space for other processes: its digest and pickle."""
        pickled = pickle.dumps(self._space)
        return hashlib.sha256(pickled).hexdigest(), pickled

    @property
    def here(self) -> bool:
        """Whether this process evaluates boxes."""
        return self._executor is None

    @property
    def least_batch(self) -> int:
        """The preferred number of nodes to evaluate together."""
        return self._space.batch

    @property
    def most_batches(self) -> int:
        """Maximum number of batches under way: two for each worker, one of them waiting."""
        return 1 if self.here else 2 * int(getattr(self._executor, "_max_workers", UNKNOWN))

    def submit(self, nodes: Sequence[Any], score: float, again: bool = False) -> Future[Looked]:
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
        if self._executor is None:
            return _done_here(self._space, nodes, score)
        if isinstance(self._executor, ThreadPoolExecutor):
            return self._executor.submit(look, self._space, nodes, score)
        arrays, (key, pickled) = self._space.pack(nodes), self._sent
        return self._executor.submit(
            _look_from_afar, key, pickled if again else None, arrays, score
        )

    def looks(self, looked: Looked) -> Looks | None:
        """Return the evaluations; None if the nodes must be submitted again."""
        packed = looked.looks
        return _unpacked(self._space, packed) if isinstance(packed, _PackedLooks) else packed

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
        self.close()
        self._executor = self._made() if possible and self._make is not None else None
        if self._executor is None:
            self._make = None
        return self._executor is not None

    def close(self) -> None:
        """Shut down an executor that was created here."""
        if self._make is None or self._executor is None:
            return
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _done_here(space: BoxSpace[Any], nodes: Sequence[Any], score: float) -> Future[Looked]:
    future: Future[Looked] = Future()
    try:
        future.set_result(look(space, nodes, score))
    except Exception as error:
        future.set_exception(error)
    return future


def _checked_processes(n: int) -> int:
    if not isinstance(n, numbers.Integral):
        raise TypeError(
            f"executor: got {n!r}; expected a concurrent.futures.Executor, a function that returns "
            "one, a number of processes, or None."
        )
    return checked_count("executor", n)


def _pool_of(n: int) -> Callable[[], Executor]:
    # a forked process would inherit locks that threads of this one hold
    context = multiprocessing.get_context("spawn")
    return lambda: ProcessPoolExecutor(n, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    """Ignore interrupts, and exit when the parent process exits for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _PackedLooks(NamedTuple):
    """Evaluations as arrays, which are faster to send."""

    bounds: FloatArray
    n_children: IntArray
    children: Arrays
    answer: FloatArray | None
    """The best answer found."""
    score: float


class Looked(NamedTuple):
    """The result of a worker."""

    looks: Looks | _PackedLooks | None
    """None if the worker does not have the space."""
    seconds: float
    """Processor time, so that batches have the same size on a busy machine."""


def look(space: BoxSpace[Any], nodes: Sequence[Any], score: float) -> Looked:
    """Evaluate nodes, and measure the time."""
    begin = time.thread_time()
    looks = _looks(space, nodes, score)
    return Looked(looks, time.thread_time() - begin)


def _looks(space: BoxSpace[Any], nodes: Sequence[Any], score: float) -> Looks:
    """Evaluate nodes in batches of the size that the space prefers."""
    found: list[Look[Any, FloatArray]] = []
    for first in range(0, len(nodes), space.batch):
        looks = space.look(nodes[first : first + space.batch], score)
        if isinstance(looks, CutShort):
            return looks
        found += looks
        score = max([score, *(one.score for one in looks if one.answer is not None)])
    return found


_spaces: dict[str, BoxSpace[Any]] = {}
"""The spaces of a worker process by digest, the most recently used last."""


def _look_from_afar(key: str, pickled: bytes | None, nodes: Arrays, score: float) -> Looked:
    """Evaluate packed nodes in a worker process."""
    space = _spaces.pop(key, None)
    if space is None:
        if pickled is None:
            return Looked(None, 0.0)
        space = pickle.loads(pickled)
    _spaces[key] = space
    for old in list(_spaces)[:-MOST_SPACES]:
        _spaces.pop(old, None)
    begin = time.thread_time()
    looks = _looks(space, space.unpack(nodes), score)
    packed = looks if isinstance(looks, CutShort) else _packed(space, looks)
    return Looked(packed, time.thread_time() - begin)


def _packed(space: BoxSpace[Any], looks: Sequence[Look[Any, FloatArray]]) -> _PackedLooks:
    children = [child for one in looks for child in one.children]
    best = max(looks, key=lambda one: one.score if one.answer is not None else -np.inf)
    return _PackedLooks(
        np.array([one.bound for one in looks]),
        np.array([len(one.children) for one in looks], dtype=np.int64),
        space.pack(children) if children else {},
        best.answer,
        best.score,
    )


def _unpacked(space: BoxSpace[Any], packed: _PackedLooks) -> Looks:
    children = space.unpack(packed.children) if packed.children else []
    ends = np.cumsum(packed.n_children).tolist()
    bounds = packed.bounds.tolist()
    begins = [0, *ends[:-1]]
    looks: list[Look[Any, FloatArray]] = [
        Look(bound, children[begin:end])
        for bound, begin, end in zip(bounds, begins, ends, strict=True)
    ]
    looks[0] = Look(bounds[0], looks[0].children, packed.answer, packed.score)
    return looks
