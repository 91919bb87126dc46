"""Tangents of the constraint that the probabilities of a block sum to at most one.

In logarithms theta the constraint ``sum_m exp(theta_m) <= 1`` is convex, so that the tangent at any
point t bounds a half-space that holds all its points,

    sum_m a_m theta_m <= 1 - sum_m a_m (1 - t_m),    a = exp(t)

(Gormley & Eisner 2013, Eq. 18). Logarithms end at a least value l, which stands for all smaller
ones, and for probability zero. With ``t_m >= l + 1`` the tangent is valid there too: the term
``a_m (l + 1 - t_m)`` is at most zero, which is no more than the probability. Where a box ends above
l, t_m may be anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_search.arrays import FloatArray, FloatTable, IntArray
from lpsmap_search.sparse_matrix import SparseMatrix

__all__ = ["Tangents", "joined_tangents", "separated", "simplex_tangents", "tangent_rows"]


class Tangents(NamedTuple):
    """Points at which blocks have tangents."""

    block: IntArray
    """(K,)."""
    point: FloatTable
    """(K, W) logarithms of the block's parameters, padded by zeros."""


def simplex_tangents(
    first: IntArray, least: FloatArray, n_points: int | None, rng: np.random.Generator
) -> Tangents:
    """Return tangents at random points of the simplex of each block.

    Parameters
    ----------
    first
        (C + 1,) where the blocks begin.
    least
        (M,) the least logarithms.
    n_points
        For each block; None for the square of its size.
    rng
        Where random numbers come from.
    """
    sizes = np.diff(first)
    block = np.repeat(np.arange(len(sizes)), sizes**2 if n_points is None else n_points)
    inside = np.arange(sizes.max()) < sizes[block][:, None]
    p = np.where(inside, rng.exponential(size=inside.shape), 0.0)
    return _tangents(first, least + 1.0, block, p / p.sum(axis=1, keepdims=True))


def separated(
    first: IntArray, least: FloatArray, low: FloatArray, theta: FloatArray, excess: float
) -> Tangents:
    """Return tangents that cut off a point of a box, for the blocks whose sum exceeds one.

    The sum is that of ``exp(theta_m)``. In a box that has the least logarithm it is continued from
    ``least_m + 1`` downwards by the tangent there, which is zero at the least logarithm: more no
    tangent can ask for. A point with sum S > 1 misses its tangent, which touches at the normalised
    point, by ``log S`` or more.

    Parameters
    ----------
    first
        (C + 1,) where the blocks begin.
    least
        (M,) the least logarithms.
    low
        (M,) the least logarithms of the box, in which the tangents are valid.
    theta
        (M,) the point.
    excess
        By how much a sum may exceed one.
    """
    turn = np.where(low > least, -np.inf, least + 1.0)
    slope = np.exp(np.maximum(turn, least))
    sums = np.add.reduceat(
        np.where(theta >= turn, np.exp(theta), slope * (theta - least)), first[:-1]
    )
    block = np.flatnonzero(sums > 1.0 + excess)
    place = _places(first, block)
    p = np.where(place >= 0, np.exp(theta)[place], 0.0)
    return _tangents(first, turn, block, p / sums[block][:, None])


def tangent_rows(first: IntArray, tangents: Tangents, n_columns: int) -> SparseMatrix:
    """Return the tangents as expressions that are at least zero.

    Parameters
    ----------
    first
        (C + 1,) where the blocks begin.
    tangents
        The tangents.
    n_columns
        Of the expressions: column 0 is the constant, then come the logarithms.
    """
    place = _places(first, tangents.block)
    inside = place >= 0
    a = np.where(inside, np.exp(tangents.point), 0.0)
    constant = 1.0 - (a * (1.0 - tangents.point)).sum(axis=1)
    used = np.insert(inside, 0, True, axis=1)
    return SparseMatrix(
        np.concatenate([[0], np.cumsum(used.sum(axis=1))]),
        np.insert(place + 1, 0, 0, axis=1)[used],
        np.insert(-a, 0, constant, axis=1)[used],
        n_columns,
    )


def joined_tangents(a: Tangents, b: Tangents) -> Tangents:
    """Return tangents behind each other."""
    return Tangents(np.concatenate([a.block, b.block]), np.concatenate([a.point, b.point]))


def _places(first: IntArray, block: IntArray) -> IntArray:
    """Return (K, W) the parameters of blocks, padded by -1."""
    sizes = np.diff(first)
    slots = np.arange(sizes.max())
    return np.where(slots < sizes[block][:, None], first[block][:, None] + slots, -1)


def _tangents(first: IntArray, turn: FloatArray, block: IntArray, p: FloatTable) -> Tangents:
    """Return tangents at probabilities, or at the logarithms from which on they are valid."""
    place = _places(first, block)
    with np.errstate(divide="ignore"):
        point = np.maximum(np.log(p), turn[place])
    return Tangents(block, np.where(place >= 0, point, 0.0))
