"""Faces of the polytope of dependency trees, which determine its derivative.

The face has a code for each slot: `FREE`, `LOWER`, or `UPPER` for the only arc of a row. It also
lists the tight cuts, which are linearly independent. Bit `MEMBER` of the code of slot k of word w
says whether cut k contains w. The first empty cut ends the list.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import FREE, LOWER, UPPER, leaf
from lpsmap_core.api import ByteArray, FloatArray
from lpsmap_factors_struct.arborescence_polytope.dual import (
    TINY,
    TreeDual,
    add_up,
    cuts_of,
    find_excess,
    list_cuts,
    second_derivatives,
)
from lpsmap_factors_struct.arborescence_polytope.pivoted_cholesky import factorise, solve
from lpsmap_factors_struct.arc_layout import ARC_RANGES, arc_range

MEMBER = 4
"""Bit of the face codes that lists the cuts."""
CODES = 3
"""Bits of the code of a slot."""


@leaf
def read_face(
    face: ByteArray, n: int, n_labels: int, packed: bool, whole: bool, dual: TreeDual
) -> None:
    """Write the supports of a face, with ones as x.

    Rows with a single arc are included only if `whole`.
    """
    x, on = dual.x, dual.on
    for word in range(n):
        begin, n_on = np.uint64(word * n * n_labels), np.uint64(0)
        for piece in range(ARC_RANGES):
            slot, head, count = arc_range(piece, word, n, packed)
            arc = np.uint64((word * n + head) * n_labels)
            for code in face[slot * n_labels : (slot + count) * n_labels]:
                moves = code & CODES == FREE or (whole and code & CODES == UPPER)
                x[arc] = moves
                on[begin + n_on] = arc
                n_on += np.uint64(moves)
                arc += np.uint64(1)
        dual.n_on[word] = n_on


@leaf
def factorise_face(dual: TreeDual, n: int, width: int, count: int) -> int:
    """Factorise H on the support, the cuts in ``order``; return the number of independent ones."""
    list_cuts(dual, n, count)
    second_derivatives(dual, n, width, count)
    for k in range(count):
        dual.order[k] = k
    return factorise(dual.hessian, dual.order, count, dual.factor)


@leaf
def project_on_face(
    dual: TreeDual, n: int, width: int, count: int, rank: int, total: float
) -> None:
    """Project ``y`` onto the affine hull of the face, or onto its directions if `total` is 0.

    The norm has weights 1 / q. The face consists of the points on the support of x whose rows sum
    to `total` and which satisfy the cuts ``order[:rank]`` of the factorised H with equality.
    """
    find_multipliers(dual, n, width, count, rank, total)
    if rank > 0:
        _centre_rows(dual, n, width, count, total)


@leaf
def find_multipliers(
    dual: TreeDual, n: int, width: int, count: int, rank: int, total: float
) -> None:
    """Write the multipliers of the cuts for the projection onto the face into ``direction``.

    Also centres the rows of ``y``.
    """
    _centre_rows(dual, n, width, 0, total)
    if rank > 0:
        find_excess(dual, n, width, count, dual.y, total, dual.direction)
    for k in dual.order[rank:count]:
        dual.direction[k] = 0.0
    solve(dual.factor, dual.order, rank, dual.direction)


@leaf
def _centre_rows(dual: TreeDual, n: int, width: int, count: int, total: float) -> None:
    """Reduce y by the multipliers in ``direction``, then shift its rows to sum to `total`."""
    y, q, head, on, own, member = dual.y, dual.q, dual.head, dual.on, dual.own, dual.member
    level = dual.level
    for word in range(n):
        begin, n_own = word * width, cuts_of(word, dual.holding, count, own)
        add_up(word, n, member, own, n_own, dual.direction, level)
        row, first = on[begin : begin + dual.n_on[word]], np.uint64(begin)
        rest, weight = total, 0.0
        for arc in row:
            i = np.uint64(arc)
            y[i] -= q[i] * level[np.uint64(head[i - first])]
            rest -= y[i]
            weight += q[i]
        rest /= max(weight, TINY)
        for arc in row:
            i = np.uint64(arc)
            y[i] += q[i] * rest


@leaf
def write_z(
    dual: TreeDual,
    n: int,
    n_labels: int,
    packed: bool,
    delta: FloatArray,
    z: FloatArray,
    face: ByteArray,
) -> None:
    """Write z, computed from y, and the codes of the face."""
    for word in range(n):
        single = dual.n_on[word] == 1
        for piece in range(ARC_RANGES):
            slot, head, count = arc_range(piece, word, n, packed)
            _write_arcs(
                count * n_labels,
                single,
                dual.x[(word * n + head) * n_labels :],
                dual.y[(word * n + head) * n_labels :],
                delta[slot * n_labels :],
                z[slot * n_labels :],
                face[slot * n_labels :],
            )


@leaf
def _write_arcs(
    count: int,
    single: bool,
    x: FloatArray,
    y: FloatArray,
    delta: FloatArray,
    z: FloatArray,
    face: ByteArray,
) -> None:
    for i in range(np.uint64(count)):
        if x[i] == 0.0:
            z[i], face[i] = 0.0, LOWER
        elif single:
            z[i], face[i] = 1.0 / delta[i], UPPER
        else:
            z[i], face[i] = max(0.0, y[i]) / delta[i], FREE


@leaf
def write_cuts(dual: TreeDual, n: int, width: int, count: int, face: ByteArray) -> None:
    """Add the cuts ``order[:count]`` to the face."""
    for word in range(n):
        for k in range(count):
            if dual.member[dual.order[k], word] > 0.0:
                face[word * width + k] |= MEMBER
