"""Sums over all derivations: log-partition, marginals, entropy, and their derivatives.

The inside pass stores the *local* probability of every hyperedge: its probability given its head.
All other quantities are sums and products of these, without exponentials and without overflow: the
probability of an item is the sum over the hyperedges of which it is a tail (Li & Eisner 2009).
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factors, Scores, interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic.edges import (
    N_EDGES,
    N_ITEMS,
    POLL_PERIOD,
    Edges,
    edge_score,
    edges_of,
    factor_of,
    largest_of,
)
from lpsmap_dynamic.exact_sums import two_sum

PLAIN = 1e3
"""Scores up to this are summed in one float, larger ones in two, since masks would absorb other
scores."""


@leaf
def inside(
    edges: Edges,
    arity: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    total: FloatArray,
    rest: FloatArray,
    local: FloatArray,
    doubt: FloatArray,
) -> float:
    """Return the log-partition function of the goal, by a log-sum-exp for every item.

    Parameters
    ----------
    edges
        The hypergraph.
    arity, eta_u, eta_v
        The scores of the factor; -inf is allowed.
    total, rest
        Outputs for I + 1 items: the log of the summed weights of derivations, and its rounding
        error; -inf if all derivations are forbidden.
    local
        Output: for every hyperedge, its probability given its head; zeros for a head without
        derivations.
    doubt
        Output: for I + 1 items, the entropy of these probabilities.
    """
    first_edge, tails = edges.first_edge, edges.tails
    total[0] = rest[0] = 0.0
    poll_at, n_items = POLL_PERIOD, len(first_edge) - 1
    exact = has_large(eta_u) or has_large(eta_v)
    for i in range(n_items):
        first, last, most = first_edge[i], first_edge[i + 1], -np.inf
        if exact:
            most, low = _compare(edges, i, arity, eta_u, eta_v, total, rest, local)
            less = 0.0 if most > -np.inf else most
            total[i + 1], more = two_sum(most, _normalise(local, first, last, less, doubt, i + 1))
            rest[i + 1] = low + more
        else:
            for e in range(first, last):
                score = edge_score(edges, e, arity, eta_u, eta_v)
                local[e] = score + total[tails[2 * e]] + total[tails[2 * e + 1]]
                most = max(most, local[e])
            total[i + 1] = most + _normalise(local, first, last, most, doubt, i + 1)
            rest[i + 1] = 0.0
        if last > poll_at:
            poll_at += POLL_PERIOD
            if interrupted():
                local[:] = 0.0
                return -np.inf
    return total[n_items]  # type: ignore[no-any-return]


@leaf
def local_scores(
    edges: Edges,
    arity: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    total: FloatArray,
    rest: FloatArray,
    local: FloatArray,
) -> None:
    """Write the same as `inside`, but with logarithms of local probabilities.

    Their sum over a derivation is its log-probability, for scores of any size.
    """
    first_edge = edges.first_edge
    total[0] = rest[0] = 0.0
    poll_at = POLL_PERIOD
    for i in range(len(first_edge) - 1):
        first, last = first_edge[i], first_edge[i + 1]
        most, low = _compare(edges, i, arity, eta_u, eta_v, total, rest, local)
        mass = 0.0
        for e in range(first, last):
            mass += np.exp(local[e])
        more = np.log(mass) if mass > 0.0 else 0.0
        for e in range(first, last):
            local[e] -= more
        total[i + 1], more = two_sum(most, more)
        rest[i + 1] = low + more
        if last > poll_at:
            poll_at += POLL_PERIOD
            if interrupted():
                local[:] = -np.inf
                return


@leaf
def _normalise(
    local: FloatArray, first: int, last: int, most: float, doubt: FloatArray, at: int
) -> float:
    """Write probabilities for scores, and their entropy; return the logarithm of the mass.

    The mass is relative to the best. The contribution of the others has full precision even if it
    is small.
    """
    best = others = below = 0.0
    for e in range(first, last):
        if local[e] == most:
            local[e] = 1.0 if most > -np.inf else 0.0
            best += local[e]
        elif local[e] > -np.inf:
            less = local[e] - most
            local[e] = np.exp(less)
            others += local[e]
            below += local[e] * less
        else:
            local[e] = 0.0
    doubt[at], mass = 0.0, best + others
    if best <= 1.0 and others == 0.0:
        return 0.0
    log_mass: float = np.log1p(others) if mass < 1.5 else np.log(mass)
    doubt[at] = log_mass - below / mass
    for e in range(first, last):
        local[e] /= mass
    return log_mass


@leaf
def _compare(
    edges: Edges,
    item: int,
    arity: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    total: FloatArray,
    rest: FloatArray,
    local: FloatArray,
) -> tuple[float, float]:
    """Write the scores of an item's hyperedges relative to its best; return the best score.

    All scores are exact pairs of floats, so the result does not depend on their size.
    """
    first, last = edges.first_edge[item], edges.first_edge[item + 1]
    most, more = -np.inf, 0.0
    for e in range(first, last):
        high, low = _score_in_two(edges, e, arity, eta_u, eta_v, total, rest)
        if high > -np.inf and (most == -np.inf or (high - most) + (low - more) > 0.0):
            most, more = high, low
    for e in range(first, last):
        high, low = _score_in_two(edges, e, arity, eta_u, eta_v, total, rest)
        local[e] = -np.inf
        if high > -np.inf:
            local[e] = (high - most) + (low - more)
    return most, more


@leaf
def _score_in_two(
    edges: Edges,
    e: int,
    arity: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    total: FloatArray,
    rest: FloatArray,
) -> tuple[float, float]:
    """Return the score of a hyperedge including its tails, as an exact pair."""
    left, right = edges.tails[2 * e], edges.tails[2 * e + 1]
    high, low = two_sum(total[left], total[right])
    low += rest[left] + rest[right]
    for k in range(edges.first_entry[e], edges.first_entry[e + 1]):
        entry = edges.entries[k]
        high, more = two_sum(high, eta_u[entry] if entry < arity else eta_v[entry - arity])
        low += more
    return high, low


@leaf
def has_large(scores: FloatArray) -> bool:
    """Return whether a finite score exceeds `PLAIN`; counting allows vector instructions."""
    n = 0
    for score in scores:
        magnitude = abs(score)
        n += 1 if (magnitude > PLAIN) & (magnitude < np.inf) else 0
    return n > 0


@leaf
def _outside(
    edges: Edges,
    arity: int,
    local: FloatArray,
    doubt: FloatArray,
    reach: FloatArray,
    m: FloatArray,
    n: FloatArray,
) -> float:
    """Write marginals of slots and additionals; return the entropy.

    Parameters
    ----------
    edges, arity
        The hypergraph, and the number of slots.
    local, doubt
        The outputs of `inside`.
    reach
        Workspace for I + 1 items: the expected count of each in a derivation.
    m, n
        The outputs.
    """
    first_edge, tails, first_entry = edges.first_edge, edges.tails, edges.first_entry
    n_items, entropy = len(first_edge) - 1, 0.0
    m[:], n[:] = 0.0, 0.0
    reach[:n_items] = 0.0
    reach[n_items] = 1.0
    for i in range(n_items - 1, -1, -1):
        mine = reach[i + 1]
        if mine == 0.0:
            continue
        entropy += mine * doubt[i + 1]
        for e in range(first_edge[i], first_edge[i + 1]):
            share = mine * local[e]
            if share == 0.0:
                continue
            reach[tails[2 * e]] += share
            reach[tails[2 * e + 1]] += share
            for k in range(first_entry[e], first_entry[e + 1]):
                entry = edges.entries[k]
                if entry < arity:
                    m[entry] += share
                else:
                    n[entry - arity] += share
    for k in range(arity):
        m[k] = min(m[k], 1.0)
    return entropy


@leaf
def _tangent(
    edges: Edges,
    arity: int,
    local: FloatArray,
    d_u: FloatArray,
    d_v: FloatArray,
    d_total: FloatArray,
    d_local: FloatArray,
) -> None:
    """Write the tangents of totals and local probabilities along a direction of the scores."""
    first_edge, tails = edges.first_edge, edges.tails
    d_total[0] = 0.0
    for i in range(len(first_edge) - 1):
        first, last, mean = first_edge[i], first_edge[i + 1], 0.0
        for e in range(first, last):
            if local[e] > 0.0:
                change = edge_score(edges, e, arity, d_u, d_v)
                d_local[e] = change + d_total[tails[2 * e]] + d_total[tails[2 * e + 1]]
                mean += local[e] * d_local[e]
        d_total[i + 1] = mean
        for e in range(first, last):
            d_local[e] = local[e] * (d_local[e] - mean) if local[e] > 0.0 else 0.0


@leaf
def _outside_tangent(
    edges: Edges,
    arity: int,
    local: FloatArray,
    d_local: FloatArray,
    reach: FloatArray,
    d_reach: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Write the tangents of the marginals, the derivative of `_outside`."""
    first_edge, tails, first_entry = edges.first_edge, edges.tails, edges.first_entry
    n_items = len(first_edge) - 1
    out_u[:], out_v[:] = 0.0, 0.0
    for i in range(n_items):
        reach[i], d_reach[i] = 0.0, 0.0
    reach[n_items], d_reach[n_items] = 1.0, 0.0
    for i in range(n_items - 1, -1, -1):
        mine, change = reach[i + 1], d_reach[i + 1]
        for e in range(first_edge[i], first_edge[i + 1]):
            if local[e] == 0.0:
                continue
            share, d_share = mine * local[e], change * local[e] + mine * d_local[e]
            reach[tails[2 * e]] += share
            reach[tails[2 * e + 1]] += share
            d_reach[tails[2 * e]] += d_share
            d_reach[tails[2 * e + 1]] += d_share
            for k in range(first_entry[e], first_entry[e + 1]):
                entry = edges.entries[k]
                if entry < arity:
                    out_u[entry] += d_share
                else:
                    out_v[entry - arity] += d_share


