"""The records of flat arrays that kernels of factor types take as arguments.

The factors of a type lie side by side in flat arrays. A kernel gets the numbers of the factors to
solve and three records, of the factors, of the inputs and of the outputs::

    map_kernel(rows, factors: Factors, scores: Scores, structures: Structures)
    projection_kernel(rows, factors: Factors, scores: LocalScores, solution: LocalSolution)
    jvp_kernel(rows, factors: Factors, direction: Direction, product: Product)

These fields are the only list of a kernel's arguments. The signatures of kernels that are
called by address are made from it, and solvers pack and unpack their arrays by it.
"""

from __future__ import annotations

from typing import NamedTuple

from lpsmap_jit.arrays import (
    ByteArray,
    FloatArray,
    FloatTable,
    IndexArray,
    IntArray,
    IntTable,
)
from lpsmap_jit.compile import leaf

FREE, LOWER, UPPER, TIED = 0, 1, 2, 3
"""Face codes of a slot. `LOWER` and `UPPER` mean that it is exactly at a bound and stays there. A
`FREE` slot moves independently. `TIED` slots move together, with equal marginals, and so do further
groups with codes from 4 on. A type with its own Jacobian may define all codes but the bounds."""

TIGHT = 1
"""The branch of a factor whose free slots satisfy a constraint on a weighted sum of marginals with
equality; 0 without. A type with its own Jacobian may define other branches."""

UNSOLVED = -1
"""The branch of a factor whose projection kernel ended without the solution. Its component has the
status `INNER_ITERATION_LIMIT`."""


class Factors(NamedTuple):
    """All factors of a type, from all declarations of a graph: a bucket.

    Attributes
    ----------
    offsets
        (F + 1,) factor r has the slots ``offsets[r]`` to ``offsets[r + 1]``; their number is
        its arity.
    additional_offsets
        (F + 1,) factor r has the additionals ``additional_offsets[r]`` to ``additional_offsets[r +
        1]``.
    parameters
        (F, P) numbers that `Factor.per_factor` and `Factor.counts` registered, in the order of
        registration: a column each, or as many as there are numbers in the shape.
    link_parameter
        Numbers that `Factor.per_link` registered, one for every slot; or of length 0.
    integers
        Integers that `Factor.integers` registered in all declarations, flat; or of length 0.
    integer_ranges
        (F, 2) factor r has ``integers[integer_ranges[r, 0] : integer_ranges[r, 1]]``, which it
        may share with others.
    """

    offsets: IntArray
    additional_offsets: IntArray
    parameters: FloatTable
    link_parameter: FloatArray
    integers: IntArray
    integer_ranges: IntTable


class Scores(NamedTuple):
    """Inputs of a MAP oracle.

    Attributes
    ----------
    eta_u
        Scores of the variables, one per slot: finite, but hugely negative where forbidden and
        hugely positive where forced.
    eta_v
        Scores of the additionals.
    """

    eta_u: FloatArray
    eta_v: FloatArray


class Structures(NamedTuple):
    """Outputs of a MAP oracle: the best structures as sparse vectors.

    Attributes
    ----------
    start
        (F,) first position of factor r in ``entry`` and ``value``; read only.
    entry
        Positions of the nonzeros of the vertex: k for the factor's k-th slot, arity + j for its
        j-th additional.
    value
        Values of the nonzeros, 1 or a count.
    size
        (F,) numbers of nonzeros.
    """

    start: IntArray
    entry: IndexArray
    value: FloatArray
    size: IntArray


class LocalScores(NamedTuple):
    """Inputs of local problems ``min 1/2 ||z - a||^2 - <eta_v, v>``.

    Attributes
    ----------
    a
        Local scores, one per slot: finite, but hugely negative where forbidden and hugely positive
        where forced.
    delta
        Square roots of the degrees, one per slot: all 1 in a factor that shares no variable.
    eta_v
        Scores of the additionals.
    """

    a: FloatArray
    delta: FloatArray
    eta_v: FloatArray


class LocalSolution(NamedTuple):
    """Solutions of local problems: flat in kernels, (F, K) and (F, A) arrays in array code.

    Attributes
    ----------
    z
        Scaled marginals in ``[0, 1 / delta]``, one per slot; a bound is met exactly.
    v
        Marginals of the additionals.
    face
        One per slot: `LOWER` at 0, `UPPER` at ``1 / delta``, else `FREE`, `TIED` or a type's own.
    branch
        (F,) `TIGHT` or 0, `UNSOLVED`, or the type's own: further state that its Jacobian needs,
        such as the case that holds.
    """

    z: FloatArray
    v: FloatArray
    face: ByteArray
    branch: ByteArray


class Direction(NamedTuple):
    """Inputs of products with local Jacobians: solutions and vectors.

    Attributes
    ----------
    delta
        Square roots of the degrees, one per slot.
    face, branch
        The latest output of the projection.
    d_u, d_v
        The vector: one number per slot, and one per additional.
    """

    delta: FloatArray
    face: ByteArray
    branch: ByteArray
    d_u: FloatArray
    d_v: FloatArray


class Product(NamedTuple):
    """Outputs of products with local Jacobians, those of ``(z, v)`` in ``(a, eta_v)``.

    Attributes
    ----------
    out_u
        One number per slot.
    out_v
        One number per additional.
    """

    out_u: FloatArray
    out_v: FloatArray


KERNELS: dict[str, tuple[type, type, type]] = {
    "map_kernel": (Factors, Scores, Structures),
    "projection_kernel": (Factors, LocalScores, LocalSolution),
    "jvp_kernel": (Factors, Direction, Product),
}
"""The records that each kernel of a factor type takes after the numbers of the factors."""


@leaf
def largest_arity(rows: IntArray, offsets: IntArray) -> int:
    """Return the largest number of slots of the factors `rows`, 0 without factors.

    With ``factors.additional_offsets`` for `offsets`, this is the largest number of additionals.
    """
    largest = 0
    for r in rows:
        largest = max(largest, offsets[r + 1] - offsets[r])
    return largest
