"""Graphs of the stress run: all installed factor types, in every state that users bring about.

Each graph is drawn from one seed, with the enumerated structures of its factors beside it: those of
`random_graphs`, which the judges list themselves, and those of every installed type's own examples,
which its plain Python oracle gives for all scores of -1 and 1.
"""

from __future__ import annotations

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import judges
from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_core.api import slot_values, slots_of
from lpsmap_core.plugins.registry import installed
from lpsmap_core.testing.oracle import Oracle, oracles_of
from random_graphs import KINDS, Declared, random_structures

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SCALES = tuple(10.0**k for k in range(-8, 9))

EXTREME_SCALES = tuple(10.0**k for k in (-300, -100, -20, 10, 16, 20, 40, 100, 200, 300))

LARGE_MASKS = (-1e4, -1e6, -1e9, -1e12, -1e15, -3.4028234663852886e38, -1.7976931348623157e308)
"""What users write for "never": the last two are the smallest numbers of float32 and float64."""

ORDINARY_SCALES = (0.01, 0.1, 1.0, 3.0)
"""Scales at which all `LARGE_MASKS` are far below the scores."""

TIES = ("none", "rounded", "nearly rounded", "equal", "uneven")
"""How scores are drawn before they are scaled."""

UNTRAINED = "nearly equal"
"""How scores of an untrained network are drawn."""

SUBCLASSES = ("none", "plain", "level 1")
"""What is declared: a type, a subclass that changes nothing, or one with its own oracle."""

MAX_STRUCTURES = 220
"""Structures of a graph; the judges' programs have a number for each."""

Declare = Callable[[Variables, IntArray, BoolArray, FloatArray], Factor]


class Row(NamedTuple):
    """One factor of a declaration: its places among the declaration's entries, its structures."""

    places: IntArray
    m: FloatArray
    n: FloatArray


@dataclass(frozen=True)
class Template:
    """A declaration without variables and scores."""

    kind: str
    size: int
    """Number of entries of its variables, those that a mask leaves out included."""
    shape_v: tuple[int, int]
    """Factors and additionals of each."""
    rows: list[Row]
    declare: Declare
    """Makes the factor of all variables, and its entries' numbers, negations and scores."""
    of_example: bool = False
    """Whether it is an example over other variables: its slots are those that its type made."""

    @property
    def n_structures(self) -> int:
        """Number of structures of all rows."""
        return sum(len(row.m) for row in self.rows)


@dataclass(frozen=True)
class Piece:
    """A template with variables and scores."""

    template: Template
    variables: IntArray
    negated: BoolArray
    eta_v: FloatArray


@dataclass(frozen=True)
class StressGraph:
    """A drawn graph, and how it was drawn."""

    eta: FloatArray
    pieces: list[Piece]
    scale: float
    ties: str
    mask: float = -np.inf
    """What the library sees instead of scores of ``-inf``."""
    subclass: str = "none"
    """Which of `SUBCLASSES` the factors belong to."""

    @property
    def magnitude(self) -> float:
        """Largest magnitude of the scores that forbid nothing, at least 1."""
        scores = np.concatenate([self.eta, *(p.eta_v.reshape(-1) for p in self.pieces)])
        return max(1.0, float(np.abs(scores[scores > -np.inf]).max(initial=0.0)))

    @property
    def head(self) -> str:
        """How it was drawn, in words."""
        words = f"scale {self.scale:g}, mask {self.mask:g}, ties {self.ties}"
        return words if self.subclass == "none" else f"{words}, subclass {self.subclass}"

    @property
    def kinds(self) -> list[str]:
        """The factor types of the declarations."""
        return [piece.template.kind for piece in self.pieces]

    def masked(self, mask: float) -> StressGraph:
        """Return the graph with another number in place of ``-inf``."""
        pieces = [
            Piece(p.template, p.variables, p.negated, np.where(p.eta_v == -np.inf, mask, p.eta_v))
            for p in self.pieces
        ]
        eta = np.where(self.eta == -np.inf, mask, self.eta)
        return StressGraph(eta, pieces, self.scale, self.ties, subclass=self.subclass)

    def build(self) -> FactorGraph:
        """Return the factor graph."""
        graph, seen = FactorGraph(), self.masked(self.mask)
        u = graph.variable_from(seen.eta)
        for piece in seen.pieces:
            factor = piece.template.declare(u, piece.variables, piece.negated, piece.eta_v)
            graph.add(factor).__class__ = subclass_of(type(factor), self.subclass)
        return graph

    def enumerated(self, eta_v: list[FloatArray] | None = None) -> list[judges.EnumeratedFactor]:
        """Return all factors of all declarations, without the structures that scores forbid."""
        given = [p.eta_v for p in self.pieces] if eta_v is None else eta_v
        return [
            _allowed(self.eta, piece.variables[row.places], piece.negated[row.places], row, scores)
            for piece, piece_v in zip(self.pieces, given, strict=True)
            for row, scores in zip(piece.template.rows, piece_v, strict=True)
        ]


