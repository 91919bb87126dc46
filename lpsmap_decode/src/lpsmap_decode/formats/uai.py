"""Markov random fields in files of the UAI inference competitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lpsmap_core import FactorGraph, Variables
from lpsmap_core.api import FloatArray, IntArray, reserve_memory
from lpsmap_decode.formats.compressed_text import write_text
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.file_format import Evidence, FileFormat, FileFormatError, NamedGraph
from lpsmap_decode.formats.tokens import Tokens

FARTHEST = -float(np.log(np.finfo(np.float64).tiny))
"""Maximum absolute score whose exponential has full precision: 708."""

PAIR_BYTES = 200
"""Bytes of the objects of an observed state, besides one for each state of its variable."""

MAX_CONSTANTS = 1000
"""Maximum number of tables over no variable that are written, each up to `FARTHEST`."""


class MarkovNetwork(NamedTuple):
    """Variables of several states, and factors over them.

    Attributes
    ----------
    n_states
        For every variable, its number of states.
    scopes
        For every factor, its variables.
    scores
        For every factor, the logarithms of its table, with one axis per variable.
    lines
        For every factor, the line of its scope.
    """

    n_states: list[int]
    scopes: list[list[int]]
    scores: list[FloatArray]
    lines: list[int]


class UaiFormat(FileFormat):
    """A Markov random field in the format of the UAI inference competitions.

    ::

        MARKOV
        2         number of variables
        2 3       their numbers of states
        2         number of factors
        1 0       scopes: a number of variables, and the variables
        2 0 1
        2         tables: a number of entries, and the entries, the last variable's state fastest
        0.5 1.5
        6
        1 0.2 0.2 0.2 1 0

    Entries are nonnegative potentials: their logarithms are the scores, and 0 forbids. Variable i
    is the block ``x{i}`` of one binary variable for each of its states. Tables over one variable
    are scores of its states; the others are `Dense` factors, one declaration for each shape. A
    table over no variable is a constant: its score is divided equally among the states of the n
    variables. ``BAYES`` in place of ``MARKOV`` is read in the same way.

    A written graph has the same scores. A table whose exponentials overflow or underflow is divided
    by its largest entry, and the constants are tables over no variable.

    An evidence file has a number of pairs, and the pairs of a variable and its state. As in older
    competitions, a line with the number of samples may come first; it must be 1.
    """

    name = "UAI"
    suffixes = (".uai",)

    def read(self, path: Path) -> NamedGraph:
        """Return the graph in a file; see `FileFormat.read`."""
        network = read_network(path)
        first = np.append(0, np.cumsum(network.n_states, dtype=np.int64))
        scores, shared = np.zeros(first[-1]), np.zeros(len(network.n_states), dtype=bool)
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for i, (scope, table) in enumerate(zip(network.scopes, network.scores, strict=True)):
            if len(scope) == 1:
                scores[first[scope[0]] : first[scope[0] + 1]] += table
            elif scope:
                by_shape.setdefault(table.shape, []).append(i)
                shared[scope] = True
            else:  # one state of every variable is on
                scores += table / max(1, len(network.n_states))
        graph = FactorGraph()
        x = graph.variable_from(scores)
        for shape, members in by_shape.items():
            scopes = np.array([network.scopes[i] for i in members])
            blocks = [
                x[first[scopes[:, d], None] + np.arange(size)] for d, size in enumerate(shape)
            ]
            table = _joined([network.scores[i] for i in members])
            names = [f"factor {i}, line {network.lines[i]}" for i in members]
            graph.add(factor_named("Dense")(blocks, table), name=names)
        sizes = np.array(network.n_states, dtype=np.int64)
        for k in np.unique(sizes[~shared]):
            alone = np.flatnonzero(~shared & (sizes == k))
            graph.add(factor_named("Xor")(x[first[alone, None] + np.arange(k)]))
        blocks = [x[a:b] for a, b in zip(first[:-1], first[1:], strict=True)]
        return NamedGraph(graph, {f"x{i}": block for i, block in enumerate(blocks)})

    def write(self, named: NamedGraph, path: Path) -> None:
        """Write the graph `named` of `Dense` and `Xor` factors into the file at `path`.

        Blocks of states are numbered by their first binary variables. `FileFormat.write` lists what
        it raises.
        """
        graph, scores = named.graph, named.graph.flat_scores()
        scopes, tables = _written_factors(path, graph)
        blocks = sorted({block for scope in scopes for block in scope})
        covered = [v for block in blocks for v in block]
        if sorted(covered) != list(range(graph.n_variables)):
            raise FileFormatError(
                f"{path}: blocks of states overlap, or leave variables out; UAI requires that each "
                "binary variable is a state of one variable. Write .json instead."
            )
        number = {block: i for i, block in enumerate(blocks)}
        scopes += [(block,) for block in blocks]
        tables += [scores[list(block)] for block in blocks]
        chosen = [i for i, table in enumerate(tables) if table.any()]
        scopes, tables = [scopes[i] for i in chosen], [tables[i] for i in chosen]
        surplus = [_surplus(path, table) for table in tables]
        tables = [table - taken for table, taken in zip(tables, surplus, strict=True)]
        constants = _constants(path, sum(surplus))
        scopes, tables = scopes + [()] * len(constants), tables + constants
        lines = ["MARKOV", str(len(blocks)), " ".join(str(len(block)) for block in blocks)]
        lines.append(str(len(tables)))
        for scope in scopes:
            lines.append(" ".join(map(str, [len(scope), *(number[block] for block in scope)])))
        for table in tables:
            lines += ["", str(table.size), " ".join(map(repr, np.exp(table).ravel().tolist()))]
        write_text(path, "\n".join(lines) + "\n")

    def read_evidence(self, path: Path, named: NamedGraph) -> Evidence:
        """Return the states of `named` that the file at `path` fixes.

        See `FileFormat.read_evidence`.
        """
        blocks, tokens = list(named.variables.values()), Tokens(path)
        found: Evidence = []
        n = tokens.count("the number of pairs")
        if tokens.n_words() % 2 == 0 and tokens.line_ended():  # pairs after two numbers
            if n != 1:
                tokens.refuse(f"got {n} samples, or a word is missing; expected one sample")
            n = tokens.count("the number of pairs")
        for _ in range(n):
            i = tokens.integer("a variable", 0, len(blocks) - 1)
            n_states = blocks[i].size
            state = tokens.integer(f"a state of variable {i}", 0, n_states - 1)
            reserve_memory(PAIR_BYTES + n_states, "observed states")
            found.append((blocks[i], np.arange(n_states) == state))
        tokens.end()
        return found


def read_network(path: Path) -> MarkovNetwork:
    """Return the Markov random field in the file at `path`.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If it does not follow the format.
    """
    tokens = Tokens(path)
    tokens.one_of(("MARKOV", "BAYES"), "MARKOV, with which the file begins")
    n_states, total = [], 0
    for i in range(tokens.count("the number of variables")):
        n_states.append(tokens.count(f"the number of states of variable {i}", low=1))
        total += n_states[-1]
        tokens.check_count(total, "the number of states of all variables")
    scopes, lines = [], []
    for i in range(tokens.count("the number of factors")):
        order = tokens.count(f"the number of variables of factor {i}")
        lines.append(tokens.line)
        scope: dict[int, None] = {}
        for _ in range(order):
            v = tokens.integer(f"a variable of factor {i}", 0, len(n_states) - 1)
            if v in scope:
                tokens.refuse(f"variable {v} occurs twice in factor {i}; expected it once")
            scope[v] = None
        scopes.append(list(scope))
    scores = [_logarithms(tokens, i, [n_states[v] for v in s]) for i, s in enumerate(scopes)]
    tokens.end()
    return MarkovNetwork(n_states, scopes, scores, lines)


def _joined(tables: list[FloatArray]) -> FloatArray:
    """Return tables of one shape as an array: one table for all factors if they are equal."""
    if all(np.array_equal(table, tables[0]) for table in tables):
        return tables[0]
    return np.stack(tables)


def _logarithms(tokens: Tokens, i: int, shape: list[int]) -> FloatArray:
    """Return the logarithms of a table's entries."""
    size = 1
    for k in shape:
        size *= k
        tokens.check_count(size, f"the number of entries of the table of factor {i}")
    given = tokens.integer(f"the number of entries of the table of factor {i}", 0, 10**18)
    if given != size:
        tokens.refuse(
            f"got {given} as the number of entries of the table of factor {i}; expected {size}, "
            "the product of its variables' numbers of states"
        )
    table = tokens.numbers(size, f"an entry of the table of factor {i}", low=0.0)
    with np.errstate(divide="ignore"):
        scores: FloatArray = np.log(table).reshape(shape)
    return scores


