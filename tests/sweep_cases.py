"""Graphs of the sweep: every installed factor type at any size, alone and beside other types.

A graph is drawn from its type, its size and a seed. Seeds go through the companies and the states
of the scores in turn, so that a few of them cover both.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import lpsmap
from lpsmap_core import Factor, FactorGraph, Solution, Variables
from lpsmap_core.api import cached_property, slot_values, slots_of
from lpsmap_core.plugins.registry import installed
from lpsmap_core.testing.oracle import oracles_of
from stress_graphs import MAX_STRUCTURES, Piece, Row, StressGraph, Template, again, structures_of

__all__ = ["Case", "kinds"]

FloatArray = npt.NDArray[np.float64]
Draw = Callable[..., FloatArray]

COMPANIES = ("columns", "alone", "pairs", "budget")
"""What shares the variables: a factor a column, nothing, all neighbours in pairs, one large sum."""

STATES = (
    "normal",
    "rounded",
    "scaled up",
    "-inf",
    "equal",
    "scaled down",
    "-1e9",
    "nearly equal",
    "nearly zero",
)
"""How scores are drawn; the last two as by an untrained network."""


SCALES = {"scaled up": 1e6, "scaled down": 1e-6, "nearly zero": 0.01}
"""By state, if not 1."""


class Kind(NamedTuple):
    """How graphs of a type are declared."""

    shape: Callable[[int], tuple[int, ...]]
    """Of the variables, for a size."""
    make: Callable[[Variables, Draw], Factor]
    """Declares the factors, and draws scores of their additionals."""
    column: int | None = None
    """How many variables of a column may be on beside them; None for a number that can be kept."""


def _square(n: int) -> tuple[int, ...]:
    return n, n


def _chain(n: int) -> tuple[int, ...]:
    return n, 2 + n // 10


def _segments(n: int) -> tuple[int, ...]:
    return n, min(n, 4), 2 + n // 50


def _grid(n: int) -> tuple[int, ...]:
    return n, n, 3


def _quarter(u: Variables) -> int:
    return max(1, u.shape[-1] // 4)


def _logic(make: Callable[[Variables, Draw], Factor]) -> Kind:
    return Kind(_square, make, column=1)


def _costs(u: Variables) -> FloatArray:
    return np.linspace(0.2, 2.0, u.shape[-1])


def _steps(u: Variables, draw: Draw) -> FloatArray:
    return draw(u.shape[-1], u.shape[-1])


KINDS = {
    "Alignment": Kind(_square, lambda u, draw: lpsmap.Alignment(u)),
    "AndOut": _logic(lambda u, draw: lpsmap.AndOut(u)),
    "AtMostOne": _logic(lambda u, draw: lpsmap.AtMostOne(u)),
    "BinaryTree": Kind(_square, lambda u, draw: lpsmap.BinaryTree(u)),
    "Bits": _logic(lambda u, draw: lpsmap.Bits(u)),
    "Budget": _logic(lambda u, draw: lpsmap.Budget(u, _quarter(u))),
    "DMVTree": Kind(
        _square,
        lambda u, draw: getattr(lpsmap, "DMVTree")(u, draw(u.shape[-1], 2, 2, 2)),  # noqa: B009
    ),
    "Dense": Kind(_grid, lambda u, draw: lpsmap.Dense([u[:, :-1], u[:, 1:]], draw(3, 3))),
    "DepTree": Kind(_square, lambda u, draw: lpsmap.DepTree(u)),
    "DepTree projective": Kind(_square, lambda u, draw: lpsmap.DepTree(u, projective=True)),
    "DepTree single root": Kind(_square, lambda u, draw: lpsmap.DepTree(u, single_root=True)),
    "HeadAutomaton": Kind(
        lambda n: (4, n),
        lambda u, draw: lpsmap.HeadAutomaton(u, draw(u.shape[-1] + 1, u.shape[-1] + 1)),
    ),
    "Imply": _logic(lambda u, draw: lpsmap.Imply(u)),
    "Knapsack": _logic(lambda u, draw: lpsmap.Knapsack(u, _costs(u), _costs(u).sum() / 4)),
    "Matching": Kind(_square, lambda u, draw: lpsmap.Matching(u), column=1),
    "Matching none": Kind(_square, lambda u, draw: lpsmap.Matching(u, full="none"), column=1),
    "ModifierBudget": Kind(_square, lambda u, draw: getattr(lpsmap, "ModifierBudget")(u, 2)),  # noqa: B009
    "Nand": _logic(lambda u, draw: lpsmap.Nand(u)),
    "Or": _logic(lambda u, draw: lpsmap.Or(u)),
    "OrOut": _logic(lambda u, draw: lpsmap.OrOut(u)),
    "Pair": _logic(
        lambda u, draw: lpsmap.Pair(u[:, :-1], u[:, 1:], draw(len(u), u.shape[1] - 1)),
    ),
    "Permutation": Kind(_square, lambda u, draw: lpsmap.Permutation(u)),
    "Potts": Kind(
        _grid,
        lambda u, draw: lpsmap.Potts(u[:, :-1], u[:, 1:], draw(len(u), u.shape[1] - 1)),
    ),
    "SemiMarkov": Kind(_segments, lambda u, draw: lpsmap.SemiMarkov(u, _steps(u, draw))),
    "Sequence": Kind(_chain, lambda u, draw: lpsmap.Sequence(u, _steps(u, draw))),
    "SequenceBudget": Kind(
        _chain, lambda u, draw: lpsmap.SequenceBudget(u, _steps(u, draw), len(u) // 3)
    ),
    "SequenceDistance": Kind(_chain, lambda u, draw: lpsmap.SequenceDistance(u, draw(7))),
    "SequenceSpans": Kind(
        _chain, lambda u, draw: lpsmap.SequenceSpans(u, _steps(u, draw), min(len(u), 9) // 3, 2, 2)
    ),
    "TopK": Kind(_square, lambda u, draw: lpsmap.TopK(u, _quarter(u))),
    "Xor": _logic(lambda u, draw: lpsmap.Xor(u)),
    "XorOut": _logic(lambda u, draw: lpsmap.XorOut(u)),
}
"""Every type of the packs, some in several ways: the first word is the type's name."""


