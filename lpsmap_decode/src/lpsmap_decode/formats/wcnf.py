"""Weighted MaxSAT in DIMACS WCNF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lpsmap_core import FactorGraph, Variables
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.file_format import FileFormat, NamedGraph
from lpsmap_decode.formats.tokens import Tokens

HEAVIEST = 2**53
"""The largest weight that is exact as a score."""

MAX_WEIGHT = 2**64 - 1
"""The largest number that a file may hold; a common top weight."""


Clause = tuple[list[int], int | None, int]
"""Distinct literals, positive for a variable (from 1) and negative for its negation; the cost of
violating the clause, None if it is hard; and the line on which it begins."""


class WcnfFormat(FileFormat):
    """Clauses with weights; the violated clauses should have the least total weight.

    ::

        c a comment
        h 1 2 0       a clause that must hold: x1 or x2
        3 -1 -2 0     a clause whose violation costs 3: not x1, or not x2
        1 2 0

    The format before 2022, with a header ``p wcnf VARIABLES CLAUSES TOP``, is read too: clauses of
    weight TOP or more must hold; without TOP, all clauses are soft. A clause of that format may
    extend over lines, with a warning, since a missing 0 looks the same. In the format of 2022 it
    may not.

    Variables are the block ``x``; the score of x1 is at ``x[0]``. A hard clause is an `Or`. A soft
    clause is an `Or` with an additional variable, which is on if the clause is violated and scores
    minus its weight; these variables are the block ``violated``. A soft clause of one literal is a
    score of its variable. That of x1 scores 0 if it is violated and its weight if not; the variable
    ``constant``, which is always on, subtracts such weights if there are any. Thus the score of an
    assignment is minus its cost, the weight of the violated clauses.
    """

    name = "WCNF"
    suffixes = (".wcnf",)
    states_costs = True

    def read(self, path: Path) -> NamedGraph:
        """Return the graph in a file; see `FileFormat.read`."""
        n_variables, clauses = _read(path)
        scores, constant = np.zeros(n_variables), 0.0
        hard: dict[int, list[tuple[list[int], str]]] = {}  # by their numbers of literals
        soft: dict[int, list[tuple[list[int], int]]] = {}
        for clause, weight, line in clauses:
            if weight is None:
                hard.setdefault(len(clause), []).append((clause, f"line {line}"))
            elif len(clause) > 1:
                soft.setdefault(len(clause), []).append((clause, weight))
            else:
                negated = bool(clause) and clause[0] < 0
                constant -= 0.0 if negated else weight
                if clause:
                    scores[abs(clause[0]) - 1] += -weight if negated else weight
        graph = FactorGraph()
        x = graph.variable_from(scores)
        weights = [weight for group in soft.values() for _, weight in group]
        violated = graph.variable_from(-np.array(weights, dtype=np.float64))
        for alike in hard.values():
            literals = np.array([clause for clause, _ in alike])
            declared = factor_named("Or")(x[np.abs(literals) - 1] ^ (literals < 0))
            graph.add(declared, name=[line for _, line in alike])
        at = 0
        for group in soft.values():
            literals, slack = np.array([clause for clause, _ in group]), violated.index[at:]
            index = np.column_stack([x.index[np.abs(literals) - 1], slack[: len(group)]])
            off = np.column_stack([literals < 0, np.zeros(len(group), dtype=bool)])
            graph.add(factor_named("Or")(Variables(graph, index, off)))
            at += len(group)
        variables = {"x": x, "violated": violated}
        if constant:
            variables["constant"] = graph.variable_from([constant])
            graph.add(factor_named("Xor")(variables["constant"][None]))
        return NamedGraph(graph, variables)


def _read(path: Path) -> tuple[int, list[Clause]]:
    """Return the number of variables, and the clauses of a file that do not always hold."""
    tokens = Tokens(path, comment=b"c")
    most, n_clauses, top = tokens.most, None, None
    if tokens.upcoming() == b"p":
        most, n_clauses, top = _header(tokens)
    ends = _LineEnds(tokens, strict=n_clauses is None)
    n_read, n_variables = 0, 0 if n_clauses is None else most
    clauses: list[Clause] = []
    while tokens.upcoming() is not None:
        if n_clauses is None and tokens.upcoming() == b"h":
            tokens.word("h")
            weight = None
        else:
            weight = _weight(tokens, top)
        line = tokens.line
        literals = _literals(tokens, most, weight, ends)
        n_read += 1
        if literals is not None:
            n_variables = max([n_variables, *map(abs, literals)])
            clauses.append((literals, weight, line))
    if n_clauses not in (None, n_read):
        tokens.refuse(f"the file ends after {n_read} clauses; expected {n_clauses}")
    return n_variables, clauses


def _header(tokens: Tokens) -> tuple[int, int, int | None]:
    """Return the numbers of variables and clauses, and the least weight of hard clauses."""
    tokens.word("p")
    tokens.one_of(("wcnf",), "wcnf, a formula with weights")
    n_variables = tokens.count("the number of variables")
    n_clauses = tokens.count("the number of clauses")
    top = None if tokens.line_ended() else tokens.integer("the top weight", 1, MAX_WEIGHT)
    return n_variables, n_clauses, top


def _weight(tokens: Tokens, top: int | None) -> int | None:
    """Return the weight of a clause, None if it is hard."""
    weight = tokens.integer("the weight of a clause", 1, MAX_WEIGHT)
    if top is not None and weight >= top:
        return None
    if weight > HEAVIEST:
        tokens.refuse(f"got the weight {weight}; expected at most {HEAVIEST}, so that it is exact")
    return weight


class _LineEnds:
    """Validates that every clause is a line, or warns once if it need not be."""

    def __init__(self, tokens: Tokens, strict: bool) -> None:
        self._tokens, self._strict, self._warned = tokens, strict, False

    def inside(self) -> None:
        """Check that a clause continues on its line."""
        tokens = self._tokens
        if tokens.upcoming() is None or not tokens.line_ended():
            return
        words = "the line ends within a clause; expected 0 at its end"
        if self._strict:
            tokens.refuse(words)
        if not self._warned:
            tokens.warn(f"{words}. The next line is read as its continuation.")
            self._warned = True

    def after(self) -> None:
        """Check that a line ends with its clause."""
        if self._strict and not self._tokens.line_ended():
            self._tokens.word("nothing")
            self._tokens.refuse("the line continues after the 0 of its clause; expected a new line")


def _literals(tokens: Tokens, most: int, weight: int | None, ends: _LineEnds) -> list[int] | None:
    """Return the distinct literals of a clause; None if it always holds."""
    literals: dict[int, None] = {}
    ends.inside()
    while literal := tokens.integer("a literal, or 0 at the end of a clause", -most, most):
        literals[literal] = None
        ends.inside()
    if weight is None and not literals:
        tokens.refuse("a hard clause has no literals and cannot hold; expected at least one")
    ends.after()
    return None if any(-literal in literals for literal in literals) else list(literals)
