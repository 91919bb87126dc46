"""Projection onto the polytope of non-projective dependency trees, and its derivative.

The convex hull of the arborescences of n words is given by three kinds of constraints (Edmonds
1967): ``x >= 0``, the arcs into each word sum to 1, and the arcs that enter each set of two or more
words sum to at least 1. By the sums of the rows, the latter means that the arcs inside the set sum
to at most its number of words minus 1. With ``single_root``, the cut of all words holds with
equality, which is a face of the polytope. The local problem, in marginals ``x = delta z``,

    minimise sum_e (x_e - delta_e a_e)^2 / (2 delta_e^2)   over the polytope,

is solved by cutting planes: starting without cuts, violated cuts are added until none are left. For
plain scores of 50 words, 0 to 5 cuts suffice.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import (
    UNSOLVED,
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
from lpsmap_factors_struct.arborescence_polytope.ascent import maximise
from lpsmap_factors_struct.arborescence_polytope.cuts import (
    FlowWorkspace,
    flow_workspace,
    violated_sets,
)
from lpsmap_factors_struct.arborescence_polytope.dual import (
    EPSILON,
    TreeDual,
    cuts_of,
    least_threshold,
    tree_dual,
)
from lpsmap_factors_struct.arborescence_polytope.simplex_threshold import MAX_GUESS_SUM, threshold
from lpsmap_factors_struct.arborescence_polytope.tree_face import (
    MEMBER,
    factorise_face,
    find_multipliers,
    project_on_face,
    read_face,
    write_cuts,
    write_z,
)
from lpsmap_factors_struct.arc_layout import ARC_RANGES, arc_range, n_words
from lpsmap_factors_struct.arrays import copy
from lpsmap_factors_struct.chu_liu_edmonds import (
    ArborescenceWorkspace,
    arborescence_workspace,
    maximum_arborescence,
)

TOLERANCE = 1e-13
"""Allowed violation of a cut, apart from rounding of the multipliers."""
SHARP_ARCS_PER_WORD = 1.15
"""With fewer arcs a word, the problem is nearly linear, and starts from the linear solution."""
MAX_ROUNDS_PER_WORD = 10
"""Maximum number of rounds of new cuts, for each word; far more than were ever needed."""
ZERO_LEVEL = 1e-12
"""Marginals below this, or below the rounding of the numbers they are computed from, are zero."""


@kernel
def project_trees(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    """Solve the local problem of every factor in `rows`."""
    longest, widest = _largest(rows, factors)
    dual, flows = tree_dual(longest, widest, 2 * longest), flow_workspace(longest)
    trees, capacity = arborescence_workspace(longest), np.empty(longest * longest)
    _project_trees(rows, factors, scores, solution, dual, flows, trees, capacity)


@leaf
def _project_trees(
    rows: IntArray,
    factors: Factors,
    scores: LocalScores,
    solution: LocalSolution,
    workspace: TreeDual,
    flows: FlowWorkspace,
    trees: ArborescenceWorkspace,
    capacity: FloatArray,
) -> None:
    """Solve the local problem of every factor in `rows`, in workspaces that the caller owns."""
    offsets, parameters, dual = factors.offsets, factors.parameters, by_address(workspace)
    a, delta, z, face = scores.a, scores.delta, solution.z, solution.face
    branch = solution.branch
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
        count = _recall_cuts(face[lo:hi], n, width, dual.member, free)
        read_face(face[lo:hi], n, n_labels, packed, True, dual)
        if count > free:
            _guess_multipliers(dual, n, width, count, free)
            _project_words(dual, n, width, count)
        elif _project_words(dual, n, width, 0) < SHARP_ARCS_PER_WORD * n:
            count = _edmonds_cuts(dual, n, width, free, capacity, trees)
        count, solved = _add_cuts(dual, n, width, count, free, capacity, flows)
        if interrupted():
            break  # the last solution and its face stay
        _clear_rounding(dual, n, width)
        rank = factorise_face(dual, n, width, count)
        copy(dual.x[: hi - lo], dual.y)
        project_on_face(dual, n, width, count, rank, 1.0)
        write_z(dual, n, n_labels, packed, delta[lo:hi], z[lo:hi], face[lo:hi])
        write_cuts(dual, n, width, min(rank, n), face[lo:hi])
        branch[r] = 0 if solved else UNSOLVED


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
    rows: IntArray, factors: Factors, direction: Direction, product: Product, workspace: TreeDual
) -> None:
    """Project vectors as `multiply_jacobians` does, in a workspace that the caller owns."""
    offsets, parameters, dual = factors.offsets, factors.parameters, by_address(workspace)
    delta, face, d_u, out_u = direction.delta, direction.face, direction.d_u, product.out_u
    for r in rows:
        if interrupted():
            break
        lo, hi, n_labels = offsets[r], offsets[r + 1], int(parameters[r, 3])
        n, packed = n_words(hi - lo, parameters[r, 3]), parameters[r, 0] != 0
        width = n * n_labels
        _gather(d_u[lo:hi], delta[lo:hi], n, n_labels, packed, dual)
        read_face(face[lo:hi], n, n_labels, packed, False, dual)
        count = _recall_cuts(face[lo:hi], n, width, dual.member, 0)
        rank = factorise_face(dual, n, width, count)
        project_on_face(dual, n, width, count, rank, 0.0)
        for word in range(n):
            for piece in range(ARC_RANGES):
                slot, head, count = arc_range(piece, word, n, packed)
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
        for piece in range(ARC_RANGES):
            slot, head, count = arc_range(piece, word, n, packed)
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
def _project_words(dual: TreeDual, n: int, width: int, count: int) -> int:
    """Subtract about its threshold from each row of scores, and project the rows without cuts.

    Large scores thus become numbers around 1. The thresholds of the supports in ``on`` are the
    first guesses. Returns the number of arcs on the supports.
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
            n_on[word] = _project_word(begin, end, guess, y, q, dual.x, on)
        dual.tau[word], dual.margin[word] = 0.0, -np.inf
        support += n_on[word]
    return support