def _allowed(
    eta: FloatArray, variables: IntArray, negated: BoolArray, row: Row, eta_v: FloatArray
) -> judges.EnumeratedFactor:
    off = eta[variables] == -np.inf
    keep = ~((row.m != negated) & off).any(axis=1)
    keep &= ~((row.n != 0.0) & (eta_v == -np.inf)).any(axis=1)
    finite = np.where(eta_v == -np.inf, 0.0, eta_v)
    return judges.EnumeratedFactor(variables, negated, row.m[keep], row.n[keep], finite)


@functools.cache
def subclass_of(factor_type: type[Factor], how: str) -> type[Factor]:
    """Return a subclass of a type as a user may write one; see `SUBCLASSES`."""
    if how == "none":
        return factor_type
    members: dict[str, Any] = {}
    if how == "level 1":
        members = {
            "solve_map": lambda self, eta_u, eta_v: factor_type.solve_map(self, eta_u, eta_v),
            "vertex": lambda self, y: factor_type.vertex(self, y),
        }
    return type(f"{factor_type.__name__}Subclass", (factor_type,), members)


# -------------------------------------------------------------------- structures of installed types


def structures_of(oracle: Oracle, tries: int = 4) -> tuple[FloatArray, FloatArray] | None:
    """Return all vertices that a type's own oracle can give, or None if that cannot be told.

    A structure of zeros and ones is the best for scores of 1 where it is on and of -1 elsewhere.
    Where there are too many such scores, or vertices are fractional, random scores are tried until
    half of them have shown nothing new. Polytopes that oracles answer with fractions of their
    parameters have corners too narrow for that: knapsacks are listed by the judges. Of additionals
    that go with the same variables, those are found that win in one of some `tries`.
    """
    factor, k = oracle.row, oracle.arity
    if type(factor).__name__ == "Knapsack":
        return judges.knapsack(np.ravel(factor.costs), float(factor.budget))
    rng = np.random.default_rng(0)
    found: dict[tuple[float, ...], int] = {}
    if k <= 12:
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=k)))
        _ask(oracle, 1e3 * corners, np.zeros((len(corners), oracle.n_additionals)), found)
    whole = all(x in (0.0, 1.0) for vertex in found for x in vertex[:k])
    if k > 12 or not whole:
        scores = rng.normal(size=(6000, k))
        _ask(oracle, scores, np.zeros((len(scores), oracle.n_additionals)), found)
        if max(found.values()) >= len(scores) // 2:
            return None
    found_m = sorted({vertex[:k] for vertex in found})
    m = np.array(found_m).reshape(len(found_m), k)
    for _ in range(tries if oracle.n_additionals else 0):  # additionals that variables leave open
        some = rng.normal(size=(len(m), oracle.n_additionals))
        _ask(oracle, 1e4 * (2.0 * m - 1.0), some, found)
    vertices = np.array(sorted(found)).reshape(len(found), oracle.size)
    return vertices[:, :k], vertices[:, k:]


