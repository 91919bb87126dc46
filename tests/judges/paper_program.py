"""Viterbi training of the dependency model as a mixed integer quadratic program.

These are Equations (1) to (16) of Gormley & Eisner (2013), with constraints that they omit: every
word has one parent, the root has one child, and flows and counts are at least zero. In (5), "for
all j" is read as "for all s", and the sums in (10) and (11) range over all sentences. The
relaxations use `lpsmap_search.flow_polytope` instead; this program is the reference to validate
points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.half_spans import LEFT, RIGHT
from lpsmap_search.sparse_matrix import SparseMatrix

__all__ = ["ConstraintRows", "MixedIntegerProgram"]

CONTINUE, STOP = 0, 1


class _Row(NamedTuple):
    """``lower <= <value, x[column]> <= upper``."""

    column: IntArray
    value: FloatArray
    lower: float
    upper: float


class ConstraintRows(NamedTuple):
    """``lower <= matrix @ x <= upper``."""

    matrix: SparseMatrix
    lower: FloatArray
    upper: FloatArray

    def violation(self, x: FloatArray) -> float:
        """Return the maximum violation at a point."""
        values = self.matrix @ x
        missing = np.maximum(self.lower - values, values - self.upper)
        return float(missing.max(initial=0.0))


class MixedIntegerProgram:
    """The program; its points are logarithms of parameters and variables of the parses.

    Parameters
    ----------
    corpus
        Sentences under a `DependencyModelWithValence`; equal ones are merged.

    Raises
    ------
    TypeError
        If the model is of another type.

    Attributes
    ----------
    model
        The model.
    constraints
        The linear constraints, by equation number, or by description if the paper omits them.
    counts
        (M,) the columns of the counts.
    is_integer
        (n,) which variables are integers: all except the flows.
    """

    def __init__(self, corpus: Corpus) -> None:
        model = corpus.model
        if not isinstance(model, DependencyModelWithValence):
            raise TypeError(
                f"corpus: got a corpus of {type(model).__name__}; expected one of "
                "DependencyModelWithValence."
            )
        self.model, self._sentences, n_columns = model, [], 0
        for sentence in corpus.sentences:
            self._sentences.append(_Sentence(model, sentence, n_columns))
            n_columns = self._sentences[-1].end
        m = model.n_parameters
        self.counts = n_columns + np.arange(m)
        self.n_columns = n_columns + m
        self.is_integer: BoolArray = np.ones(self.n_columns, dtype=np.bool_)
        for own in self._sentences:
            self.is_integer[own.flow[own.is_arc]] = False
        self.constraints = {
            name: self._collected(row for own in self._sentences for row in rows(own))
            for name, rows in _EQUATIONS.items()
        }
        self.constraints["(10), (11): counts"] = self._counts(corpus)

    def point(self, heads: Sequence[Sequence[int]]) -> FloatArray:
        """Return the variables of trees, including their counts.

        Parameters
        ----------
        heads
            For each distinct sentence, the heads of its words, from 0; -1 for the root.
        """
        x = np.zeros(self.n_columns)
        for own, tree in zip(self._sentences, heads, strict=True):
            own.write(x, tree)
        matrix = self.constraints["(10), (11): counts"].matrix
        x[self.counts] = matrix @ x
        return x

    def violations(self, theta: FloatArray, x: FloatArray) -> dict[str, float]:
        """Return the violation of each equation at a point.

        Parameters
        ----------
        theta
            (M,) logarithms of the parameters, -inf allowed.
        x
            (n,) variables of the parses and counts, such as those returned by `point`.
        """
        found = {name: part.violation(x) for name, part in self.constraints.items()}
        found["(2): sums of probabilities"] = float(
            np.abs(self.model.sums(np.exp(theta)) - 1.0).max()
        )
        found["(4): logarithms"] = max(float(theta.max()), 0.0)
        whole = x[self.is_integer]
        found["(4), (8): integers"] = float(np.abs(whole - np.round(whole)).max())
        return found

    def objective(self, theta: FloatArray, x: FloatArray) -> float:
        """Return the joint log-likelihood of a point (1).

        Parameters
        ----------
        theta
            (M,) logarithms of the parameters; -inf is allowed if the count is zero.
        x
            (n,) variables of the parses and counts.
        """
        f = x[self.counts]
        return float((f[f != 0.0] * theta[f != 0.0]).sum())

    def _collected(self, rows: Iterator[_Row]) -> ConstraintRows:
        listed = list(rows)
        sizes = [len(row.column) for row in listed]
        nothing: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        matrix = SparseMatrix.from_entries(
            np.repeat(np.arange(len(listed)), sizes),
            np.concatenate(nothing + [row.column for row in listed]),
            np.concatenate([np.zeros(0)] + [row.value for row in listed]),
            (len(listed), self.n_columns),
        )
        ends = np.array([(row.lower, row.upper) for row in listed], dtype=np.float64)
        return ConstraintRows(matrix, *ends.reshape(-1, 2).T)

    def _counts(self, corpus: Corpus) -> ConstraintRows:
        """Return the constraints ``sum - f = 0``: counts are sums over arcs and decisions."""
        rows, columns, values = [self.counts * 0], [self.counts], [-np.ones(len(self.counts))]
        rows[0] = np.arange(len(self.counts))
        for own, times in zip(self._sentences, corpus.multiplicity, strict=True):
            rows += [own.arc_parameter[own.is_arc], own.decision_parameter.reshape(-1)]
            columns += [own.arc[own.is_arc], own.decision.reshape(-1)]
            values += [np.full(own.n**2 + 8 * own.n, float(times))]
        shape = len(self.counts), self.n_columns
        matrix = SparseMatrix.from_entries(
            np.concatenate(rows), np.concatenate(columns), np.concatenate(values), shape
        )
        return ConstraintRows(matrix, np.zeros(shape[0]), np.zeros(shape[0]))


class _Sentence:
    """Columns of a sentence of N words. Position 0 is the root; words are 1 to N."""

    def __init__(
        self, model: DependencyModelWithValence, sentence: tuple[int, ...], begin: int
    ) -> None:
        n = self.n = len(sentence)
        head, child = np.indices((n + 1, n + 1))
        self.is_arc = (head != child) & (child > 0)
        self.arc, self.flow = np.full((2, n + 1, n + 1), -1)
        self.arc[self.is_arc] = begin + np.arange(n * n)
        self.flow[self.is_arc] = begin + n * n + np.arange(n * n)
        begin += 2 * n * n
        self.n_children = begin + np.arange(2 * n).reshape(n, 2)
        """[word, side]: n of Eq. 12."""
        self.decision = begin + 2 * n + np.arange(8 * n).reshape(n, 2, 2, 2)
        """[word, side, whether it has a child there, whether it stops]."""
        self.end = begin + 10 * n
        # indices of parameters in place of scores
        numbers = np.arange(model.n_parameters, dtype=np.float64)
        tags = [model.tags[tag] for tag in sentence]
        arcs, decisions, _ = model.tree_scores([tags], numbers)
        self.arc_parameter = np.zeros((n + 1, n + 1), dtype=np.int64)
        self.arc_parameter[1:, 1:] = arcs[0].T
        self.arc_parameter[0, 1:] = arcs[0].diagonal()
        self.decision_parameter = decisions[0].astype(np.int64)

    def children(self, word: int, side: int) -> IntArray:
        """Return the arcs from a word to its children on a side."""
        head = word + 1
        return self.arc[head, 1:head] if side == LEFT else self.arc[head, head + 1 :]

    def write(self, x: FloatArray, heads: Sequence[int]) -> None:
        """Write the variables of a tree."""
        for word in range(self.n):
            x[self.arc[heads[word] + 1, word + 1]] = 1.0
            at, steps = word, 0
            while at >= 0 and steps <= self.n:  # a unit of flow from the root to the word
                x[self.flow[heads[at] + 1, at + 1]] += 1.0
                at, steps = heads[at], steps + 1
        for word in range(self.n):
            for side in (LEFT, RIGHT):
                k = x[self.children(word, side)].sum()
                x[self.n_children[word, side]] = k
                some = min(k, 1.0)
                x[self.decision[word, side]] = [[some, 1.0 - some], [k - some, some]]


def _all(column: IntArray, value: float | FloatArray, lower: float, upper: float) -> _Row:
    return _Row(column, np.full(len(column), value), lower, upper)


def _root_flow(own: _Sentence) -> Iterator[_Row]:
    yield _all(own.flow[0, 1:], 1.0, own.n, own.n)


def _taken_flow(own: _Sentence) -> Iterator[_Row]:
    for j in range(1, own.n + 1):
        into, out = own.flow[own.is_arc[:, j], j], own.flow[j, own.is_arc[j]]
        value = np.repeat([1.0, -1.0], [len(into), len(out)])
        yield _all(np.concatenate([into, out]), value, 1.0, 1.0)


def _flow_on_arcs(own: _Sentence) -> Iterator[_Row]:
    for i, j in np.argwhere(own.is_arc):
        column = np.array([own.flow[i, j], own.arc[i, j]])
        yield _all(column, np.array([1.0, -own.n]), -np.inf, 0.0)


def _arcs(own: _Sentence) -> Iterator[_Row]:
    for column in own.arc[own.is_arc]:
        yield _all(np.array([column]), 1.0, 0.0, 1.0)


def _projective(own: _Sentence) -> Iterator[_Row]:
    arcs = np.argwhere(own.is_arc)
    low, high = arcs.min(axis=1), arcs.max(axis=1)
    for (i, j), a, b in zip(arcs, low, high, strict=True):
        from_inside = (a < low) & (low < b) & (high > b)
        from_outside = (low < a) & (a < high) & (high < b)
        crossing = arcs[from_inside | from_outside]
        column = np.append(own.arc[crossing[:, 0], crossing[:, 1]], own.arc[i, j])
        yield _all(column, np.append(np.ones(len(crossing)), own.n), -np.inf, own.n)


def _valences(own: _Sentence) -> Iterator[tuple[IntArray, int, IntArray]]:
    """Yield the children of each word on each side, the column of their number, and decisions."""
    for word in range(own.n):
        for side in (LEFT, RIGHT):
            children = own.children(word, side)
            yield children, int(own.n_children[word, side]), own.decision[word, side]


def _numbers_of_children(own: _Sentence) -> Iterator[_Row]:
    for children, k, _ in _valences(own):
        yield _all(np.append(children, k), np.append(np.ones(len(children)), -1.0), 0.0, 0.0)


def _continues_first(own: _Sentence) -> Iterator[_Row]:
    for _, k, decision in _valences(own):
        first = decision[0, CONTINUE]
        yield _all(np.array([k, first]), np.array([1.0 / own.n, -1.0]), -np.inf, 0.0)
        yield _all(np.array([first]), 1.0, -np.inf, 1.0)


def _stops_without(own: _Sentence) -> Iterator[_Row]:
    for _, _, decision in _valences(own):
        yield _all(decision[0], 1.0, 1.0, 1.0)


def _stops_after(own: _Sentence) -> Iterator[_Row]:
    for _, _, decision in _valences(own):
        column = np.array([decision[1, STOP], decision[0, CONTINUE]])
        yield _all(column, np.array([1.0, -1.0]), 0.0, 0.0)


def _continues_after(own: _Sentence) -> Iterator[_Row]:
    for _, k, decision in _valences(own):
        column = np.array([k, decision[0, CONTINUE], decision[1, CONTINUE]])
        yield _all(column, np.array([1.0, -1.0, -1.0]), 0.0, 0.0)


def _one_parent(own: _Sentence) -> Iterator[_Row]:
    for j in range(1, own.n + 1):
        yield _all(own.arc[own.is_arc[:, j], j], 1.0, 1.0, 1.0)


def _one_root(own: _Sentence) -> Iterator[_Row]:
    yield _all(own.arc[0, 1:], 1.0, 1.0, 1.0)


def _nonnegative_flow(own: _Sentence) -> Iterator[_Row]:
    for column in own.flow[own.is_arc]:
        yield _all(np.array([column]), 1.0, 0.0, np.inf)


def _nonnegative_counts(own: _Sentence) -> Iterator[_Row]:
    for column in own.decision.reshape(-1):
        yield _all(np.array([column]), 1.0, 0.0, np.inf)


_EQUATIONS: dict[str, Callable[[_Sentence], Iterator[_Row]]] = {
    "(5): flow from the root": _root_flow,
    "(6): flow into words": _taken_flow,
    "(7): flow on arcs": _flow_on_arcs,
    "(8): arcs": _arcs,
    "(9): projectivity": _projective,
    "(12): numbers of children": _numbers_of_children,
    "(13): continue without a child": _continues_first,
    "(14): stop without a child": _stops_without,
    "(15): stop after a child": _stops_after,
    "(16): continue after a child": _continues_after,
    "one parent": _one_parent,
    "one root": _one_root,
    "flow at least zero": _nonnegative_flow,
    "counts at least zero": _nonnegative_counts,
}
