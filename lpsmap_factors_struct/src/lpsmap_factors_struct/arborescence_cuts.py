"""Separation over the arborescence polytope: sets of words that too little enters from outside.

A point with nonnegative arcs whose rows sum to 1 lies in the polytope iff at least 1 enters every
set of words (Edmonds 1967); and by Menger's theorem iff every word receives a flow of 1 from the
root, the arcs being the capacities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel

__all__ = ["FlowMemory", "flow_memory", "violated_sets"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FlagArray = npt.NDArray[np.int8]


class FlowMemory(NamedTuple):
    """Working memory for sentences of up to ``n`` words."""

    residual: FloatArray
    """(n * n,) residual capacities, of the arc from word h to word m at ``m * n + h``."""
    near: IntArray
    """(n * n,) for each word, those that an arc joins it with."""
    degree: IntArray
    """(n,) their number."""
    direct: FloatArray
    """(n,) capacity from the source right into each word."""
    supply: FloatArray
    """(n,) what a flow leaves of it."""
    done: FlagArray
    """(n,) whether a word is part of the source."""
    towards: IntArray
    """(n,) for each word the search reached, the next on its path; -1 for others."""
    queue: IntArray
    """(n,) the words in the order the search reached them."""
    changed: FlagArray
    """(n,) whether a flow changed residual capacities of the arcs into a word."""


@kernel
def flow_memory(n: int) -> FlowMemory:
    """Return working memory for sentences of up to `n` words."""
    return FlowMemory(
        residual=np.empty(n * n),
        near=np.empty(n * n, dtype=np.int64),
        degree=np.empty(n, dtype=np.int64),
        direct=np.empty(n),
        supply=np.empty(n),
        done=np.empty(n, dtype=np.int8),
        towards=np.empty(n, dtype=np.int64),
        queue=np.empty(n, dtype=np.int64),
        changed=np.empty(n, dtype=np.int8),
    )


@kernel
def violated_sets(
    capacity: FloatArray,
    n: int,
    tolerance: float,
    member: FlagArray,
    count: int,
    memory: FlowMemory,
) -> int:
    """Append sets that less than ``1 - tolerance`` enters, disjoint ones; none iff there are none.

    Words join the source one by one, in the order of what enters them right from it: one that
    receives a flow of 1 needs no further thought, since no violated set holds it. If it does not,
    the smallest of its minimum cuts is a violated set, and joins the source as a whole.

    Parameters
    ----------
    capacity
        ``n * n`` numbers: of the arc from word h to word m at ``m * n + h``, from the root at
        ``m * n + m``. Each row sums to 1.
    member
        (C, n) flags of the sets' words; sets are written from row `count` on while there is room.

    Returns
    -------
    int
        The number of sets there are then.
    """
    residual, near, degree, direct, supply, done, towards, queue, changed = memory
    negligible = tolerance / (n * n)
    _neighbours(capacity, n, near, degree)
    for word in range(n):
        direct[word], done[word], changed[word] = capacity[word * n + word], 0, 0
        residual[word * n : (word + 1) * n] = capacity[word * n : (word + 1) * n]
    for _ in range(n):
        sink = -1
        for word in range(n):
            if not done[word] and (sink < 0 or direct[word] > direct[sink]):
                sink = word
        if sink < 0:
            break
        reached = 0
        if direct[sink] < 1.0 - tolerance:
            supply[:n] = direct[:n]
            reached = _flow(
                sink, n, 1.0 - tolerance, negligible,
                residual, near, degree, supply, done, towards, queue, changed,
            )  # fmt: skip
            for word in range(n):
                if changed[word]:
                    changed[word] = 0
                    residual[word * n : (word + 1) * n] = capacity[word * n : (word + 1) * n]
        if reached > 1 and count < len(member):
            member[count, :n] = 0
            for i in range(reached):
                member[count, queue[i]] = 1
            count += 1
        done[sink] = 1
        for j in range(degree[sink]):
            other = near[sink * n + j]
            direct[other] += capacity[other * n + sink]
    return count


@kernel
def _neighbours(capacity: FloatArray, n: int, near: IntArray, degree: IntArray) -> None:
    """List for each word the others that an arc of some capacity joins it with."""
    degree[:n] = 0
    for word in range(n):
        for head in range(n):
            if capacity[word * n + head] > 0.0 and head != word:
                near[word * n + degree[word]] = head
                degree[word] += 1
                if capacity[head * n + word] == 0.0:
                    near[head * n + degree[head]] = word
                    degree[head] += 1


@kernel
def _flow(
    sink: int,
    n: int,
    enough: float,
    negligible: float,
    residual: FloatArray,
    near: IntArray,
    degree: IntArray,
    supply: FloatArray,
    done: FlagArray,
    towards: IntArray,
    queue: IntArray,
    changed: FlagArray,
) -> int:
    """Send `enough` from the source to `sink` along shortest augmenting paths (Edmonds & Karp
    1972).

    Returns 0, or if so much cannot be sent the number of words, the first ones of `queue`, from
    which the sink can still be reached.
    """
    flow = supply[sink]
    supply[sink] = 0.0
    changed[sink] = 1
    for j in range(degree[sink]):  # all paths over one word at once
        word = near[sink * n + j]
        sent = 0.0 if done[word] else min(residual[sink * n + word], supply[word])
        if sent > 0.0:
            flow += sent
            supply[word] -= sent
            residual[sink * n + word] -= sent
    while flow < enough:
        start, reached = _search(
            sink, n, negligible, residual, near, degree, supply, done, towards, queue
        )
        if start < 0:
            return reached
        sent, word = supply[start], start
        while word != sink:
            sent = min(sent, residual[towards[word] * n + word])
            word = towards[word]
        supply[start] -= sent
        flow += sent
        word = start
        while word != sink:
            following = towards[word]
            residual[following * n + word] -= sent
            residual[word * n + following] += sent
            changed[word] = 1
            word = following
    return 0


@kernel
def _search(
    sink: int,
    n: int,
    negligible: float,
    residual: FloatArray,
    near: IntArray,
    degree: IntArray,
    supply: FloatArray,
    done: FlagArray,
    towards: IntArray,
    queue: IntArray,
) -> tuple[int, int]:
    """Return the nearest word with supply from which the sink can be reached, or -1.

    Also returns how many words were reached, the first ones of `queue`.
    """
    towards[:n] = -1
    towards[sink] = sink
    queue[0], reached, i = sink, 1, 0
    while i < reached:
        word = queue[i]
        i += 1
        for j in range(degree[word]):
            other = near[word * n + j]
            if done[other] or towards[other] >= 0 or residual[word * n + other] <= negligible:
                continue
            towards[other] = word
            if supply[other] > negligible:
                return other, reached
            queue[reached] = other
            reached += 1
    return -1, reached
