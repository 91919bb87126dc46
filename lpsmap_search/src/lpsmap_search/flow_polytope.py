"""Dependency trees as flows: the polytope of Gormley & Eisner (2013)."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.half_spans import LEFT, RIGHT
from lpsmap_search.polytopes import Polytope
from lpsmap_search.sparse_matrix import Entries, SparseMatrix

__all__ = ["flow_polytope"]


def flow_polytope(
    corpus: Corpus,
    *,
    tight_valence: bool = False,
    tight_projectivity: bool = False,
    multi_commodity: bool = False,
) -> Polytope:
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
    tight_valence
        Replace ``n / N <= continue`` by rows that bound every arc on that side by ``continue``.
    tight_projectivity
        Replace Eq. 9 by rows that bound the sum of an arc and all crossing arcs to a word by one.
    multi_commodity
        Replace one flow of N units by a separate unit flow for each word, bounded by the arc
        (Magnanti & Wolsey 1994).

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
    sentences = []
    for sentence, times in zip(corpus.sentences, corpus.multiplicity, strict=True):
        trees = _Trees(model, sentence, float(times))
        trees.add_flows() if multi_commodity else trees.add_flow()
        trees.add_projectivity(tight_projectivity)
        trees.add_decisions(tight_valence)
        sentences.append(trees)
    return _joined(sentences, model.n_parameters)


class _Trees:
    """Rows and columns of the trees of a sentence. Words have positions 1 to N, the root 0."""

    def __init__(
        self, model: DependencyModelWithValence, sentence: tuple[int, ...], times: float
    ) -> None:
        self.n, self.times = len(sentence), times
        self.n_columns = self.n_rows = 0
        self.rows: list[tuple[IntArray, IntArray, FloatArray]] = []
        self.bounds: list[tuple[FloatArray, FloatArray]] = []
        self.upper: list[FloatArray] = []
        self.counts: list[tuple[IntArray, IntArray, FloatArray]] = []
        head, child = (x.reshape(-1) for x in np.indices((self.n + 1, self.n + 1)))
        is_arc = (head != child) & (child > 0)
        self.head, self.child = head[is_arc], child[is_arc]
        self.arcs = self._columns(self.n * self.n, 1.0)
        # indices of parameters in place of scores
        tags = [model.tags[tag] for tag in sentence]
        numbers = np.arange(model.n_parameters, dtype=np.float64)
        arcs, decisions, _ = model.tree_scores([tags], numbers)
        self._decisions = decisions[0].astype(np.int64)
        words = np.where(self.head > 0, self.head, self.child) - 1
        self._count(arcs[0, self.child - 1, words].astype(np.int64), self.arcs, 1.0)

    def add_flow(self) -> None:
        """Connect the arcs by a single flow with one unit for each word (Eqs. 5 to 7)."""
        flow = self._columns(self.n * self.n, self.n)
        self._conserve(flow, self.n, np.ones(self.n))
        rows = np.arange(len(flow))
        self._rows(
            np.tile(rows, 2),
            np.concatenate([flow, self.arcs]),
            np.repeat([1.0, -float(self.n)], len(flow)),
            (-np.inf, np.zeros(len(flow))),
        )
        self._one_head()

    def add_flows(self) -> None:
        """Connect the arcs by a separate flow for each word."""
        rows = np.arange(self.n * self.n)
        for word in range(self.n):
            flow = self._columns(self.n * self.n, 1.0)
            self._conserve(flow, 1.0, np.eye(self.n)[word])
            self._rows(
                np.tile(rows, 2),
                np.concatenate([flow, self.arcs]),
                np.repeat([1.0, -1.0], len(rows)),
                (-np.inf, np.zeros(len(rows))),
            )
        self._one_head()

    def add_projectivity(self, by_words: bool) -> None:
        """Exclude crossing arcs (Eq. 9), for each arc or for each word."""
        low, high = np.minimum(self.head, self.child), np.maximum(self.head, self.child)

        a, b = low[:, None], high[:, None]
        crosses = ((a < low) & (low < b) & (b < high)) | ((low < a) & (a < high) & (high < b))
        arc, other = np.nonzero(crosses)
        key = arc * (self.n + 1) + self.child[other] if by_words else arc
        keys, row = np.unique(key, return_inverse=True)
        most = 1.0 if by_words else float(self.n)
        self._rows(
            np.concatenate([row, np.arange(len(keys))]),
            np.concatenate(
                [self.arcs[other], self.arcs[keys // (self.n + 1) if by_words else keys]]
            ),
            np.concatenate([np.ones(len(row)), np.full(len(keys), most)]),
            (-np.inf, np.full(len(keys), most)),
        )

    def add_decisions(self, by_arcs: bool) -> None:
        """Relate decisions to the arcs of each head on each side (Eqs. 12 to 16)."""
        goes_on, stops = self._columns(2 * self.n, 1.0), self._columns(2 * self.n, 1.0)
        of_word = self.head > 0
        arcs = self.arcs[of_word]
        head = self.head[of_word] - 1
        side = np.where(self.child[of_word] - 1 < head, LEFT, RIGHT)
        place, places = 2 * head + side, np.arange(2 * self.n)
        none = np.zeros(len(places))
        if by_arcs:
            rows = np.arange(len(arcs))
            self._rows(
                np.tile(rows, 2),
                np.concatenate([arcs, goes_on[place]]),
                np.repeat([1.0, -1.0], len(arcs)),
                (-np.inf, np.zeros(len(arcs))),
            )
        row, column = np.concatenate([place, places]), np.concatenate([arcs, goes_on])
        many = np.repeat([1.0, -float(self.n)], [len(arcs), len(places)])
        if not by_arcs:
            self._rows(row, column, many, (-np.inf, none))
        once = np.repeat([-1.0, 1.0], [len(arcs), len(places)])
        self._rows(row, column, once, (-np.inf, none))
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

    def _conserve(self, flow: IntArray, total: float, taken: FloatArray) -> None:
        """Conserve flow: a total starts at the root, and each word takes some."""
        from_root, from_word = self.head == 0, self.head > 0
        row = np.concatenate([self.head[from_root], self.child, self.head[from_word]])
        column = np.concatenate([flow[from_root], flow, flow[from_word]])
        sizes = [int(from_root.sum()), len(flow), int(from_word.sum())]
        right = np.concatenate([[total], taken])
        self._rows(row, column, np.repeat([1.0, 1.0, -1.0], sizes), (right, right))

    def _one_head(self) -> None:
        """Require one head for every word, and one child of the root."""
        from_root = self.head == 0
        row = np.concatenate([self.child, self.head[from_root]])
        column = np.concatenate([self.arcs, self.arcs[from_root]])
        one = np.ones(self.n + 1)
        self._rows(row, column, np.ones(len(row)), (one, one))


def _joined(sentences: list[_Trees], n_parameters: int) -> Polytope:
    """Return the polytope of all sentences, with concatenated rows and columns."""
    first_row = np.cumsum([0, *(trees.n_rows for trees in sentences)])
    first_column = np.cumsum([0, *(trees.n_columns for trees in sentences)])
    rows: list[Entries] = []
    counts: list[Entries] = []
    for trees, above, before in zip(sentences, first_row, first_column, strict=False):
        rows += [(row + above, column + before, value) for row, column, value in trees.rows]
        counts += [(parameter, column + before, v) for parameter, column, v in trees.counts]
    lower, upper = zip(*(bounds for trees in sentences for bounds in trees.bounds), strict=True)
    n_rows, n_columns = int(first_row[-1]), int(first_column[-1])
    return Polytope(
        SparseMatrix.from_pieces(rows, (n_rows, n_columns)),
        np.concatenate(lower),
        np.concatenate(upper),
        np.concatenate([x for trees in sentences for x in trees.upper]),
        SparseMatrix.from_pieces(counts, (n_parameters, n_columns)),
    )
