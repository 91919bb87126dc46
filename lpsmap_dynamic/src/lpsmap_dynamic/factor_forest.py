"""Factors connected as trees: the order in which sums pass from factor to factor.

Factors that form cycles are first merged into one, by a junction tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, IntArray, name_of_factor, offsets_of, ranges, slot_values
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.derivations import HypergraphInference
from lpsmap_dynamic.factor_cycles import CyclicFactors, check_n_shared, merged_factors
from lpsmap_dynamic.factor_pieces import MAX_PATHS, too_many_choices

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
    """The factors of a graph, each component a tree with a factor as root.

    Factors that form cycles are merged: the merged factors are those of a last declaration. Their
    slots are also the additionals of the factors that they stand for, as variables that follow
    those of the graph.

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
        If a factor of a cycle has no hypergraph, or one whose derivations repeat hyperedges with
        additionals, the sums over a cycle take too much memory, or a factor contains a variable
        twice.

    Attributes
    ----------
    declarations
        The declarations, with that of the merged factors, if any, as the last.
    merged_additionals, impossible
        The numbers of the additionals that are slots, and the merged factors without structures.
    variable, negated, owner
        (L,) the variable of each link, whether it is negated, and the factor.
    first_link, first_factor, first_additional
        The first link, factor and additional of each declaration, and the total numbers.
    steps
        The factors in the order of an upward pass: each after those whose messages it receives.
    component, component_of_factor, component_of_additional
        The component of each, numbered by their first variable as in a solution; `n_components` for
        variables in no factor and for factors without variables.
    component_of_all_factors
        That of the factors, and then of the merged ones.
    n_components
        The number of components.
    """

    def __init__(self, factors: Sequence[Factor], n_variables: int) -> None:
        self.factors, self.declarations = factors, list[Any](factors)
        self.n_variables = n_variables
        self.merged_additionals = self.impossible = np.empty(0, dtype=np.int64)
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
        self._into: IntArray = np.arange(len(arity))
        turn, self._parent, cyclic = self._peel()
        if cyclic.size:
            self._merge(cyclic, arity)
            turn, self._parent, _ = self._peel()
        self.steps = self._steps(turn)
        self._label()
        counts = np.concatenate([empty, *n_extra])
        self.component_of_factor = self.component_of_all_factors[: len(counts)]
        self.component_of_additional: IntArray = np.repeat(self.component_of_factor, counts)

    def _peel(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the turn of every factor, the link to its parent, -1 for roots, and other links.

        In every turn, those factors leave that share just one variable with the remaining ones. If
        all factors of a variable could leave, one of them stays, and is a root in the next turn.
        The other links are those of factors that form cycles, or are between cycles.
        """
        n = int(self.first_factor[-1])
        turn, parent, now = np.zeros(n, dtype=np.int64), np.full(n, -1), 0
        links = self._shared(np.flatnonzero(self._into[self.owner] == self.owner))
        while links.size:
            variable, owner = self.variable[links], self.owner[links]
            leaving = np.bincount(owner, minlength=n)[owner] == 1
            if not leaving.any():
                break
            degree = np.bincount(variable)
            whole = np.bincount(variable[leaving], minlength=len(degree)) == degree
            last = np.flatnonzero(whole[variable])
            leaving[last[np.unique(variable[last], return_index=True)[1]]] = False
            turn[owner[leaving]], parent[owner[leaving]] = now, links[leaving]
            now += 1
            turn[owner[~leaving]] = now
            links = self._shared(links[~leaving])
        return turn, parent, links

    def _merge(self, cyclic: IntArray, arity: IntArray) -> None:
        """Append the merged factors in place of those with cyclic links."""
        chosen = np.unique(self.owner[cyclic])
        links = ranges(offsets_of(arity), chosen)
        owner = np.repeat(np.arange(len(chosen)), arity[chosen])

        def name_of(k: int) -> str:
            return self._name(int(chosen[k]))

        check_n_shared(owner, self.variable[links], len(chosen), self.n_variables, name_of)
        self._check_paths(chosen, links)
        given = self._cyclic_factors(cyclic, chosen, links, arity)
        merged = merged_factors(given, self.n_variables, name_of)
        n, slots = len(arity), np.diff(merged.offsets)
        self._into = np.append(self._into, n + np.arange(merged.n_factors))
        self._into[chosen] = n + merged.group
        self.declarations.append(merged)
        self.merged_additionals = merged.additionals
        self.impossible = n + np.flatnonzero(merged.impossible)
        self.variable = np.append(self.variable, merged.variable)
        self.negated = np.append(self.negated, merged.negated)
        self.owner = np.append(self.owner, np.repeat(n + np.arange(merged.n_factors), slots))
        self.first_link = np.append(self.first_link, len(self.variable))
        self.first_factor = np.append(self.first_factor, n + merged.n_factors)
        self.first_additional = np.append(self.first_additional, self.first_additional[-1])

    def _check_paths(self, chosen: IntArray, links: IntArray) -> None:
        """Refuse factors of cycles with too many paths, before their hypergraphs are built."""
        bounds = [
            f.min_paths() if hasattr(f, "min_paths") else np.zeros(f.n_factors, dtype=np.int64)
            for f in self.factors
        ]
        refused = chosen[np.concatenate(bounds)[chosen] > MAX_PATHS]
        if refused.size:
            f = int(refused[0])
            n_shared = int((self.owner[self._shared(links)] == f).sum())
            raise too_many_choices(self._name(f), n_shared)

    def _cyclic_factors(
        self, cyclic: IntArray, chosen: IntArray, links: IntArray, arity: IntArray
    ) -> CyclicFactors:
        """Return the chosen factors, which are those with cyclic links, and their hypergraphs."""
        hypergraphs: list[Hypergraph] = []
        origins: list[IntArray] = []
        which, first_extra = [], []
        for d, factor in enumerate(self.factors):
            first = int(self.first_factor[d])
            rows = chosen[(chosen >= first) & (chosen < self.first_factor[d + 1])] - first
            if not rows.size:
                continue
            sums = factor.log_partition()
            if not isinstance(sums, HypergraphInference):
                without = "has no dynamic program"
                raise ValueError(self._describe_cycle(cyclic, first + int(rows[0]), without))
            used, own = np.unique(sums.which[rows], return_inverse=True)
            single = [sums.hypergraphs[h].with_single_additionals for h in used]
            if any(hypergraph.repeats_additionals for hypergraph, _ in single):
                several = "can use a hyperedge with additionals several times"
                raise ValueError(self._describe_cycle(cyclic, first + int(rows[0]), several))
            which.append(len(hypergraphs) + own.reshape(-1))
            hypergraphs += [hypergraph for hypergraph, _ in single]
            origins += [origin for _, origin in single]
            first_extra.append(self.first_additional[d] + rows * factor.n_additionals)
        return CyclicFactors(
            hypergraphs,
            np.concatenate(which),
            offsets_of(arity[chosen]),
            self.variable[links],
            self.negated[links],
            np.concatenate(first_extra),
            origins,
        )

    def _shared(self, links: IntArray) -> IntArray:
        """Return those of the links whose variable has several of them."""
        variable = self.variable[links]
        return links[np.bincount(variable, minlength=1)[variable] > 1]

    def _steps(self, turn: IntArray) -> list[Step]:
        """Return the factors with variables by turn, declaration, and whether they are roots."""
        arity = np.bincount(self.owner, minlength=len(turn))
        first = np.cumsum(arity) - arity
        declaration = np.repeat(np.arange(len(self.declarations)), np.diff(self.first_factor))
        root = self._parent < 0
        order = np.lexsort((root, declaration, turn))
        order = order[(arity[order] > 0) & (self._into[order] == order)]
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

    def _label(self) -> None:
        """Number the components by their first variable."""
        n = int(self.first_factor[-1])
        root = np.full(n, n)
        of_variable = np.full(self.n_variables + len(self.merged_additionals), n)
        for step in reversed(self.steps):
            factors = step.factors
            root[factors] = (
                factors if step.parent is None else of_variable[self.variable[step.parent]]
            )
            of_variable[self.variable[step.links]] = root[factors][step.place]
        of_variable = of_variable[: self.n_variables]
        roots, first = np.unique(of_variable, return_index=True)
        roots, first = roots[roots < n], first[roots < n]
        self.n_components = len(roots)
        number = np.full(n + 1, self.n_components)
        number[roots[np.argsort(first)]] = np.arange(self.n_components)
        self.component: IntArray = number[of_variable]
        self.component_of_all_factors: IntArray = number[root[self._into]]

    def _describe_cycle(self, links: IntArray, refused: int, reason: str) -> str:
        """Return the error about links of cycles, or between them, and a factor to refuse."""
        around: dict[int, list[int]] = {}
        for link in links.tolist():
            around.setdefault(int(self.owner[link]), []).append(link)
            around.setdefault(-1 - int(self.variable[link]), []).append(link)
        path, link = [], around[refused][0]
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
            f"factors form a cycle: {listed}, and back; {self._name(refused)} {reason}, and must "
            "be connected with others in one way only, as in a tree, to sum over all assignments. "
            "graph.gibbs(factor) sums over single factors, and solve() supports any graph."
        )

    def _name(self, node: int) -> str:
        """Return the name of a factor, or of a variable -1, -2, ... in errors."""
        if node < 0:
            return f"variable {-1 - node}"
        d = int(np.searchsorted(self.first_factor, node, side="right")) - 1
        factor, i = self.factors[d], node - int(self.first_factor[d])
        return f"{name_of_factor(factor, i)} of {factor!r}"


def check_distinct(factor: Factor, owner: IntArray, index: IntArray) -> None:
    """Validate that factors of a declaration contain a variable once."""
    order = np.lexsort((index, owner))
    same = (np.diff(owner[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        i = int(owner[order[np.flatnonzero(same)[0]]])
        raise ValueError(
            f"gibbs: {name_of_factor(factor, i)} of {factor!r} contains a variable twice; expected "
            "distinct variables."
        )
