"""Random trees of factors, and sums over their assignments by enumeration."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from lpsmap import (
    AndOut,
    AtMostOne,
    Bits,
    Budget,
    Dense,
    DepTree,
    FactorGraph,
    Imply,
    Or,
    OrOut,
    Pair,
    Sequence,
    TopK,
    Xor,
    XorOut,
)
from lpsmap_core.testing.oracle import oracles_of
from stress_graphs import structures_of

__all__ = ["Listed", "enumerate_graph", "random_forest"]

ROWS = (Xor, XorOut, AtMostOne, Or, Imply, OrOut, AndOut, Bits)


class Listed(NamedTuple):
    """Sums over all assignments of a graph, by their definition."""

    log_partition: float
    entropy: float
    m: np.ndarray
    n: list[np.ndarray]
    points: np.ndarray
    """The allowed assignments of all variables."""
    extras: list[np.ndarray]
    """Their additionals, for every declaration."""
    log_p: np.ndarray


def random_forest(
    rng: np.random.Generator, graph: Any, scores: Any, draw: Any, n_factors: int = 5
) -> Any:
    """Add variables with scores and random factors to a graph, as trees; return the variables.

    Parameters
    ----------
    rng
        The generator of the factors.
    graph
        An empty graph.
    scores
        Scores of at least ``1 + 4 * n_factors`` variables.
    draw
        A function of a shape that returns scores of additionals.
    n_factors
        The number of factors.
    """
    u, used = graph.variable_from(scores), 0
    for number in range(n_factors):
        own = int(rng.integers(1, 4))
        index = np.arange(used, used + own)
        if used and rng.random() < 0.85:
            index = rng.permutation(np.append(index, rng.integers(used)))
        used += own
        view = u[index] ^ (rng.random(len(index)) < 0.3)
        graph.add(_random_factor(rng, view, draw, number))
    return u


def _random_factor(rng: np.random.Generator, view: Any, draw: Any, number: int) -> Any:
    k = len(view)
    kind = int(rng.integers(5))
    if kind == 0 and k == 2:
        return Pair(view[0], view[1], draw(()))
    if kind == 1 and k == 4:
        return DepTree(view.reshape(2, 2), projective=bool(number % 2))
    if kind == 2:
        return Budget(view, 1 + number % 2) if number % 3 else TopK(view, 1, exact=False)
    if kind == 3 and k == 4:
        return Sequence(view.reshape(2, 2), draw((2, 2)))
    if kind == 4 and k > 1:
        return Dense([view[:1], view[1:]], draw((1, k - 1)))
    return ROWS[int(rng.integers(len(ROWS)))](view)


def enumerate_graph(graph: FactorGraph) -> Listed:
    """Return the Gibbs distribution of a connected or unconnected graph, variable by variable."""
    eta = graph.flat_scores()
    inside = np.zeros(len(eta), dtype=bool)
    tables = []
    for d, factor in enumerate(graph.factors):
        eta_v = graph.additional_scores(factor)
        for i, oracle in enumerate(oracles_of(factor)):
            listed = structures_of(oracle)
            assert listed is not None
            keep = np.arange(factor.offsets[i], factor.offsets[i + 1])
            slots = factor.variables.index.reshape(-1)[keep]
            negated = factor.variables.negated.reshape(-1)[keep]
            inside[slots] = True
            structures = {
                tuple(np.where(negated, 1.0 - m, m)): n for m, n in zip(*listed, strict=True)
            }
            tables.append((d, i, slots, eta_v[i], structures))
    chosen = np.flatnonzero(inside)
    scores, points, extras = [], [], []
    for bits in itertools.product((0.0, 1.0), repeat=len(chosen)):
        x = np.zeros(len(eta))
        x[chosen] = bits
        extra = [np.zeros((f.n_factors, f.n_additionals)) for f in graph.factors]
        score = sum(eta[x == 1.0])
        for d, i, slots, eta_v, structures in tables:
            n = structures.get(tuple(x[slots]))
            if n is None:
                break
            extra[d][i] = n
            score += (n * np.where(n != 0.0, eta_v, 0.0)).sum()
        else:
            scores.append(score)
            points.append(x)
            extras.append(extra)
    top = max(scores, default=-np.inf)
    if top == -np.inf:
        none = np.zeros((0, len(eta)))
        return Listed(-np.inf, 0.0, np.zeros(len(eta)), [], none, [], np.empty(0))
    weight = np.exp(np.array(scores) - top)
    p = weight / weight.sum()
    entropy = -(p * np.log(np.where(p > 0.0, p, 1.0))).sum()
    each = [np.array(x) for x in zip(*extras, strict=True)]
    n = [np.tensordot(p, x, axes=1) for x in each]
    log_z = top + np.log(weight.sum())
    log_p = np.array(scores) - log_z
    return Listed(log_z, entropy, p @ np.array(points), n, np.array(points), each, log_p)
