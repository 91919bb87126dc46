"""Projection onto the polytope of non-projective dependency trees, and its derivative.

The convex hull of the arborescences of n words is (Edmonds 1967): ``x >= 0``, the arcs into each
word sum to 1, and for each set of two or more words at least 1 enters it, which by the rows is the
same as that the arcs inside sum to one less than its words at most. That exactly one word hangs
from the root (``single_root``) is the same cut of all words with equality: a face. The local
problem, in marginals ``x = delta z``,

    minimise sum_e (x_e - delta_e a_e)^2 / (2 delta_e^2)   over the polytope,

is solved with the cuts found so far, none at first, and the cuts that the solution violates are
added until there are none: few, as few as 0 to 5 for plain scores of 50 words.

The face that is left for the derivative: for each slot a code `FREE`, `LOWER`, or `UPPER` for the
only arc of a row; and the cuts, tight and independent of one another. Bit `MEMBER` of the face of
slot k of word w tells whether cut k holds w; the first empty cut ends the list. The latest face is
also where the next projection looks for its first cuts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel
from lpsmap_core.factor import FREE, LOWER, UPPER
from lpsmap_factors_struct.arborescence import (
    Arborescence,
    arborescence_memory,
    maximum_arborescence,
)
from lpsmap_factors_struct.arborescence_cuts import FlowMemory, flow_memory, violated_sets
from lpsmap_factors_struct.arborescence_dual import (
    TreeDual,
    differentiate,
    factorise,
    maximise,
    solve,
    spread,
    threshold,
    tree_dual,
)
from lpsmap_factors_struct.arc_layout import arc_slot, n_words

__all__ = ["multiply_jacobians", "project_trees"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FaceArray = npt.NDArray[np.int8]

MEMBER = 4
"""Bit of the face codes that lists the cuts."""
CODES = 3
"""Bits of the codes proper."""
EPSILON = 2.0**-52
MOST_ROUNDS = 10
SHARP = 1.5
"""With fewer arcs a word than this, the problem is near the linear one, and starts from that."""
TOLERANCE = 1e-13
"""What cuts may be violated by, beside rounding of the multipliers."""
LEVEL = 1e-12
"""Marginals below this are zero."""


@kernel
def project_trees(
    rows: IntArray,
    offsets: IntArray,
    a: FloatArray,
    delta: FloatArray,
    additional_offsets: IntArray,
    eta_v: FloatArray,
    parameters: FloatArray,
    link_parameter: FloatArray,
    z: FloatArray,
    v: FloatArray,
    face: FaceArray,
    branch: FaceArray,
) -> None:
    """Solve the local problem of every factor in `rows`."""
    longest, widest = _largest(rows, offsets, parameters)
    dual, flows = tree_dual(longest, widest, 2 * longest), flow_memory(longest)
    trees, capacity = arborescence_memory(longest), np.empty(longest * longest)
    for r in rows:
        lo, hi, n_labels = offsets[r], offsets[r + 1], int(parameters[r, 3])
        n, packed = n_words(hi - lo, parameters[r, 3]), parameters[r, 0] != 0
        free = 1 if parameters[r, 2] != 0 and n > 1 else 0
        _gather(a[lo:hi], delta[lo:hi], n, n_labels, packed, dual)
        _project_rows(dual, n, n * n_labels)
        dual.member[:free, :n] = 1
        count = _recall(face[lo:hi], n, n * n_labels, free, dual.member)
        count = _add_cuts(dual, n, n_labels, count, free, capacity, flows, trees)
        _drop_rounding(dual, n, n * n_labels)
        differentiate(dual, n, n_labels, count, 0.0)
        for k in range(count):
            dual.order[k] = k
        rank = factorise(dual.hessian, dual.order, count, dual.factor)
        dual.y[: hi - lo] = dual.x[: hi - lo]
        _project_on_face(dual, n, n_labels, count, rank, 1.0)
        _write(dual, n, n_labels, packed, min(rank, n), delta[lo:hi], z[lo:hi], face[lo:hi])


@kernel
def multiply_jacobians(
    rows: IntArray,
    offsets: IntArray,
    delta: FloatArray,
    additional_offsets: IntArray,
    parameters: FloatArray,
    link_parameter: FloatArray,
    face: FaceArray,
    branch: FaceArray,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Project vectors orthogonally onto the directions of the faces of the factors in `rows`."""
    longest, widest = _largest(rows, offsets, parameters)
    dual = tree_dual(longest, widest, 2 * longest)
    for r in rows:
        lo, hi, n_labels = offsets[r], offsets[r + 1], int(parameters[r, 3])
        n, packed = n_words(hi - lo, parameters[r, 3]), parameters[r, 0] != 0
        _gather(d_u[lo:hi], delta[lo:hi], n, n_labels, packed, dual)
        for word in range(n):
            for head in range(n):
                slot = lo + arc_slot(word, head, n, packed) * n_labels
                arc = (word * n + head) * n_labels
                for i in range(n_labels):
                    dual.x[arc + i] = 1.0 if face[slot + i] & CODES == FREE else -1.0
        count = _recall(face[lo:hi], n, n * n_labels, 0, dual.member)
        differentiate(dual, n, n_labels, count, 0.0)
        for k in range(count):
            dual.order[k] = k
        rank = factorise(dual.hessian, dual.order, count, dual.factor)
        _project_on_face(dual, n, n_labels, count, rank, 0.0)
        for word in range(n):
            for head in range(n):
                slot = lo + arc_slot(word, head, n, packed) * n_labels
                arc = (word * n + head) * n_labels
                for i in range(n_labels):
                    out_u[slot + i] = dual.y[arc + i] / delta[slot + i]


