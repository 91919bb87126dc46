"""Checks in a factor graph: negation, forbidden variables, sharp scores, distributions."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.status import Status
from lpsmap_core.graph import FactorGraph
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import flipped_slots, placed_slots, slot_values, slots_of
from lpsmap_core.model.variables import Variables
from lpsmap_core.solution.solution import Solution
from lpsmap_core.testing.draws import DRAWS, HUGE, limits, random_scores
from lpsmap_core.testing.oracle import Oracle, oracles_of, vertices_seen
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import BoolArray, FloatArray

CLOSE = 1e-7
"""Allowed error of marginals, as a multiple of 1 and the summed magnitudes of scores."""


class Declared(NamedTuple):
    """Copies of a declaration in one graph, each over separate variables.

    Attributes
    ----------
    scores
        (draws, slots) scores of the slots.
    negated
        (draws, slots) flags of the slots over negated variables.
    eta_v
        (draws, factors, additionals) scores.
    """

    graph: FactorGraph
    factors: Sequence[Factor]
    scores: FloatArray
    negated: BoolArray
    eta_v: FloatArray

    def solve(self) -> tuple[Solution, FloatArray, FloatArray]:
        """Return the solution, and the (draws, ...) marginals of slots and of additionals."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # checks read the status instead
            try:
                solution = self.graph.solve()
            except ValueError as error:
                raise broken(
                    "a solve accepts the type's oracle and vertices, because it validates them and "
                    "depends on them",
                    str(error),
                    "a solution",
                    repr(self.factors[0]),
                ) from error
        mu = np.array([slot_values(f, self.graph.value_of(f.variables)) for f in self.factors])
        return solution, mu, np.array(solution.additionals).reshape(self.eta_v.shape)

    def where(self, oracle: Oracle, draw: int) -> str:
        """Describe a factor and its scores for a message."""
        slots = slots_of(oracle.factor, oracle.i)
        scores = np.append(self.scores[draw, slots], self.eta_v[draw, oracle.i])
        negated = np.flatnonzero(self.negated[draw, slots]).tolist()
        return oracle.where(scores) + (f", slots {negated} negated" if negated else "")


def declared_again(
    factor: Factor, scores: FloatArray, eta_v: FloatArray, flip: BoolArray | None = None
) -> Declared:
    """Declare a factor again over new variables, once for each draw of scores.

    Parameters
    ----------
    factor
        A declaration. Negations of its type are kept.
    scores
        (draws, slots) scores of the slots; ``inf`` forces a negated slot.
    eta_v
        (draws, factors, additionals) scores.
    flip
        (draws, slots) flags of slots to negate in addition.
    """
    graph = FactorGraph()
    flip = np.zeros(scores.shape, dtype=bool) if flip is None else flip
    negated = slot_values(factor, factor.variables.negated) ^ flip
    u = graph.variable_from(
        np.array([placed_slots(factor, x) for x in np.where(negated, 1.0 - scores, scores)])
    )
    factors = []
    for draw in range(len(scores)):
        again = copy.copy(factor)
        flags = factor.variables.negated ^ placed_slots(factor, flip[draw])
        again.variables = Variables(graph, u.index[draw], flags).without_ownership()
        if factor.additionals is not None:
            again.additionals = eta_v[draw].reshape(tuple(factor.additionals.shape))
        factors.append(graph.add(again))
    return Declared(graph, factors, scores, negated, eta_v)


