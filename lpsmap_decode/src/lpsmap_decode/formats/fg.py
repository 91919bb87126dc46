"""Factor graphs in the text format of the AD3 library."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import FactorGraph, Variables
from lpsmap_core.api import set_label
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.fg_structures import STRUCTURES, Builder, Parser, state_counts
from lpsmap_decode.formats.fg_writing import PLAIN, write_fg
from lpsmap_decode.formats.file_format import FileFormat, NamedGraph
from lpsmap_decode.formats.tokens import Tokens

OTHERS = ["GENERAL_TREE_COUNTS", "GRANDPARENT_HEAD_AUTOMATON", "SEQUENCE_COMPRESSOR"]
"""Factor types of AD3 that are not supported."""


class _Line(NamedTuple):
    """A factor: its line, type, variables from 1 (negative if negated), and parameters."""

    number: int
    kind: str
    literals: list[int]
    sizes: tuple[int, ...]
    numbers: Any


class FgFormat(FileFormat):
    """Binary variables with log-potentials, and factors over them, as AD3 writes them.

    ::

        3            number of binary variables
        2            number of factors
        0.75         a log-potential for each variable, added when it is 1
        1.25
        -0.5
        OR 3 1 2 -3  type of a factor, number of variables, and the variables from 1; - negates
        PAIR 2 1 2 -1.05

    Variables are the block ``u``. A file may hold several graphs, one after the other. They are
    read as separate parts of one graph, with the blocks ``u0``, ``u1`` and so on. Types without
    parameters are XOR, OR, ATMOSTONE, OROUT, XOROUT, ANDOUT and IMPLY. Other types have
    parameters after their variables:

    - PAIR: the log-potential of both variables being 1;
    - BUDGET: the maximum number of variables that are on;
    - KNAPSACK: their costs, and the budget;
    - DENSE: a number of multi-valued variables, their numbers of states, and the table's
      log-potentials, the last variable's state fastest. The binary variables are the states, one
      variable after the other;
    - SEQUENCE: a number of positions, their numbers of states, and log-potentials: of the first
      position's states, of the transitions to the next position, a row for each state, and so on,
      and of the last position's states;
    - SEQUENCE_BUDGET: as for SEQUENCE, with the maximum number of positions in their first states
      after the number of positions;
    - GENERAL_TREE: a number of nodes, their numbers of states, their parents from 0, -1 for node 0,
      which is the root, and for every other node the log-potentials of its parent's and its own
      state, a row for each state of the parent;
    - ARBORESCENCE: a number of nodes, and the head and modifier of the arc that each variable
      stands for, from 0, which is the root;
    - HEAD_AUTOMATON, whose variables are the modifiers of a head away from it: the log-potentials
      of modifiers that follow each other. First those of the start before each modifier and before
      the end, then those of the first modifier before each later one and before the end, and so on.

    Other types raise an error. Text after the last factor is ignored with a warning.
    """

    name = "AD3"
    suffixes = (".fg",)

    def read(self, path: Path) -> NamedGraph:
        """Return the graph in a file; see `FileFormat.read`."""
        tokens, graph = Tokens(path), FactorGraph()
        blocks = [_read_graph(tokens, graph)]
        while (tokens.upcoming() or b"").isdigit():
            blocks.append(_read_graph(tokens, graph))
        tokens.leave_out_rest()
        several = len(blocks) > 1
        return NamedGraph(graph, {f"u{i if several else ''}": u for i, u in enumerate(blocks)})

    def write(self, named: NamedGraph, path: Path) -> None:
        """Write the graph `named` of logic factors into the file at `path`.

        Variables are numbered as in the graph. `FileFormat.write` lists what it raises.
        """
        write_fg(named.graph, path)


def _read_graph(tokens: Tokens, graph: FactorGraph) -> Variables:
    """Add the next graph of a file to `graph`, and return its variables."""
    n_variables = tokens.count("the number of variables")
    n_factors = tokens.count("the number of factors")
    scores = tokens.numbers(n_variables, "the log-potential of a variable")
    groups: dict[tuple[Any, ...], list[_Line]] = {}
    for _ in range(n_factors):
        line = _factor(tokens, n_variables)
        groups.setdefault((line.kind, len(line.literals), line.sizes), []).append(line)
    if tokens.upcoming() in {kind.encode() for kind in KINDS}:
        tokens.word("nothing")
        tokens.refuse(f"got one more factor; expected {n_factors}, the number at the beginning")
    u = graph.variable_from(scores)
    for (kind, _, _), lines in groups.items():
        literals = np.array([line.literals for line in lines], dtype=np.int64)
        over = u[np.abs(literals) - 1] ^ (literals < 0)
        numbers, before = np.array([line.numbers for line in lines]), len(graph.factors)
        if kind in PLAIN:
            graph.add(factor_named(PLAIN[kind])(over))
        else:
            DECLARED[kind][1](graph, over, lines[0].sizes, numbers)
        for factor in graph.factors[before:]:  # a tree becomes several tables
            names = [f"line {line.number}, {kind}" for line in lines]
            set_label(factor, np.repeat(names, factor.n_factors // len(lines)).tolist())
    return u


def _factor(tokens: Tokens, n_variables: int) -> _Line:
    """Read a factor."""
    known = ", ".join([*PLAIN, *DECLARED])
    kind, number = tokens.one_of(KINDS, f"the type of a factor, one of {known}"), tokens.line
    if kind in OTHERS:
        tokens.refuse(f"factors of type {kind} are not supported; expected one of {known}")
    literals = []
    least = 0 if kind in ("ATMOSTONE", "BUDGET", "KNAPSACK") else 1
    for _ in range(tokens.count(f"the number of variables of a factor of type {kind}", least)):
        literal = tokens.integer(
            f"a variable, negated or not, of {kind}", -n_variables, n_variables
        )
        if literal == 0:
            tokens.refuse("got 0; expected a variable, counted from 1")
        literals.append(literal)
    sizes, numbers = ((), ()) if kind in PLAIN else DECLARED[kind][0](tokens, len(literals))
    return _Line(number, kind, literals, sizes, numbers)


def _pair_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    if arity != 2:
        tokens.refuse(f"a PAIR has {arity} variables; expected 2")
    return (), tokens.number("the log-potential of a pair")


def _budget_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    return (), tokens.integer("the budget", 0, 10**18)


def _knapsack_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    costs = tokens.numbers(arity, "a cost", low=0.0)
    return (), np.append(costs, tokens.number("the budget", low=0.0))


def _dense_numbers(tokens: Tokens, arity: int) -> tuple[tuple[int, ...], Any]:
    n = tokens.count("the number of multi-valued variables", low=1)
    sizes = state_counts(tokens, arity, n, "multi-valued variables")
    size = 1
    for k in sizes:
        size *= k
        tokens.check_count(size, "the number of entries of a table")
    return sizes, tokens.numbers(size, "the log-potential of an entry")


def _pair(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    graph.add(factor_named("Pair")(over[:, 0], over[:, 1], numbers))


def _budget(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    graph.add(factor_named("Budget")(over, numbers))


def _knapsack(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    graph.add(factor_named("Knapsack")(over, numbers[:, :-1], numbers[:, -1]))


def _dense(graph: FactorGraph, over: Variables, sizes: Any, numbers: Any) -> None:
    ends = np.cumsum(sizes)
    blocks = [over[:, end - k : end] for k, end in zip(sizes, ends, strict=True)]
    graph.add(factor_named("Dense")(blocks, numbers.reshape(-1, *sizes)))


DECLARED: dict[str, tuple[Parser, Builder]] = {
    "PAIR": (_pair_numbers, _pair),
    "BUDGET": (_budget_numbers, _budget),
    "KNAPSACK": (_knapsack_numbers, _knapsack),
    "DENSE": (_dense_numbers, _dense),
    **STRUCTURES,
}
"""For each type with parameters, how they are read (sizes, equal in a group of factors, and the
rest), and how factors of equal sizes are declared."""

KINDS = [*PLAIN, *DECLARED, *OTHERS]
"""Types that a file may name."""
