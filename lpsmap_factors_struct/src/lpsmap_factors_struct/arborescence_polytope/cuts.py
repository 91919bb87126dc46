"""Separation over the arborescence polytope: sets of words with too little inflow.

A point with nonnegative arcs whose rows sum to 1 lies in the polytope iff the arcs that enter every
set of words sum to at least 1 (Edmonds 1967). By Menger's theorem this holds iff, with the arcs as
capacities, every word can receive a flow of 1 from the root.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import copy

WordArray = npt.NDArray[np.uint64]

ONE = np.uint64(1)
"""Words are unsigned: for a signed index, numba checks whether it counts from the end."""

SOURCE = 2**62
"""Mark of the words that are part of the source. It exceeds the number of any search."""


class FlowWorkspace(NamedTuple):
    """Workspace for sentences of up to ``n`` words."""

    residual: FloatArray
    """(n * n,) residual capacities, of the arc from word h to word m at ``m * n + h``."""
    near: WordArray
    """(n * n,) for each word, the words that an arc connects it with."""
    degree: WordArray
    """(n,) their number."""
    direct: FloatArray
    """(n,) capacity of the arcs from the source into each word."""
    supply: FloatArray
    """(n,) the part of it that no flow uses."""
    onward: FloatArray
    """(n,) capacity from each word into words outside the source."""
    ready: WordArray
    """(n,) words that need no flow computation."""
    seen: IntArray
    """(n,) the number of the latest search that reached a word; `SOURCE` for the source's words."""
    towards: WordArray
    """(n,) for each word that the search reached, the next word on its path to the sink."""
    queue: WordArray
    """(n,) the words in the order in which the search reached them."""


@kernel
def flow_workspace(n: int) -> FlowWorkspace:
    """Return a workspace for sentences of up to `n` words."""
    return FlowWorkspace(
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
    workspace: FlowWorkspace,
) -> int:
    """Append sets with an inflow below ``1 - tolerance``; at least one if such sets exist.

    Words are added to the source one by one. Two kinds of words, about two thirds of all, need no
    flow computation. If the source sends 1 directly into a word, no violated set contains the word.
    If the source sends at least as much directly into a word as the word sends on, the inflow of a
    set does not grow when the word is removed, so that no violated set needs the word. Otherwise
    the word with the largest inflow directly from the source is next. If it can receive a flow of
    1, no violated set contains it. If not, the smallest of its minimum cuts is violated. A set only
    contains words that are not in the source yet, so that all sets differ. Flow stays on the arcs:
    once its sink belongs to the source, it is a circulation, from which the next search can start.

    Parameters
    ----------
    capacity
        ``n * n`` numbers: of the arc from word h to word m at ``m * n + h``, from the root at
        ``m * n + m``. Each row sums to 1.
    member
        (C, n) the words of each set, as 1 or 0. Sets are written from row `count` on, as far as
        rows are left.

    Returns
    -------
    int
        The number of sets, the first `count` included.
    """
    residual, near, degree, direct, supply, onward, ready, seen, towards, queue = workspace
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
    """Return the word outside the source with the largest capacity directly from it."""
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
    """List the words that an arc of positive capacity connects each word with, heads first.

    Also sums the capacities from each word to others.
    """
    onward[:n] = 0.0
    for word in range(n):
        begin, last = word * n, np.uint64(0)
        for head in range(n):  # without branches, which would often be mispredicted
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
    """Send `enough` from the source to `sink`, along shortest paths first (Edmonds & Karp 1972).

    A search continues after a path whose supply is used up, and restarts after a path with a
    saturated arc.

    Returns the number of the latest search, and 0 if `enough` was sent. Otherwise the second number
    is how many words, the first ones of `queue`, can still reach the sink.
    """
    flow = supply[sink]
    supply[sink] = 0.0
    for j in range(degree[sink]):  # all paths through one intermediate word at once
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
    """Send as much as possible along the path from a word with supply to the sink."""
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