@kernel
def _largest(rows: IntArray, offsets: IntArray, parameters: FloatArray) -> tuple[int, int]:
    """Return the largest numbers of words and of arcs into a word."""
    longest, widest = 0, 0
    for r in rows:
        n = n_words(offsets[r + 1] - offsets[r], parameters[r, 3])
        longest, widest = max(longest, n), max(widest, n * int(parameters[r, 3]))
    return longest, widest


@kernel
def _gather(
    a: FloatArray, delta: FloatArray, n: int, n_labels: int, packed: bool, dual: TreeDual
) -> None:
    """Write ``y = delta a`` and ``q = delta^2`` in packed layout."""
    y, q = dual.y, dual.q
    for word in range(n):
        for head in range(n):
            slot = arc_slot(word, head, n, packed) * n_labels
            arc = (word * n + head) * n_labels
            for i in range(n_labels):
                y[arc + i] = delta[slot + i] * a[slot + i]
                q[arc + i] = delta[slot + i] * delta[slot + i]


# -------------------------------------------------------------------- the projection


@kernel
def _project_rows(dual: TreeDual, n: int, width: int) -> None:
    """Project each row without cuts, and measure its scores from its threshold.

    Of large scores, what is left are numbers around 1.
    """
    y, q, x, tau = dual.y, dual.q, dual.x, dual.tau
    for word in range(n):
        begin, end = word * width, (word + 1) * width
        for _ in range(2):  # the second time to mend the first one's rounding
            level = threshold(y[begin:end], q[begin:end], width, dual.near, dual.scale)
            total = 0.0
            for i in range(begin, end):
                y[i] -= level * q[i]
                total += max(y[i], 0.0)
            if abs(total - 1.0) < width * EPSILON:
                break
        tau[word] = 0.0
        for i in range(begin, end):
            x[i] = y[i]


@kernel
def _recall(face: FaceArray, n: int, width: int, count: int, member: FaceArray) -> int:
    """Append the cuts of a face; return the number of cuts there are then."""
    for k in range(min(width, len(member) - count)):
        size = 0
        for word in range(n):
            member[count, word] = face[word * width + k] & MEMBER != 0
            size += member[count, word]
        if size == 0:
            break
        count += 1
    return count


@kernel
def _add_cuts(
    dual: TreeDual,
    n: int,
    n_labels: int,
    count: int,
    free: int,
    capacity: FloatArray,
    flows: FlowMemory,
    trees: Arborescence,
) -> int:
    """Solve the problem with the first `count` cuts, add those violated, until there are none.

    Each cut that is added raises the dual's maximum, so that this ends. Returns the number of cuts
    that hold with equality.
    """
    sigma, member = dual.sigma, dual.member
    sigma[:count] = 0.0
    support = 0
    for i in range(n * n * n_labels):
        support += dual.x[i] > 0.0
    if support < SHARP * n and n > 1:
        count = _edmonds_cuts(dual, n, n_labels, free, capacity, trees)
    for _ in range(MOST_ROUNDS * n):
        allowed = maximise(dual, n, n_labels, count, free, TOLERANCE)
        kept = free
        for k in range(free, count):
            if sigma[k] > 0.0:
                sigma[kept] = sigma[k]
                member[kept, :n] = member[k, :n]
                kept += 1
        for arc in range(n * n):
            capacity[arc] = 0.0
            for i in range(arc * n_labels, (arc + 1) * n_labels):
                capacity[arc] += max(0.0, dual.x[i])
        count = violated_sets(capacity, n, 10 * allowed, member, kept, flows)
        if count == kept:
            break
        sigma[kept:count] = 0.0
    return count