def _written_factors(
    path: Path, graph: FactorGraph
) -> tuple[list[tuple[tuple[int, ...], ...]], list[FloatArray]]:
    """Return the blocks and the table of every factor; for an Xor, a table of zeros."""
    scopes: list[tuple[tuple[int, ...], ...]] = []
    tables: list[FloatArray] = []
    dense, xor = factor_named("Dense"), factor_named("Xor")
    for factor in graph.factors:
        whole = factor.keep is None or bool(factor.keep.all())
        if not isinstance(factor, (dense, xor)) or factor.variables.negated.any() or not whole:
            raise FileFormatError(
                f"{path}: {factor!r} cannot be written as UAI; expected Dense or Xor over "
                "variables that are not negated. Write .json instead."
            )
        blocks = factor.blocks if isinstance(factor, dense) else [factor.variables]
        rows = [block.index.reshape(factor.n_factors, -1).tolist() for block in blocks]
        scopes += [tuple(map(tuple, scope)) for scope in zip(*rows, strict=True)]
        sizes = [block.shape[-1] for block in blocks]
        if isinstance(factor, dense):
            tables += list(graph.additional_scores(factor).reshape(-1, *sizes))
        else:
            tables += [np.zeros(sizes)] * factor.n_factors
    return scopes, tables


