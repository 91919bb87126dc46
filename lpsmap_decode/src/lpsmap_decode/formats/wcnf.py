"""Weighted MaxSAT in DIMACS WCNF files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from lpsmap_core import FactorGraph, FileFormat, NamedGraph
from lpsmap_core.api import factor_named
from lpsmap_decode.formats.tokens import Tokens

__all__ = ["WcnfFormat"]

HEAVIEST = 2**53
"""The largest weight that is exact as a score."""

LARGEST_WEIGHT = 2**63 - 1
"""The largest number that a file may hold."""


class _Clauses(NamedTuple):
    """Nonempty clauses of distinct literals.

    Attributes
    ----------
    literals
        Positive for a variable (from 1), negative for its negation.
    weights
        The cost of violating each clause; None for a hard clause.
    """

    n_variables: int
    literals: list[list[int]]
    weights: list[int | None]


class WcnfFormat(FileFormat):
    """Clauses with weights; the violated clauses should have the least total weight.

    ::

        c a comment
        h 1 2 0       a clause that must hold: x1 or x2
        3 -1 -2 0     a clause whose violation costs 3: not x1, or not x2
        1 2 0

    The format before 2022, with a header ``p wcnf VARIABLES CLAUSES TOP``, is read too: clauses of
    weight TOP or more must hold; without TOP, all clauses are soft.

    Variables are the block ``x``; the score of x1 is at ``x[0]``. A hard clause is an `Or`. A soft
    clause is an `Or` with an additional variable, which is on if the clause is violated and scores
    minus its weight; these variables are the block ``violated``. A soft clause of one literal is a
    score of its variable. The best score is thus a constant minus the weight of the violated
    clauses.
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
    """Return the numbers of variables and clauses, and the least weight of hard clauses."""
    tokens.word("p")
    tokens.one_of(("wcnf",), "wcnf, a formula with weights")
    n_variables = tokens.count("the number of variables")
    n_clauses = tokens.count("the number of clauses")
    top = None if tokens.line_ended() else tokens.integer("the top weight", 1, LARGEST_WEIGHT)
    return n_variables, n_clauses, top


def _weight(tokens: Tokens, top: int | None) -> int | None:
    """Return the weight of a clause, None if it is hard."""
    weight = tokens.integer("the weight of a clause", 1, LARGEST_WEIGHT)
    if top is not None and weight >= top:
        return None
    if weight > HEAVIEST:
        tokens.refuse(f"got the weight {weight}; expected at most {HEAVIEST}, so that it is exact")
    return weight


def _literals(tokens: Tokens, most: int, weight: int | None) -> list[int]:
    """Return the distinct literals of a clause; no literals if it is trivially true or false."""
    literals: dict[int, None] = {}
    while literal := tokens.integer("a literal, or 0 at the end of a clause", -most, most):
        literals[literal] = None
    if weight is None and not literals:
        tokens.refuse("a hard clause has no literals and cannot hold; expected at least one")
    return [] if any(-literal in literals for literal in literals) else list(literals)
