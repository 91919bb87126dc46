"""Structures in the text format of the AD3 library: sequences, trees, arborescences, automata.

Parsers return sizes, which are equal in a group of factors, and the other parameters. Builders
declare a group of factors over `over`, one row for each factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lpsmap_core import FactorGraph, Variables
from lpsmap_core.api import VIEW_BYTES, FloatArray, IntArray, reserve_memory
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.tokens import Tokens

Parser = Callable[[Tokens, int], tuple[tuple[int, ...], Any]]
Builder = Callable[[FactorGraph, Variables, Any, Any], None]


def state_counts(tokens: Tokens, arity: int, n: int, what: str) -> tuple[int, ...]:
    """Read `n` numbers of states that sum to the number of variables."""
    sizes = tuple(tokens.integer("a number of states", 1, arity) for _ in range(n))
    if sum(sizes) != arity:
        tokens.refuse(f"{what} have {sum(sizes)} states; expected {arity}, one for each variable")
    return sizes


def _sequence_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    n = tokens.count("the number of positions", low=1)
    return _transitions(tokens, state_counts(tokens, arity, n, "positions"))


def _budget_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    n = tokens.count("the number of positions", low=1)
    budget = tokens.integer("the budget", 0, 10**18)
    sizes = state_counts(tokens, arity, n, "positions")
    if sizes.count(1) > budget:
        tokens.refuse(
            f"{sizes.count(1)} positions have no state but the first; expected at most {budget}, "
            "the budget of first states"
        )
    return sizes, np.append(_transitions(tokens, sizes)[1], budget)


def _transitions(tokens: Tokens, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], Any]:
    tokens.check_count(len(sizes) * max(sizes) ** 2, "the number of transitions of equal sizes")
    size = sizes[0] + sizes[-1] + sum(a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True))
    return sizes, tokens.numbers(size, "the log-potential of a transition")


def _tree_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    n = tokens.count("the number of nodes", low=1)
    sizes = state_counts(tokens, arity, n, "nodes")
    tokens.integer("the parent of node 0, the root", -1, -1)
    parents = [0, *(tokens.integer(f"the parent of node {i}", 0, n - 1) for i in range(1, n))]
    above = np.array(parents)
    for _ in range(n.bit_length()):  # the ancestors at distances 2, 4, 8, ...
        above = above[above]
    if above.any():
        tokens.refuse(
            f"node {np.flatnonzero(above)[0]} is not below node 0; expected parents of a tree"
        )
    size = sum(sizes[parents[i]] * sizes[i] for i in range(1, n))
    potentials = tokens.numbers(size, "the log-potential of a node and its parent")
    return (n, *sizes, *parents), potentials


def _arborescence_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    n = tokens.count("the number of nodes, of which node 0 is the root", low=2)
    tokens.check_count(n * n, "the number of arcs between all nodes")
    slots: dict[int, None] = {}
    for _ in range(arity):
        head = tokens.integer("the head of an arc", 0, n - 1)
        modifier = tokens.integer("the modifier of an arc", 1, n - 1)
        if head == modifier:
            tokens.refuse(f"got an arc from node {head} to itself; expected two nodes")
        # as in `DepTree`: a row for each modifier, with the arc from the root on the diagonal
        slot = (modifier - 1) * (n - 1) + (head if head else modifier) - 1
        if slot in slots:
            tokens.refuse(f"the arc from node {head} to node {modifier} occurs twice")
        slots[slot] = None
    return (n - 1, *slots), ()


def _automaton_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    size = (arity + 1) * (arity + 2) // 2
    return (), tokens.numbers(size, "the log-potential of two consecutive modifiers")


def _padded(
    graph: FactorGraph, over: Variables, slots: IntArray, shape: tuple[int, ...]
) -> Variables:
    """Return variables of a shape: `over` at some flat slots, and forbidden variables elsewhere."""
    n, size = len(over.index), int(np.prod(shape))
    reserve_memory((VIEW_BYTES + 8) * n * size, "padded structures")
    index, negated = np.empty((n, size), dtype=np.int64), np.zeros((n, size), dtype=bool)
    index[:, slots], negated[:, slots] = over.index, over.negated
    others = np.setdiff1d(np.arange(size), slots)
    filler = graph.variable_from(np.full((n, others.size), -np.inf))
    index[:, others] = filler.index
    return Variables(graph, index.reshape(n, *shape), negated.reshape(n, *shape))


def _sequence(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    """Declare sequences; positions with fewer states are padded with forbidden states."""
    states, scores = _equal_sizes(graph, over, sizes, numbers)
    graph.add(factor_named("Sequence")(states, *scores))


def _budgeted(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    """Declare sequences with a limit on the positions in their first state."""
    states, (transitions, initial, final) = _equal_sizes(graph, over, sizes, numbers[:, :-1])
    budget = numbers[:, -1].astype(np.int64)
    make = factor_named("SequenceBudget")
    graph.add(make(states, transitions, budget, initial=initial, final=final))


def _equal_sizes(
    graph: FactorGraph, over: Variables, sizes: Sequence[int], numbers: FloatArray
) -> tuple[Variables, tuple[FloatArray, FloatArray, FloatArray]]:
    """Return the states of positions of equal sizes, and transitions, initial and final scores."""
    n, length, most = len(numbers), len(sizes), max(sizes)
    slots = np.flatnonzero(np.arange(most) < np.array(sizes)[:, None])
    reserve_memory(8 * n * length * most**2, "transitions of equal sizes")
    transitions = np.zeros((n, length - 1, most, most))
    at = sizes[0]
    for t, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        transitions[:, t, :a, :b] = numbers[:, at : at + a * b].reshape(n, a, b)
        at += a * b
    initial, final = np.zeros((n, most)), np.zeros((n, most))
    initial[:, : sizes[0]], final[:, : sizes[-1]] = numbers[:, : sizes[0]], numbers[:, at:]
    return _padded(graph, over, slots, (length, most)), (transitions, initial, final)


def _tree(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    """Declare trees of multi-valued variables as a table for each node and its parent.

    The relaxation is exact: the local polytope of a tree is its marginal polytope (Wainwright &
    Jordan 2008, Proposition 4.1).
    """
    n = sizes[0]
    states, parents = np.array(sizes[1 : n + 1]), sizes[n + 1 :]
    if n == 1:
        graph.add(factor_named("Xor")(over))
    first, at = np.cumsum(states) - states, 0
    edges: dict[tuple[int, int], list[tuple[int, int, FloatArray]]] = {}  # by numbers of states
    for i in range(1, n):
        shape = int(states[parents[i]]), int(states[i])
        table = numbers[:, at : at + shape[0] * shape[1]].reshape(-1, *shape)
        edges.setdefault(shape, []).append((first[parents[i]], first[i], table))
        at += shape[0] * shape[1]
    for shape, alike in edges.items():
        begins = np.array([edge[:2] for edge in alike])
        blocks = [over[:, begins[:, d, None] + np.arange(k)] for d, k in enumerate(shape)]
        tables = np.stack([table for _, _, table in alike], axis=1)
        graph.add(factor_named("Dense")(blocks, tables))


def _arborescence(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    """Declare dependency trees; arcs that a file lacks are forbidden."""
    n, slots = sizes[0], np.array(sizes[1:], dtype=np.int64)
    graph.add(factor_named("DepTree")(_padded(graph, over, slots, (n, n)), packed=True))


def _automaton(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    """Declare the modifiers of heads on one side; node 0 is the start, the last one the end."""
    side = over.shape[1] + 1
    siblings = np.zeros((len(numbers), side, side))
    rows, columns = np.triu_indices(side)
    siblings[:, rows, columns] = numbers
    graph.add(factor_named("HeadAutomaton")(over, siblings))


STRUCTURES: dict[str, tuple[Parser, Builder]] = {
    "SEQUENCE": (_sequence_numbers, _sequence),
    "SEQUENCE_BUDGET": (_budget_numbers, _budgeted),
    "GENERAL_TREE": (_tree_numbers, _tree),
    "ARBORESCENCE": (_arborescence_numbers, _arborescence),
    "HEAD_AUTOMATON": (_automaton_numbers, _automaton),
}
"""The types, how their parameters are read, and how factors of equal sizes are declared."""