def _ask(
    oracle: Oracle, eta_u: FloatArray, eta_v: FloatArray, found: dict[tuple[float, ...], int]
) -> None:
    """Add the answers to what was found, each with the number of the question that showed it."""
    for i, (u, v) in enumerate(zip(eta_u, eta_v, strict=True)):
        found.setdefault(tuple(oracle(u, v).vertex.tolist()), i)


@functools.cache
def templates_of(kind: str) -> list[Template]:
    """Return the examples of an installed type whose structures can be listed."""
    found = []
    for example in installed().factors[kind].value.examples():
        listed = [structures_of(oracle) for oracle in oracles_of(example)]
        if any(structures is None for structures in listed):
            continue
        shape = example.variables.shape
        places = slot_values(example, np.arange(np.prod(shape, dtype=np.int64)).reshape(shape))
        rows = [
            Row(places[slots_of(example, i)], *structures)
            for i, structures in enumerate(listed)
            if structures is not None
        ]
        shape_v = example.n_factors, example.n_additionals
        declare = functools.partial(again, example)
        found.append(Template(kind, int(np.prod(shape)), shape_v, rows, declare, of_example=True))
    return found


def again(
    example: Factor, u: Variables, variables: IntArray, negated: BoolArray, eta_v: FloatArray
) -> Factor:
    """Declare an example over other variables, with other scores."""
    again, shape = copy.copy(example), example.variables.shape
    view = Variables(u.graph, u.index[variables].reshape(shape), negated.reshape(shape))
    again.variables = view.without_ownership()
    if example.additionals is not None:
        again.additionals = eta_v.reshape(tuple(example.additionals.shape))
    return again


def _of_parameters(rng: np.random.Generator, extreme: bool) -> Template:
    """Draw a factor of random arity and parameters, whose structures the judges list."""
    kind, m, n, parameters = random_structures(rng, str(rng.choice(KINDS)))
    if extreme and kind == "Budget" and rng.random() < 0.3:
        m, n = judges.budget(m.shape[1], m.shape[1])
        kind, parameters = "Budget", {"budget": sys.maxsize}
        if rng.random() < 0.5:
            kind, parameters = "TopK", {"k": sys.maxsize, "exact": False}

    def declare(u: Variables, variables: IntArray, negated: BoolArray, eta_v: FloatArray) -> Factor:
        declared = Declared(kind, variables, negated, m, n, eta_v[0], parameters)
        return declared.declare(u, eta_v[0])

    size = m.shape[1]
    return Template(kind, size, (1, n.shape[1]), [Row(np.arange(size), m, n)], declare)


# -------------------------------------------------------------------- drawing


def draw_graph(seed: int, extreme: bool = False) -> StressGraph:
    """Draw a graph; some have no solution.

    With `extreme`, some have large masks, extreme scales, or counts beyond all that there is; some
    are of subclasses, or have the scores of an untrained network.
    """
    rng = np.random.default_rng(seed)
    scale, ties = float(rng.choice(SCALES)), str(rng.choice(TIES))
    subclass, more = "none", np.random.default_rng([seed, 3])  # keeps the draws of a seed
    if extreme:
        subclass = str(more.choice(SUBCLASSES, p=(0.6, 0.2, 0.2)))
        ties = UNTRAINED if more.random() < 0.15 else ties
    mask, masking = -np.inf, rng.random() if extreme else 1.0
    if masking < 0.25:
        scale, mask = float(rng.choice(ORDINARY_SCALES)), float(rng.choice(LARGE_MASKS))
    elif masking < 0.4:
        scale = float(rng.choice(EXTREME_SCALES))
    templates = list(_draw_templates(rng, extreme))
    size = sum(template.size for template in templates)
    n_variables = max(2, int(size / rng.uniform(1.0, 2.5)))
    slots = np.repeat(np.arange(n_variables), 4)
    rng.shuffle(slots)
    assignment = rng.integers(0, 2, size=n_variables).astype(np.float64)
    careless = 0.3 if rng.random() < 0.15 else 0.0  # contradictions, in some graphs
    pieces: list[Piece] = []
    for template in templates:
        variables, slots = slots[: template.size], slots[template.size :]
        if pieces and rng.random() < 0.15:
            pieces.append(_duplicate(rng, pieces[-1], n_variables, assignment))
        pieces.append(_place(rng, template, variables, assignment, careless))
    scored = [_scored(rng, piece, scale, ties) for piece in pieces]
    eta = scale * _draw_scores(rng, n_variables, ties)
    if mask > -np.inf and rng.random() < 0.5:
        eta[rng.random(n_variables) < 0.2] = -np.inf  # whatever needs them: large masks are scores
    elif mask > -np.inf or rng.random() < 0.25:
        allowed = assignment if rng.random() < 0.8 else np.zeros(n_variables)
        eta[(allowed == 0.0) & (rng.random(n_variables) < 0.15)] = -np.inf
    return StressGraph(eta, scored, scale, ties, mask, subclass)


