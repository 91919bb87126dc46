"""Dependency trees as flows: the polytope of Gormley & Eisner (2013)."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.half_spans import LEFT, RIGHT
from lpsmap_search.polytopes import Polytope
from lpsmap_search.sparse_matrix import Entries, SparseMatrix


def flow_polytope(corpus: Corpus) -> Polytope:
    """Return the polytope of dependency trees of Gormley & Eisner (2013, Eqs. 5 to 16).

    For every sentence of N words: a column for each arc (N^2), for the flow along it (N^2, 5 to 7),
    and for the decisions of each head on each side, without a child there, to continue and to stop
    (2 N each). The rows connect the arcs (``1 + N + N^2``), exclude arcs that cross a selected one
    (``N (N - 2)``, Eq. 9), and relate the decisions to the number n of arcs on that side (``n / N
    <= continue <= n``, ``continue + stop = 1``: 6 N, Eqs. 13 and 14). Two kinds of rows that the
    paper omits are added: one head for each word (N) and one root word (1). Equal sentences are
    merged.

    The integral points are the projective trees with one root word. The polytope has fractional
    vertices, so its bounds are weaker than those of `hypergraph_polytope`.

    Parameters
    ----------
    corpus
        Sentences under a `DependencyModelWithValence`.

    Raises
    ------
    TypeError
        If the model is another one.
    """
    model = corpus.model
    if not isinstance(model, DependencyModelWithValence):
        raise TypeError(
            f"corpus: got a corpus of {type(model).__name__}; expected one of "
            "DependencyModelWithValence. `hypergraph_polytope` supports every model."
        )
    trees = _Trees(model)
    for sentence, times in zip(corpus.sentences, corpus.multiplicity, strict=True):
        trees.add_arcs(sentence, float(times))
        trees.add_flow()
        trees.add_projectivity()
        trees.add_decisions()
    return trees.polytope()


def arcs_of(n: int) -> tuple[IntArray, IntArray]:
    """Return the heads and children of all arcs of n words, of positions 1 to n; the root is 0."""
    head, child = (x.reshape(-1) for x in np.indices((n + 1, n + 1)))
    is_arc = (head != child) & (child > 0)
    return head[is_arc], child[is_arc]


class _Trees:
    """Rows and columns of the trees of sentences, of which words have positions 1 to N, the root 0.

    After `add_arcs`, the other methods refer to its sentence.
    """

    def __init__(self, model: DependencyModelWithValence) -> None:
        self._model = model
        self.n_columns = self.n_rows = 0
        self.rows: list[Entries] = []
        self.bounds: list[tuple[FloatArray, FloatArray]] = []
        self.upper: list[FloatArray] = []
        self.counts: list[Entries] = []

    def add_arcs(self, sentence: tuple[int, ...], times: float) -> None:
        """Add the arcs of a sentence that occurs some times."""
        self.n, self.times, model = len(sentence), times, self._model
        self.head, self.child = arcs_of(self.n)
        self.arcs = self._columns(self.n * self.n, 1.0)
        # indices of parameters in place of scores
        tags = [model.tags[tag] for tag in sentence]
        numbers = np.arange(model.n_parameters, dtype=np.float64)
        arcs, decisions, _ = model.tree_scores([tags], numbers)
        self._decisions = decisions[0].astype(np.int64)
        words = np.where(self.head > 0, self.head, self.child) - 1
        self._count(arcs[0, self.child - 1, words].astype(np.int64), self.arcs, 1.0)

    def add_flow(self) -> None:
        """Connect the arcs by a flow with one unit for each word (Eqs. 5 to 7).

        Every word also has one head, and the root one child.
        """
        from_root, from_word = self.head == 0, self.head > 0
        flow = self._columns(self.n * self.n, self.n)
        # the root sends a unit for each word, and each word takes one
        row = np.concatenate([self.head[from_root], self.child, self.head[from_word]])
        column = np.concatenate([flow[from_root], flow, flow[from_word]])
        sizes = [self.n, len(flow), int(from_word.sum())]
        right = np.concatenate([[self.n], np.ones(self.n)])
        self._rows(row, column, np.repeat([1.0, 1.0, -1.0], sizes), (right, right))
        rows = np.arange(len(flow))
        self._rows(
            np.tile(rows, 2),
            np.concatenate([flow, self.arcs]),
            np.repeat([1.0, -float(self.n)], len(flow)),
            (-np.inf, np.zeros(len(flow))),
        )
        row = np.concatenate([self.child, self.head[from_root]])
        column = np.concatenate([self.arcs, self.arcs[from_root]])
        one = np.ones(self.n + 1)
        self._rows(row, column, np.ones(len(row)), (one, one))

    def add_projectivity(self) -> None:
        """Exclude the arcs that cross an arc (Eq. 9)."""
        low, high = np.minimum(self.head, self.child), np.maximum(self.head, self.child)
        a, b = low[:, None], high[:, None]
        crosses = ((a < low) & (low < b) & (b < high)) | ((low < a) & (a < high) & (high < b))
        arc, other = np.nonzero(crosses)
        crossed, row = np.unique(arc, return_inverse=True)
        most = np.full(len(crossed), float(self.n))
        self._rows(
            np.concatenate([row, np.arange(len(crossed))]),
            np.concatenate([self.arcs[other], self.arcs[crossed]]),
            np.concatenate([np.ones(len(row)), most]),
            (-np.inf, most),
        )

    def add_decisions(self) -> None:
        """Relate decisions to the arcs of each head on each side (Eqs. 12 to 16)."""
        goes_on, stops = self._columns(2 * self.n, 1.0), self._columns(2 * self.n, 1.0)
        of_word = self.head > 0
        arcs = self.arcs[of_word]
        head = self.head[of_word] - 1
        side = np.where(self.child[of_word] - 1 < head, LEFT, RIGHT)
        place, places = 2 * head + side, np.arange(2 * self.n)
        none, sizes = np.zeros(len(places)), [len(arcs), len(places)]
        row, column = np.concatenate([place, places]), np.concatenate([arcs, goes_on])
        self._rows(row, column, np.repeat([1.0, -float(self.n)], sizes), (-np.inf, none))
        self._rows(row, column, np.repeat([-1.0, 1.0], sizes), (-np.inf, none))
        both = np.concatenate([goes_on, stops])
        self._rows(np.tile(places, 2), both, np.ones(len(both)), (none + 1.0, none + 1.0))
        at = self._decisions.reshape(-1, 2, 2)  # [head and side, valence, whether it stops]
        self._count(at[:, 0, 0], goes_on, 1.0)
        self._count(at[:, 0, 1], stops, 1.0)
        self._count(at[:, 1, 1], goes_on, 1.0)
        self._count(at[place, 1, 0], arcs, 1.0)
        self._count(at[:, 1, 0], goes_on, -1.0)

    def _columns(self, n: int, upper: float) -> IntArray:
        """Add columns, and return their indices."""
        self.upper.append(np.full(n, self.times * upper))
        self.n_columns += n
        return np.arange(self.n_columns - n, self.n_columns)

    def _rows(
        self,
        row: IntArray,
        column: IntArray,
        value: FloatArray,
        bounds: tuple[float | FloatArray, FloatArray],
    ) -> None:
        """Add rows; their bounds are for one sentence."""
        n = len(bounds[1])
        self.rows.append((row + self.n_rows, column, value))
        self.bounds.append((np.full(n, bounds[0]) * self.times, bounds[1] * self.times))
        self.n_rows += n

    def _count(self, parameter: IntArray, column: IntArray, value: float) -> None:
        self.counts.append((parameter, column, np.full(len(column), value)))

    def polytope(self) -> Polytope:
        """Return the polytope of all sentences."""
        lower, upper = map(np.concatenate, zip(*self.bounds, strict=True))
        n_parameters = self._model.n_parameters
        return Polytope(
            SparseMatrix.from_pieces(self.rows, (self.n_rows, self.n_columns)),
            lower,
            upper,
            np.concatenate(self.upper),
            SparseMatrix.from_pieces(self.counts, (n_parameters, self.n_columns)),
        )
