"""Compiled MAP oracles: the best assignment of every row, with the ties of the plain methods."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factors, Scores, Structures, kernel, largest_arity, leaf
from lpsmap_core.api import FloatArray, IntArray

__all__ = ["at_most_one", "budget", "knapsack", "one", "one_or_more", "or_out", "pair"]


@leaf
def _write_one(r: int, k: int, structures: Structures) -> None:
    """Write the structure of a single nonzero, at `k`."""
    at = structures.start[r]
    structures.entry[at], structures.value[at], structures.size[r] = k, 1.0, 1


@leaf
def _write_positive(r: int, eta_u: FloatArray, structures: Structures) -> float:
    """Write the structure of all that scores above 0; return its score."""
    start, entry, value, size = structures
    n, total = 0, 0.0
    for i in range(len(eta_u)):
        if eta_u[i] > 0.0:
            entry[start[r] + n], value[start[r] + n] = i, 1.0
            total += eta_u[i]
            n += 1
    size[r] = n
    return total


@leaf
def _best(eta_u: FloatArray) -> int:
    """Return the best variable, the first of equal ones."""
    best = 0
    for i in range(1, len(eta_u)):
        if eta_u[i] > eta_u[best]:
            best = i
    return best


@kernel
def one(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Turn on the best variable of every row."""
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        _write_one(r, _best(eta_u), structures)


@kernel
def one_or_more(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Turn on what scores above 0, else the best variable."""
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        _write_positive(r, eta_u, structures)
        if structures.size[r] == 0:
            _write_one(r, _best(eta_u), structures)


@kernel
def at_most_one(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Turn on the best variable if it scores above 0."""
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        structures.size[r] = 0
        if len(eta_u) > 0:
            best = _best(eta_u)
            if eta_u[best] > 0.0:
                _write_one(r, best, structures)


@kernel
def budget(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Turn on the best B of every row, or fewer if fewer score above 0 and B need not be met."""
    start, entry, value, size = structures
    negated = np.empty(largest_arity(rows, factors.offsets))
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        most, exact = int(factors.parameters[r, 0]), factors.parameters[r, 1] != 0.0
        for i in range(len(eta_u)):
            negated[i] = -eta_u[i]
        n = 0
        for i in np.argsort(negated[: len(eta_u)], kind="mergesort")[:most]:
            if exact or eta_u[i] > 0.0:
                entry[start[r] + n], value[start[r] + n] = i, 1.0
                n += 1
        size[r] = n


@kernel
def knapsack(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Turn variables on by score per cost until the budget ends, the last one in part."""
    offsets, costs = factors.offsets, factors.link_parameter
    start, entry, value, size = structures
    negated = np.empty(largest_arity(rows, offsets))
    for r in rows:
        lo, n_variables = offsets[r], offsets[r + 1] - offsets[r]
        left, n = factors.parameters[r, 0], 0
        for i in range(n_variables):
            gain, cost = scores.eta_u[lo + i], costs[lo + i]
            negated[i] = np.inf
            if gain > 0.0:
                negated[i] = -gain / cost if cost > 0.0 else -np.inf
        for i in np.argsort(negated[:n_variables], kind="mergesort"):
            cost = costs[lo + i]
            if scores.eta_u[lo + i] <= 0.0 or (cost > left and left <= 0.0):
                break
            share = 1.0 if cost <= left else left / cost
            entry[start[r] + n], value[start[r] + n] = i, share
            n += 1
            left -= share * cost
            if share < 1.0:
                break
        size[r] = n


@kernel
def or_out(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Turn all off, or the output on with the inputs that score above 0, or with the best one."""
    for r in rows:
        lo, last = factors.offsets[r], factors.offsets[r + 1] - 1
        inputs, output = scores.eta_u[lo:last], scores.eta_u[last]
        structures.size[r] = 0
        if len(inputs) == 0:
            continue
        total = _write_positive(r, inputs, structures)
        if structures.size[r] == 0:
            best = _best(inputs)
            _write_one(r, best, structures)
            total = inputs[best]
        if not total + output > 0.0:
            structures.size[r] = 0
            continue
        at = structures.start[r] + structures.size[r]
        structures.entry[at], structures.value[at] = len(inputs), 1.0
        structures.size[r] += 1


@kernel
def pair(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Choose the best of the four assignments of two variables."""
    start, entry, value, size = structures
    for r in rows:
        lo, at = factors.offsets[r], start[r]
        x1, x2 = scores.eta_u[lo], scores.eta_u[lo + 1]
        both = x1 + x2 + scores.eta_v[factors.additional_offsets[r]]
        first, second, best = False, False, 0.0
        if x1 > best:
            first, best = True, x1
        if x2 > best:
            first, second, best = False, True, x2
        if both > best:
            first = second = True
        n = 0
        if first:
            entry[at] = 0
            n = 1
        if second:
            entry[at + n] = 1
            n += 1
        if first and second:
            entry[at + 2] = 2
            n = 3
        for k in range(n):
            value[at + k] = 1.0
        size[r] = n