@kernel
def beliefs_of(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    log_partition: FloatArray,
    entropy: FloatArray,
    m: FloatArray,
    n: FloatArray,
    remainder: FloatArray,
) -> None:
    """Write log-partition functions, entropies and marginals of the factors in `rows`.

    If every structure of a factor is forbidden, the log-partition function is -inf, and the other
    outputs are zero.
    """
    offsets, extra = factors.offsets, factors.additional_offsets
    n_items, n_edges = largest_of(rows, factors, N_ITEMS), largest_of(rows, factors, N_EDGES)
    total, reach, doubt = np.empty(n_items + 1), np.empty(n_items + 1), np.empty(n_items + 1)
    rest, local = np.empty(n_items + 1), np.empty(n_edges)
    for r in rows:
        edges, eta_u, eta_v = factor_of(r, factors, scores)
        m_r, n_r = m[offsets[r] : offsets[r + 1]], n[extra[r] : extra[r + 1]]
        log_partition[r] = inside(edges, len(eta_u), eta_u, eta_v, total, rest, local, doubt)
        remainder[r] = rest[len(edges.first_edge) - 1]
        entropy[r] = _outside(edges, len(eta_u), local, doubt, reach, m_r, n_r)


@kernel
def hessian_products(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    d_u: FloatArray,
    d_v: FloatArray,
    out_u: FloatArray,
    out_v: FloatArray,
) -> None:
    """Write the tangents of the marginals of the factors in `rows` along a direction.

    These are products with the Hessian of the log-partition function, the covariance of structures,
    by forward differentiation of both passes.
    """
    offsets, extra = factors.offsets, factors.additional_offsets
    n_items, n_edges = largest_of(rows, factors, N_ITEMS), largest_of(rows, factors, N_EDGES)
    total, d_total, d_reach = np.empty(n_items + 1), np.empty(n_items + 1), np.empty(n_items + 1)
    local, d_local = np.empty(n_edges), np.empty(n_edges)
    for r in rows:
        edges = edges_of(factors.integers, factors.integer_ranges[r, 0])
        u, v = slice(offsets[r], offsets[r + 1]), slice(extra[r], extra[r + 1])
        eta_u, eta_v = scores.eta_u[u], scores.eta_v[v]
        inside(edges, len(eta_u), eta_u, eta_v, total, d_reach, local, d_total)
        _tangent(edges, len(eta_u), local, d_u[u], d_v[v], d_total, d_local)
        _outside_tangent(edges, len(eta_u), local, d_local, total, d_reach, out_u[u], out_v[v])
