"""Layers of separate factors with a closed form, whose solves are one call of it.

Of small batches, the other parts of a solve would take most of the time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import CompiledEngine, Factor, Options, Solution
from lpsmap_core.api import AUTO, DirectSolution, Layout, solve_directly, solve_laid_out

__all__ = ["DirectlySolved", "solved_directly"]

FloatArray = NDArray[np.float64]


class DirectlySolved:
    """What a layer uses of a `Solution`.

    Parameters
    ----------
    layout
        The solved layout.
    factors
        Its declarations.
    scores
        The scores of all variables.
    direct
        The solution of its part.
    """

    def __init__(
        self, layout: Layout, factors: list[Factor], scores: FloatArray, direct: DirectSolution
    ) -> None:
        self.factors = factors
        self._layout, self._scores, self._direct = layout, scores, direct

    @property
    def values(self) -> FloatArray:
        """The marginals of all variables; zeros for those in no factor, which are padding."""
        return self._of_graph(self._direct.marginals)

    def vjp(self, d: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """Multiply the Jacobian with a vector; see `Solution.vjp`."""
        product = self._direct.multiply(self._layout.part.of_graph(d))
        return self._solution.vjp(d) if product is None else (self._of_graph(product), [])

    def jvp(self, d: FloatArray, _: Any) -> tuple[FloatArray, list[FloatArray]]:
        """Multiply the Jacobian with a vector, and with none for additionals."""
        return self.vjp(d)

    def _of_graph(self, numbers: FloatArray) -> FloatArray:
        """Return numbers of all variables from those of the part's variables."""
        part = self._layout.part
        if part.whole:
            return numbers
        found = np.zeros(len(self._scores))
        found[part.variables] = numbers
        return found

    @functools.cached_property
    def _solution(self) -> Solution:
        """The solution with which vectors of any size can be multiplied."""
        given = self._layout, self.factors, self._scores, [np.empty((0, 0))] * len(self.factors)
        return solve_laid_out(CompiledEngine(), *given, Options())


def solved_directly(
    layout: Layout,
    factors: list[Factor],
    scores: FloatArray,
    engine: str,
    otherwise: Callable[[], Solution],
) -> DirectlySolved | Solution:
    """Return the solution of a layer by a closed form, or that of its graph.

    Parameters
    ----------
    layout, factors
        The layout, and its declarations.
    scores
        The scores of all variables, flat.
    engine
        The name of the engine.
    otherwise
        Solves the graph.
    """
    if engine not in (AUTO, CompiledEngine.name):
        return otherwise()
    found = solve_directly(layout.part, scores, otherwise)
    if isinstance(found, DirectSolution):
        return DirectlySolved(layout, factors, scores.copy(), found)
    return found