@leaf
def _near(guess: float, support: IntArray, y: FloatArray, q: FloatArray) -> bool:
    """Return whether scores can be reduced by `guess` without a loss of precision."""
    total = 0.0
    for i in support:
        total += max(0.0, y[i] - guess * q[i])
    return 0.0 < total < MAX_GUESS_SUM


@leaf
def _lower(
    begin: np.uint64, end: np.uint64, level: float, y: FloatArray, q: FloatArray, x: FloatArray
) -> None:
    for i in range(begin, end):
        y[i] -= level * q[i]
        x[i] = 0.0


@leaf
def _project_word(
    begin: np.uint64,
    end: np.uint64,
    level: float,
    y: FloatArray,
    q: FloatArray,
    x: FloatArray,
    on: IntArray,
) -> int:
    """Subtract the threshold from a row's scores, write x and its support; return its size."""
    n_on = np.uint64(0)
    for _ in range(3):  # later rounds correct the rounding of the first
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
def _recall_cuts(face: ByteArray, n: int, width: int, member: FloatArray, free: int) -> int:
    """Append the cuts of a face to the first `free` cuts, and return the number of all.

    The first cut is that of all words, if `free` is 1.
    """
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
def _guess_multipliers(dual: TreeDual, n: int, width: int, count: int, free: int) -> None:
    """Set the multipliers to those of a solution on the latest face.

    The scores change little between two iterations of a larger problem, and the face even less.
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
    trees: ArborescenceWorkspace,
) -> int:
    """Append the cuts that solve the linear problem, with their multipliers.

    The sets of words are the cycles that Edmonds' (1967) algorithm contracts. The multiplier of a
    cycle is the cost of the best arc that enters it. Returns the number of cuts.
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
    if free == 1 and count > 1:  # the last cut contains all words, as does the first
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
    flows: FlowWorkspace,
) -> tuple[int, bool]:
    """Solve the problem with the first `count` cuts, and add violated cuts until none are left.

    Each new cut raises the maximum of the dual, so that this terminates. Returns the number of cuts
    that hold with equality, and whether the problem is solved.
    """
    sigma, member, x = dual.sigma, dual.member, dual.x
    for attempt in range(MAX_ROUNDS_PER_WORD * n):
        excess, solved = maximise(dual, n, width, count, free, TOLERANCE, attempt > 0)
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
            return count, solved
        if interrupted():
            return kept, False
        sigma[kept:count] = 0.0
    return count, n == 0


@leaf
def _clear_rounding(dual: TreeDual, n: int, width: int) -> None:
    """Set marginals to zero that may be rounding errors."""
    x, on, n_on = dual.x, dual.on, dual.n_on
    slack = min(ZERO_LEVEL + 8 * EPSILON * dual.size[0], 1e-6)
    for word in range(n):
        begin, kept = word * width, 0
        for place in range(begin, begin + n_on[word]):
            i = on[place]
            x[i] = x[i] if x[i] > slack else 0.0
            on[begin + kept] = i
            kept += x[i] > 0.0
        n_on[word] = kept
