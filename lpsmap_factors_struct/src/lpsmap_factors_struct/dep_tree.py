"""Dependency trees."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    LinearConstraints,
    Scores,
    Structures,
    TensorOracle,
    Variables,
    kernel,
)
from lpsmap_core.api import FloatArray, IntArray, checked_flag
from lpsmap_dynamic import (
    HypergraphBuilder,
    HypergraphFactor,
    Inference,
    Row,
    check_square,
    one_of_each_group,
)
from lpsmap_factors_struct.arborescence_polytope.tree_projection import (
    multiply_jacobians,
    project_trees,
)
from lpsmap_factors_struct.arc_layout import arc_slot, best_arcs, n_words
from lpsmap_factors_struct.arcs_svg import arcs_svg
from lpsmap_factors_struct.arrays import first_maximum
from lpsmap_factors_struct.chu_liu_edmonds import arborescence_workspace, maximum_arborescence
from lpsmap_factors_struct.eisner import eisner_hypergraph, projective_tree, spans_workspace
from lpsmap_factors_struct.tensor_arborescence import arborescence_oracle
from lpsmap_factors_struct.tree_inference import TreeInference


@kernel
def _best_trees(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best tree of every factor in `rows`."""
    offsets, parameters = factors.offsets, factors.parameters
    start, entry, value, size = structures
    # The largest sentence of each kind determines the size of the workspace.
    longest, longest_projective, most_arcs = 0, 0, 0
    for r in rows:
        n = n_words(offsets[r + 1] - offsets[r], parameters[r, 3])
        most_arcs = max(most_arcs, n * n)
        if parameters[r, 1] != 0:
            longest_projective = max(longest_projective, n)
        else:
            longest = max(longest, n)
    workspace = arborescence_workspace(longest)
    spans = spans_workspace(longest_projective)
    arcs = np.empty(most_arcs)
    for r in rows:
        n_labels = int(parameters[r, 3])
        n = n_words(offsets[r + 1] - offsets[r], parameters[r, 3])
        packed, single_root = parameters[r, 0] != 0, parameters[r, 2] != 0
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        if packed and n_labels == 1:
            weights = eta_u
        else:
            weights = arcs
            best_arcs(eta_u, n, n_labels, packed, arcs)
        if parameters[r, 1] != 0:
            projective_tree(weights, n, single_root, spans)
            heads = spans.heads
        else:
            maximum_arborescence(weights, n, single_root, workspace)
            heads = workspace.head
        for word in range(n):
            slot = arc_slot(word, heads[word], n, packed) * n_labels
            entry[start[r] + word] = first_maximum(eta_u, slot, slot + n_labels)
            value[start[r] + word] = 1.0
        size[r] = n


