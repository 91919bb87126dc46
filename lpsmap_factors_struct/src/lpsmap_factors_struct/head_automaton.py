"""The modifiers of a head on one side, scored in consecutive pairs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import (
    Factor,
    FactorGraph,
    Factors,
    Scores,
    Structures,
    Variables,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row
from lpsmap_factors_struct.flat_scores import flat_scores


@leaf
def best_modifiers(
    scores: FloatArray,
    siblings: FloatArray,
    side: int,
    best: FloatArray,
    before: IntArray,
    modifiers: IntArray,
) -> int:
    """Find the best set of modifiers, in ``O(n^2)``, as a path from the start to the end.

    Candidate i is node ``i + 1`` of the path, the start is node 0, and the end is node ``n + 1``. A
    candidate with a positive score counts 0 on the path, and costs its score off the path. Thus the
    huge score of a forced candidate is never added to others, which would lose their precision.

    Parameters
    ----------
    scores
        `n` scores of the candidates.
    siblings
        ``side * side`` scores: of node a directly before candidate j at ``a * side + j``, before
        the end at ``a * side + side - 1``.
    side
        Number of rows and columns of `siblings`; more than `n`.
    best, before
        Workspace of ``n + 2`` numbers each.
    modifiers
        The result, in descending order.

    Returns
    -------
    int
        Number of modifiers.
    """
    n = len(scores)
    best[: n + 2] = -np.inf
    best[0] = 0.0
    for a in range(n + 1):
        row = siblings[a * side : (a + 1) * side]
        here, skipped = best[a], 0.0
        for j in range(a, n):
            score = here - skipped + row[j] + min(scores[j], 0.0)
            if score > best[j + 1]:
                best[j + 1], before[j + 1] = score, a
            skipped += max(scores[j], 0.0)
        score = here - skipped + row[side - 1]
        if score > best[n + 1]:
            best[n + 1], before[n + 1] = score, a
    count, node = 0, before[n + 1]
    while node > 0:
        modifiers[count] = node - 1
        count += 1
        node = before[node]
    return count


@kernel
def _best_sets(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best modifiers of every factor in `rows`."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    start, entry, value, size = structures
    most = largest_arity(rows, offsets)
    best, before = np.empty(most + 2), np.empty(most + 2, dtype=np.int64)
    modifiers = np.empty(most, dtype=np.int64)
    for r in rows:
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        siblings = scores.eta_v[additional_offsets[r] : additional_offsets[r + 1]]
        n, side = len(eta_u), round(np.sqrt(len(siblings)))
        size[r] = 0
        if n == 0:
            continue
        count = best_modifiers(eta_u, siblings, side, best, before, modifiers)
        at, after = start[r], side - 1
        for k in range(count):
            entry[at + 2 * k] = modifiers[k]
            entry[at + 2 * k + 1] = n + (modifiers[k] + 1) * side + after
            after = modifiers[k]
        entry[at + 2 * count] = n + after
        size[r] = 2 * count + 1
        value[at : at + size[r]] = 1.0


class HeadAutomaton(DynamicProgram):
    """The modifiers of a head on one side, scored in pairs of consecutive siblings.

    The structures are all sets of candidates. The additionals say which modifier is the first,
    which one follows which, away from the head, and which is the last. A factor for each side of
    every head, together with a `DepTree` over the same arcs, makes a parser with sibling scores
    (Koo et al. 2010, Martins et al. 2013). The oracle finds a best path, in O(n^2).

    Parameters
    ----------
    variables
        Arcs from the head to its candidates, of shape ``(..., n)``, the nearest candidate first.
    siblings
        Array (NumPy, torch, or of any array-API library) that broadcasts to ``(..., n + 1, n +
        1)``. Row 0 stands for the start and row ``i + 1`` for candidate i; column j stands for
        candidate j and the last column for the end. Entry ``[..., 0, j]`` scores j as the first
        modifier, ``[..., i + 1, j]`` scores j as the next one after i, ``[..., i + 1, n]`` scores i
        as the last, and ``[..., 0, n]`` scores the empty set. Entries below the diagonal are not
        used.
    lengths
        Integers of the leading axes' shape: head b has the candidates ``[b, :lengths[b]]``. The
        last column always stands for the end. A head without candidates has the empty structure,
        which uses no score.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If a shape does not fit, or a length is negative or exceeds `n`.

    Notes
    -----
    The label of a set of modifiers is the tuple of their numbers, in ascending order.

    Examples
    --------
    The arcs of a packed `DepTree` of n words to the right and to the left of head h are
    ``u[h + 1 :, h]`` and ``u[:h, h][::-1]``.

    >>> import numpy as np
    >>> from lpsmap import DepTree, FactorGraph, HeadAutomaton
    >>> fg = FactorGraph()
    >>> u = fg.variable_from(np.eye(3) + np.eye(3, k=-1))
    >>> tree = fg.add(DepTree(u))
    >>> for h in range(3):
    ...     for arcs in (u[h + 1 :, h], u[:h, h][::-1]):
    ...         n = arcs.size
    ...         _ = fg.add(HeadAutomaton(arcs, np.zeros((n + 1, n + 1))))
    >>> float(fg.solve().values.sum().round(6))
    3.0
    """

    map_kernel = staticmethod(_best_sets)

    def __init__(
        self,
        variables: Variables,
        siblings: Any,
        *,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, lengths=lengths)
        side = self.event_shape[0] + 1
        self.additionals = flat_scores(
            "HeadAutomaton", self.batch_shape, {"siblings": siblings}, {"siblings": (side, side)}
        )
        self.n_additionals = side**2
        n_candidates = np.diff(self.offsets).reshape(self.batch_shape)
        self.n_candidates = self.per_factor("n_candidates", n_candidates)

    @property
    def siblings(self) -> Any:
        """The scores of consecutive pairs, (..., n + 1, n + 1)."""
        side = self.event_shape[0] + 1
        return self.additionals.reshape((*self.batch_shape, side, side))

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable(3), np.zeros((4, 4))),
            cls(graph.variable((3, 4)), np.zeros((3, 5, 5)), lengths=[4, 1, 2]),
        ]

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the item of the end, which all paths over candidates reach."""
        (n,) = row.event_shape
        side = round(np.sqrt(row.n_additionals))
        if n == 0:
            build.edge("end")
            return "end"
        for after in range(n):
            build.edge(after, slots=[after], additionals=[after])
            for before in range(after):
                build.edge(after, [before], [after], [(before + 1) * side + after])
            build.edge("end", [after], additionals=[(after + 1) * side + side - 1])
        build.edge("end", additionals=[side - 1])
        return "end"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the best modifiers."""
        n = len(eta_u)
        modifiers = np.empty(n, dtype=np.int64)
        count = best_modifiers(
            np.ascontiguousarray(eta_u, dtype=np.float64),
            np.ascontiguousarray(eta_v, dtype=np.float64),
            round(np.sqrt(len(eta_v))),
            np.empty(n + 2),
            np.empty(n + 2, dtype=np.int64),
            modifiers,
        )
        return tuple(modifiers[:count][::-1].tolist())

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the candidates that are modifiers in `y`, and its pairs of siblings."""
        end = round(np.sqrt(self.n_additionals)) - 1
        variables, siblings = np.zeros(int(self.n_candidates)), np.zeros((end + 1, end + 1))
        variables[list(y)] = 1.0
        if len(variables):
            siblings[[0, *(i + 1 for i in y)], [*y, end]] = 1.0
        return variables, siblings

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"modifiers": [...]}``, candidates counted from 0, the nearest first.

        Examples
        --------
        >>> import numpy as np
        >>> from lpsmap import FactorGraph, HeadAutomaton
        >>> head = HeadAutomaton(FactorGraph().variable(3), np.zeros((4, 4)))
        >>> from lpsmap_core.api import row_view
        >>> head.decode(*row_view(head, 0).vertex((0, 2)))
        {'modifiers': [0, 2]}
        """
        return {"modifiers": np.flatnonzero(np.asarray(variables) > 0.5).tolist()}

    def unused(self) -> tuple[None, BoolArray]:
        """Return the pairs that no set has: those in descending order, or beyond the lengths."""
        side = self.event_shape[0] + 1
        before, after = np.arange(side)[:, None], np.arange(side)
        n = np.diff(self.offsets).reshape(-1, 1, 1)
        made = (before <= n) & (after >= before) & ((after < n) | (after == side - 1)) & (n > 0)
        return None, ~made.reshape(self.n_factors, self.n_additionals)

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return twice the numbers of candidates plus 1: each with a pair, and the final pair."""
        return 2 * np.diff(factors.offsets) + 1
