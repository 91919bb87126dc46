"""Sequences whose steps share transitions, against those with transitions for every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap import AtMostOne, FactorGraph, Sequence, SequenceBudget
from lpsmap_core import Scores
from lpsmap_dynamic import HypergraphInference
from lpsmap_factors_struct.chain_inference import ChainInference

TOLERANCE = 1e-12
LENGTHS = {
    "whole": ((2, 6, 3), None),
    "ragged": ((4, 6, 3), [6, 1, 0, 4]),
    "one": ((2, 1, 3), None),
    "two": ((2, 2, 3), None),
    "none": ((2, 0, 3), None),
    "no sequences": ((0, 5, 3), None),
    "one state": ((2, 4, 1), None),
    "one sequence": ((7, 4), None),
    "large": ((1, 30, 12), None),
}
SHARED = {
    "matrix": lambda batch, n: (n, n),
    "axis of steps": lambda batch, n: (1, n, n),
    "matrix each": lambda batch, n: (*batch, 1, n, n),
    "number": lambda batch, n: (),
}
MASKS = {"none": 0.0, "forbidden": -np.inf, "huge": -1e9}


class Pair:
    """The same sequences with shared transitions, and with transitions for every step."""

    def __init__(
        self,
        size: str,
        shared: str,
        mask: str = "none",
        budget: bool = False,
        coupled: bool = False,
    ) -> None:
        rng = np.random.default_rng(sum(map(ord, size + shared + mask)))
        shape, self.lengths = LENGTHS[size]
        *batch, self.length, self.n = shape
        self.batch = tuple(batch)
        scores = rng.standard_normal(shape)
        transitions = rng.standard_normal(SHARED[shared](self.batch, self.n))
        ends = rng.standard_normal((2, *self.batch, self.n))
        if mask != "none" and self.n > 1:
            scores[..., -1] = np.where(rng.random(shape[:-1]) < 0.5, MASKS[mask], scores[..., -1])
            if transitions.ndim:
                transitions[..., 0, -1] = MASKS[mask]
            ends[..., -1] = MASKS[mask]
        steps = (*self.batch, max(self.length - 1, 0), self.n, self.n)
        self.graphs, self.factors, self.blocks = [], [], []
        for given in (transitions, np.broadcast_to(transitions, steps).copy()):
            graph = FactorGraph()
            u = graph.variable_from(scores)
            if budget:
                factor: Any = SequenceBudget(
                    u, given, 3, initial=ends[0], final=ends[1], lengths=self.lengths
                )
            else:
                factor = Sequence(u, given, *ends, lengths=self.lengths)
            self.factors.append(graph.add(factor))
            self.blocks.append(u)
            if coupled and self.n > 1:
                graph.add(AtMostOne(u[..., 0]))
            self.graphs.append(graph)

    def summed(self, additionals: Any) -> Any:
        """Return additionals of every step as those that all steps share."""
        n, square = self.n, self.n**2
        rows = np.asarray(additionals).reshape(
            self.factors[1].n_factors, self.factors[1].n_additionals
        )
        steps = rows[:, n : rows.shape[1] - n]
        steps = steps.reshape(len(rows), max(self.length - 1, 0), square).sum(axis=1)
        return np.concatenate([rows[:, :n], steps, rows[:, rows.shape[1] - n :]], axis=1)

    def spread(self, additionals: Any) -> Any:
        """Return numbers of shared additionals for every step."""
        n = self.n
        middle = np.tile(additionals[:, n:-n], (1, max(self.length - 1, 0)))
        return np.concatenate([additionals[:, :n], middle, additionals[:, -n:]], axis=1)

    def check(self, shared: Any, other: Any, tolerance: float = TOLERANCE) -> None:
        """Hold numbers of both against each other."""
        np.testing.assert_allclose(np.asarray(shared), np.asarray(other), rtol=0, atol=tolerance)

    def check_additionals(self, shared: Any, other: Any, tolerance: float = TOLERANCE) -> None:
        """Hold additionals of both against each other."""
        rows = np.asarray(shared).reshape(self.factors[0].n_factors, 2 * self.n + self.n**2)
        self.check(rows, self.summed(other), tolerance)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("size", LENGTHS)
def test_transitions_are_stored_once(size: str, shared: str) -> None:
    pair = Pair(size, shared)
    one, all_steps = pair.factors
    assert one.n_additionals == pair.n * (pair.n + 2)
    assert one.additionals.shape == (*pair.batch, one.n_additionals)
    assert all_steps.n_additionals == 2 * pair.n + max(pair.length - 1, 0) * pair.n**2
    again = Sequence(pair.blocks[0], additionals=one.additionals, lengths=pair.lengths)
    np.testing.assert_array_equal(again.additionals, one.additionals)


@pytest.mark.parametrize("mask", ["none", "forbidden"])
@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("shared", ["matrix", "matrix each"])
@pytest.mark.parametrize("size", LENGTHS)
def test_solutions_and_products_are_those_of_all_steps(
    size: str, shared: str, budget: bool, mask: str
) -> None:
    if budget and size == "one state":
        pytest.skip("no sequence satisfies the budget")
    pair = Pair(size, shared, mask, budget)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(pair.graphs[0].n_variables)
    direction = rng.standard_normal((pair.factors[0].n_factors, pair.factors[0].n_additionals))
    for coupled in (False, True):
        pair = Pair(size, shared, mask, budget, coupled)
        found = []
        for graph, factor in zip(pair.graphs, pair.factors, strict=True):
            solution = graph.solve(tol=1e-13 if coupled else 1e-6)
            extra = graph.additionals_of(factor)
            d_u, d_v = solution.vjp(weights)
            along = direction if factor is pair.factors[0] else pair.spread(direction)
            others = [np.zeros((f.n_factors, f.n_additionals)) for f in graph.factors[1:]]
            moved, moved_extra = solution.jvp(weights, [along, *others])
            found.append((solution.values, d_u, moved, extra, d_v[0], moved_extra[0]))
        loose = 1e-8 if coupled else TOLERANCE
        for ours, theirs in zip(*(x[:3] for x in found), strict=True):
            pair.check(ours, theirs, loose)
        for ours, theirs in zip(*(x[3:] for x in found), strict=True):
            pair.check_additionals(ours, theirs, loose)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("size", LENGTHS)
def test_best_sequences_are_those_of_all_steps(size: str, budget: bool, mask: str) -> None:
    if budget and size == "one state":
        pytest.skip("no sequence satisfies the budget")
    pair = Pair(size, "matrix", mask, budget)
    ours, theirs = (graph.solve_map() for graph in pair.graphs)
    pair.check(ours.values, theirs.values, 0.0)
    pair.check_additionals(
        *(g.additionals_of(f) for g, f in zip(pair.graphs, pair.factors, strict=True)), 0.0
    )


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("size", LENGTHS)
def test_sums_and_their_derivatives_are_those_of_all_steps(
    size: str, shared: str, mask: str
) -> None:
    pair = Pair(size, shared, mask)
    ours, theirs = (g.gibbs(f) for g, f in zip(pair.graphs, pair.factors, strict=True))
    pair.check(ours.log_partition, theirs.log_partition)
    pair.check(ours.entropy, theirs.entropy)
    pair.check(ours.marginals, theirs.marginals)
    pair.check_additionals(ours.additionals, theirs.additionals)
    rng, factor = np.random.default_rng(1), pair.factors[0]
    d_u = rng.standard_normal(pair.graphs[0].n_variables)
    d_v = rng.standard_normal((factor.n_factors, factor.n_additionals))
    got, expected = ours.jvp(d_u, d_v), theirs.jvp(d_u, pair.spread(d_v))
    pair.check(got[0], expected[0])
    pair.check(got[1], expected[1])
    pair.check_additionals(got[2], expected[2])
    assert ours.count().tolist() == theirs.count().tolist()


def test_samples_and_the_k_best_count_steps() -> None:
    pair = Pair("ragged", "matrix")
    for draw in (lambda gibbs: gibbs.sample(5, seed=1), lambda gibbs: gibbs.k_best(4)):
        ours, theirs = (draw(g.gibbs(f)) for g, f in zip(pair.graphs, pair.factors, strict=True))
        pair.check(ours.variables, theirs.variables, 0.0)
        pair.check(ours.probabilities, theirs.probabilities)
        for k in range(ours.additionals.shape[1]):
            pair.check_additionals(ours.additionals[:, k], theirs.additionals[:, k], 0.0)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e8])
@pytest.mark.parametrize("kind", ["plain", "forbidden", "masked", "forced", "shifted", "split"])
def test_weights_agree_with_exact_sums(kind: str, scale: float) -> None:
    """The judge is the hypergraph, whose scores of any size are summed exactly."""
    rng, (batch, length, n) = np.random.default_rng(3), (5, 6, 4)
    scores, transitions = scale * rng.standard_normal((batch, length, n)), np.zeros((n, n))
    transitions += scale * rng.standard_normal((n, n))
    if kind == "forbidden":
        scores[rng.random(scores.shape) < 0.3] = transitions[rng.random((n, n)) < 0.3] = -np.inf
    elif kind == "masked":
        scores[rng.random(scores.shape) < 0.4] = -1e9
        transitions[rng.random((n, n)) < 0.4] = -1e4
    elif kind == "forced":
        scores[:, 2, 1] = scores[0, 3, 0] = scores[0, 3, 1] = np.inf
    elif kind == "shifted":
        scores += 1e8
    elif kind == "split":  # the best states lead nowhere, after 149 times as bad ones
        transitions[:2, 2:] = transitions[2:, :2] = -np.inf
        scores[..., 2:] -= 149.0
        scores[:, -1, :2] = -np.inf
    u = FactorGraph().variable_from(np.where(scores == np.inf, 0.0, scores))
    factor = Sequence(u, transitions)
    exact = HypergraphInference(factor.offsets, factor.n_additionals, factor.hypergraphs)
    rows, eta = np.arange(batch), Scores(scores.reshape(-1), factor.additionals.reshape(-1))
    ours, theirs = (x.beliefs(rows, eta) for x in (factor.inference(), exact))
    magnitude = np.maximum(1.0, np.abs(np.nan_to_num(theirs.log_partition, neginf=0.0)))
    np.testing.assert_array_equal(np.isinf(ours.log_partition), np.isinf(theirs.log_partition))
    some = np.isfinite(theirs.log_partition)
    gap = ours.log_partition[some] - theirs.log_partition[some]
    gap += ours.remainder[some] - theirs.remainder[some]
    assert (np.abs(gap) <= 1e-14 * magnitude[some]).all()
    for got, expected in zip(ours[1:4], theirs[1:4], strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE)
    drawn = [x.sample(rows, eta, 3, np.random.default_rng(5)) for x in (factor.inference(), exact)]
    np.testing.assert_allclose(drawn[0].score, drawn[1].score, rtol=1e-12)
    direction = Scores(*(rng.standard_normal(len(x)) for x in eta))
    pairs = (x.hessian_product(rows, eta, direction) for x in (factor.inference(), exact))
    for got, expected in zip(*pairs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


def test_sequences_of_unlikely_steps_count_at_any_magnitude() -> None:
    """A last state makes up for most of a step's score: 5 sequences have e^-17 each."""
    scores = np.full((6, 2), 1e8)
    u = FactorGraph().variable_from(scores)
    factor = Sequence(u, [[0.0, -155.0], [-np.inf, 0.0]], [0.0, -np.inf], [0.0, 138.0])
    eta = Scores(scores.reshape(-1), factor.additionals)
    found = factor.inference().beliefs(np.arange(1), eta)
    expected = 5.0 * np.exp(-17.0) / (1.0 + 5.0 * np.exp(-17.0))
    assert found.m[-1] == pytest.approx(expected, rel=1e-12)


def test_long_chains_need_no_hypergraph() -> None:
    """One of 20,000 positions and 50 states has 50 million hyperedges: 2 GB."""
    rng = np.random.default_rng(4)
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((2_000, 20)))
    transitions = rng.standard_normal((20, 20))
    transitions[3] = -1e9
    factor = graph.add(Sequence(u, transitions))
    sums = factor.inference()
    assert isinstance(sums, ChainInference)
    eta = Scores(graph.flat_scores(), factor.additionals)
    found = sums.beliefs(np.arange(1), eta)
    drawn = sums.sample(np.arange(1), eta, 3, np.random.default_rng(0))
    assert np.isfinite(drawn.score).all()
    assert "_hypergraphs" not in vars(sums)
    assert found.n.sum() == pytest.approx(2_001, rel=1e-12)  # with both ends


def test_types_with_other_structures_have_hypergraphs() -> None:
    u = FactorGraph().variable((4, 3))
    assert type(Sequence(u, np.zeros((3, 3))).inference()) is ChainInference
    assert type(Sequence(u, np.zeros((3, 3, 3))).inference()) is HypergraphInference
    assert type(SequenceBudget(u, np.zeros((3, 3)), 2).inference()) is HypergraphInference
