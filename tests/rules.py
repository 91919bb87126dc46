"""What factor types allow and score, written from their documentation alone.

A rule gets a factor's own parameters, its variables in their shape and the scores of its
additionals, and returns what the assignment scores; None if it is not allowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RULES"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Rule = Callable[[Any, BoolArray, FloatArray], float | None]
Cell = tuple[int, ...]


def _count(allows: Callable[[Any, int, int], bool]) -> Rule:
    """Return the rule of a type that asks only how many of how many variables are on."""

    def rule(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
        return 0.0 if allows(row, int(x.sum()), x.size) else None

    return rule


def _last(allows: Callable[[BoolArray, bool], bool]) -> Rule:
    """Return the rule of a type whose last variable says something of the others."""

    def rule(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
        flat = x.reshape(-1)
        return 0.0 if allows(flat[:-1], bool(flat[-1])) else None

    return rule


def _knapsack(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    return 0.0 if float((row.costs * x).sum()) <= row.budget * (1.0 + 1e-12) else None


def _pair(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    return float(eta_v[0]) if x.all() else 0.0


def _dense(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    blocks = np.split(x, np.cumsum(row.n_states)[:-1])
    if any(block.sum() != 1 for block in blocks):
        return None
    table = eta_v.reshape(tuple(row.n_states))
    return _sum([table[tuple(int(block.argmax()) for block in blocks)]])


def _potts(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    first, second = np.split(x, 2)
    if first.sum() != 1 or second.sum() != 1:
        return None
    return _sum(eta_v[:1].tolist() if (first & second).any() else [])


def _sum(scores: Sequence[float]) -> float | None:
    """Return a sum; None if one of the scores forbids it."""
    return None if -np.inf in scores else float(sum(map(np.longdouble, scores)))


# -------------------------------------------------------------------- chains


def _states(x: BoolArray) -> list[int] | None:
    """Return the one state of every position."""
    return x.argmax(axis=1).tolist() if (x.sum(axis=1) == 1).all() else None


def _sequence(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    states = _states(x) if x.size else []
    if not states:
        return None if states is None else 0.0
    s = x.shape[1]
    steps = eta_v[s : len(eta_v) - s].reshape(-1, s, s)
    shared = len(steps) == 1  # by all steps
    pairs = enumerate(itertools.pairwise(states))
    own = [steps[0 if shared else t, a, b] for t, (a, b) in pairs]
    return _sum([eta_v[states[0]], *own, eta_v[len(eta_v) - s + states[-1]]])


def _sequence_budget(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    counted = int(x[:, int(row.counted_state)].sum()) if x.size else 0
    if x.size and (counted != row.budget if row.force_budget else counted > row.budget):
        return None
    return _sequence(row, x, eta_v)


def _sequence_spans(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    on = x[:, int(row.counted_state)].tolist() if x.size else []
    spans = [len(list(run)) for is_on, run in itertools.groupby(on) if is_on]
    if len(spans) > row.max_spans or min(spans, default=row.min_span) < row.min_span:
        return None
    return _sequence_budget(row, x, eta_v)


def _sequence_distance(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    states = _states(x) if x.size else []
    if not states:
        return None if states is None else 0.0
    reach = (len(eta_v) - 1) // 4
    initial, steps, final = np.split(eta_v, [reach, 3 * reach + 1])
    to_end = x.shape[1] - 1 - states[-1]
    own = [steps[int(np.clip(b - a, -reach, reach)) + reach] for a, b in itertools.pairwise(states)]
    first = initial[min(states[0], reach - 1)]
    return _sum([first, *own, final[reach - 1 - min(to_end, reach - 1)]])


def _semi_markov(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    at, scores, before = 0, [], None
    for begin, longer, state in np.argwhere(x).tolist():
        if begin != at:
            return None
        at += longer + 1
        if before is not None and len(eta_v):
            scores.append(eta_v[before * x.shape[2] + state])
        before = state
    return _sum(scores) if at == x.shape[0] else None


def _head_automaton(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    side, on = int(np.sqrt(len(eta_v))), np.flatnonzero(x).tolist()
    if not x.size:
        return 0.0
    table = eta_v.reshape(side, side)
    stops = [0, *(i + 1 for i in on)], [*on, side - 1]
    return _sum([table[a, b] for a, b in zip(*stops, strict=True)])


# -------------------------------------------------------------------- trees and matchings


def _dep_tree(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    n = x.shape[0]
    arcs = x.reshape(n, n, -1).sum(axis=2)
    if n == 0 or (arcs.sum(axis=1) != 1).any():
        return 0.0 if n == 0 else None
    heads = [_head(m, int(arcs[m].argmax()), n, bool(row.packed)) for m in range(n)]
    roots = heads.count(-1)
    if roots == 0 or (row.single_root and roots > 1):
        return None
    for word in range(n):
        above = word
        for _ in range(n):
            above = heads[above] if above >= 0 else -1
        if above >= 0:
            return None
    spans = [(min(h, m), max(h, m)) for m, h in enumerate(heads)]
    crossing = any(a < c < b < d for (a, b), (c, d) in itertools.permutations(spans, 2))
    return None if row.projective and crossing else 0.0


def _dmv_tree(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    n = x.shape[0]
    tree = SimpleNamespace(packed=True, single_root=True, projective=True)
    if n == 0 or _dep_tree(tree, x, eta_v) is None:
        return 0.0 if n == 0 else None
    table, scores = eta_v.reshape(-1, 2, 2, 2), []
    for head in range(n):
        children = [m for m in range(n) if x[m, head] and m != head]
        for side, on in enumerate(([m < head for m in children], [m > head for m in children])):
            scores += [table[head, side, int(k > 0), 0] for k in range(sum(on))]
            scores.append(table[head, side, int(any(on)), 1])
    return _sum(scores)


def _head(word: int, column: int, n: int, packed: bool) -> int:
    """Return the head that a column stands for; -1 for the root."""
    if packed:  # the diagonal is the root's
        return -1 if column == word else column
    return [-1, *(other for other in range(n) if other != word)][column]


def _binary_tree(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    n = x.shape[0]
    labels = x.reshape(n, n, -1).sum(axis=2)
    if n == 0 or (labels > 1).any():
        return 0.0 if n == 0 else None
    on = {(int(i), int(j)) for i, j in np.argwhere(labels)}
    return 0.0 if on in _bracketings(0, n - 1) else None


def _bracketings(i: int, j: int) -> list[set[Cell]]:
    """Return the spans of all binary trees over words i to j."""
    if i == j:
        return [{(i, j)}]
    halves = ((_bracketings(i, k), _bracketings(k + 1, j)) for k in range(i, j))
    return [a | b | {(i, j)} for left, right in halves for a in left for b in right]


def _matching(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    if not x.size:
        return 0.0
    if (x.sum(axis=0) > 1).any() or (x.sum(axis=1) > 1).any():
        return None
    return None if row.saturates and x.sum() != min(x.shape) else 0.0


def _alignment(row: Any, x: BoolArray, eta_v: FloatArray) -> float | None:
    if not x.size:
        return 0.0
    on = {(int(i), int(j)) for i, j in np.argwhere(x)}
    return 0.0 if any(on == set(path) for path in _paths((0, 0), x.shape)) else None


def _paths(at: Cell, shape: Cell) -> Iterator[list[Cell]]:
    """Yield the monotone paths from a cell to the last one."""
    if at == (shape[0] - 1, shape[1] - 1):
        yield [at]
    for down, right in ((1, 0), (0, 1), (1, 1)):
        cell = at[0] + down, at[1] + right
        if cell[0] < shape[0] and cell[1] < shape[1]:
            yield from ([at, *rest] for rest in _paths(cell, shape))


RULES: dict[str, Rule] = {
    "Xor": _count(lambda row, on, n: on == 1),
    "Or": _count(lambda row, on, n: on >= 1),
    "AtMostOne": _count(lambda row, on, n: on <= 1),
    "Nand": _count(lambda row, on, n: on < n),
    "Budget": _count(lambda row, on, n: on == row.budget if row.force_budget else on <= row.budget),
    "ModifierBudget": _count(lambda row, on, n: on <= row.budget),
    "TopK": _count(lambda row, on, n: on == row.k if row.exact else on <= row.k),
    "Bits": _count(lambda row, on, n: True),
    "Imply": _last(lambda others, last: last or not others.all()),
    "XorOut": _last(lambda others, last: others.sum() == last),
    "OrOut": _last(lambda others, last: last == others.any()),
    "AndOut": _last(lambda others, last: last == others.all()),
    "Knapsack": _knapsack,
    "Pair": _pair,
    "Dense": _dense,
    "Potts": _potts,
    "Sequence": _sequence,
    "SequenceBudget": _sequence_budget,
    "SequenceDistance": _sequence_distance,
    "SequenceSpans": _sequence_spans,
    "SemiMarkov": _semi_markov,
    "HeadAutomaton": _head_automaton,
    "DepTree": _dep_tree,
    "DMVTree": _dmv_tree,
    "BinaryTree": _binary_tree,
    "Matching": _matching,
    "Alignment": _alignment,
}
"""For every type of our distributions but `Permutation`, whose variables are fractions."""
