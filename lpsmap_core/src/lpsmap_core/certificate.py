"""How far a solution can be from the true one: optimality conditions checked by the MAP oracles.

Write the problem with a copy ``x_l = mu_v / delta_v`` of every variable on each of its links. For
link duals lambda that sum to zero over the links of every variable, the maximum F* is at most the
sum of the factors' own maxima of

    phi_f(x, v) = <eta / delta + lambda, x> + <eta_N, v> - 1/2 ||x||^2.

At any point (z, v) of the factors' polytopes one call of the MAP oracle bounds each of them: with
``g_f = max_y <eta / delta + lambda - z, w_y - z> + <eta_N, n_y - v>``, phi_f is nowhere larger than
``phi_f(z, v) + g_f``, and at the copies of the true mu* it is smaller by ``1/2 ||z - C mu*||^2`` at
least. What is needed besides is a point whose copies agree; see docs/numerics.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.active_set import ActiveSets
from lpsmap_core.state import PartState, sums

__all__ = ["Optimality", "check_optimality"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Optimality(NamedTuple):
    """What is left of the optimality conditions in every component of a part."""

    violation: FloatArray
    """Sum of the g_f: by how much structures outside the solution's beat it."""
    excess: FloatArray
    """Sum of ``phi_f(z) - phi_f(C mu)`` at the means mu of the copies z."""
    disagreement: FloatArray
    """||z - C mu||"""
    largest: FloatArray
    """Largest disagreement of a copy, in units of marginals."""
    size: FloatArray
    """Summed magnitudes of the terms of the g_f, at least 1: their rounding is a multiple of it."""


def check_optimality(state: PartState) -> Optimality:
    """Hold a part's last local solutions and duals against the oracles of its factors."""
    part, problem = state.part, state.problem
    owner, n = part.component[part.link_variable], part.n_components
    dual = _centred_duals(state)
    eta = problem.iterate.eta[part.link_variable]
    a = part.sign * (eta / part.delta + dual) + part.shift
    z = problem.iterate.z
    violation, size = np.zeros(n), np.ones(n)
    for b, bucket in enumerate(part.buckets):
        links = state.links_of(b)
        gaps, sizes = _gaps(state, b, a[links], z[links], eta[links] <= -problem.huge)
        violation += sums(bucket.component, np.maximum(gaps, 0.0), n)
        size += sums(bucket.component, sizes, n)
    copies = part.sign * z + part.shift
    x = (state.marginals() / part.root_degree)[part.link_variable]
    difference = copies - x
    slope = np.where(difference == 0.0, 0.0, eta / part.delta + dual - 0.5 * (copies + x))
    largest = np.zeros(n)
    np.maximum.at(largest, owner, part.delta * np.abs(difference))
    return Optimality(
        violation=violation,
        excess=sums(owner, slope * difference, n),
        disagreement=np.sqrt(sums(owner, difference**2, n)),
        largest=largest,
        size=size,
    )


def _centred_duals(state: PartState) -> FloatArray:
    """Return the duals in the order of the slots, their sums over every variable made zero."""
    part, dual = state.part, state.problem.iterate.dual
    starts, degree = part.variable_offsets[:-1], np.diff(part.variable_offsets)
    mean = np.add.reduceat(dual, starts) / degree
    out = np.empty(part.n_links)
    out[part.variable_links] = dual - np.repeat(mean, degree)
    return out


def _gaps(
    state: PartState, b: int, a: FloatArray, z: FloatArray, forced: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return g_f of the factors of a bucket, and the summed magnitudes of its terms."""
    part, bucket = state.part, state.part.buckets[b]
    delta = part.delta[state.links_of(b)]
    additionals = state.additionals_of(b)
    eta_v, v = state.problem.extras.eta[additionals], state.problem.extras.v[additionals]
    of_link = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.offsets))
    of_additional = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.additional_offsets))

    def total(of_links: FloatArray, of_additionals: FloatArray) -> FloatArray:
        n = bucket.n_factors
        return sums(of_link, of_links, n) + sums(of_additional, of_additionals, n)

    # Forced slots keep no more of their huge scores than it takes to decide: the rest is rounding.
    slope = a - z
    barred = eta_v <= -state.problem.huge
    decisive = 1.0 + total(
        np.where(forced, 0.0, np.abs(slope) / delta), np.where(barred, 0.0, np.abs(eta_v))
    )
    slope = np.where(forced, np.sign(slope) * decisive[of_link] * delta, slope)
    eta_v = np.where(barred, -decisive[of_additional], eta_v)
    w, n = _best_vertices(state, b, slope / delta, eta_v)
    w /= delta
    gaps = total(slope * (w - z), eta_v * (n - v))
    sizes = total(np.abs(slope) * (w + z), np.abs(eta_v) * (n + v))
    return gaps, sizes


def _best_vertices(
    state: PartState, b: int, scores: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return every factor's best structure, dense: its variables and its additionals."""
    bucket = state.part.buckets[b]
    sets = ActiveSets(bucket, state.part.delta[state.links_of(b)])
    sets.scores[:] = scores
    sets.solve_map(np.arange(bucket.n_factors), eta_v)
    start, entry, value, size = sets.candidates
    factor = np.repeat(np.arange(bucket.n_factors), size)
    first = np.cumsum(size) - size
    at = np.repeat(start - first, size) + np.arange(size.sum())
    entries, values = entry[at].astype(np.int64), value[at]
    arity = np.diff(bucket.offsets)[factor]
    of_variables = entries < arity
    w, n = np.zeros(bucket.n_links), np.zeros(bucket.n_additionals)
    w[bucket.offsets[factor[of_variables]] + entries[of_variables]] = values[of_variables]
    rest = ~of_variables
    n[bucket.additional_offsets[factor[rest]] + entries[rest] - arity[rest]] = values[rest]
    return w, n
