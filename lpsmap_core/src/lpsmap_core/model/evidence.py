"""Graphs given evidence: some variables are known, and the others are asked for."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.variables import Variables
from lpsmap_jit.arrays import BoolArray

__all__ = ["Conditioned"]

AnyFactor = TypeVar("AnyFactor", bound=Factor)


class Conditioned:
    """A graph given evidence, and where the variables and factors of the original are in it.

    Attributes
    ----------
    graph
        The graph of what is left, to be solved.

    Notes
    -----
    A variable that is known to be off is forbidden; one that is on is replaced by its negation,
    which is. Each factor that looks at a known variable gets a copy of its own, so that nothing has
    to agree on it: what is connected through known variables only falls into components, and a
    factor that knows all its variables is one by itself. Factors that contradict the evidence are
    named in ``solution.contradictions``. Known variables count for nothing in the objective.

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
        """Return a view, or a factor, of the original graph as it is in this one.

        Parameters
        ----------
        what
            Variables, whose ``value`` is then that given the evidence; or a factor, for its
            additionals and structures.

        Raises
        ------
        ValueError
            If a factor is not of the original graph.
        """
        if isinstance(what, Variables):
            return Variables(self.graph, what.index, what.negated ^ self._on[what.index])
        if id(what) not in self._factors:
            raise ValueError(f"of: {what!r} is not of the original graph; pass what add returned.")
        return self._factors[id(what)][1]
