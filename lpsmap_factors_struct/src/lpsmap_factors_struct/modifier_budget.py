"""Limits on the number of modifiers of a head."""

from __future__ import annotations

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
    Variables,
    as_variables,
    bounded_sums,
    kernel,
    largest_arity,
)
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    broadcast,
    checked_flag,
    checked_lengths,
    sum_constrained_jvp,
    whole_numbers,
)
from lpsmap_dynamic import project_budget_rows
from lpsmap_factors_struct.quickselect import best_indicator, best_subset


@kernel
def _best_modifiers(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best modifiers of every head in `rows`."""
    offsets = factors.offsets
    start, entry, value, size = structures
    spare = np.empty(largest_arity(rows, offsets))
    for r in rows:
        eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
        most = int(factors.parameters[r, 0])
        size[r] = best_subset(eta_u, most, False, spare, start[r], entry, value)


class ModifierBudget(Factor):
    """A limit on the modifiers of every head, beside a `DepTree` over the same variables.

    Every head is a factor over the arcs that leave it, in either layout. (Each row of the variables
    holds the arcs that *enter* a word, of which a tree takes one, so that a `Budget` over rows is
    redundant.) Local problem: that of `Budget` (Niculae & Martins 2020, Eq. 82).

    Parameters
    ----------
    variables
        Arcs of shape ``(..., n, n)``, or ``(..., n, n, K)`` if `labelled`: those of a `DepTree`.
    budget
        Maximum number of modifiers of a head: a whole number, or an array that broadcasts to one
        for every word, ``(..., n)``. A number larger than the number of words is no limit.
    packed, lengths, labelled
        As for the `DepTree`.
    root_budget
        Maximum number of words that hang from the root: a whole number, or an array that broadcasts
        to one for every sentence. None for no limit.

    Raises
    ------
    TypeError
        If `variables` are not Variables, a budget does not hold numbers, or an option is not a
        bool.
    ValueError
        If the variables are not square, a budget is negative or not whole, or a length is negative
        or exceeds `n`.

    Notes
    -----
    The factors of a sentence belong to its words as heads, in order, and then to the root if it has
    a budget. A structure's label says for every possible modifier whether it is one.

    Examples
    --------
    >>> from lpsmap import DepTree, FactorGraph, ModifierBudget
    >>> graph = FactorGraph()
    >>> u = graph.variable_from([[3.0, 0.0, 0.0], [2.0, 0.0, 1.0], [2.0, 1.5, 0.0]])
    >>> tree = graph.add(DepTree(u))
    >>> budgets = graph.add(ModifierBudget(u, 1))
    >>> solution = graph.solve_map()
    >>> print(u.value.round(6))
    [[1. 0. 0.]
     [1. 0. 0.]
     [0. 1. 0.]]
    """

    map_kernel = staticmethod(_best_modifiers)
    projection_kernel = staticmethod(project_budget_rows)
    jvp_kernel = staticmethod(sum_constrained_jvp)

    def __init__(
        self,
        variables: Variables,
        budget: npt.ArrayLike,
        *,
        packed: bool = True,
        root_budget: npt.ArrayLike | None = None,
        lengths: npt.ArrayLike | None = None,
        labelled: bool = False,
    ) -> None:
        arcs = as_variables(variables, "ModifierBudget: variables")
        packed = checked_flag("ModifierBudget: packed", packed)
        self.labelled = checked_flag("ModifierBudget: labelled", labelled)
        split = arcs.ndim - (3 if self.labelled else 2)
        if split < 0 or arcs.shape[split] != arcs.shape[split + 1]:
            raise ValueError(
                f"ModifierBudget: variables has shape {arcs.shape}; expected equal "
                f"{'axes before the labels' if self.labelled else 'last two axes'}, as for a "
                "DepTree."
            )
        batch, n = arcs.shape[:split], arcs.shape[split]
        self.n_labels = arcs.shape[-1] if self.labelled else 1
        self._options: dict[str, Any] = {"budget": budget, "root_budget": root_budget}
        self._options |= {"packed": packed, "lengths": lengths}
        self._n, self._places = n, _arcs_by_head(n, packed, root_budget is not None)
        places = self._places
        n_words = None
        if lengths is not None:
            checked = checked_lengths("ModifierBudget", lengths, arcs.shape, split, (0,))
            n_words = checked.reshape(batch)
        flat = arcs.reshape(*batch, n * n, self.n_labels)[..., places, :]
        n_slots = _n_modifiers(n, n_words, len(places)) * self.n_labels
        ragged = n_words is not None or root_budget is not None
        super().__init__(
            flat.reshape(*batch, len(places), places.shape[1] * self.n_labels),
            lengths=np.broadcast_to(n_slots, (*batch, len(places))) if ragged else None,
        )
        if root_budget is not None:
            budget = np.concatenate(
                [
                    _numbers("budget", budget, (*batch, n)),
                    _numbers("root_budget", root_budget, batch)[..., None],
                ],
                axis=-1,
            )
        self.budget = np.minimum(self.counts("budget", budget), np.diff(self.offsets))
        self.force_budget = self.per_factor("force_budget", False)  # of the kernels' second column
        self.head = self.per_factor("head", np.arange(len(places)))  # n for the root

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        return [
            cls(graph.variable((2, 4, 4)), [[2], [1]], lengths=[4, 2]),
            cls(graph.variable((3, 3)), [1, 0, 2], packed=False, root_budget=1),
            cls(graph.variable((2, 3, 3)), 1, root_budget=[1, 2], lengths=[3, 2]),
            cls(graph.variable((3, 3, 2)), 2, packed=False, labelled=True),
        ]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `__init__`; the attributes of these names are arranged by head.

        Arcs without a budget, such as the root's, are represented by an arbitrary variable.
        """
        return {"variables": Variables(self.variables.graph, *self._arcs()), **self._options}

    def _arcs(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return indices and negations of variables, arranged as for a `DepTree`."""
        batch, n, n_labels = self.variables.shape[:-2], self._n, self.n_labels
        arcs = []
        for held in (self.variables.index, self.variables.negated):
            flat = np.full((*batch, n * n, n_labels), held.flat[0] if held.size else 0, held.dtype)
            flat[..., self._places, :] = held.reshape(*batch, *self._places.shape, n_labels)
            arcs.append(flat.reshape(*batch, n, n, *((n_labels,) if self.labelled else ())))
        return arcs[0], arcs[1]

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        """Return the best modifiers, among those with scores above 0."""
        return best_indicator(eta_u, int(self.budget), False)

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the modifiers as an array."""
        return np.array(y, dtype=np.float64), np.empty(0)

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return ``{"modifiers": [...]}``, the words that hang from the head, counted from 0."""
        others = np.flatnonzero(np.asarray(variables) > 0.5) // self.n_labels
        return {"modifiers": (others + (others >= self.head)).tolist()}

    def linear_constraints(self) -> LinearConstraints:
        """Return the constraints that no head has more modifiers than its budget."""
        return bounded_sums(self, -np.inf, self.budget)

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the budgets."""
        return factors.parameters[:, 0].astype(np.int64)

    def _name_of(self, i: int) -> str:
        """Return the name of factor `i` in errors: its head."""
        *batch, head = (int(k) for k in np.unravel_index(i, self.batch_shape))
        of = f" of sentence {batch[0] if len(batch) == 1 else tuple(batch)}" if batch else ""
        return (f"head {head}" if head < self._n else "the root") + of


def _arcs_by_head(n: int, packed: bool, root: bool) -> IntArray:
    """Return the places in an (n, n) array of the arcs that leave each head, by modifiers.

    The root, if included, comes last. It has one arc more than the others, whose rows are padded.
    """
    head, other = np.arange(n)[:, None], np.arange(max(n - 1, 0))
    modifier = other + (other >= head)
    places = modifier * n + (head if packed else head + (head < modifier))
    if not root:
        return places
    word = np.arange(n)
    from_root = word * n + (word if packed else 0)
    return np.concatenate([np.pad(places, [(0, 0), (0, min(n, 1))]), from_root[None]])


def _n_modifiers(n: int, n_words: IntArray | None, n_heads: int) -> IntArray:
    """Return the number of candidate modifiers of each head, the root included."""
    present = np.asarray(n if n_words is None else n_words)[..., None]
    head = np.arange(n_heads)
    return np.where(head == n, present, np.where(head < present, present - 1, 0))


def _numbers(name: str, value: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    name = f"ModifierBudget: {name}"
    return broadcast(name, whole_numbers(name, value), shape)
