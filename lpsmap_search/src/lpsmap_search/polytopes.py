"""Polytopes of the structures of a corpus, for linear programs.

The hypergraph polytope is the convex hull of all structures of any model. The flow polytope of
dependency trees, see `lpsmap_search.flow_polytope`, is larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpsmap_core import kernel
from lpsmap_core.api import FloatArray
from lpsmap_search.corpus import Corpus, Derivations
from lpsmap_search.sparse_matrix import SparseMatrix


@dataclass(frozen=True, eq=False)
class Polytope:
    """Points x with ``row_lower <= matrix @ x <= row_upper`` and ``0 <= x <= upper``.

    Each choice of structures for all sentences is such a point; equal sentences are merged, with a
    multiple of one structure.
    """

    matrix: SparseMatrix
    """(m, n) the rows."""
    row_lower: FloatArray
    """(m,)."""
    row_upper: FloatArray
    """(m,)."""
    upper: FloatArray
    """(n,) finite."""
    counts: SparseMatrix
    """(M, n) the counts of a point are ``counts @ x``."""


def hypergraph_polytope(corpus: Corpus) -> Polytope:
    """Return the convex hull of the structures of a corpus.

    Columns are hyperedges, in the order of ``corpus.derivations``; rows are items: the flow into an
    item equals the flow out of it, and the flow into a goal is the multiplicity of its sentence. A
    linear program over it has the optimum of the dynamic program (Martin, Rardin & Campbell 1990).
    For sentences of N words, the dependency model with valence has ``2 N (N^2 - 1) / 3 + N^2 + 2
    N`` columns and ``3 N^2 - N + 1`` rows.

    Parameters
    ----------
    corpus
        The sentences, under any model.
    """
    derivations = corpus.derivations
    n_items, n_edges = len(derivations.first_edge) - 1, len(derivations.kind)
    is_item = np.ones(n_items, dtype=np.bool_)
    is_item[derivations.first_item[:-1]] = False  # items that represent a missing tail
    row = np.cumsum(is_item) - 1
    edges = np.arange(n_edges)
    heads = np.repeat(np.arange(n_items), np.diff(derivations.first_edge))
    tails, users = derivations.tails, np.repeat(edges, 2)
    exists = is_item[tails]
    matrix = SparseMatrix.from_entries(
        np.concatenate([row[heads], row[tails[exists]]]),
        np.concatenate([edges, users[exists]]),
        np.concatenate([np.ones(n_edges), -np.ones(int(exists.sum()))]),
        (int(is_item.sum()), n_edges),
    )
    flow = np.zeros(matrix.n_rows)
    flow[row[derivations.first_item[1:] - 1]] = derivations.multiplicity
    counts = SparseMatrix.from_entries(
        derivations.uses,
        np.repeat(edges, np.diff(derivations.first_use)),
        1.0,
        (corpus.model.n_parameters, n_edges),
    )
    return Polytope(matrix, flow, flow, _most_uses(derivations), counts)


@kernel
def _most_uses(derivations: Derivations) -> FloatArray:
    """Return an upper bound on the flow of each hyperedge: the size of the largest structure."""
    first_edge, tails = derivations.first_edge, derivations.tails
    size, upper = np.zeros(len(first_edge) - 1), np.empty(len(derivations.kind))
    for s in range(len(derivations.multiplicity)):
        begin, end = derivations.first_item[s], derivations.first_item[s + 1]
        for item in range(begin + 1, end):
            for e in range(first_edge[item], first_edge[item + 1]):
                size[item] = max(size[item], 1.0 + size[tails[2 * e]] + size[tails[2 * e + 1]])
        most = derivations.multiplicity[s] * size[end - 1]
        upper[first_edge[begin] : first_edge[end]] = most
    return upper
