"""Projection onto the polytope of non-projective dependency trees, and its derivative.

The convex hull of the arborescences of n words is (Edmonds 1967): ``x >= 0``, the arcs into each
word sum to 1, and for each set of two or more words at least 1 enters it, which by the rows is the
same as that the arcs inside sum to one less than its words at most. That exactly one word hangs
from the root (``single_root``) is the same cut of all words with equality: a face. The local
problem, in marginals ``x = delta z``,

    minimise sum_e (x_e - delta_e a_e)^2 / (2 delta_e^2)   over the polytope,

is solved with the cuts found so far, none at first, and the cuts that the solution violates are
added until there are none: few, as few as 0 to 5 for plain scores of 50 words.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import (
    Direction,
    Factors,
    LocalScores,
    LocalSolution,
    Product,
    interrupted,
    kernel,
    leaf,
)
from lpsmap_core.api import ByteArray, FloatArray, IntArray, by_address
from lpsmap_factors_struct.arborescence import (
    Arborescence,
    arborescence_memory,
    maximum_arborescence,
)
from lpsmap_factors_struct.arborescence_ascent import maximise
from lpsmap_factors_struct.arborescence_cuts import FlowMemory, flow_memory, violated_sets
from lpsmap_factors_struct.arborescence_dual import (
    TreeDual,
    cuts_of,
    least_threshold,
    tree_dual,
)
from lpsmap_factors_struct.arborescence_face import (
    MEMBER,
    factorise_face,
    find_multipliers,
    project_on_face,
    read_face,
    write_cuts,
    write_z,
)
from lpsmap_factors_struct.arc_layout import PARTS, n_words, part_of_row
from lpsmap_factors_struct.arrays import copy
from lpsmap_factors_struct.simplex_row import FAR, threshold

__all__ = ["multiply_jacobians", "project_trees"]

EPSILON = 2.0**-52
TOLERANCE = 1e-13
"""What cuts may be violated by, beside rounding of the multipliers."""
SHARP = 1.15
"""With fewer arcs a word than this, the problem is near the linear one and starts from that."""
MOST_ROUNDS = 10
"""Limit of rounds of new cuts for each word, far more than were ever seen to be needed."""
LEVEL = 1e-12
"""Marginals below this are zero, or below the rounding of the numbers they come from."""


@kernel
def project_trees(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    """Solve the local problem of every factor in `rows`."""
    longest, widest = _largest(rows, factors)
    dual, flows = tree_dual(longest, widest, 2 * longest), flow_memory(longest)
    trees, capacity = arborescence_memory(longest), np.empty(longest * longest)
    _project_trees(rows, factors, scores, solution, dual, flows, trees, capacity)


@leaf
def _project_trees(
    rows: IntArray,
    factors: Factors,
    scores: LocalScores,
    solution: LocalSolution,
    memory: TreeDual,
    flows: FlowMemory,
    trees: Arborescence,
    capacity: FloatArray,
) -> None:
    """Solve the local problem of every factor in `rows`, in memory that the caller holds."""
    offsets, parameters, dual = factors.offsets, factors.parameters, by_address(memory)
    a, delta, z, face = scores.a, scores.delta, solution.z, solution.face
    for r in rows:
        if interrupted():
            break
        lo, hi, n_labels = offsets[r], offsets[r + 1], int(parameters[r, 3])
        n, packed = n_words(hi - lo, parameters[r, 3]), parameters[r, 0] != 0
        width = n * n_labels
        free = 1 if parameters[r, 2] != 0 and n > 1 else 0
        _gather(a[lo:hi], delta[lo:hi], n, n_labels, packed, dual)
        dual.member[:free, :n] = 1.0
        dual.sigma[:free] = 0.0
        count = _recall(face[lo:hi], n, width, dual.member, free)
        read_face(face[lo:hi], n, n_labels, packed, True, dual)
        if count > free:
            _guess(dual, n, width, count, free)
            _project_rows(dual, n, width, count)
        elif _project_rows(dual, n, width, 0) < SHARP * n:
            count = _edmonds_cuts(dual, n, width, free, capacity, trees)
        count = _add_cuts(dual, n, width, count, free, capacity, flows)
        _drop_rounding(dual, n, width)
        rank = factorise_face(dual, n, width, count)
        copy(dual.x[: hi - lo], dual.y)
        project_on_face(dual, n, width, count, rank, 1.0)
        write_z(dual, n, n_labels, packed, delta[lo:hi], z[lo:hi], face[lo:hi])
        write_cuts(dual, n, width, min(rank, n), face[lo:hi])


@kernel
def multiply_jacobians(
    rows: IntArray, factors: Factors, direction: Direction, product: Product
) -> None:
    """Project vectors orthogonally onto the directions of the faces of the factors in `rows`."""
    longest, widest = _largest(rows, factors)
    dual = tree_dual(longest, widest, 2 * longest)
    _multiply_jacobians(rows, factors, direction, product, dual)


@leaf
def _multiply_jacobians(
    rows: IntArray, factors: Factors, direction: Direction, product: Product, memory: TreeDual
) -> None:
    """Project vectors as `multiply_jacobians` does, in memory that the caller holds."""
    offsets, parameters, dual = factors.offsets, factors.parameters, by_address(memory)
    delta, face, d_u, out_u = direction.delta, direction.face, direction.d_u, product.out_u
    for r in rows:
        if interrupted():
            break
        lo, hi, n_labels = offsets[r], offsets[r + 1], int(parameters[r, 3])
        n, packed = n_words(hi - lo, parameters[r, 3]), parameters[r, 0] != 0
        width = n * n_labels
        _gather(d_u[lo:hi], delta[lo:hi], n, n_labels, packed, dual)
        read_face(face[lo:hi], n, n_labels, packed, False, dual)
        count = _recall(face[lo:hi], n, width, dual.member, 0)
        rank = factorise_face(dual, n, width, count)
        project_on_face(dual, n, width, count, rank, 0.0)
        for word in range(n):
            for part in range(PARTS):
                slot, head, count = part_of_row(part, word, n, packed)
                _write_moved(
                    count * n_labels,
                    dual.x[(word * n + head) * n_labels :],
                    dual.y[(word * n + head) * n_labels :],
                    delta[lo + slot * n_labels :],
                    out_u[lo + slot * n_labels :],
                )


@leaf
def _write_moved(
    count: int, x: FloatArray, y: FloatArray, delta: FloatArray, out: FloatArray
) -> None:
    for i in range(np.uint64(count)):
        out[i] = y[i] / delta[i] if x[i] > 0.0 else 0.0


@leaf
def _largest(rows: IntArray, factors: Factors) -> tuple[int, int]:
    """Return the largest numbers of words and of arcs into a word."""
    offsets, parameters = factors.offsets, factors.parameters
    longest, widest = 0, 0
    for r in rows:
        n = n_words(offsets[r + 1] - offsets[r], parameters[r, 3])
        longest, widest = max(longest, n), max(widest, n * int(parameters[r, 3]))
    return longest, widest


@leaf
def _gather(
    a: FloatArray, delta: FloatArray, n: int, n_labels: int, packed: bool, dual: TreeDual
) -> None:
    """Write ``y = delta a`` and ``q = delta^2``, by word and head."""
    for word in range(n):
        for part in range(PARTS):
            slot, head, count = part_of_row(part, word, n, packed)
            _scale(
                count * n_labels,
                a[slot * n_labels :],
                delta[slot * n_labels :],
                dual.y[(word * n + head) * n_labels :],
                dual.q[(word * n + head) * n_labels :],
            )
    for i in range(n * n_labels):
        dual.head[i] = i // n_labels


@leaf
def _scale(count: int, a: FloatArray, delta: FloatArray, y: FloatArray, q: FloatArray) -> None:
    for i in range(np.uint64(count)):
        y[i], q[i] = delta[i] * a[i], delta[i] * delta[i]


# -------------------------------------------------------------------- the projection


@leaf
def _project_rows(dual: TreeDual, n: int, width: int, count: int) -> int:
    """Measure each row's scores from about its threshold, and project the rows that no cut holds.

    Of large scores, what is left are numbers around 1. Thresholds are looked for near those of the
    supports in ``on``. Returns the number of arcs on the supports.
    """
    y, q, on, n_on, level = dual.y, dual.q, dual.on, dual.n_on, dual.level
    near, scale = dual.near, dual.scale
    dual.size[0], support = 1.0, 0
    level[:n] = 0.0
    for word in range(n):
        begin, end = np.uint64(word * width), np.uint64((word + 1) * width)
        latest = on[begin : begin + np.uint64(n_on[word])]
        guess = least_threshold(word * width, latest, y, q, dual.head, level)
        if cuts_of(word, dual.holding, count, dual.own) > 0:
            if not _near(guess, latest, y, q):
                guess = threshold(y[begin:end], q[begin:end], width, -np.inf, near, scale)
            _lower(begin, end, guess, y, q, dual.x)
        else:
            guess = threshold(y[begin:end], q[begin:end], width, guess, near, scale)
            n_on[word] = _project_row(begin, end, guess, y, q, dual.x, on)
        dual.tau[word], dual.margin[word] = 0.0, -np.inf
        support += n_on[word]
    return support


@leaf
def _near(guess: float, support: IntArray, y: FloatArray, q: FloatArray) -> bool:
    """Return whether no digits are lost if scores are measured from `guess`."""
    total = 0.0
    for i in support:
        total += max(0.0, y[i] - guess * q[i])
    return 0.0 < total < FAR


@leaf
def _lower(
    begin: np.uint64, end: np.uint64, level: float, y: FloatArray, q: FloatArray, x: FloatArray
) -> None:
    for i in range(begin, end):
        y[i] -= level * q[i]
        x[i] = 0.0


@leaf
def _project_row(
    begin: np.uint64,
    end: np.uint64,
    level: float,
    y: FloatArray,
    q: FloatArray,
    x: FloatArray,
    on: IntArray,
) -> int:
    """Write a row's scores less its threshold, and its x; list its support and return the size."""
    n_on = np.uint64(0)
    for _ in range(3):  # but for the first time, to mend its rounding
        total, weight, n_on = 0.0, 0.0, np.uint64(0)
        for i in range(begin, end):
            y[i] -= level * q[i]
            above = y[i] > 0.0
            x[i] = max(0.0, y[i])
            total += x[i]
            weight += q[i] * above
            on[begin + n_on] = i
            n_on += np.uint64(above)
        if abs(total - 1.0) < (end - begin) * EPSILON or weight == 0.0:
            break
        level = (total - 1.0) / weight
    return int(n_on)