def kinds() -> list[str]:
    """Return the ways of all installed types; a type that has none yet is an error."""
    types = set(installed().factors)
    unknown = types - {name.split()[0] for name in KINDS}
    if unknown:
        raise LookupError(f"sweep_cases.KINDS does not declare {', '.join(sorted(unknown))}")
    return [name for name in KINDS if name.split()[0] in types]


class Case:
    """A drawn graph, and the solutions that verbs begin with."""

    def __init__(self, kind: str, size: int, seed: int) -> None:
        self.kind, self.size, self.seed = kind, size, seed
        self.company = COMPANIES[seed % len(COMPANIES)]
        self.state = STATES[(seed + seed // len(COMPANIES)) % len(STATES)]
        self.rng = np.random.default_rng([zlib.crc32(kind.encode()), size, seed])
        self.graph = FactorGraph()
        self.eta = self._draw(*KINDS[kind].shape(size), mask=True)
        self.u = self.graph.variable_from(self.eta)
        self.factor = self.graph.add(KINDS[kind].make(self.u, self._draw))
        self._accompany()

    def __repr__(self) -> str:
        return f"{self.kind} {self.size}, seed {self.seed} ({self.company}, {self.state})"

    @cached_property
    def solution(self) -> Solution:
        """The marginals, as far as a few seconds go."""
        return self.graph.solve(max_time=PREPARED)

    @cached_property
    def relaxed(self) -> Solution:
        """LP-MAP, as far as a few seconds go."""
        found = self.graph.solve_map(max_time=PREPARED)
        assert isinstance(found, Solution)
        return found

    def other_scores(self) -> FloatArray:
        """Return other scores of the variables."""
        return self._draw(*self.eta.shape, mask=True)

    def _draw(self, *shape: int, mask: bool = False) -> FloatArray:
        scores = self.rng.normal(size=shape)
        if self.state == "rounded":
            return np.round(scores)
        if self.state == "equal":
            return np.full(shape, 1.0)
        if self.state == "nearly equal":
            return 1.0 + 1e-7 * scores
        if mask and self.state in ("-inf", "-1e9"):
            return np.where(self.rng.random(shape) < 0.15, float(self.state), scores)
        return scores * SCALES.get(self.state, 1.0)

    def _accompany(self) -> None:
        """Add the factors that share the variables."""
        u, graph = self.u, self.graph
        flat = u.reshape(-1)
        if self.kind in ("Dense", "Potts") and self.company == "columns":  # a grid
            scores = self._draw(u.shape[0] - 1, u.shape[1])
            graph.add(lpsmap.Potts(u[:-1], u[1:], scores))
        elif self.company == "columns":
            rows = u.reshape(len(u), -1)
            most = KINDS[self.kind].column or len(u) // 2 + 1
            one = lpsmap.AtMostOne(rows, axis=0)
            graph.add(one if most == 1 else lpsmap.Budget(rows, most, axis=0))
        elif self.company == "pairs":
            graph.add(lpsmap.Pair(flat[:-1], flat[1:], self._draw(flat.size - 1)))
        elif self.company == "budget":
            graph.add(lpsmap.Budget(flat, max(2 * self.size, flat.size // 3)))

    def enumerated(self) -> StressGraph | None:
        """Return the graph with all structures of its factors, if they can be listed."""
        pieces, room = [], MAX_STRUCTURES
        for factor, scores in zip(self.graph.factors, self._additionals(), strict=True):
            rows = []
            numbers = np.arange(factor.variables.size).reshape(factor.variables.shape)
            places = slot_values(factor, numbers)
            for i, oracle in enumerate(oracles_of(factor)):
                listed = structures_of(oracle) if oracle.arity <= MAX_SLOTS else None
                room -= MAX_STRUCTURES + 1 if listed is None else len(listed[0])
                if listed is None or room < 0:
                    return None
                rows.append(Row(places[slots_of(factor, i)], *listed))
            template = Template(
                self.kind.split()[0] if factor is self.factor else type(factor).__name__,
                numbers.size,
                (factor.n_factors, factor.n_additionals),
                rows,
                functools.partial(again, factor),
                of_example=True,
            )
            variables, negated = factor.variables.index, factor.variables.negated
            pieces.append(Piece(template, variables.reshape(-1), negated.reshape(-1), scores))
        scale = SCALES.get(self.state, 1.0)
        ties = "none" if self.state not in ("rounded", "equal", "nearly equal") else self.state
        mask = float(self.state) if self.state.startswith("-") else -np.inf
        eta = np.where(self.eta == mask, -np.inf, self.eta).reshape(-1)
        return StressGraph(eta, pieces, scale, ties, mask)

    def _additionals(self) -> list[FloatArray]:
        """Return the additionals' scores of every declaration, a row a factor."""
        found = []
        for factor in self.graph.factors:
            shape = factor.n_factors, factor.n_additionals
            scores = np.zeros(shape) if factor.additionals is None else factor.additionals
            found.append(np.array(scores, dtype=np.float64).reshape(shape))
        return found


PREPARED = 5.0
"""Seconds that the solutions may take with which verbs begin."""

MAX_SLOTS = 12
"""Of a factor whose structures are listed."""
