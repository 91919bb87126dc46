"""Faces of the polytope of dependency trees, as its derivative needs them.

The face that is left for the derivative: for each slot a code `FREE`, `LOWER`, or `UPPER` for the
only arc of a row; and the cuts, tight and independent of one another. Bit `MEMBER` of the face of
slot k of word w tells whether cut k holds w; the first empty cut ends the list.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import FREE, LOWER, UPPER, leaf
from lpsmap_core.api import ByteArray, FloatArray
from lpsmap_factors_struct.arborescence_dual import (
    TINY,
    TreeDual,
    add_up,
    cuts_of,
    find_excess,
    list_cuts,
    second_derivatives,
)
from lpsmap_factors_struct.arc_layout import PARTS, part_of_row
from lpsmap_factors_struct.pivoted_cholesky import factorise, solve

__all__ = [
    "MEMBER",
    "factorise_face",
    "find_multipliers",
    "project_on_face",
    "read_face",
    "write_cuts",
    "write_z",
]

MEMBER = 4
"""Bit of the face codes that lists the cuts."""
CODES = 3
"""Bits of the codes proper."""


@leaf
def read_face(
    face: ByteArray, n: int, n_labels: int, packed: bool, whole: bool, dual: TreeDual
) -> None:
    """Write the supports of a face, with ones as x; of rows with one arc only if `whole`."""
    x, on = dual.x, dual.on
    for word in range(n):
        begin, n_on = np.uint64(word * n * n_labels), np.uint64(0)
        for part in range(PARTS):
            slot, head, count = part_of_row(part, word, n, packed)
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
    """Project ``y`` onto the affine hull of the face, or if `total` is 0 onto its directions.

    In the norm weighted by 1 / q. The face is the support of x, with rows that sum to `total`, and
    the cuts ``order[:rank]`` of the factorised H.
    """
    find_multipliers(dual, n, width, count, rank, total)
    if rank > 0:
        _centre_rows(dual, n, width, count, total)


@leaf
def find_multipliers(
    dual: TreeDual, n: int, width: int, count: int, rank: int, total: float
) -> None:
    """Write into ``direction`` the multipliers of the cuts for the projection onto the face.

    Centres the rows of ``y``.
    """
    _centre_rows(dual, n, width, 0, total)
    if rank > 0:
        find_excess(dual, n, width, count, dual.y, total, dual.direction)
    for k in dual.order[rank:count]:
        dual.direction[k] = 0.0
    solve(dual.factor, dual.order, rank, dual.direction)


@leaf
def _centre_rows(dual: TreeDual, n: int, width: int, count: int, total: float) -> None:
    """Lower y by the multipliers in ``direction``, and so that the rows sum to `total`."""
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
    """Write z from y, and the codes of the face."""
    for word in range(n):
        single = dual.n_on[word] == 1
        for part in range(PARTS):
            slot, head, count = part_of_row(part, word, n, packed)
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