@leaf
def _recall(face: ByteArray, n: int, width: int, member: FloatArray, free: int) -> int:
    """Append the cuts of a face to the first `free` ones, the set of all words; return how many."""
    count = free
    for k in range(min(width, len(member))):
        size = 0
        for word in range(n):
            holds = face[word * width + k] & MEMBER != 0
            member[count, word] = 1.0 if holds else 0.0
            size += holds
        if size == 0:
            break
        count += size < n or free == 0
    return count


@leaf
def _guess(dual: TreeDual, n: int, width: int, count: int, free: int) -> None:
    """Set the multipliers to what they are if the solution lies on the latest face.

    Between two iterations of a larger problem the scores change little, and the face less.
    """
    sigma, size = dual.sigma, n * width
    copy(dual.y[:size], dual.scores)
    rank = factorise_face(dual, n, width, count)
    find_multipliers(dual, n, width, count, rank, 1.0)
    for k in range(count):
        sigma[k] = dual.direction[k] if k < free else max(0.0, dual.direction[k])
    copy(dual.scores[:size], dual.y)


@leaf
def _edmonds_cuts(
    dual: TreeDual,
    n: int,
    width: int,
    free: int,
    scores: FloatArray,
    trees: Arborescence,
) -> int:
    """Append the cuts that solve the linear problem, with their multipliers.

    The sets of words are the cycles that Edmonds' (1967) algorithm contracts, and what the best arc
    that enters one costs is its multiplier. Returns the number of cuts.
    """
    y, q, sigma, member = dual.y, dual.q, dual.sigma, dual.member
    scores[: n * n] = -np.inf
    for word in range(n):
        for i in range(width):
            arc, score = word * n + dual.head[i], y[word * width + i] / q[word * width + i]
            scores[arc] = max(scores[arc], score)
    nodes = maximum_arborescence(scores, n, free == 1, trees)
    count = free
    for cycle in range(n, nodes):
        member[count, :n] = 0.0
        node = trees.child[cycle]
        while True:
            if node < n:
                member[count, node] = 1.0
            else:
                for word in range(n):
                    member[count, word] += member[free + node - n, word]
            node = trees.sibling[node]
            if node == trees.child[cycle]:
                break
        sigma[count] = -trees.weight[cycle]
        count += 1
    if free == 1 and count > 1:  # the last one holds all words, as does the first cut
        count -= 1
        sigma[0] = sigma[count]
    return count


