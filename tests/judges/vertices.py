"""Vertices of factors, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


Vertices = tuple[FloatArray, FloatArray]
"""(Y, K) variables and (Y, A) additionals of every structure of a factor."""


def binary_vectors(k: int) -> FloatArray:
    """Return the (2^k, k) vectors of zeros and ones."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=k))).reshape(2**k, k)


def _where(k: int, predicate: Callable[[list[bool]], bool]) -> Vertices:
    m = np.array([row for row in binary_vectors(k) if predicate([bool(x) for x in row])])
    return m.reshape(-1, k), np.zeros((len(m), 0))


def xor(k: int) -> Vertices:
    """Exactly one variable is on."""
    return _where(k, lambda m: sum(m) == 1)


def at_least_one(k: int) -> Vertices:
    """OR: one or more variables are on."""
    return _where(k, any)


def at_most_one(k: int) -> Vertices:
    """At most one variable is on."""
    return _where(k, lambda m: sum(m) <= 1)


def budget(k: int, most: int, *, exact: bool = False) -> Vertices:
    """At most `most` variables are on, or exactly `most`."""
    return _where(k, lambda m: sum(m) == most if exact else sum(m) <= most)


def nand(k: int) -> Vertices:
    """Not all variables are on."""
    return _where(k, lambda m: not all(m))


def imply(k: int) -> Vertices:
    """If all variables but the last are on, the last is on."""
    return _where(k, lambda m: m[-1] or not all(m[:-1]))


def xor_out(k: int) -> Vertices:
    """At most one variable before the last is on, and the last is their sum."""
    return _where(k, lambda m: sum(m[:-1]) <= 1 and m[-1] == any(m[:-1]))


def or_out(k: int) -> Vertices:
    """The last variable is on if and only if any other is on."""
    return _where(k, lambda m: m[-1] == any(m[:-1]))


def and_out(k: int) -> Vertices:
    """The last variable is on if and only if all others are on."""
    return _where(k, lambda m: m[-1] == all(m[:-1]))


def pair() -> Vertices:
    """Two variables, and an additional that is 1 if both are on."""
    m = binary_vectors(2)
    return m, m[:, :1] * m[:, 1:]


def potts(k: int) -> Vertices:
    """Two variables with one of k states each, and an additional that is 1 if they are equal."""
    first, second = (x.reshape(-1) for x in np.indices((k, k)))
    m = np.concatenate([np.eye(k)[first], np.eye(k)[second]], axis=1)
    return m, 1.0 * (first == second)[:, None]


def knapsack(costs: npt.ArrayLike, most: float) -> Vertices:
    """Vertices of ``{0 <= m <= 1, <costs, m> <= most}``: corners, and edges that the plane cuts."""
    c = np.asarray(costs, dtype=np.float64)
    k = len(c)
    rows = [row for row in binary_vectors(k) if c @ row <= most]
    for free in range(k):
        for rest in binary_vectors(k - 1):
            row = np.insert(rest, free, 0.0)
            level = (most - c @ row) / c[free] if c[free] != 0 else 0.0
            if 0.0 < level < 1.0:
                row[free] = level
                rows.append(row)
    m = np.array(rows).reshape(-1, k)
    return m, np.zeros((len(m), 0))


def tree_heads(n: int, *, single_root: bool = False) -> list[tuple[int, ...]]:
    """Return the heads of every dependency tree of `n` words; a child of the root heads itself."""

    def reaches_root(heads: tuple[int, ...], word: int) -> bool:
        for _ in range(n):
            if heads[word] == word:
                return True
            word = heads[word]
        return False

    return [
        heads
        for heads in itertools.product(range(n), repeat=n)
        if all(reaches_root(heads, word) for word in range(n))
        and (not single_root or sum(heads[word] == word for word in range(n)) == 1)
    ]


def trees(n: int, *, single_root: bool = False, packed: bool = True) -> Vertices:
    """Dependency trees of `n` words, flattened from (n, n).

    Packed: ``m[i, h] = 1`` if word h heads word i, and the diagonal has the arcs from the root.
    Unpacked: row i has the root's arc, then the other words in order.
    """
    rows = []
    for heads in tree_heads(n, single_root=single_root):
        m = np.zeros((n, n))
        m[np.arange(n), heads] = 1.0
        if not packed:
            m = np.array([np.append(m[i, i], np.delete(m[i], i)) for i in range(n)])
        rows.append(m.reshape(-1))
    return np.array(rows).reshape(-1, n * n), np.zeros((len(rows), 0))


def sequences(length: int, states: int) -> Vertices:
    """State sequences: (length, states) indicators, (length - 1, states, states) transitions."""
    m, n = [], []
    for path in itertools.product(range(states), repeat=length):
        indicator, used = np.zeros((length, states)), np.zeros((max(length - 1, 0), states, states))
        indicator[np.arange(length), path] = 1.0
        for i, (left, right) in enumerate(itertools.pairwise(path)):
            used[i, left, right] = 1.0
        m.append(indicator.reshape(-1))
        n.append(used.reshape(-1))
    return np.array(m), np.array(n)


def negations(k: int) -> Iterable[BoolArray]:
    """Return every choice of negated slots."""
    return binary_vectors(k).astype(bool)
