"""Factors that form cycles, merged into one factor for each connected group of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from lpsmap_core import kernel
from lpsmap_core.api import BoolArray, IntArray, offsets_of, ranges
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.derivations import HypergraphInference
from lpsmap_dynamic.equal_rows import distinct_rows
from lpsmap_dynamic.hypergraph_cache import HypergraphCache
from lpsmap_dynamic.junction_tree import TreePart, junction_tree

MAX_SHARED = 5_000
"""Maximum number of shared variables of a junction tree, which is built in some seconds."""


class CyclicFactors(NamedTuple):
    """Factors with hypergraphs, of which each shares variables with others.

    Attributes
    ----------
    hypergraphs
        The distinct hypergraphs.
    which
        (F,) the hypergraph of each factor.
    offsets
        (F + 1,) its links.
    variable, negated
        (L,) the variable of each link, and whether it is negated.
    first_additional
        (F,) the number of its first additional.
    origins
        For each of the hypergraphs, the additional of the factor that each of its own stands for.
    """

    hypergraphs: Sequence[Hypergraph]
    which: IntArray
    offsets: IntArray
    variable: IntArray
    negated: BoolArray
    first_additional: IntArray
    origins: Sequence[IntArray]


@dataclass(frozen=True)
class MergedFactors:
    """One factor for each group of factors, as a declaration of the merged ones.

    The slots of a merged factor are the variables of its group, and then their additionals.

    Attributes
    ----------
    offsets
        (G + 1,) the slots of each.
    hypergraphs, which
        The distinct hypergraphs, and that of each.
    variable, negated
        The variable of each slot, and whether it is negated. Additionals follow the variables of
        the graph.
    additionals
        The numbers of these additionals, of which one can occur several times.
    group
        (F,) the merged factor of each factor.
    impossible
        (G,) whether the factors of the group contradict each other.
    """

    offsets: IntArray
    hypergraphs: Sequence[Hypergraph]
    which: IntArray
    variable: IntArray
    negated: BoolArray
    additionals: IntArray
    group: IntArray
    impossible: BoolArray

    n_additionals: ClassVar[int] = 0

    @property
    def n_factors(self) -> int:
        """The number of merged factors."""
        return len(self.which)

    def log_partition(self) -> HypergraphInference:
        """Return the sums over their structures."""
        return self.inference()

    def inference(self) -> HypergraphInference:
        """Return the inference over their structures."""
        return HypergraphInference(self.offsets, 0, lambda: (self.hypergraphs, self.which))


def check_n_shared(
    owner: IntArray,
    variable: IntArray,
    n_factors: int,
    n_variables: int,
    name_of: Callable[[int], str],
) -> None:
    """Refuse cycles of too many shared variables, before their hypergraphs are built.

    Parameters
    ----------
    owner, variable
        The factor and the variable of every link.
    n_factors, n_variables
        The number of factors, and of variables of the graph.
    name_of
        A function that returns the name of a factor in errors.
    """
    group = _groups(owner, variable, n_factors, n_variables)
    shared = np.bincount(variable, minlength=n_variables) > 1
    group_of_variable = np.zeros(n_variables, dtype=np.int64)
    group_of_variable[variable] = group[owner]
    n_shared = np.bincount(group_of_variable[shared])
    if n_shared.max(initial=0) <= MAX_SHARED:
        return
    refused = int(n_shared.argmax())
    members = np.flatnonzero(group == refused)
    raise ValueError(
        f"gibbs: {len(members)} factors that form cycles, such as {name_of(int(members[0]))}, "
        f"share {n_shared[refused]} variables; expected at most {MAX_SHARED}. Condition on some of "
        "them with graph.condition(evidence), or use solve(), which supports any graph."
    )


def merged_factors(
    given: CyclicFactors, n_variables: int, name_of: Callable[[int], str]
) -> MergedFactors:
    """Merge the factors that are connected by variables.

    Parameters
    ----------
    given
        The factors.
    n_variables
        The number of variables of the graph.
    name_of
        A function that returns the name of a factor in errors.
    """
    n_links = np.diff(given.offsets)
    owner = np.repeat(np.arange(len(given.which)), n_links)
    group = _groups(owner, given.variable, len(given.which), n_variables)
    n_groups = 1 + int(group.max(initial=-1))
    pairs, local = np.unique(group[owner] * n_variables + given.variable, return_inverse=True)
    local = local.reshape(-1)
    group_of_pair, variable = np.divmod(pairs, n_variables)
    n_own = np.bincount(group_of_pair, minlength=n_groups)
    local -= offsets_of(n_own)[group[owner]]
    once = np.bincount(given.variable, minlength=n_variables)[given.variable] == 1
    negated = np.zeros(n_variables, dtype=np.bool_)
    negated[given.variable[once]] = given.negated[once]
    by_group = np.argsort(group, kind="stable")
    counts = np.array([h.n_additionals for h in given.hypergraphs], dtype=np.int64)[given.which]
    additionals = np.repeat(given.first_additional[by_group], counts[by_group])
    bounds = offsets_of(np.array([len(x) for x in given.origins], dtype=np.int64))
    additionals += np.concatenate(given.origins)[ranges(bounds, given.which[by_group])]
    n_extra = np.bincount(group, counts, minlength=n_groups).astype(np.int64)
    codes = 2 * local + given.negated
    members = offsets_of(np.bincount(group, minlength=n_groups))
    hypergraphs, which = _distinct_trees(given, by_group, members, codes, n_own, name_of)
    impossible = np.array([h is None for h in hypergraphs], dtype=np.bool_)[which]
    arity = n_own + n_extra
    owners = np.concatenate([group_of_pair, np.repeat(np.arange(n_groups), n_extra)])
    slots = np.concatenate([variable, n_variables + np.arange(len(additionals))])
    order = np.argsort(owners, kind="stable")
    return MergedFactors(
        offsets=offsets_of(arity),
        hypergraphs=[_nothing() if h is None else h for h in hypergraphs],
        which=which,
        variable=slots[order],
        negated=np.append(negated[variable], np.zeros(len(additionals), dtype=np.bool_))[order],
        additionals=additionals,
        group=group,
        impossible=impossible,
    )


@kernel
def _groups(owner: IntArray, variable: IntArray, n_factors: int, n_variables: int) -> IntArray:
    """Return the group of every factor, by union-find; groups are numbered by their first factor.

    Parameters
    ----------
    owner, variable
        The factor and the variable of every link.
    """
    parent = np.arange(n_factors + n_variables)
    for k in range(len(owner)):
        a, b = owner[k], n_factors + variable[k]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        parent[max(a, b)] = min(a, b)
    group, n = np.empty(n_factors, dtype=np.int64), 0
    for f in range(n_factors):
        if parent[f] == f:
            group[f], n = n, n + 1
        else:
            a = f
            while parent[a] != a:
                a = parent[a]
            group[f] = group[a]
    return group


def _distinct_trees(
    given: CyclicFactors,
    by_group: IntArray,
    members: IntArray,
    codes: IntArray,
    n_variables: IntArray,
    name_of: Callable[[int], str],
) -> tuple[list[Hypergraph | None], IntArray]:
    """Return the distinct junction trees of groups, and the number of each group's.

    Groups of equal numbers of factors and links are compared as the rows of a matrix.

    Parameters
    ----------
    given
        The factors.
    by_group, members
        The factors of group g are ``by_group[members[g] : members[g + 1]]``.
    codes
        Twice the variable of every link, counted within its group, plus 1 if it is negated.
    n_variables
        The number of variables of every group.
    """
    n_links = np.diff(given.offsets)[by_group]
    first_link = offsets_of(n_links)[members]
    links = codes[ranges(given.offsets, by_group)]
    shape = np.stack([np.diff(members), np.diff(first_link)], axis=1)
    some, kind = distinct_rows(shape)
    trees: list[Hypergraph | None] = []
    which = np.empty(len(shape), dtype=np.int64)
    for k, (n_factors, n) in enumerate(shape[some].tolist()):
        groups = np.flatnonzero(kind == k)
        factors = by_group[members[groups, None] + np.arange(n_factors)]
        own = links[first_link[groups, None] + np.arange(n)]
        words = np.concatenate([given.which[factors], own], axis=1)
        first, number = distinct_rows(words)
        which[groups] = len(trees) + number
        for row, g in zip(words[first], first.tolist(), strict=True):
            hypergraphs = tuple(given.hypergraphs[h] for h in row[:n_factors].tolist())
            names = [functools.partial(name_of, f) for f in factors[g].tolist()]
            mine = hypergraphs, row[n_factors:], int(n_variables[groups[g]]), names
            key = hypergraphs, row[n_factors:].tobytes()
            trees.append(_trees.get(key, functools.partial(_tree_of, *mine)))
    return trees, which


def _tree_of(
    hypergraphs: tuple[Hypergraph, ...],
    codes: IntArray,
    n_variables: int,
    names: Sequence[Callable[[], str]],
) -> Hypergraph | None:
    """Return the junction tree of factors; see `_distinct_trees`."""
    links = np.split(codes, np.cumsum([h.arity for h in hypergraphs])[:-1])
    parts = [
        TreePart(h, own // 2, own % 2 > 0, name)
        for h, own, name in zip(hypergraphs, links, names, strict=True)
    ]
    return junction_tree(parts, n_variables)


@functools.cache
def _nothing() -> Hypergraph:
    """Return a hypergraph of one structure without slots, in place of one without structures."""
    none, zero = np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    return Hypergraph(0, 0, zero, np.full((1, 2), -1), np.zeros(2, dtype=np.int64), none, 0)


_trees = HypergraphCache["Hypergraph | None"]()
"""Junction trees by the hypergraphs and links of their factors."""