@leaf
def _add_cuts(
    dual: TreeDual,
    n: int,
    width: int,
    count: int,
    free: int,
    capacity: FloatArray,
    flows: FlowMemory,
) -> int:
    """Solve the problem with the first `count` cuts, add violated ones, until there are none.

    Each cut that is added raises the dual's maximum, so that this ends. Returns the number of cuts
    that hold with equality.
    """
    sigma, member, x = dual.sigma, dual.member, dual.x
    for attempt in range(MOST_ROUNDS * n):
        excess = maximise(dual, n, width, count, free, TOLERANCE, attempt > 0)
        kept = free
        for k in range(free, count):
            if sigma[k] > 0.0:
                sigma[kept] = sigma[k]
                copy(member[k, :n], member[kept])
                kept += 1
        capacity[: n * n] = 0.0
        for word in range(n):
            begin = word * width
            for place in range(begin, begin + dual.n_on[word]):
                i = dual.on[place]
                capacity[word * n + dual.head[i - begin]] += x[i]
        count = violated_sets(capacity, n, 10 * excess, member, kept, flows)
        if count == kept:
            break
        if interrupted():
            return kept
        sigma[kept:count] = 0.0
    return count


@leaf
def _drop_rounding(dual: TreeDual, n: int, width: int) -> None:
    """Make marginals zero that rounding may account for."""
    x, on, n_on = dual.x, dual.on, dual.n_on
    slack = min(LEVEL + 8 * EPSILON * dual.size[0], 1e-6)
    for word in range(n):
        begin, kept = word * width, 0
        for place in range(begin, begin + n_on[word]):
            i = on[place]
            x[i] = x[i] if x[i] > slack else 0.0
            on[begin + kept] = i
            kept += x[i] > 0.0
        n_on[word] = kept