def _surplus(path: Path, scores: FloatArray) -> float:
    """Return the constant to subtract from a table so that its exponentials can be written."""
    finite = scores[scores > -np.inf]
    if np.abs(finite).max(initial=0.0) <= FARTHEST:
        return 0.0
    if not np.ptp(finite) <= FARTHEST:
        raise FileFormatError(
            f"{path}: scores of a table differ by more than {FARTHEST:.0f}; their exponentials "
            "cannot be written. Write .json instead."
        )
    return float(finite.max())


def _constants(path: Path, total: float) -> list[FloatArray]:
    """Return tables over no variable that add up to a constant score."""
    n = math.ceil(abs(total) / FARTHEST)
    if n > MAX_CONSTANTS:
        raise FileFormatError(
            f"{path}: the constant part of the scores is {total:g}; its exponential cannot be "
            "written. Write .json instead, or subtract a constant from the scores."
        )
    return [np.array(total / n)] * n if n else []


def read_assignment(path: Path, n_states: Sequence[int]) -> IntArray:
    """Return the states in a solution file: ``MAP``, the number of variables, and their states.

    Parameters
    ----------
    path
        The file.
    n_states
        The variables' numbers of states.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If it does not follow the format.
    """
    tokens = Tokens(path)
    tokens.one_of(("MAP",), "MAP, with which the file begins")
    tokens.integer("the number of variables", len(n_states), len(n_states))
    states = [tokens.integer(f"a state of variable {i}", 0, k - 1) for i, k in enumerate(n_states)]
    tokens.end()
    return np.array(states, dtype=np.int64)


def assignment_text(blocks: Sequence[Variables]) -> str:
    """Return the best state of every variable of a solved graph as the text of a solution file.

    Parameters
    ----------
    blocks
        A block of states for every variable.
    """
    states = [int(np.argmax(block.value)) for block in blocks]
    return f"MAP\n{len(states)} {' '.join(map(str, states))}\n"


def marginals_text(marginals: Sequence[FloatArray]) -> str:
    """Return the marginals of every variable's states as the text of a solution file."""
    words = [" ".join(map(repr, [own.size, *own.ravel().tolist()])) for own in marginals]
    return f"MAR\n{len(words)} {' '.join(words)}\n"


def partition_text(log_partition: float) -> str:
    """Return a partition function, of which the natural logarithm is given, as the text of a file.

    The file has its logarithm to base 10.
    """
    return f"PR\n{log_partition / math.log(10.0)!r}\n"


def write_assignment(path: Path, blocks: Sequence[Variables]) -> None:
    """Write the `assignment_text` of `blocks` into the file at `path`."""
    write_text(path, assignment_text(blocks))
