"""Graphs conditioned on evidence: the values of some variables are known."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.variables import Variables
from lpsmap_jit.arrays import BoolArray

__all__ = ["Conditioned"]

AnyFactor = TypeVar("AnyFactor", bound=Factor)


class Conditioned:
    """A graph conditioned on evidence, with counterparts of the original's variables and factors.

    Attributes
    ----------
    graph
        The conditioned graph, to be solved.

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

    def __init__(
        self, graph: Any, on: BoolArray, factors: dict[int, tuple[Factor, Factor]]
    ) -> None:
        self.graph = graph
        self._on = on
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
            return Variables(self.graph, what.index, what.negated ^ self._on[what.index])
        if id(what) not in self._factors:
            raise ValueError(f"of: {what!r} is not in the original graph; pass one of its factors.")
        return self._factors[id(what)][1]