class DepTree(HypergraphFactor):
    """Dependency trees: the head of every word is another word or the root, without cycles.

    The structures are the spanning trees directed away from the root. Several words may hang from
    the root unless `single_root`. The oracle is a maximum arborescence in O(n^2) (Chu & Liu 1965,
    Edmonds 1967, Tarjan 1977), or Eisner's (1996) algorithm in O(n^3) if `projective`. Trees under
    SparseMAP: Niculae et al. (2018); in larger graphs: Niculae & Martins (2020), Figure 1. The
    polytope of non-projective trees is described by inequalities (Edmonds 1967), and the local
    problem is solved by cutting planes. Projective trees, and all trees if ``max_inner_iter`` is
    given, are solved by the active set.

    Parameters
    ----------
    variables
        Arcs, of shape ``(..., n, n)``: a tree of `n` words for every entry of the leading axes; or
        ``(..., n, n, K)`` if `labelled`.
    packed
        The layout. Packed: ``variables[..., m, h]`` is the arc from word h to word m, and the
        diagonal ``[..., m, m]`` the arc from the root to m. Otherwise row m starts with the arc
        from the root, followed by the arcs from the other words in order, without m itself.
    projective
        Whether crossing arcs are forbidden. The root stands before the first word.
    single_root
        Whether exactly one word must hang from the root.
    lengths
        Integers of the leading axes' shape: sentence b covers ``[b, :lengths[b], :lengths[b]]``.
        The tree of an empty sentence is empty.
    labelled
        Whether every arc has one of `K` labels, on an additional last axis of the variables. The
        structures are then trees with a label on every arc.

    Raises
    ------
    TypeError
        If `variables` are not Variables, or an option is not a bool.
    ValueError
        If the variables are not square, if there are no labels, or if a length is negative or
        exceeds `n`.

    See Also
    --------
    ModifierBudget : A limit on the number of modifiers of every head. (A `Budget` over rows limits
        the heads of a word, of which a tree has one. A `Budget` over columns also counts the root's
        arcs.)

    Notes
    -----
    A tree's label is the tuple of its words' heads, in either layout. The number of the word itself
    stands for the root. The label of a labelled tree is the tuple of pairs of a head and a label.
    """

    variables_ndim = 2
    length_axes = (0, 1)
    map_kernel = staticmethod(_best_trees)
    projection_kernel = staticmethod(project_trees)
    jvp_kernel = staticmethod(multiply_jacobians)
    projection_iterates = True

    def __init__(
        self,
        variables: Variables,
        packed: bool = True,
        projective: bool = False,
        *,
        single_root: bool = False,
        lengths: npt.ArrayLike | None = None,
        labelled: bool = False,
    ) -> None:
        self.labelled = checked_flag("DepTree: labelled", labelled)
        self.variables_ndim = 3 if self.labelled else 2
        super().__init__(variables, lengths=lengths)
        check_square(
            self, "one row for every word, with one arc from every other word and one from the root"
        )
        n_labels = self.event_shape[2] if self.labelled else 1
        if n_labels == 0:
            raise ValueError(
                f"DepTree: variables has shape {self.variables.shape}; expected at least one label "
                "on the last axis. Leave labelled off for arcs without labels."
            )
        self._generic = checked_flag("DepTree: projective", projective)
        self.packed = self.per_factor("packed", checked_flag("DepTree: packed", packed))
        self.projective = self.per_factor("projective", self._generic)
        self.single_root = self.per_factor(
            "single_root", checked_flag("DepTree: single_root", single_root)
        )
        self.n_labels = self.per_factor("n_labels", n_labels)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((3, 4, 4)), lengths=[4, 1, 3]),
            cls(graph.variable((3, 3)), packed=False, single_root=True),
            cls(graph.variable((2, 4, 4)), projective=True, lengths=[4, 2]),
            cls(graph.variable((2, 2, 2)), labelled=True),
        ]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[Any, ...]:
        """Return the heads of the best tree, with their labels if there are any."""
        n, words = len(eta_u), np.arange(len(eta_u))
        scores = np.ascontiguousarray(eta_u, dtype=np.float64)
        arcs = np.empty(n * n)
        best_arcs(scores.reshape(-1), n, int(self.n_labels), bool(self.packed), arcs)
        if self.projective:
            spans = spans_workspace(n)
            projective_tree(arcs, n, bool(self.single_root), spans)
            heads = spans.heads
        else:
            workspace = arborescence_workspace(n)
            maximum_arborescence(arcs, n, bool(self.single_root), workspace)
            heads = workspace.head[:n]
        if not self.labelled:
            return tuple(heads.tolist())
        labels = scores[words, self._columns(words, heads)].argmax(axis=-1)
        return tuple(zip(heads.tolist(), labels.tolist(), strict=True))

    def vertex(self, y: tuple[Any, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the arcs of tree `y`."""
        n, words = len(y), np.arange(len(y))
        if not self.labelled:
            arcs = np.zeros((n, n))
            arcs[words, self._columns(words, np.array(y, dtype=np.int64))] = 1.0
        else:
            heads, labels = np.array(y, dtype=np.int64).reshape(n, 2).T
            arcs = np.zeros((n, n, int(self.n_labels)))
            arcs[words, self._columns(words, heads), labels] = 1.0
        return arcs, np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"heads": [...]}``, counted from 0, -1 for the root; and any ``"labels"``.

        Examples
        --------
        >>> from lpsmap import DepTree, FactorGraph
        >>> tree = DepTree(FactorGraph().variable((2, 2)))
        >>> tree.decode(np.array([[1, 0], [1, 0]]), np.empty(0))
        {'heads': [-1, 0]}
        """
        words = np.arange(len(variables))
        arcs = variables if self.labelled else variables[..., None]
        columns = arcs.any(axis=-1).argmax(axis=-1) if len(words) else words
        heads = columns
        if not self.packed:  # the root's column comes first; a word has no column for itself
            heads = np.where(columns == 0, words, columns - (columns <= words))
        found = {"heads": np.where(heads == words, -1, heads).tolist()}
        if self.labelled:
            found["labels"] = arcs[words, columns].argmax(axis=-1).tolist()
        return found

    def _drawings(self, decoded: dict[str, Any], words: Sequence[str] | None) -> dict[str, str]:
        """Return the tree as arcs over the words."""
        return {"heads": arcs_svg(decoded["heads"], words)}

    @property
    def root_arcs(self) -> Variables:
        """The arcs from the root, one for every word, or K if labelled.

        The targets of losses denote the root by -1.
        """
        arcs, words = self.variables, np.arange(self.event_shape[0])
        columns = words if np.all(self.packed) else np.zeros_like(words)
        return arcs[..., words, columns, :] if self.labelled else arcs[..., words, columns]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item of Eisner's algorithm, for projective trees."""
        n, n_labels = row.event_shape[0], int(row["n_labels"])
        return eisner_hypergraph(build, n, n_labels, row["packed"] != 0, row["single_root"] != 0)

    def tensor_oracle(self) -> TensorOracle | None:
        """Return the oracle by Edmonds' algorithm, or by the levels of Eisner's if projective."""
        if self.projective.all():
            return super().tensor_oracle()
        options = self.packed, self.projective, self.single_root
        if self._masked or not self.variables.size or any(np.ptp(flags) for flags in options):
            return None
        words = np.rint(np.sqrt(np.diff(self.offsets) / self.n_labels)).astype(np.int64)
        packed, _, single_root = (bool(flags[0]) for flags in options)
        return arborescence_oracle(words, self.event_shape[0], packed, single_root)

    def inference(self) -> Inference:
        """Return the inference by the matrix-tree theorem, or by Eisner's algorithm."""
        if self.projective.any():
            return super().inference()
        parameters = self.packed, self.projective, self.single_root, self.n_labels
        return TreeInference(self.offsets, np.stack(parameters, axis=1))

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the numbers of words: a tree has one arc for each word."""
        arcs = np.diff(factors.offsets) / factors.parameters[:, 3]
        return np.rint(np.sqrt(arcs)).astype(np.int64)

    def necessary_constraints(self) -> LinearConstraints:
        """Return the constraints that every word has one head."""
        arcs = np.diff(self.offsets) / self.n_labels
        return one_of_each_group(self, np.rint(np.sqrt(arcs)) * self.n_labels)

    def _columns(self, words: IntArray, heads: IntArray) -> IntArray:
        """Return the columns of the arcs from `heads` in the rows of `words`."""
        return heads if self.packed else np.where(heads == words, 0, heads + (heads < words))
