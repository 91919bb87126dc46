"""Dependency trees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, Variables
from lpsmap_core.compile import kernel
from lpsmap_factors_struct.arborescence import arborescence_memory, maximum_arborescence
from lpsmap_factors_struct.projective import projective_tree, spans_memory

__all__ = ["DepTree"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@kernel
def _best_trees(
    rows: IntArray,
    offsets: IntArray,
    eta_u: FloatArray,
    additional_offsets: IntArray,
    eta_v: FloatArray,
    parameters: FloatArray,
    link_parameter: FloatArray,
    start: IntArray,
    index: npt.NDArray[np.int32],
    value: FloatArray,
    size: IntArray,
) -> None:
    """Find the best tree of every factor in `rows`."""
    # The largest sentence of each kind sizes the working memory.
    longest, longest_projective, longest_unpacked = 0, 0, 0
    for r in rows:
        n = round(np.sqrt(offsets[r + 1] - offsets[r]))
        if parameters[r, 1] != 0:
            longest_projective = max(longest_projective, n)
        else:
            longest = max(longest, n)
        if parameters[r, 0] == 0:
            longest_unpacked = max(longest_unpacked, n)
    memory = arborescence_memory(longest)
    spans = spans_memory(longest_projective)
    arcs = np.empty(longest_unpacked * longest_unpacked)
    for r in rows:
        n = round(np.sqrt(offsets[r + 1] - offsets[r]))
        packed, single_root = parameters[r, 0] != 0, parameters[r, 2] != 0
        scores = eta_u[offsets[r] : offsets[r + 1]]
        if not packed:
            for word in range(n):
                for head in range(n):
                    arcs[word * n + head] = scores[_slot(word, head, n, packed)]
            scores = arcs
        if parameters[r, 1] != 0:
            projective_tree(scores, n, single_root, spans)
            heads = spans.heads
        else:
            maximum_arborescence(scores, n, single_root, memory)
            heads = memory.head
        for word in range(n):
            index[start[r] + word] = _slot(word, heads[word], n, packed)
            value[start[r] + word] = 1.0
        size[r] = n


@kernel
def _slot(word: int, head: int, n: int, packed: bool) -> int:
    """Return where a factor of `n` words has the arc to a word from a head (itself: the root)."""
    if packed:
        return word * n + head
    if head == word:
        return word * n
    return word * n + head + (1 if head < word else 0)


class DepTree(Factor):
    """Dependency trees: every word has one head, another word or the root, and none its own.

    The structures are the spanning trees directed away from the root; several words may hang from
    it unless `single_root`. The oracle is a maximum arborescence in O(n^2) (Chu & Liu 1965, Edmonds
    1967, Tarjan 1977), or Eisner's (1996) algorithm in O(n^3) if `projective`. Trees under
    SparseMAP: Niculae et al. (2018); in larger graphs: Niculae & Martins (2020), Figure 1.

    Parameters
    ----------
    variables
        Arcs, of shape ``(..., n, n)``: a tree of `n` words for every entry of the leading axes.
    packed
        The layout. Packed: ``variables[..., m, h]`` is the arc from word h to word m, and the
        diagonal ``[..., m, m]`` the arc from the root to m. Otherwise row m holds the arc from the
        root first, then those from the other words in order, m itself left out.
    projective
        Allow no crossing arcs, the root standing before the first word.
    single_root
        Ask that exactly one word hangs from the root.
    lengths
        Integers of the leading axes' shape: sentence b covers ``[b, :lengths[b], :lengths[b]]``.
        A sentence of no words has the empty tree.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If the variables are not square, or a length is negative or beyond `n`.

    Notes
    -----
    A tree's label is the tuple of its words' heads, a word's own number standing for the root, in
    either layout.
    """

    variables_ndim = 2
    row_parameters = ("packed", "projective", "single_root")
    map_kernel = staticmethod(_best_trees)

    def __init__(
        self,
        variables: Variables,
        packed: bool = True,
        projective: bool = False,
        *,
        single_root: bool = False,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths)
        rows, columns = self.event_shape
        if rows != columns:
            raise ValueError(
                f"DepTree: variables has shape {self.variables.shape}; expected equal last two "
                "axes: one row for every word, with one arc from every other word and one from the "
                "root."
            )
        self.packed = self.per_factor("packed", bool(packed))
        self.projective = self.per_factor("projective", bool(projective))
        self.single_root = self.per_factor("single_root", bool(single_root))

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the heads of the best tree."""
        n = len(eta_u)
        words = np.arange(n)
        columns = words if self.packed else _columns(words[:, None], words)
        arcs = np.asarray(eta_u, dtype=np.float64)[words[:, None], columns].reshape(-1)
        if self.projective:
            spans = spans_memory(n)
            projective_tree(arcs, n, bool(self.single_root), spans)
            heads = spans.heads
        else:
            memory = arborescence_memory(n)
            maximum_arborescence(arcs, n, bool(self.single_root), memory)
            heads = memory.head[:n]
        return tuple(heads.tolist())

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the arcs of the tree with heads `y`."""
        words, heads = np.arange(len(y)), np.array(y, dtype=np.int64)
        arcs = np.zeros((len(y), len(y)))
        arcs[words, heads if self.packed else _columns(words, heads)] = 1.0
        return arcs, np.empty(0)

    @classmethod
    def vertex_sizes(
        cls, offsets: IntArray, additional_offsets: IntArray, parameters: FloatArray
    ) -> IntArray:
        """Return the numbers of words: a tree has one arc a word."""
        return np.rint(np.sqrt(np.diff(offsets))).astype(np.int64)


def _columns(words: IntArray, heads: IntArray) -> IntArray:
    """Return where the unpacked rows of `words` have the arcs from `heads`."""
    return np.where(heads == words, 0, heads + (heads < words))
