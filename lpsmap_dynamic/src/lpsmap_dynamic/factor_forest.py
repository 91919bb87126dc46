"""Factors connected as trees: the order in which sums pass from factor to factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, IntArray, name_of_factor, slot_values

__all__ = ["FactorForest", "Step", "check_distinct"]

LISTED = 6
"""Maximum number of factors that an error about a cycle names."""


class Step(NamedTuple):
    """Factors of one declaration whose messages are computed together.

    Attributes
    ----------
    declaration
        The position of the declaration.
    rows, factors
        (R,) their numbers within the declaration, and within the forest.
    parent
        (R,) the link over which each factor sends its message; None if they are roots.
    links, place
        The other links of these factors, flat, and the position of the factor of each in `rows`.
    """

    declaration: int
    rows: IntArray
    factors: IntArray
    parent: IntArray | None
    links: IntArray
    place: IntArray


class FactorForest:
    """The factors of a graph without cycles, each component a tree with a factor as root.

    Factors are numbered through all declarations. A *link* is a pair of a factor's slot and its
    variable; the links of a declaration follow each other, factor by factor. A factor's *parent* is
    the variable that connects it with the factors nearer to the root.

    Parameters
    ----------
    factors
        The declarations.
    n_variables
        The number of variables of their graph.

    Raises
    ------
    ValueError
        If factors form a cycle, or a factor contains a variable twice.

    Attributes
    ----------
    variable, negated, owner
        (L,) the variable of each link, whether it is negated, and the factor.
    first_link, first_factor, first_additional
        The first link, factor and additional of each declaration, and the total numbers.
    steps
        The factors in the order of an upward pass: each after those whose messages it receives.
    component, component_of_factor, component_of_additional
        The component of each, numbered by their first variable as in a solution; `n_components` for
        variables in no factor and for factors without variables.
    n_components
        The number of components.
    """

    def __init__(self, factors: Sequence[Factor], n_variables: int) -> None:
        self.factors = factors
        empty = np.empty(0, dtype=np.int64)
        index = [slot_values(f, f.variables.index) for f in factors]
        negated = [slot_values(f, f.variables.negated) for f in factors]
        self.variable: IntArray = np.concatenate([empty, *index])
        self.negated: BoolArray = np.concatenate([np.empty(0, dtype=np.bool_), *negated])
        self.first_link = np.cumsum([0, *(len(x) for x in index)])
        self.first_factor = np.cumsum([0, *(f.n_factors for f in factors)])
        n_extra = [np.full(f.n_factors, f.n_additionals) for f in factors]
        self.first_additional = np.cumsum([0, *(int(x.sum()) for x in n_extra)])
        arity = np.concatenate([empty, *(np.diff(f.offsets) for f in factors)])
        self.owner: IntArray = np.repeat(np.arange(len(arity)), arity)
        for factor, slots in zip(factors, index, strict=True):
            if factor.variables.span is None:  # a whole block contains each variable once
                owner = np.repeat(np.arange(factor.n_factors), np.diff(factor.offsets))
                check_distinct(factor, owner, slots)
        turn, self._parent = self._peel()
        self.steps = self._steps(turn, arity)
        self._label(n_variables)
        counts = np.concatenate([empty, *n_extra])
        self.component_of_additional: IntArray = np.repeat(self.component_of_factor, counts)

    def _peel(self) -> tuple[IntArray, IntArray]:
        """Return the turn of every factor, and the link to its parent, -1 for roots.

        In every turn, those factors leave that share just one variable with the remaining ones. If
        all factors of a variable could leave, one of them stays, and is a root in the next turn.
        """
        n = int(self.first_factor[-1])
        turn, parent, now = np.zeros(n, dtype=np.int64), np.full(n, -1), 0
        links = self._shared(np.arange(len(self.variable)))
        while links.size:
            variable, owner = self.variable[links], self.owner[links]
            leaving = np.bincount(owner, minlength=n)[owner] == 1
            if not leaving.any():
                raise ValueError(self._describe_cycle(links))
            degree = np.bincount(variable)
            whole = np.bincount(variable[leaving], minlength=len(degree)) == degree
            last = np.flatnonzero(whole[variable])
            leaving[last[np.unique(variable[last], return_index=True)[1]]] = False
            turn[owner[leaving]], parent[owner[leaving]] = now, links[leaving]
            now += 1
            turn[owner[~leaving]] = now
            links = self._shared(links[~leaving])
        return turn, parent

    def _shared(self, links: IntArray) -> IntArray:
        """Return those of the links whose variable has several of them."""
        variable = self.variable[links]
        return links[np.bincount(variable, minlength=1)[variable] > 1]

    def _steps(self, turn: IntArray, arity: IntArray) -> list[Step]:
        """Return the factors with variables by turn, declaration, and whether they are roots."""
        first = np.cumsum(arity) - arity
        declaration = np.repeat(np.arange(len(self.factors)), np.diff(self.first_factor))
        root = self._parent < 0
        order = np.lexsort((root, declaration, turn))
        order = order[arity[order] > 0]
        keys = np.stack([turn, declaration, root])[:, order]
        cuts = np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1
        steps = []
        for chosen in np.split(order, cuts) if len(order) else []:
            d = int(declaration[chosen[0]])
            parent = None if root[chosen[0]] else self._parent[chosen]
            sizes = arity[chosen]
            place = np.repeat(np.arange(len(chosen)), sizes)
            links = (first[chosen] - np.cumsum(sizes) + sizes)[place] + np.arange(len(place))
            below = links != self._parent[chosen][place]
            rows = chosen - self.first_factor[d]
            steps.append(Step(d, rows, chosen, parent, links[below], place[below]))
        return steps

    def _label(self, n_variables: int) -> None:
        """Number the components by their first variable."""
        n = int(self.first_factor[-1])
        root, of_variable = np.full(n, n), np.full(n_variables, n)
        for step in reversed(self.steps):
            factors = step.factors
            root[factors] = (
                factors if step.parent is None else of_variable[self.variable[step.parent]]
            )
            of_variable[self.variable[step.links]] = root[factors][step.place]
        roots, first = np.unique(of_variable, return_index=True)
        roots, first = roots[roots < n], first[roots < n]
        self.n_components = len(roots)
        number = np.full(n + 1, self.n_components)
        number[roots[np.argsort(first)]] = np.arange(self.n_components)
        self.component: IntArray = number[of_variable]
        self.component_of_factor: IntArray = number[root]

    def _describe_cycle(self, links: IntArray) -> str:
        """Return the error about links that are part of cycles, or between them."""
        around: dict[int, list[int]] = {}
        for link in links.tolist():
            around.setdefault(int(self.owner[link]), []).append(link)
            around.setdefault(-1 - int(self.variable[link]), []).append(link)
        path, link = [], int(links[0])
        while True:  # from a factor to another one by a variable, and on by another variable
            path.append(int(self.owner[link]))
            link = next(x for x in around[path[-1]] if x != link)
            path.append(-1 - int(self.variable[link]))
            link = next(x for x in around[path[-1]] if x != link)
            ends = [k for k in range(len(path) - 1) if path[k] in (path[-1], int(self.owner[link]))]
            if ends:
                break
        names = [self._name(node) for node in path[ends[-1] :]]
        listed = ", ".join(names[: 2 * LISTED]) + (", ..." if len(names) > 2 * LISTED else "")
        return (
            f"factors form a cycle: {listed}, and back; expected trees, in which factors are "
            "connected in one way only, to sum over all assignments. graph.gibbs(factor) sums over "
            "single factors, and solve() supports any graph."
        )

    def _name(self, node: int) -> str:
        """Return the name of a factor, or of a variable -1, -2, ... in errors."""
        if node < 0:
            return f"variable {-1 - node}"
        d = int(np.searchsorted(self.first_factor, node, side="right")) - 1
        factor, i = self.factors[d], node - int(self.first_factor[d])
        return f"{name_of_factor(factor, i)} of {factor!r}"


def check_distinct(factor: Factor, owner: IntArray, index: IntArray) -> None:
    """Validate that factors of a declaration contain a variable once.

    Raises
    ------
    ValueError
        If one contains a variable twice.
    """
    order = np.lexsort((index, owner))
    same = (np.diff(owner[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        i = int(owner[order[np.flatnonzero(same)[0]]])
        raise ValueError(
            f"gibbs: {name_of_factor(factor, i)} of {factor!r} contains a variable twice; expected "
            "distinct variables."
        )
