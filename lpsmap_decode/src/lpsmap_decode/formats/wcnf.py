"""Weighted MaxSAT in DIMACS files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from lpsmap_core import FactorGraph, FileFormat, NamedGraph
from lpsmap_core.api import factor_named
from lpsmap_decode.formats.tokens import Tokens

__all__ = ["WcnfFormat"]

HEAVIEST = 2**53
"""Weights up to here are exact as scores."""

LARGEST = 2**63 - 1
"""The largest number that a file may hold."""


class _Clauses(NamedTuple):
    """Clauses of distinct literals, at least one each.

    Attributes
    ----------
    literals
        Positive for a variable (from 1), negative for its negation.
    weights
        What violating a clause costs; None for one that must hold.
    """

    n_variables: int
    literals: list[list[int]]
    weights: list[int | None]


class WcnfFormat(FileFormat):
    """Clauses with weights: the lightest set of clauses to violate.

    ::

        c a comment
        h 1 2 0       a clause that must hold: x1 or x2
        3 -1 -2 0     one whose violation costs 3: not x1, or not x2
        1 2 0

    Or, before 2022, with a header ``p wcnf VARIABLES CLAUSES TOP``: clauses of weight TOP or more
    must hold, and without TOP none.

    Variables are the block ``x``; the score of x1 is at ``x[0]``. A clause that must hold is an
    `Or`. Another one is an `Or` with one more variable, which says that the clause is violated and
    costs its weight: they are the block ``violated``. Of one literal only, it is the literal's
    score. So the best score is a constant less the weight of the clauses that are violated.
    """

    name = "WCNF"
    suffixes = (".wcnf",)

    def read(self, path: Path) -> NamedGraph:
        """Return the graph in a file; see `FileFormat.read`."""
        found = _read(path)
        scores = np.zeros(found.n_variables)
        hard: dict[int, list[list[int]]] = {}  # by their numbers of literals
        soft: dict[int, list[tuple[list[int], int]]] = {}
        for clause, weight in zip(found.literals, found.weights, strict=True):
            if weight is None:
                hard.setdefault(len(clause), []).append(clause)
            elif len(clause) == 1:
                scores[abs(clause[0]) - 1] += weight if clause[0] > 0 else -weight
            else:
                soft.setdefault(len(clause), []).append((clause, weight))
        graph = FactorGraph()
        x = graph.variable_from(scores)
        weights = [weight for group in soft.values() for _, weight in group]
        violated = graph.variable_from(-np.array(weights, dtype=np.float64))
        for clauses in hard.values():
            literals = np.array(clauses)
            graph.add(factor_named("Or")(x[np.abs(literals) - 1] ^ (literals < 0)))
        at = 0
        for group in soft.values():
            slack = violated[at : at + len(group)]
            columns = np.array([clause for clause, _ in group]).T
            over = [x[np.abs(column) - 1] ^ (column < 0) for column in columns]
            graph.add(factor_named("Or")([*over, slack]))
            at += len(group)
        return NamedGraph(graph, {"x": x, "violated": violated})


def _read(path: Path) -> _Clauses:
    """Return the clauses of a file, without those that always hold."""
    tokens = Tokens(path, comment=b"c")
    most, n_clauses, top = tokens.most, None, None
    if tokens.upcoming() == b"p":
        most, n_clauses, top = _header(tokens)
    n_read, n_variables, clauses, weights = 0, 0 if n_clauses is None else most, [], []
    while tokens.upcoming() is not None:
        if n_clauses is None and tokens.upcoming() == b"h":
            tokens.word("h")
            weight = None
        else:
            weight = _weight(tokens, top)
        literals = _literals(tokens, most, weight)
        n_read += 1
        if literals:
            n_variables = max(n_variables, *map(abs, literals))
            clauses.append(literals)
            weights.append(weight)
    if n_clauses not in (None, n_read):
        tokens.refuse(f"the file ends after {n_read} clauses; expected {n_clauses}")
    return _Clauses(n_variables, clauses, weights)


def _header(tokens: Tokens) -> tuple[int, int, int | None]:
    """Return the numbers of variables and clauses, and the weight of what must hold."""
    tokens.word("p")
    tokens.one_of(("wcnf",), "wcnf, a formula with weights")
    n_variables = tokens.count("the number of variables")
    n_clauses = tokens.count("the number of clauses")
    top = None if tokens.line_ended() else tokens.integer("the top weight", 1, LARGEST)
    return n_variables, n_clauses, top


def _weight(tokens: Tokens, top: int | None) -> int | None:
    """Return a clause's weight, None if it must hold."""
    weight = tokens.integer("the weight of a clause", 1, LARGEST)
    if top is not None and weight >= top:
        return None
    if weight > HEAVIEST:
        tokens.refuse(f"got the weight {weight}; expected up to {HEAVIEST}, which is exact")
    return weight


def _literals(tokens: Tokens, most: int, weight: int | None) -> list[int]:
    """Return the distinct literals of a clause; none if it holds anyway, or never does."""
    literals: dict[int, None] = {}
    while literal := tokens.integer("a literal, or 0 at the end of a clause", -most, most):
        literals[literal] = None
    if weight is None and not literals:
        tokens.refuse("a clause without literals must hold, which it cannot; expected some")
    return [] if any(-literal in literals for literal in literals) else list(literals)
