"""What every structured factor is held against: an enumeration of its structures at a small size.

A test states a `Case` and hands it to the checks; each draws many problems from a seed and
fails on the first that is wrong. The quick tests draw few, the slow ones 2,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import judges
from lpsmap_core import (
    Distributions,
    Factor,
    FactorGraph,
    Scores,
    Solution,
    Structures,
    Variables,
)
from lpsmap_core.api import build_layout, row_view
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.solvers import local_solver

__all__ = [
    "SLOW",
    "Case",
    "check_gradients",
    "check_oracle",
    "check_probabilities",
    "check_sparsemap",
    "run_oracle",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

SLOW = 2000
"""Draws of a slow test."""

HUGE = 1e6
"""Score of a forced variable, and of a forbidden one with a minus, as a multiple of the others."""


@dataclass(frozen=True)
class Case:
    """A factor type at a size at which its structures can be listed.

    Attributes
    ----------
    make
        Declares factors on variables of shape ``(batch, *shape)`` and on scores of additionals of
        shape ``(batch, A)``.
    shape
        The event's shape.
    variables, additionals
        (Y, K) and (Y, A) numbers of every structure, flat; no additionals if left out.
    """

    make: Callable[[Variables, FloatArray], Factor]
    shape: tuple[int, ...]
    variables: FloatArray
    additionals: FloatArray | None = None

    @property
    def m(self) -> FloatArray:
        """The (Y, K) variables."""
        return self.variables.reshape(len(self.variables), -1)

    @property
    def n(self) -> FloatArray:
        """The (Y, A) additionals."""
        if self.additionals is None:
            return np.empty((len(self.variables), 0))
        return self.additionals.reshape(len(self.variables), -1)

    def graph(
        self, a: FloatArray, eta_v: FloatArray, negated: BoolArray | bool = False
    ) -> tuple[FactorGraph, Variables, Factor]:
        """Return a graph of one factor for each row of the scores."""
        graph = FactorGraph()
        u = graph.variable_from(a.reshape(-1, *self.shape))
        flags = np.broadcast_to(np.asarray(negated), a.shape).reshape(u.shape)
        factor = graph.add(self.make(Variables(graph, u.index, flags.copy()), eta_v))
        return graph, u, factor


def run_oracle(factor: Factor, eta_u: FloatArray, eta_v: FloatArray) -> tuple[Any, Any]:
    """Return each factor's best variables and additionals as its compiled oracle finds them.

    Parameters
    ----------
    factor
        A declaration.
    eta_u, eta_v
        Scores of all its slots and of all its additionals, flat.
    """
    bucket = build_layout(factor.variables.graph.n_variables, [factor]).buckets[0]
    width = factor.vertex_sizes(bucket.factors)
    structures = Structures(
        start=np.append(0, np.cumsum(width))[:-1],
        entry=np.full(width.sum(), -1, dtype=np.int32),
        value=np.full(width.sum(), np.nan),
        size=np.full(len(width), -1, dtype=np.int64),
    )
    assert factor.map_kernel is not None
    scores = Scores(*(np.ascontiguousarray(x, dtype=np.float64) for x in (eta_u, eta_v)))
    factor.map_kernel(np.arange(len(width)), bucket.factors, scores, structures)
    start, entry, value, size = structures
    assert (size <= width).all()
    m, n = [], []
    for f in range(len(width)):
        arity = bucket.offsets[f + 1] - bucket.offsets[f]
        extra = bucket.additional_offsets[f + 1] - bucket.additional_offsets[f]
        vertex = np.zeros(arity + extra)
        entries = slice(start[f], start[f] + size[f])
        assert len(set(entry[entries])) == size[f]
        vertex[entry[entries]] = value[entries]
        m.append(vertex[:arity])
        n.append(vertex[arity:])
    return m, n


# -------------------------------------------------------------------- the MAP oracle


def check_oracle(case: Case, draws: int, seed: int = 0) -> None:
    """Hold the compiled oracle, and the plain one, against the best of all structures.

    Draws are plain, with ties, at odd scales, and with forbidden and forced variables, among which
    the others must keep their digits.
    """
    rng = np.random.default_rng(seed)
    eta_u, eta_v = _scores(case, draws, rng)
    forbidden, forced = _limits(case, draws, rng)
    scale = np.maximum(1.0, np.abs(np.concatenate([eta_u, eta_v], axis=1)).max(axis=1))
    huge = HUGE * scale[:, None]
    seen = np.where(forced, huge, np.where(forbidden, -huge, eta_u))
    graph = FactorGraph()
    factor = case.make(graph.variable((draws, *case.shape)), eta_v)
    if factor.map_kernel is not None:
        found_m, found_n = run_oracle(factor, seen.reshape(-1), eta_v.reshape(-1))
        _check_best(case, eta_u, eta_v, forbidden, forced, np.array(found_m), np.array(found_n))
    plain = [
        _plain_best(row_view(factor, i), seen[i].reshape(case.shape), eta_v[i])
        for i in range(draws)
    ]
    plain_m, plain_n = (np.array(part) for part in zip(*plain, strict=True))
    _check_best(case, eta_u, eta_v, forbidden, forced, plain_m, plain_n)


def _plain_best(row: Factor, eta_u: FloatArray, eta_v: FloatArray) -> tuple[FloatArray, FloatArray]:
    label = row.solve_map(eta_u.copy(), eta_v.copy())
    hash(label)
    m, n = row.vertex(label)
    assert np.shape(m) == eta_u.shape
    return np.ravel(m), np.ravel(n)


def _check_best(
    case: Case,
    eta_u: FloatArray,
    eta_v: FloatArray,
    forbidden: BoolArray,
    forced: BoolArray,
    found_m: FloatArray,
    found_n: FloatArray,
) -> None:
    listed = {tuple(row) for row in np.concatenate([case.m, case.n], axis=1)}
    for draw, (m, n) in enumerate(zip(found_m, found_n, strict=True)):
        assert tuple(np.concatenate([m, n])) in listed, (draw, m, n)
        off, on = forbidden[draw], forced[draw]
        obeys = _obey(case, off, on)
        assert not m[off].any(), (draw, m)
        assert (m[on] == 1.0).all(), (draw, m)
        others = np.where(off | on, 0.0, eta_u[draw])
        best = (case.m[obeys] @ others + case.n[obeys] @ eta_v[draw]).max()
        numbers = np.append(others, eta_v[draw])
        allowed = 1e-14 * len(numbers) * np.abs(numbers).max(initial=0.0)
        assert m @ others + n @ eta_v[draw] >= best - allowed, (draw, m, n, best)


def _scores(
    case: Case, draws: int, rng: np.random.Generator, decades: int = 8
) -> tuple[FloatArray, FloatArray]:
    """Draw scores of variables and additionals: in turn plain, of small integers, at odd scales."""
    n_u, n_v = case.m.shape[1], case.n.shape[1]
    numbers = rng.standard_normal((draws, n_u + n_v))
    numbers[1::3] = rng.integers(-2, 3, size=numbers[1::3].shape)
    numbers[2::3] *= 10.0 ** rng.uniform(-decades, decades, size=(len(numbers[2::3]), 1))
    return numbers[:, :n_u].copy(), numbers[:, n_u:].copy()


def _limits(case: Case, draws: int, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Draw forbidden and forced variables that some structure obeys; none in half of the draws."""
    chosen = case.m[rng.integers(len(case.m), size=draws)]
    limited = (np.arange(draws) % 2 == 1)[:, None]
    return (
        limited & (chosen == 0.0) & (rng.random(chosen.shape) < 0.4),
        limited & (chosen == 1.0) & (rng.random(chosen.shape) < 0.2),
    )


