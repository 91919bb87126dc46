"""Binary trees over spans: constituency."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Factors, Scores, Structures, Variables, kernel
from lpsmap_core.api import BoolArray, FloatArray, IntArray, checked_flag
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row, check_square
from lpsmap_factors_struct.cky import best_label, binary_tree, chart_workspace


@kernel
def _best_trees(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best tree of every factor in `rows`."""
    offsets, parameters = factors.offsets, factors.parameters
    start, entry, value, size = structures
    longest = 0
    for r in rows:
        longest = max(longest, round(np.sqrt((offsets[r + 1] - offsets[r]) / parameters[r, 0])))
    workspace = chart_workspace(longest)
    for r in rows:
        n_labels = int(parameters[r, 0])
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        n = round(np.sqrt(len(eta_u) / n_labels))
        size[r] = max(2 * n - 1, 0)
        if n > 0:
            binary_tree(eta_u, n, n_labels, workspace)
        for k in range(size[r]):
            i, j = workspace.spans[2 * k], workspace.spans[2 * k + 1]
            entry[start[r] + k] = best_label(eta_u, i, j, n, n_labels)
            value[start[r] + k] = 1.0


class BinaryTree(DynamicProgram):
    """Binary trees over the words of a sentence: unlabelled or labelled constituency.

    The structures are the full binary trees with the words as leaves. The variables of a tree are
    its ``2 n - 1`` spans: the whole sentence, the single words, and the spans of its inner nodes.
    The oracle is the algorithm of Cocke, Kasami (1965) and Younger (1967), in O(n^3).

    Parameters
    ----------
    variables
        Spans, of shape ``(..., n, n)``: ``[..., i, j]`` is the span of words i to j, both included;
        or ``(..., n, n, K)`` if `labelled`. Spans with i > j are in no tree, and are 0 whatever
        their scores.
    labelled
        Whether every span has one of `K` labels, on an additional last axis of the variables. The
        structures are then trees with a label on every span.
    lengths
        Integers of the leading axes' shape: sentence b covers ``[b, :lengths[b], :lengths[b]]``.
        The tree of an empty sentence is empty.

    Raises
    ------
    TypeError
        If `variables` are not Variables, or `labelled` is not a bool.
    ValueError
        If the spans are not square, if there are no labels, or if a length is negative or exceeds
        `n`.

    Notes
    -----
    A tree's label is the tuple of its spans, each a tuple ``(i, j)``, or ``(i, j, label)`` if
    `labelled`. A span precedes its parts.
    """

    variables_ndim = 2
    length_axes = (0, 1)
    map_kernel = staticmethod(_best_trees)

    def __init__(
        self,
        variables: Variables,
        labelled: bool = False,
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        self.labelled = checked_flag("BinaryTree: labelled", labelled)
        self.variables_ndim = 3 if self.labelled else 2
        super().__init__(variables, lengths=lengths)
        check_square(self, "one entry for every first and last word of a span")
        self._check_labels()
        self.n_labels = self.per_factor("n_labels", self.event_shape[2] if self.labelled else 1)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 4, 4)), lengths=[4, 1, 3]),
            cls(graph.variable((2, 3, 3, 2)), labelled=True, lengths=[3, 2]),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the item of the whole sentence. Two spans are joined, then their slot is added."""
        n, n_labels = row.event_shape[0], int(row["n_labels"])
        if n == 0:
            build.edge("nothing")
            return "nothing"
        spans = np.arange(n * n).reshape(n, n)
        i, k, j = np.indices((n, n, n)).reshape(3, -1)
        i, k, j = (x[(i <= k) & (k < j)] for x in (i, k, j))
        parts = np.stack([spans[i, k], spans[k + 1, j]], axis=1) if n > 1 else None
        build.edges(n * n + spans[i, j], parts)
        i, j, label = np.indices((n, n, n_labels)).reshape(3, -1)
        i, j, label = (x[i <= j] for x in (i, j, label))
        joined = np.where(i < j, n * n + spans[i, j], -1)
        build.edges(spans[i, j], joined, spans[i, j] * n_labels + label)
        return n - 1

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[tuple[int, ...], ...]:
        """Return the spans of the best tree, with their labels if there are any."""
        n, n_labels = len(eta_u), int(self.n_labels)
        if n == 0:
            return ()
        scores = np.ascontiguousarray(eta_u, dtype=np.float64).reshape(-1)
        workspace = chart_workspace(n)
        binary_tree(scores, n, n_labels, workspace)
        spans = workspace.spans[: 4 * n - 2].reshape(-1, 2).tolist()
        if not self.labelled:
            return tuple((i, j) for i, j in spans)
        return tuple((i, j, best_label(scores, i, j, n, n_labels) % n_labels) for i, j in spans)

    def vertex(self, y: tuple[tuple[int, ...], ...]) -> tuple[FloatArray, FloatArray]:
        """Return the spans of tree `y`."""
        n = (len(y) + 1) // 2
        variables = np.zeros((n, n, *self.event_shape[2:]))
        for span in y:
            variables[span] = 1.0
        return variables, np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"spans": [[i, j], ...]}``, words i to j included, each before its parts.

        If the tree is labelled, ``"labels"`` holds the labels of the spans.

        Examples
        --------
        >>> from lpsmap import BinaryTree, FactorGraph
        >>> tree = BinaryTree(FactorGraph().variable((3, 3)))
        >>> tree.decode(*tree.vertex(((0, 2), (0, 1), (0, 0), (1, 1), (2, 2))))
        {'spans': [[0, 2], [0, 1], [0, 0], [1, 1], [2, 2]]}
        """
        found = sorted(np.argwhere(variables > 0.5).tolist(), key=lambda at: (at[0], -at[1]))
        decoded: dict[str, Any] = {"spans": [at[:2] for at in found]}
        if self.labelled:
            decoded["labels"] = [at[2] for at in found]
        return decoded

    def unused(self) -> tuple[BoolArray, None]:
        """Return the spans with i > j."""
        n = self.event_shape[0]
        before = np.tri(n, k=-1, dtype=bool).reshape(n, n, *(1 for _ in self.event_shape[2:]))
        return np.broadcast_to(before, self.variables.shape), None

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the numbers of spans of a tree."""
        n = np.rint(np.sqrt(np.diff(factors.offsets) / factors.parameters[:, 0])).astype(np.int64)
        return np.maximum(2 * n - 1, 0)

    def _check_labels(self) -> None:
        if self.event_shape[2:] == (0,):
            raise ValueError(
                f"BinaryTree: variables has shape {self.variables.shape}; expected at least one "
                "label on the last axis. Leave labelled off for spans without labels."
            )
