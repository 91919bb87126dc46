"""Subclasses of factor types: without changes, and with other structures."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core import Factor, FactorGraph, Variables, installed
from lpsmap_core.api import slot_values, slots_of

TYPES = {name: found.value for name, found in installed().factors.items() if found.value}


def four_vertices(shape: tuple[int, ...], n_additionals: int) -> list[Any]:
    """Return four structures: nothing, all, every second variable, and the first half."""
    i = np.arange(int(np.prod(shape)))
    variables = [i < 0, i >= 0, i % 2 == 0, i < len(i) // 2]
    return [
        (x.astype(float).reshape(shape), np.full(n_additionals, float(k in (1, 2))))
        for k, x in enumerate(variables)
    ]


class Four:
    """The methods of a type with these structures."""

    def solve_map(self, eta_u, eta_v):
        """Return the number of the best one."""
        found = four_vertices(np.shape(eta_u), len(eta_v))
        return int(np.argmax([(m * eta_u).sum() + n @ eta_v for m, n in found]))

    def vertex(self, y):
        """Return structure `y`."""
        return four_vertices(self.event_shape, self.n_additionals)[y]


class Plain(Four, Factor):
    """The type with these structures that inherits from no other."""


def unchanged(base: type[Factor]) -> type[Factor]:
    """Return a subclass without changes."""
    return _public(type(f"Unchanged{base.__name__}", (base,), {"__module__": __name__}))


def other(base: type[Factor]) -> type[Factor]:
    """Return a subclass with four structures."""
    methods = {name: vars(Four)[name] for name in ("solve_map", "vertex")}
    return _public(type(f"Other{base.__name__}", (base,), {**methods, "__module__": __name__}))


def single(base: type[Factor]) -> type[Factor]:
    """Return a subclass with one structure, the base's for scores of 0, and the base's vertices."""

    def solve_map(self, eta_u, eta_v):
        return base.solve_map(self, np.zeros_like(eta_u), np.zeros_like(eta_v))

    namespace = {"solve_map": solve_map, "__module__": __name__}
    return _public(type(f"Single{base.__name__}", (base,), namespace))


def _public(made: Any) -> type[Factor]:
    """Let pickle find a class."""
    globals()[made.__name__] = made
    return made  # type: ignore[no-any-return]


def plain_rows(factor: Factor, scores: Any) -> tuple[FactorGraph, list[Factor]]:
    """Return a graph with the same variables, and a plain factor for every row of a declaration."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    index = slot_values(factor, factor.variables.index)
    negated = slot_values(factor, factor.variables.negated)
    extra = factor.variables.graph.additional_scores(factor)
    rows = []
    for i in range(factor.n_factors):
        slots = slots_of(factor, i)
        view = Variables(graph, u.index.reshape(-1)[index[slots]], negated[slots])
        rows.append(graph.add(Plain(view, extra[i] if extra.size else None)))
    return graph, rows