def _obey(case: Case, forbidden: BoolArray, forced: BoolArray) -> BoolArray:
    """Return which structures leave out what is forbidden and hold what is forced."""
    off, on = case.m[:, forbidden] == 0.0, case.m[:, forced] == 1.0
    obeys: BoolArray = off.all(axis=1) & on.all(axis=1)
    return obeys


# -------------------------------------------------------------------- SparseMAP


def check_sparsemap(case: Case, draws: int, seed: int = 0) -> None:
    """Hold local solutions of random degrees, and graphs, against the judge.

    The graphs have negated variables, and some that a score of -inf forbids.
    """
    rng = np.random.default_rng(seed)
    a, eta_v = _scores(case, draws, rng, decades=1)
    delta = np.sqrt(rng.integers(1, 5, size=a.shape))
    negated = rng.random(a.shape) < 0.5
    forbidden, forced = _limits(case, draws, rng)
    forbidden, forced = forbidden & ~negated, forced & negated
    locals_ = [_local_solutions(case, a, eta_v, delta, generic) for generic in (False, True)]
    whole = _graph_solution(case, a, eta_v, negated, forbidden | forced)
    for draw in range(draws):
        if draw % 4 < 2:  # the judge is slow: half of the draws for each kind of problem
            judged = judges.project_polytope(case.m, case.n, a[draw], eta_v[draw], delta[draw])
            for z, v in locals_:
                _check_solution(z[draw], v[draw], judged, case.n, eta_v[draw])
        else:
            obeys = _obey(case, forbidden[draw], forced[draw])
            m, n = case.m[obeys], case.n[obeys]
            judged = judges.project_polytope(m, n, a[draw], eta_v[draw], np.ones_like(a[draw]))
            _check_solution(whole[0][draw], whole[1][draw], judged, n, eta_v[draw])


