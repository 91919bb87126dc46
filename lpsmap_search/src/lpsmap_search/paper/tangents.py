"""Tangents of the constraint that the probabilities of a block sum to at most one.

In logarithms theta, the constraint ``sum_m exp(theta_m) <= 1`` is convex, so the tangent at any
point t bounds a half-space that contains the feasible set,

    sum_m a_m theta_m <= 1 - sum_m a_m (1 - t_m),    a = exp(t)

(Gormley & Eisner 2013, Eq. 18). Logarithms are bounded below by l, which represents all smaller
values and probability zero. With ``t_m >= l + 1`` the tangent is valid there too: the term ``a_m (l
+ 1 - t_m)`` is at most zero, and hence at most the probability. If the lower bound of a box is
above l, t_m is arbitrary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.sparse_matrix import SparseMatrix


class Tangents(NamedTuple):
    """The points of tangency of blocks."""

    block: IntArray
    """(K,)."""
    point: FloatArray
    """(K, W) logarithms of the parameters of the block, padded with zeros."""


def simplex_tangents(
    first: IntArray, least: FloatArray, n_points: int | None, rng: np.random.Generator
) -> Tangents:
    """Return tangents at random points of the simplex of each block.

    Parameters
    ----------
    first
        (C + 1,) offsets of the blocks.
    least
        (M,) the least logarithms.
    n_points
        Number of points for each block; None for the square of its size.
    rng
        The random generator.
    """
    sizes = np.diff(first)
    block = np.repeat(np.arange(len(sizes)), sizes**2 if n_points is None else n_points)
    inside = np.arange(sizes.max()) < sizes[block][:, None]
    p = np.where(inside, rng.exponential(size=inside.shape), 0.0)
    return _tangents(first, least + 1.0, block, p / p.sum(axis=1, keepdims=True))


def separated(
    first: IntArray, least: FloatArray, low: FloatArray, theta: FloatArray, excess: float
) -> Tangents:
    """Return tangents that separate a point of a box, for blocks whose sum exceeds one.

    The sum is that of ``exp(theta_m)``. In a box that contains the least logarithm, the exponential
    is continued below ``least_m + 1`` by its tangent there, which is zero at the least logarithm:
    no tangent can require more. A point with sum S > 1 violates its tangent, taken at the
    normalised point, by at least ``log S``.

    Parameters
    ----------
    first
        (C + 1,) offsets of the blocks.
    least
        (M,) the least logarithms.
    low
        (M,) the least logarithms of the box, where the tangents are valid.
    theta
        (M,) the point.
    excess
        The tolerated excess of a sum over one.
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
    """Return the tangents as inequality rows.

    Parameters
    ----------
    first
        (C + 1,) offsets of the blocks.
    tangents
        The tangents.
    n_columns
        The number of columns of the rows: column 0 is the constant, followed by the logarithms.
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
    """Concatenate tangents."""
    return Tangents(np.concatenate([a.block, b.block]), np.concatenate([a.point, b.point]))


def _places(first: IntArray, block: IntArray) -> IntArray:
    """Return (K, W) the parameters of blocks, padded with -1."""
    sizes = np.diff(first)
    slots = np.arange(sizes.max())
    return np.where(slots < sizes[block][:, None], first[block][:, None] + slots, -1)


def _tangents(first: IntArray, turn: FloatArray, block: IntArray, p: FloatArray) -> Tangents:
    """Return tangents at probabilities, clipped to the logarithms at which they are valid."""
    place = _places(first, block)
    with np.errstate(divide="ignore"):
        point = np.maximum(np.log(p), turn[place])
    return Tangents(block, np.where(place >= 0, point, 0.0))