@kernel
def _edmonds_cuts(
    dual: TreeDual,
    n: int,
    n_labels: int,
    free: int,
    scores: FloatArray,
    trees: Arborescence,
) -> int:
    """Replace the cuts by those that solve the linear problem, with its multipliers.

    Edmonds' (1967) algorithm contracts cycles: these are the sets of words, and what the best arc
    that enters one costs is its multiplier. Returns their number.
    """
    y, q, sigma, member = dual.y, dual.q, dual.sigma, dual.member
    for arc in range(n * n):
        scores[arc] = -np.inf
        for i in range(arc * n_labels, (arc + 1) * n_labels):
            scores[arc] = max(scores[arc], y[i] / q[i])
    nodes = maximum_arborescence(scores, n, free == 1, trees)
    weight, child, sibling = trees.weight, trees.child, trees.sibling
    sigma[:free] = 0.0
    count, _size = free, 0
    for cycle in range(n, nodes):
        member[count, :n] = 0
        node = child[cycle]
        while True:
            if node < n:
                member[count, node] = 1
            else:
                for word in range(n):
                    member[count, word] |= member[free + node - n, word]
            node = sibling[node]
            if node == child[cycle]:
                break
        sigma[count] = -weight[cycle]
        count += 1
    if free == 1 and count > 1:  # the last one holds all words, as does the first cut
        count -= 1
        sigma[0] = sigma[count]
    return count


@kernel
def _drop_rounding(dual: TreeDual, n: int, width: int) -> None:
    """Make marginals zero that rounding may account for."""
    _y, x = dual.y, dual.x
    slack = min(LEVEL + 8 * EPSILON * dual.size[0], 1e-6)
    for i in range(n * width):
        x[i] = x[i] if x[i] > slack else -1.0


@kernel
def _project_on_face(
    dual: TreeDual, n: int, n_labels: int, count: int, rank: int, total: float
) -> None:
    """Project ``y`` onto the affine hull of the face, or if `total` is 0 onto its directions.

    The face is the support of x, its rows that sum to `total`, and the cuts ``order[:rank]`` of the
    factorised H.
    """
    y, q, x, member, order, weights = (
        dual.y, dual.q, dual.x, dual.member, dual.order, dual.direction
    )  # fmt: skip
    weights[:count] = 0.0
    dual.shift[: n * n] = 0.0
    _centre_rows(y, q, x, dual.shift, n, n_labels, total)
    for i in range(rank):
        k = order[i]
        weights[k] = total
        for word in range(n):
            if member[k, word] == 0:
                continue
            weights[k] -= total
            for head in range(n):
                if head == word or member[k, head] == 0:
                    continue
                for j in range((word * n + head) * n_labels, (word * n + head + 1) * n_labels):
                    weights[k] += y[j]
    solve(dual.factor, order, rank, weights)
    spread(member, count, n, weights, dual.words, dual.shift)
    _centre_rows(y, q, x, dual.shift, n, n_labels, total)


@kernel
def _centre_rows(
    y: FloatArray,
    q: FloatArray,
    x: FloatArray,
    shift: FloatArray,
    n: int,
    n_labels: int,
    total: float,
) -> None:
    """Shift y on the support of x, and by one more number a row so that rows sum to `total`."""
    for word in range(n):
        rest, weight = total, 0.0
        for head in range(n):
            for i in range((word * n + head) * n_labels, (word * n + head + 1) * n_labels):
                inside = x[i] > 0.0
                y[i] = (y[i] - q[i] * shift[word * n + head]) * inside
                rest -= y[i]
                weight += q[i] * inside
        if weight > 0.0:
            level = rest / weight
            for i in range(word * n * n_labels, (word + 1) * n * n_labels):
                if x[i] > 0.0:
                    y[i] += q[i] * level


@kernel
def _write(
    dual: TreeDual,
    n: int,
    n_labels: int,
    packed: bool,
    rank: int,
    delta: FloatArray,
    z: FloatArray,
    face: FaceArray,
) -> None:
    """Write z and the face."""
    y, x, member, order = dual.y, dual.x, dual.member, dual.order
    width = n * n_labels
    for word in range(n):
        support = 0
        for i in range(word * width, (word + 1) * width):
            support += x[i] > 0.0
        for head in range(n):
            slot = arc_slot(word, head, n, packed) * n_labels
            arc = (word * n + head) * n_labels
            for i in range(n_labels):
                if x[arc + i] <= 0.0:
                    z[slot + i], face[slot + i] = 0.0, LOWER
                elif support == 1:
                    z[slot + i], face[slot + i] = 1.0 / delta[slot + i], UPPER
                else:
                    z[slot + i], face[slot + i] = max(0.0, y[arc + i]) / delta[slot + i], FREE
        for k in range(rank):
            face[word * width + k] |= MEMBER * member[order[k], word]