def _draw_templates(rng: np.random.Generator, extreme: bool) -> Iterator[Template]:
    """Draw up to 6 declarations, as long as they are not too large for the judges."""
    kinds, room = sorted(installed().factors), MAX_STRUCTURES
    for _ in range(int(rng.integers(1, 7))):
        if rng.random() < 0.3:
            template = _of_parameters(rng, extreme)
        else:
            offered = templates_of(str(rng.choice(kinds)))
            if not offered:
                continue
            template = offered[int(rng.integers(len(offered)))]
        if template.n_structures <= room:
            room -= template.n_structures
            yield template


def _place(
    rng: np.random.Generator,
    template: Template,
    variables: IntArray,
    assignment: FloatArray,
    careless: float,
) -> Piece:
    """Put a template over variables, negated as an assignment needs it unless careless."""
    negated = rng.random(template.size) < 0.5
    for row in template.rows:
        whole = row.m[((row.m == 0.0) | (row.m == 1.0)).all(axis=1)]
        if len(whole) and rng.random() >= careless:
            satisfied = whole[rng.integers(len(whole))]
            negated[row.places] = assignment[variables[row.places]] != satisfied
    return Piece(template, variables, negated, np.zeros(template.shape_v))


def _duplicate(
    rng: np.random.Generator, piece: Piece, n_variables: int, assignment: FloatArray
) -> Piece:
    """Return a declaration once more, or with one slot over another variable."""
    variables, negated = piece.variables.copy(), piece.negated.copy()
    if len(variables) and rng.random() < 0.5:
        k, other = int(rng.integers(len(variables))), int(rng.integers(n_variables))
        negated[k] ^= bool(assignment[variables[k]] != assignment[other])
        variables[k] = other
    return Piece(piece.template, variables, negated, piece.eta_v)


def _scored(rng: np.random.Generator, piece: Piece, scale: float, ties: str) -> Piece:
    """Draw the additionals' scores; few are forbidden."""
    shape = piece.template.shape_v
    eta_v = scale * _draw_scores(rng, shape[0] * shape[1], ties).reshape(shape)
    if rng.random() < 0.05:
        eta_v[rng.random(shape) < 0.1] = -np.inf
    return Piece(piece.template, piece.variables, piece.negated, eta_v)


def _draw_scores(rng: np.random.Generator, n: int, ties: str) -> FloatArray:
    scores = rng.normal(size=n)
    if ties == "equal":
        return np.full(n, float(rng.integers(-1, 2)))
    if ties == "rounded":
        return np.round(scores)
    if ties == "nearly rounded":
        return np.round(scores) + 1e-9 * scores
    if ties == UNTRAINED:
        return float(rng.integers(-1, 2)) + 10.0 ** rng.uniform(-9.0, -2.0) * scores
    if ties == "uneven":
        return np.asarray(scores * 10.0 ** rng.uniform(-3.0, 0.0, size=n))
    return scores
