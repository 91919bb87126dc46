"""Separation over the arborescence polytope: sets of words that too little enters from outside.

A point with nonnegative arcs whose rows sum to 1 lies in the polytope iff at least 1 enters every
set of words (Edmonds 1967); and by Menger's theorem iff every word receives a flow of 1 from the
root, the arcs being the capacities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import copy

__all__ = ["FlowMemory", "flow_memory", "violated_sets"]

WordArray = npt.NDArray[np.uint64]

ONE = np.uint64(1)
"""Words are unsigned: numba looks at each signed index, whether it counts from the end."""

SOURCE = 2**62
"""Mark of the words that are part of the source: later than any search."""


class FlowMemory(NamedTuple):
    """Working memory for sentences of up to ``n`` words."""

    residual: FloatArray
    """(n * n,) residual capacities, of the arc from word h to word m at ``m * n + h``."""
    near: WordArray
    """(n * n,) for each word, those that an arc joins it with."""
    degree: WordArray
    """(n,) their number."""
    direct: FloatArray
    """(n,) capacity from the source right into each word."""
    supply: FloatArray
    """(n,) what flows leave of it."""
    onward: FloatArray
    """(n,) capacity from each word into words that are not part of the source."""
    ready: WordArray
    """(n,) words that need no flow."""
    seen: IntArray
    """(n,) the number of the latest search that reached a word, or a large one for the source."""
    towards: WordArray
    """(n,) for each word the search reached, the next on its path."""
    queue: WordArray
    """(n,) the words in the order the search reached them."""


@kernel
def flow_memory(n: int) -> FlowMemory:
    """Return working memory for sentences of up to `n` words."""
    return FlowMemory(
        residual=np.empty(n * n),
        near=np.empty(n * n, dtype=np.uint64),
        degree=np.empty(n, dtype=np.uint64),
        direct=np.empty(n),
        supply=np.empty(n),
        onward=np.empty(n),
        ready=np.empty(n, dtype=np.uint64),
        seen=np.empty(n, dtype=np.int64),
        towards=np.empty(n, dtype=np.uint64),
        queue=np.empty(n, dtype=np.uint64),
    )


@leaf
def violated_sets(
    capacity: FloatArray,
    n: int,
    tolerance: float,
    member: FloatArray,
    count: int,
    memory: FlowMemory,
) -> int:
    """Append sets that less than ``1 - tolerance`` enters; none iff there are none.

    Words join the source one by one. First those that 1 enters right from it: no violated set holds
    them. And those that as much enters right from it as goes on from them to others: what enters a
    set does not grow when it loses such a word, so that no violated set needs it. These are two of
    three words. Then the word that most enters right from the source: if it receives a flow of 1,
    no violated set holds it; if not, the smallest of its minimum cuts is one. Each set is then of
    words that are not in the source yet, so that no two are alike. What was sent stays on the arcs:
    as its sink is part of the source then, it is a flow from the source to itself, from which the
    next can start.

    Parameters
    ----------
    capacity
        ``n * n`` numbers: of the arc from word h to word m at ``m * n + h``, from the root at
        ``m * n + m``. Each row sums to 1.
    member
        (C, n) which words the sets hold, 1 or 0; sets are written from row `count` on while there
        is room.

    Returns
    -------
    int
        The number of sets there are then.
    """
    residual, near, degree, direct, supply, onward, ready, seen, towards, queue = memory
    negligible, enough, size = tolerance / (n * n), 1.0 - tolerance, np.uint64(n)
    _neighbours(capacity, size, near, degree, queue, onward)
    copy(capacity[: n * n], residual)
    search, n_ready = 0, 0
    for word in range(size):
        supply[word] = direct[word] = capacity[word * size + word]
        joins = direct[word] >= min(enough, onward[word] - negligible)
        seen[word], ready[n_ready] = SOURCE if joins else 0, word
        n_ready += joins
    for _ in range(n):
        n_ready -= 1
        if n_ready >= 0:
            sink = ready[n_ready]
        else:
            n_ready, sink = 0, _nearest(size, direct, seen)
            search, reached = _flow(
                sink, size, enough, negligible, search,
                residual, near, degree, supply, seen, towards, queue,
            )  # fmt: skip
            if reached > ONE and count < len(member):
                member[count, :n] = 0.0
                for i in range(reached):
                    member[count, queue[i]] = 1.0
                count += 1
            seen[sink] = SOURCE
            if interrupted():
                break
        for j in range(degree[sink]):
            other = near[sink * size + j]
            direct[other] += capacity[other * size + sink]
            supply[other] += residual[other * size + sink]
            onward[other] -= capacity[sink * size + other]
            joins = direct[other] >= min(enough, onward[other] - negligible)
            if joins and seen[other] != SOURCE:
                seen[other], ready[n_ready] = SOURCE, other
                n_ready += 1
    return count


@leaf
def _nearest(n: np.uint64, direct: FloatArray, seen: IntArray) -> np.uint64:
    """Return the word outside the source that most enters right from it."""
    nearest, most = np.uint64(0), -1.0
    for word in range(n):
        if direct[word] > most and seen[word] != SOURCE:
            nearest, most = np.uint64(word), direct[word]
    return nearest


@leaf
def _neighbours(
    capacity: FloatArray,
    n: np.uint64,
    near: WordArray,
    degree: WordArray,
    n_heads: WordArray,
    onward: FloatArray,
) -> None:
    """List for each word the others that an arc of some capacity joins it with: heads first.

    Add up what goes on from each word to others.
    """
    onward[:n] = 0.0
    for word in range(n):
        begin, last = word * n, np.uint64(0)
        for head in range(n):  # without branches, most of which would be guessed wrong
            near[begin + last] = head
            last += np.uint64((capacity[begin + head] > 0.0) & (head != word))
        degree[word] = n_heads[word] = last
    for word in range(n):
        for j in range(word * n, word * n + n_heads[word]):
            head = near[j]
            onward[head] += capacity[word * n + head]
            if capacity[head * n + word] == 0.0:
                near[head * n + degree[head]] = word
                degree[head] += ONE


@leaf
def _flow(
    sink: np.uint64,
    n: np.uint64,
    enough: float,
    negligible: float,
    search: int,
    residual: FloatArray,
    near: WordArray,
    degree: WordArray,
    supply: FloatArray,
    seen: IntArray,
    towards: WordArray,
    queue: WordArray,
) -> tuple[int, np.uint64]:
    """Send `enough` from the source to `sink`, along shortest paths (Edmonds & Karp 1972) at first.

    A search goes on from where a path's supply ran out, and starts again where its arcs were full.

    Returns the number of the latest search, and 0 if so much was sent, or else the number of words,
    the first ones of `queue`, from which the sink can still be reached.
    """
    flow = supply[sink]
    supply[sink] = 0.0
    for j in range(degree[sink]):  # all paths over one word at once
        word = near[sink * n + j]
        if seen[word] != SOURCE:
            sent = min(residual[sink * n + word], supply[word])
            flow += sent
            supply[word] -= sent
            residual[sink * n + word] -= sent
            residual[word * n + sink] += sent
    while flow < enough:
        search += 1
        before, reached, full, i = flow, ONE, False, np.uint64(0)
        seen[sink], towards[sink], queue[0] = search, sink, sink
        while i < reached and not full:
            word = queue[i]
            i += ONE
            for j in range(degree[word]):
                other = near[word * n + j]
                if seen[other] >= search or residual[word * n + other] <= negligible:
                    continue
                seen[other], towards[other], queue[reached] = search, word, other
                reached += ONE
                if supply[other] > negligible:
                    flow += _send(other, sink, n, residual, supply, towards)
                    if supply[other] > negligible:
                        full = True
                        break
        if flow == before:
            return search, reached
    return search, np.uint64(0)


@leaf
def _send(
    start: np.uint64,
    sink: np.uint64,
    n: np.uint64,
    residual: FloatArray,
    supply: FloatArray,
    towards: WordArray,
) -> float:
    """Send as much as fits along the path that leads from a word with supply to the sink."""
    sent: float = supply[start]
    word = start
    while word != sink:
        sent = min(sent, residual[towards[word] * n + word])
        word = towards[word]
    supply[start] -= sent
    word = start
    while word != sink:
        following = towards[word]
        residual[following * n + word] -= sent
        residual[word * n + following] += sent
        word = following
    return sent