def _draw(
    factor: Factor, rng: np.random.Generator, draws: int, decades: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Draw (draws, slots) scores of variables and (draws, factors, additionals) scores."""
    n, extra = int(factor.offsets[-1]), factor.n_factors * factor.n_additionals
    scores = random_scores(rng, draws, n + extra, decades)
    return scores[:, :n].copy(), scores[:, n:].reshape(draws, factor.n_factors, -1)


def check_negation(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Slots over ``~u`` are solved like slots over u with equivalent scores.

    Core applies negation, and a type must not apply it again. Many draws have tied scores.
    """
    rng = np.random.default_rng(seed)
    scores, eta_v = _draw(factor, rng, draws)
    flip = rng.random(scores.shape) < 0.5
    _, plain, _ = declared_again(factor, scores, eta_v).solve()
    negated = declared_again(factor, scores, eta_v, flip)
    _, flipped, _ = negated.solve()
    for oracle in oracles_of(factor):
        slots = slots_of(factor, oracle.i)
        for draw in range(draws):
            x, y = flipped[draw, slots], plain[draw, slots]
            allowed = CLOSE * (1.0 + np.abs(scores[draw, slots]).sum())
            if not np.abs(x - y).max(initial=0.0) <= allowed:
                raise broken(
                    "slots over ~u are solved like slots over u with equivalent scores, because "
                    "core negates scores and solutions outside the type",
                    f"marginals of the slots {x.tolist()}",
                    f"{y.tolist()}, as without negation",
                    negated.where(oracle, draw),
                )


def check_forbidden_scores(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """-inf switches a variable off, and the solution is that of the remaining structures."""
    rng = np.random.default_rng(seed)
    scores, eta_v = _draw(factor, rng, draws)
    flip = rng.random(scores.shape) < 0.5
    off, on = np.zeros(scores.shape, dtype=bool), np.zeros(scores.shape, dtype=bool)
    oracles = oracles_of(factor)
    for oracle in oracles:
        seen, slots = vertices_seen(oracle, rng, draws), slots_of(factor, oracle.i)
        for draw in range(draws):
            vertex = seen[rng.integers(len(seen)), : oracle.arity]
            off[draw, slots], on[draw, slots] = limits(rng, vertex)
    flip = np.where(off, False, np.where(on, True, flip)) ^ slot_values(
        factor, factor.variables.negated
    )
    limited = np.where(off, -np.inf, np.where(on, np.inf, scores))
    graph = declared_again(factor, limited, eta_v, flip)
    _, mu, nu = graph.solve()
    huge = HUGE * (1.0 + np.abs(scores).max(initial=0.0) + np.abs(eta_v).max(initial=0.0))
    for oracle in oracles:
        slots = slots_of(factor, oracle.i)
        for draw in range(draws):
            m, free = mu[draw, slots], ~(off | on)[draw, slots]
            slope, eta = (scores[draw, slots] - m) * free, eta_v[draw, oracle.i]
            with_limits = slope + huge * (1.0 * on[draw, slots] - off[draw, slots])
            best = oracle(with_limits, eta).score(slope, eta)
            score = float(slope @ m + eta @ nu[draw, oracle.i])
            obeys = not m[off[draw, slots]].any() and (m[on[draw, slots]] > 1.0 - 1e-12).all()
            allowed = CLOSE * (1.0 + np.abs(scores[draw, slots]).sum() + np.abs(eta).sum())
            if not (obeys and abs(best - score) <= allowed):
                raise broken(
                    "a variable of score -inf is off (a negated slot: on), and the others have "
                    "the best marginals among the remaining structures, because masks use -inf",
                    f"marginals of the slots {m.tolist()}, of score {score:.10g} under their slope",
                    f"0 where eta_u is -inf, 1 where it is inf, and the score {best:.10g} of the "
                    "best remaining structure",
                    graph.where(oracle, draw),
                )


def check_contradictory_scores(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """If every variable is forced, the structure with these values is found, or its absence."""
    rng = np.random.default_rng(seed)
    scores, eta_v = _draw(factor, rng, draws)
    on = rng.random(scores.shape) < 0.5
    flip = on ^ slot_values(factor, factor.variables.negated)
    graph = declared_again(factor, np.where(on, np.inf, -np.inf), eta_v, flip)
    solution, mu, _ = graph.solve()
    for oracle in oracles_of(factor):
        slots = slots_of(factor, oracle.i)
        for draw, again in enumerate(graph.factors):
            if oracle.arity == 0:
                continue  # without variables a factor has no component
            point: FloatArray = on[draw, slots].astype(np.float64)
            component = _component(again, solution, slots)
            best = oracle(HUGE * (2.0 * point - 1.0), np.zeros(factor.n_additionals))
            exists = np.array_equal(best.vertex[: oracle.arity], point)
            status = solution.status[component]
            found = status.ok and np.array_equal(mu[draw, slots], point)
            if not (found if exists else status is Status.INFEASIBLE):
                raise broken(
                    "if -inf leaves one structure, a solve returns it, and if it leaves none, the "
                    "status is INFEASIBLE, because users act on the status",
                    f"{status.name}, marginals of the slots {mu[draw, slots].tolist()}",
                    f"{point.tolist()}" if exists else "INFEASIBLE",
                    graph.where(oracle, draw),
                )


def _component(factor: Factor, solution: Solution, slots: slice) -> int:
    """Return the component of some slots of a declaration."""
    return int(solution.layout.component[slot_values(factor, factor.variables.index)[slots][0]])


def check_sharp_scores(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """At a large scale of the scores the marginals are the best structure: LP-MAP is MAP.

    With scores ``t eta``, SparseMAP is at most ``||m||^2 / (2 t)`` below the best structure.
    """
    rng = np.random.default_rng(seed)
    scores, eta_v = _draw(factor, rng, draws, decades=0.5)
    sharpness = 1e6
    graph = declared_again(factor, sharpness * scores, sharpness * eta_v)
    _, mu, nu = graph.solve()
    for oracle in oracles_of(factor):
        slots = slots_of(factor, oracle.i)
        for draw in range(draws):
            eta_u, eta = scores[draw, slots], eta_v[draw, oracle.i]
            best = oracle(eta_u, eta)
            score = float(eta_u @ mu[draw, slots] + eta @ nu[draw, oracle.i])
            allowed = oracle.arity / sharpness + 1e-9 * (np.abs(eta_u).sum() + np.abs(eta).sum())
            if not abs(best.score(eta_u, eta) - score) <= allowed:
                raise broken(
                    "at a large scale of the scores the marginals of a single factor are its best "
                    "structure, because the quadratic term is negligible",
                    f"marginals {mu[draw, slots].tolist()} of score {score:.10g}",
                    f"{best.vertex.tolist()} of score {best.score(eta_u, eta):.10g}",
                    graph.where(oracle, draw),
                )


def check_distribution(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Structures have positive probabilities of sum 1 whose mean is the marginals."""
    rng = np.random.default_rng(seed)
    draws = min(draws, DRAWS)  # structures are Python objects
    scores, eta_v = _draw(factor, rng, draws)
    flip = rng.random(scores.shape) < 0.3
    graph = declared_again(factor, scores, eta_v, flip)
    solution, mu, nu = graph.solve()
    oracles = oracles_of(factor)
    for draw, again in enumerate(graph.factors):
        for oracle, distribution in zip(oracles, solution.structures(again), strict=True):
            if oracle.arity == 0:
                continue  # without variables a factor has neither component nor distribution
            p, slots = distribution.probabilities, slots_of(factor, oracle.i)
            m = np.array([_slots_of(again, oracle, s.variables) for s in distribution])
            n = np.array([np.ravel(s.additionals) for s in distribution]).reshape(len(p), -1)
            error = np.abs(p @ m - mu[draw, slots]).max(initial=0.0)
            error_v = np.abs(p @ n - nu[draw, oracle.i]).max(initial=0.0)
            allowed = CLOSE * (1.0 + np.abs(scores[draw, slots]).sum())
            if not ((p > 0).all() and abs(p.sum() - 1.0) < 1e-9 and max(error, error_v) <= allowed):
                raise broken(
                    "a factor's structures have positive probabilities of sum 1, and their mean is "
                    "its marginals, because marginals are a mixture of structures",
                    f"probabilities {p.tolist()} of {m.tolist()}, additionals {n.tolist()}",
                    f"a mean of {mu[draw, slots].tolist()} and {nu[draw, oracle.i].tolist()}",
                    graph.where(oracle, draw),
                )


def _slots_of(factor: Factor, oracle: Oracle, variables: FloatArray) -> FloatArray:
    """Return the variables of a structure that users see as flat slots of the type's methods."""
    if factor.keep is not None and variables.size != oracle.arity:
        keep = factor.keep.reshape(factor.n_factors, *factor.event_shape)[oracle.i]
        variables = variables[keep]
    flat = np.ravel(variables)
    flipped = flipped_slots(factor)
    if flipped is None:
        return flat
    return np.where(flipped[slots_of(factor, oracle.i)], 1.0 - flat, flat)
