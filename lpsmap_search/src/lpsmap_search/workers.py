"""Who looks at boxes: this process, or the workers of an executor.

Workers in other processes are sent the space once. A batch of boxes names it by a digest; a worker
that does not know it says so, and is sent the batch again with the space.
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
"""An executor, a function that makes one, a number of processes, or None for this process."""

Looks = Sequence[Look[Any, FloatArray]] | CutShort[FloatArray]

UNKNOWN = 32
"""Workers of an executor that does not say how many it has."""

MOST_SPACES = 4
"""That a worker's process keeps."""


class Workers:
    """An executor, and how to come by another if it breaks.

    Parameters
    ----------
    given
        Who looks.
    space
        What is searched.

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If the number is not positive, or the executor takes no work.
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
        """Refuse an executor that takes no work; processes of others start meanwhile."""
        assert self._executor is not None
        try:
            self._executor.submit(int)
        except RuntimeError as error:
            raise ValueError(
                f"executor: got one that takes no work ({error}). Make another one, and shut it "
                "down after the search."
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
        """The space as other processes get it: its digest, and a pickle."""
        pickled = pickle.dumps(self._space)
        return hashlib.sha256(pickled).hexdigest(), pickled

    @property
    def here(self) -> bool:
        """Whether there are none, and this process looks."""
        return self._executor is None

    @property
    def least_batch(self) -> int:
        """As many nodes as are best looked at together."""
        return self._space.batch

    @property
    def most_batches(self) -> int:
        """How many batches they should have at a time: one each, and one that waits."""
        return 1 if self.here else 2 * int(getattr(self._executor, "_max_workers", UNKNOWN))

    def submit(self, nodes: Sequence[Any], score: float, again: bool = False) -> Future[Looked]:
        """Have nodes looked at.

        Parameters
        ----------
        nodes
            The nodes, one at least.
        score
            Of the best answer so far.
        again
            Whether the worker did not know the space.

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
        """Return what workers found; None if the nodes have to be submitted again."""
        packed = looked.looks
        return _unpacked(self._space, packed) if isinstance(packed, _PackedLooks) else packed

    def renew(self, possible: bool) -> bool:
        """Replace an executor that broke: by another one, or else by this process.

        Parameters
        ----------
        possible
            Whether another one may do better.

        Returns
        -------
        bool
            Whether there is another one.
        """
        self.close()
        self._executor = self._made() if possible and self._make is not None else None
        if self._executor is None:
            self._make = None
        return self._executor is not None

    def close(self) -> None:
        """Leave a given executor as it is; end another at once."""
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
            f"executor: got {n!r}; expected a concurrent.futures.Executor, a function that makes "
            "one, a number of processes, or None."
        )
    return checked_count("executor", n)


def _pool_of(n: int) -> Callable[[], Executor]:
    # a forked process would inherit locks that threads of this one hold
    context = multiprocessing.get_context("spawn")
    return lambda: ProcessPoolExecutor(n, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    """Leave interrupts to the parent, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _PackedLooks(NamedTuple):
    """Looks as arrays, which travel in less time."""

    bounds: FloatArray
    n_children: IntArray
    children: Arrays
    answer: FloatArray | None
    """The best that was met."""
    score: float


class Looked(NamedTuple):
    """What a worker did."""

    looks: Looks | _PackedLooks | None
    """None if it does not know the space."""
    seconds: float
    """Of the processor: on a busy machine, batches are as large as on an idle one."""


def look(space: BoxSpace[Any], nodes: Sequence[Any], score: float) -> Looked:
    """Look at nodes, and take the time."""
    begin = time.thread_time()
    looks = _looks(space, nodes, score)
    return Looked(looks, time.thread_time() - begin)


def _looks(space: BoxSpace[Any], nodes: Sequence[Any], score: float) -> Looks:
    """Look at nodes, as many at a time as the space likes."""
    found: list[Look[Any, FloatArray]] = []
    for first in range(0, len(nodes), space.batch):
        looks = space.look(nodes[first : first + space.batch], score)
        if isinstance(looks, CutShort):
            return looks
        found += looks
        score = max([score, *(one.score for one in looks if one.answer is not None)])
    return found


_spaces: dict[str, BoxSpace[Any]] = {}
"""Of a worker's process, by digest; the latest used last."""


def _look_from_afar(key: str, pickled: bytes | None, nodes: Arrays, score: float) -> Looked:
    """Look at packed nodes, in a worker's process."""
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
