"""Random factors and random graphs, each with its enumerated form for the judges."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import judges
import lpsmap
from lpsmap_core import Factor, FactorGraph, Variables

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Polytope(Factor):
    """A factor of two methods over listed structures: its oracle tries them all.

    Parameters
    ----------
    variables
        One axis a factor.
    m, n
        (Y, K) variables and (Y, A) additionals of the structures; no additionals by default.
    additionals
        Scores of the additionals.
    """

    def __init__(
        self,
        variables: Variables,
        m: npt.ArrayLike,
        n: npt.ArrayLike | None = None,
        additionals: Any = None,
    ) -> None:
        super().__init__(variables, additionals)
        self.m = np.asarray(m, dtype=np.float64)
        self.n = np.zeros((len(self.m), 0)) if n is None else np.asarray(n, dtype=np.float64)

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Hashable:
        """Return the number of the best structure."""
        return int(np.argmax(self.m @ eta_u.reshape(-1) + self.n @ eta_v))

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return the structure of number y."""
        return self.m[y], self.n[y]


STATES = 2
"""States of a random sequence."""


def random_polytope(
    rng: np.random.Generator, arity: int, n_additionals: int = 0, most: int = 12
) -> tuple[FloatArray, FloatArray]:
    """Draw structures without regard to independence: some share M, some are listed twice."""
    size = int(rng.integers(1, most + 1))
    m = rng.integers(0, 2, size=(size, arity)).astype(np.float64)
    n = rng.integers(0, 2, size=(size, n_additionals)).astype(np.float64)
    again = rng.integers(0, size, size=size // 2)
    m = np.concatenate([m, m[again]])
    n = np.concatenate([n, rng.integers(0, 2, size=(len(again), n_additionals))])
    return m, n


@dataclass(frozen=True)
class Declared:
    """One factor of a random graph: how to declare it, and its enumerated structures."""

    kind: str
    variables: IntArray
    negated: BoolArray
    m: FloatArray
    n: FloatArray
    eta_v: FloatArray
    parameters: dict[str, Any]

    def declare(self, u: Variables, eta_v: Any) -> Factor:
        """Make the factor over flat variables, with these scores of its additionals."""
        view = u[self.variables]
        view = Variables(view.graph, view.index, self.negated)
        if self.kind == "Polytope":
            return Polytope(view, self.m, self.n, eta_v if self.n.size else None)
        if self.kind == "Pair":
            return lpsmap.Pair(view[0], view[1], eta_v.reshape(()))
        if self.kind == "Sequence":
            return lpsmap.Sequence(view.reshape(-1, STATES), additionals=eta_v)
        if self.kind == "DepTree":
            n = math.isqrt(len(view))
            view = view.reshape(n, n)
        factor: Factor = getattr(lpsmap, self.kind)(view, **self.parameters)
        return factor


@dataclass(frozen=True)
class RandomGraph:
    """A graph of mixed factors that some 0/1 assignment satisfies."""

    eta: FloatArray
    declared: list[Declared]

    @property
    def eta_v(self) -> list[FloatArray]:
        """Scores of every factor's additionals."""
        return [d.eta_v for d in self.declared]

    def build(
        self,
        eta: Any = None,
        eta_v: Sequence[Any] | None = None,
        graph: FactorGraph | None = None,
    ) -> tuple[FactorGraph, Variables, list[Factor]]:
        """Return a factor graph (or more of the given one), its variables and its factors."""
        graph = FactorGraph() if graph is None else graph
        u = graph.variable_from(self.eta if eta is None else eta)
        eta_v = self.eta_v if eta_v is None else eta_v
        factors = [d.declare(u, e) for d, e in zip(self.declared, eta_v, strict=True)]
        return graph, u, [graph.add(factor) for factor in factors]

    def judged(
        self, eta: FloatArray | None = None, eta_v: Sequence[FloatArray] | None = None
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the marginals of variables and additionals that the judge finds."""
        eta_v = self.eta_v if eta_v is None else eta_v
        enumerated = [
            judges.EnumeratedFactor(d.variables, d.negated, d.m, d.n, e)
            for d, e in zip(self.declared, eta_v, strict=True)
        ]
        mu, nus, _ = judges.solve_graph(self.eta if eta is None else eta, enumerated)
        return mu, nus


def all_scores(graph: RandomGraph) -> tuple[FloatArray, FloatArray]:
    """Return all assignments, and what each scores: -inf where a factor does not allow it."""
    tried = judges.binary_vectors(len(graph.eta))
    score = tried @ np.where(np.isneginf(graph.eta), 0.0, graph.eta)
    score[(tried[:, np.isneginf(graph.eta)] > 0.0).any(axis=1)] = -np.inf
    for factor in graph.declared:
        own = np.where(factor.negated, 1.0 - factor.m, factor.m)
        fits = (tried[:, None, factor.variables] == own).all(axis=2)
        score += np.where(fits, factor.n @ factor.eta_v, -np.inf).max(axis=1)
    return tried, score


KINDS = [
    "Xor",
    "Or",
    "AtMostOne",
    "Budget",
    "Exactly",
    "Knapsack",
    "Imply",
    "Nand",
    "XorOut",
    "OrOut",
    "AndOut",
    "Pair",
    "DepTree",
    "Polytope",
]


def random_graph(
    rng: np.random.Generator,
    n_factors: int = 6,
    scale: float = 1.0,
    kinds: Sequence[str] = KINDS,
    degree: int = 4,
) -> RandomGraph:
    """Draw a graph of factors of arity 1 to 6 (trees: 4 or 9) over variables of degree 0 to 4.

    Slots are negated as a drawn assignment needs it to satisfy every factor, and a variable may
    fill several slots of one factor.
    """
    drawn = [random_structures(rng, str(rng.choice(kinds))) for _ in range(n_factors)]
    n_slots = sum(m.shape[1] for _, m, _, _ in drawn)
    n_variables = max(2, int(n_slots / rng.uniform(1.2, 2.5)))
    slots = np.repeat(np.arange(n_variables), degree)
    rng.shuffle(slots)
    assignment = rng.integers(0, 2, size=n_variables).astype(np.float64)
    declared = []
    for kind, m, n, parameters in drawn:
        variables, slots = slots[: m.shape[1]], slots[m.shape[1] :]
        whole = m[(m == np.round(m)).all(axis=1)]
        satisfied = whole[rng.integers(len(whole))]
        declared.append(
            Declared(
                kind=kind,
                variables=variables,
                negated=assignment[variables] != satisfied,
                m=m,
                n=n,
                eta_v=scale * rng.normal(size=n.shape[1]),
                parameters=parameters,
            )
        )
    return RandomGraph(scale * rng.normal(size=n_variables), declared)


def random_structures(
    rng: np.random.Generator, kind: str
) -> tuple[str, FloatArray, FloatArray, dict[str, Any]]:
    """Return the type's name, structures, and parameters of a random factor."""
    k = int(rng.integers(1, 7))
    if kind in ("Budget", "Exactly"):
        most, exact = int(rng.integers(0, k + 1)), kind == "Exactly"
        m, n = judges.budget(k, most, exact=exact)
        return "Budget", m, n, {"budget": most, "force_budget": exact}
    if kind == "Knapsack":
        costs = rng.uniform(0.1, 2.0, size=k)
        most = float(rng.uniform(0.1, costs.sum()))
        return kind, *judges.knapsack(costs, most), {"costs": costs, "budget": most}
    if kind == "DepTree":
        packed, single_root = bool(rng.integers(2)), bool(rng.integers(2))
        m, n = judges.trees(int(rng.integers(2, 4)), single_root=single_root, packed=packed)
        return kind, m, n, {"packed": packed, "single_root": single_root}
    if kind == "Sequence":
        m, n = judges.sequences(int(rng.integers(2, 4)), STATES)
        return kind, m, np.hstack([m[:, :STATES], n, m[:, -STATES:]]), {}
    if kind == "Polytope":
        return kind, *random_polytope(rng, k, int(rng.integers(0, 3))), {}
    if kind == "Pair":
        return kind, *judges.pair(), {}
    structures = {
        "Xor": judges.xor,
        "Or": judges.at_least_one,
        "AtMostOne": judges.at_most_one,
        "Imply": judges.imply,
        "Nand": judges.nand,
        "XorOut": judges.xor_out,
        "OrOut": judges.or_out,
        "AndOut": judges.and_out,
    }[kind]
    return kind, *structures(k), {}