def _graph_solution(
    case: Case, a: FloatArray, eta_v: FloatArray, negated: BoolArray, limited: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return what a graph finds for slots of scores a; `limited` variables are forbidden."""
    scores = np.where(negated, 1.0 - a, a)
    graph, u, _ = case.graph(np.where(limited, -np.inf, scores), eta_v, negated)
    solution = graph.solve()
    mu = u.value.reshape(a.shape)
    return np.where(negated, 1.0 - mu, mu), solution.additionals[0].reshape(eta_v.shape)


def _local_solutions(
    case: Case, a: FloatArray, eta_v: FloatArray, delta: FloatArray, generic: bool
) -> tuple[FloatArray, FloatArray]:
    graph, _, factor = case.graph(a, eta_v)
    bucket = build_layout(graph.n_variables, [factor]).buckets[0]
    z, v = np.full(a.size, np.nan), np.full(eta_v.size, np.nan)
    make = ActiveSets if generic else local_solver
    solver = make(bucket, delta.reshape(-1))
    solver.solve(np.arange(len(a)), a.reshape(-1), eta_v.reshape(-1), z, v, 1000)
    assert not solver.unsolved().size
    return z.reshape(a.shape), v.reshape(eta_v.shape)


def _check_solution(
    z: FloatArray,
    v: FloatArray,
    judged: tuple[FloatArray, FloatArray],
    n: FloatArray,
    eta_v: FloatArray,
) -> None:
    expected, p = judged
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-8)
    # additionals need not be unique, but what they gain is
    scale = 1.0 + np.abs(eta_v).sum()
    np.testing.assert_allclose(eta_v @ v, eta_v @ (p @ n), rtol=0, atol=1e-8 * scale)


# -------------------------------------------------------------------- derivatives


def check_gradients(case: Case, draws: int, seed: int = 0, scale: float = 1.0) -> None:
    """Hold ``solution.vjp``, of values and additionals, against central differences.

    Draws with a kink within the step, where one-sided differences disagree, are left out; they must
    be less than half.
    """
    rng = np.random.default_rng(seed)
    n_u, n_v = case.m.shape[1], case.n.shape[1]
    x = scale * rng.standard_normal((draws, n_u + n_v))
    direction, d = rng.standard_normal((2, draws, n_u + n_v))

    def outputs(x: FloatArray) -> FloatArray:
        graph, _, _ = case.graph(x[:, :n_u], x[:, n_u:])
        solution = graph.solve()
        values = solution.values.reshape(draws, n_u)
        return np.concatenate([values, solution.additionals[0].reshape(draws, n_v)], axis=1)

    expected, smooth = _derivatives(outputs, x, direction)
    graph, _, _ = case.graph(x[:, :n_u], x[:, n_u:])
    by_scores, [by_additionals] = graph.solve().vjp(d[:, :n_u], [d[:, n_u:]])
    product = (by_scores.reshape(draws, n_u) * direction[:, :n_u]).sum(axis=1)
    product += (by_additionals.reshape(draws, n_v) * direction[:, n_u:]).sum(axis=1)
    assert smooth.mean() >= 0.5, smooth.mean()
    wanted = (d * expected).sum(axis=1)
    np.testing.assert_allclose(product[smooth], wanted[smooth], rtol=1e-5, atol=1e-5)


def check_probabilities(case: Case, draws: int, seed: int = 0, scale: float = 1.0) -> None:
    """Hold ``solution.vjp`` of ``pull_back`` against central differences of probabilities.

    The loss is a sum of structures' probabilities with random weights; in half of the draws some
    variables are negated. Structures are matched by their variables and additionals.

    As long as the same structures are there, their probabilities are linear in the scores. Draws in
    which one comes or goes within the step are left out and must be less than half. Few of these
    are kinks: where the structures of a face are affinely dependent, as those of two independent
    choices are, the active set meets exact ties, breaks them by rounding, and may find another
    decomposition of the same marginals, however short the step. This is rarer at larger scales,
    where fewer structures mix. Of the other draws, at least half must mix some. Slow tests draw
    twice as many, so that the full number is compared.
    """
    rng = np.random.default_rng(seed)
    n_u, n_v = case.m.shape[1], case.n.shape[1]
    x = scale * rng.standard_normal((draws, n_u + n_v))
    direction = rng.standard_normal(x.shape)
    d = rng.standard_normal((draws, len(case.m)))
    negated = (rng.random((draws, n_u)) < 0.5) & (np.arange(draws) % 2 == 1)[:, None]
    column = {tuple(row): y for y, row in enumerate(np.concatenate([case.m, case.n], axis=1))}

    def solve(x: FloatArray) -> tuple[Solution, Distributions]:
        graph, _, factor = case.graph(x[:, :n_u], x[:, n_u:], negated)
        solution = graph.solve()
        return solution, solution.structures(factor)

    def weights(found: Distributions) -> tuple[FloatArray, tuple[IntArray, IntArray]]:
        """Return the probabilities of all structures, and where those that are there lie."""
        parts = (found.variables, found.additionals)
        numbers = np.concatenate([part.reshape(*found.mask.shape, -1) for part in parts], axis=-1)
        columns = [column[tuple(row)] for row in numbers[found.mask]]
        place = np.nonzero(found.mask)[0], np.array(columns, dtype=np.int64)
        p = np.zeros(d.shape)
        p[place] = found.probabilities[found.mask]
        return p, place

    h = 1e-5
    solution, found = solve(x)
    here, place = weights(found)
    after, before = (weights(solve(x + step * direction)[1])[0] for step in (h, -h))
    same = np.logical_and((here > 0) == (after > 0), (here > 0) == (before > 0)).all(axis=1)
    if draws >= 20:  # fewer cannot tell
        assert same.mean() >= 0.5, same.mean()
        assert len(case.m) == 1 or (found.counts[same] > 1).mean() >= 0.5, found.counts
    d_padded = np.full(found.mask.shape, np.nan)  # the padding's entries are not read
    d_padded[found.mask] = d[place]
    by_scores, [by_additionals] = solution.vjp(found.pull_back(d_padded))
    gradient = np.concatenate([by_scores.reshape(draws, n_u), by_additionals], axis=1)
    product = (gradient * direction).sum(axis=1)
    wanted = (d * (after - before)).sum(axis=1) / (2 * h)
    np.testing.assert_allclose(product[same], wanted[same], rtol=1e-5, atol=1e-5)


def _derivatives(
    f: Callable[[FloatArray], FloatArray], x: FloatArray, direction: FloatArray, h: float = 1e-5
) -> tuple[FloatArray, BoolArray]:
    """Return each row's derivative along its direction, and whether no kink lies in the step.

    Solutions are smooth pieces, so that one-sided differences over a half and a whole step agree
    unless a piece ends between them.
    """
    here = f(x)
    slopes = np.array([(f(x + t * direction) - here) / t for t in (h, -h, h / 2, -h / 2)])
    central = (slopes[2] + slopes[3]) / 2
    scale = 1.0 + np.abs(central).max(axis=1)
    return central, np.ptp(slopes, axis=0).max(axis=1) <= 1e-5 * scale
