"""Condition graphs on evidence: each slot over an observed variable gets a new variable."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, Variables
from lpsmap_core.api import BoolArray, FloatArray, broadcast, real_numbers, slot_values

__all__ = ["Conditioned", "condition"]

AnyFactor = TypeVar("AnyFactor", bound=Factor)


class Conditioned:
    """A graph conditioned on evidence, with counterparts of the original's variables and factors.

    Attributes
    ----------
    graph
        The conditioned graph, to be solved.
    on
        (n_variables,) which variables of the original graph are known to be on.

    Notes
    -----
    A variable that is known to be off is forbidden. A variable that is known to be on is replaced
    by its negation, which is forbidden. Each factor gets its own copies of its known variables, so
    no agreement on them is needed: parts that only known variables connect become separate
    components, and so does a factor whose variables are all known. Factors that contradict the
    evidence are listed in ``solution.contradictions``. The objective excludes known variables.

    Examples
    --------
    >>> from lpsmap import FactorGraph, Xor
    >>> graph = FactorGraph()
    >>> u = graph.variable_from([[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]])
    >>> _ = graph.add(Xor(u)), graph.add(Xor(u[:, 0]))
    >>> given = graph.condition([(u[0, 2], 1)])
    >>> _ = given.graph.solve()
    >>> given.of(u).value
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """

    def __init__(self, graph: Any, on: BoolArray, factors: dict[Factor, Factor]) -> None:
        self.graph = graph
        self.on = on
        self._factors = factors

    def __repr__(self) -> str:
        return f"Conditioned({self.graph!r})"

    @overload
    def of(self, what: Variables) -> Variables: ...

    @overload
    def of(self, what: AnyFactor) -> AnyFactor: ...

    def of(self, what: Any) -> Any:
        """Return the counterpart of a view, or of a factor, of the original graph.

        Parameters
        ----------
        what
            Variables, whose counterpart has their ``value`` given the evidence; or a factor, whose
            counterpart has its additionals and structures.

        Raises
        ------
        ValueError
            If a factor is not in the original graph.
        """
        if isinstance(what, Variables):
            return Variables(self.graph, what.index, what.negated ^ self.on[what.index])
        found = self._factors.get(what) if isinstance(what, Factor) else None
        if found is None:
            raise ValueError(f"of: {what!r} is not in the original graph; pass one of its factors.")
        return found


def condition(
    graph: Any,
    evidence: Sequence[tuple[Variables, npt.ArrayLike]],
    scores: Sequence[Any],
    additionals: Sequence[Any],
    forbid: Callable[[Any, BoolArray], Any],
) -> Conditioned:
    """Return a graph conditioned on evidence; see `lpsmap_core.FactorGraph.condition`.

    Parameters
    ----------
    graph
        The graph.
    evidence
        Pairs of a view of its variables and their values.
    scores, additionals
        The scores of each block of variables, and the additional scores of each factor.
    forbid
        A function that sets some scores of a block to -inf.
    """
    known = _known(graph, evidence)
    fixed, on = ~np.isnan(known), known == 1.0
    inner, at = type(graph)(), 0
    for block in scores:
        shape = tuple(block.shape)
        flags = fixed[at : at + int(np.prod(shape))].reshape(shape)
        inner.variable_from(forbid(block, flags) if flags.any() else block)
        at += flags.size
    taken = [slot_values(factor, fixed[factor.variables.index]) for factor in graph.factors]
    n_own = sum(int(flags.sum()) for flags in taken)
    own = np.empty(0, dtype=np.int64)
    if n_own:
        flat = next(block.reshape(-1) for block in scores if 0 not in block.shape)
        alike = flat[np.zeros(n_own, dtype=np.int64)]  # keeps library and precision
        own = inner.variable_from(forbid(alike, np.ones(n_own, dtype=bool))).index
    found, at = {}, 0
    for factor, flags, kept in zip(graph.factors, taken, additionals, strict=True):
        number = int(flags.sum())
        again = _over(factor, inner, flags, own[at : at + number], on)
        again.additionals = kept
        found[factor] = inner.add(again)
        at += number
    return Conditioned(inner, on, found)


def _known(graph: Any, evidence: Sequence[tuple[Variables, npt.ArrayLike]]) -> FloatArray:
    """Return 0 or 1 for every observed variable, else NaN."""
    known = np.full(graph.n_variables, np.nan)
    for position, (view, given) in enumerate(evidence):
        name = f"condition: evidence[{position}]"
        if not isinstance(view, Variables) or view.graph is not graph:
            raise ValueError(
                f"{name}: expected a pair of Variables of this graph and their values."
            )
        values = broadcast(name, real_numbers(name, given).astype(np.float64), view.shape)
        there = ~np.isnan(values)
        values = np.where(view.negated, 1.0 - values, values)[there]
        wrong = values[(values != 0.0) & (values != 1.0)]
        if wrong.size:
            raise ValueError(
                f"{name} holds {wrong[0]:g}; expected 0, 1, or NaN for variables without evidence."
            )
        index = view.index[there]
        before = known[index]
        known[index] = values
        if ((before == 1.0 - values) | (known[index] != values)).any():
            raise ValueError(f"{name}: a variable is given both as 0 and as 1; expected one value.")
    return known


def _over(factor: Factor, graph: Any, flags: BoolArray, own: Any, on: BoolArray) -> Factor:
    """Return a copy of a declaration in another graph, its flagged slots over variables `own`."""
    index, negated = factor.variables.index.copy(), factor.variables.negated
    negated = negated ^ on[index]
    if factor.keep is None:
        index.reshape(-1)[flags] = own
    else:
        slots = index[factor.keep]
        slots[flags] = own
        index[factor.keep] = slots
    again = copy.copy(factor)
    again.variables = Variables(graph, index, negated).without_ownership()
    return again
