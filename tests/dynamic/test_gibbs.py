"""Gibbs distributions: scores that are no numbers, negation, the hook, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap import FactorGraph, Matching, Sequence, Xor, stack
from lpsmap_core import Scores, Structures
from lpsmap_dynamic import Beliefs, Found, Gibbs


class Softmax(Xor):
    """One variable of several: sums without a hypergraph."""

    gibbs = Gibbs

    def inference(self) -> Any:
        """Return the textbook's formulas."""
        return SoftmaxInference(self.n_factors, self.event_shape[0])


class SoftmaxInference:
    """An `Inference` in NumPy, for factors of equal arity."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k

    def _table(self, scores: Scores) -> Any:
        return scores.eta_u.reshape(self.n, self.k)

    def beliefs(self, rows: Any, scores: Scores) -> Beliefs:
        """Return softmax and log-sum-exp."""
        table = self._table(scores)
        log_z = np.logaddexp.reduce(table, axis=1)
        p = np.exp(table - log_z[:, None])
        return Beliefs(log_z, -(p * np.log(p)).sum(axis=1), p.reshape(-1), np.empty(0))

    def hessian_product(self, rows: Any, scores: Scores, direction: Scores) -> Scores:
        """Return ``p * (d - <p, d>)``."""
        p, d = self.beliefs(rows, scores).m.reshape(self.n, self.k), self._table(direction)
        return Scores((p * (d - (p * d).sum(axis=1, keepdims=True))).reshape(-1), np.empty(0))

    def sample(self, rows: Any, scores: Scores, n: int, random: np.random.Generator) -> Found:
        """Return samples by Gumbel's trick."""
        table = self._table(scores)[:, None] + random.gumbel(size=(self.n, n, self.k))
        return self._found(scores, table.argmax(axis=2))

    def k_best(self, rows: Any, scores: Scores, k: int) -> Found:
        """Return the largest scores."""
        return self._found(scores, np.argsort(-self._table(scores), axis=1)[:, :k])

    def _found(self, scores: Scores, chosen: Any) -> Found:
        score = np.take_along_axis(self._table(scores), chosen, axis=1).reshape(-1)
        number = np.arange(chosen.size)
        ones = np.ones(chosen.size)
        return Found(score, Structures(number, chosen.reshape(-1), ones, ones.astype(np.int64)))

    def count(self, scores: Scores) -> list[int]:
        """Return the number of variables."""
        return [self.k] * self.n


def sequences(scores: Any, **options: Any) -> tuple[FactorGraph, Any, Any]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    n_states = np.shape(scores)[-1]
    return graph, u, graph.add(Sequence(u, np.zeros((n_states, n_states)), **options))


def test_other_types_can_bring_sums_of_their_own() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((2, 3))
    graph = FactorGraph()
    choice = graph.add(Softmax(graph.variable_from(scores)))
    gibbs = graph.gibbs(choice)
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(gibbs.marginals, expected)
    np.testing.assert_allclose(gibbs.k_best(2).probabilities, -np.sort(-expected)[:, :2])
    np.testing.assert_allclose(gibbs.sample(5000, 0).variables.mean(axis=1), expected, atol=0.03)
    d = rng.standard_normal((2, 3))
    slope = (expected * (d - (expected * d).sum(axis=1, keepdims=True)), (expected * d).sum(axis=1))
    np.testing.assert_allclose(gibbs.jvp(d.reshape(-1))[1], slope[0])
    np.testing.assert_allclose(gibbs.jvp(d.reshape(-1))[0], slope[1])
    assert gibbs.count().tolist() == [3, 3]


def test_types_without_sums_say_so() -> None:
    graph = FactorGraph()
    choice = graph.add(Matching(graph.variable((3, 3))))
    with pytest.raises(TypeError, match="Matching has no inference over its structures; expected"):
        graph.gibbs(choice)
    with pytest.raises(TypeError, match="Matching has no inference over its structures; expected"):
        graph.gibbs()


def test_types_with_sums_that_name_no_distributions_are_told_what_does() -> None:
    graph = FactorGraph()
    choice = graph.add(type("Silent", (Softmax,), {"gibbs": None})(graph.variable(3)))
    with pytest.raises(TypeError, match="attribute gibbs is None; .* Install lpsmap-dynamic"):
        graph.gibbs(choice)


def test_bad_scores_stay_in_their_row() -> None:
    scores = np.zeros((4, 2, 2))
    scores[0, 0, 0], scores[1, 1, 1], scores[2, 0] = np.nan, np.inf, -np.inf
    graph, _, factor = sequences(scores)
    gibbs = graph.gibbs(factor)
    assert np.isnan(gibbs.log_partition[:2]).all() and np.isnan(gibbs.marginals[:2]).all()
    assert np.isnan(gibbs.entropy[:2]).all() and np.isnan(gibbs.additionals[:2]).all()
    assert gibbs.log_partition[2] == -np.inf and not gibbs.marginals[2].any()
    assert gibbs.entropy[2] == 0.0 and not gibbs.additionals[2].any()
    np.testing.assert_allclose(gibbs.log_partition[3], np.log(4))
    assert gibbs.k_best(2).counts.tolist() == [0, 0, 0, 2]
    assert gibbs.sample(3, 0).counts.tolist() == [0, 0, 0, 3]
    assert gibbs.count()[2:].tolist() == [0, 4]


@pytest.mark.parametrize(
    "mask", [-1e9, pytest.param(np.finfo(np.float64).min, marks=pytest.mark.compiled)]
)
def test_large_masks_are_as_good_as_forbidding(mask: float) -> None:
    rng = np.random.default_rng(0)
    scores, forbidden = rng.standard_normal((3, 4, 3)), rng.random((3, 4, 3)) < 0.3
    forbidden[..., 0] = False
    found = []
    for number in (mask, -np.inf):
        graph, _, factor = sequences(np.where(forbidden, number, scores))
        found.append(graph.gibbs(factor))
    np.testing.assert_allclose(found[0].log_partition, found[1].log_partition, rtol=1e-12)
    np.testing.assert_allclose(found[0].marginals, found[1].marginals, atol=1e-12)
    np.testing.assert_allclose(found[0].entropy, found[1].entropy, atol=1e-12)


def test_negated_variables_that_are_forbidden_force_their_slots() -> None:
    """A slot of ~u with u forbidden is on; where no structure has it, there is none."""
    scores = np.zeros((3, 2, 2))
    scores[0, 0, 1] = -np.inf  # state 1 of ~u at position 0: forced
    scores[1, 0] = -np.inf  # both states of a position: impossible
    graph = FactorGraph()
    u = graph.variable_from(scores)
    gibbs = graph.gibbs(graph.add(Sequence(~u, np.zeros((2, 2)))))
    np.testing.assert_allclose(gibbs.marginals[0], [[0.0, 1.0], [0.5, 0.5]], atol=1e-15)
    np.testing.assert_allclose(gibbs.log_partition, [np.log(2), -np.inf, np.log(4)], atol=1e-12)
    assert not gibbs.marginals[1].any()
    assert gibbs.count().tolist() == [2, 0, 4]
    assert gibbs.k_best(9).counts.tolist() == [2, 0, 4]
    assert gibbs.sample(5, 0).counts.tolist() == [5, 0, 5]
    d = np.random.default_rng(0).standard_normal((3, 2, 2))
    _, d_marginals, d_additionals = gibbs.jvp(d.reshape(-1))
    assert not d_marginals[1].any() and not d_additionals[1].any()
    # of row 0, the second position is a choice between two equal states
    slope = -0.25 * (d[0, 1] - d[0, 1, ::-1])
    np.testing.assert_allclose(d_marginals[0], [[0.0, 0.0], slope], atol=1e-12)
    logs = gibbs.log_probability([np.eye(2)] * 3, np.zeros((3, 8)))
    np.testing.assert_allclose(logs[2], -np.log(4))
    assert logs[0] == -np.inf


def test_large_and_small_scores_keep_their_digits() -> None:
    scores = np.array([[[1e8, 1e8 - 1.0], [0.0, 1.0]], [[1e-8, 0.0], [0.0, 0.0]]])
    graph, _, factor = sequences(scores)
    gibbs = graph.gibbs(factor)
    one = np.exp([0.0, -1.0]) / np.exp([0.0, -1.0]).sum()
    np.testing.assert_allclose(gibbs.marginals[0], [one, one[::-1]], rtol=1e-7)
    np.testing.assert_allclose(gibbs.marginals[1][0, 0] - 0.5, 2.5e-9, rtol=1e-6)
    np.testing.assert_allclose(gibbs.log_partition[1], np.log(4) + 5e-9, rtol=1e-15)


def test_latest_scores_count() -> None:
    graph, u, factor = sequences(np.zeros((2, 2)))
    graph.rescore(u, np.array([[5.0, 0.0], [0.0, 5.0]]))
    graph.rescore(factor, np.arange(8.0))
    best = graph.gibbs(factor).k_best(1)[0][0]
    assert best.decoded == {"tags": [0, 1]}
    assert best.score == 10.0 + 0.0 + 3.0 + 7.0


def test_nothing_unused_counts() -> None:
    """Transitions behind a row's end may be anything."""
    graph = FactorGraph()
    transitions = np.zeros((2, 2, 2, 2))
    transitions[1, 1] = np.nan
    u = graph.variable((2, 3, 2))
    gibbs = graph.gibbs(graph.add(Sequence(u, transitions, lengths=[3, 2])))
    np.testing.assert_allclose(gibbs.log_partition, np.log([8, 4]))
    assert not gibbs.additionals[1][6:10].any()


def test_repeated_variables_are_refused() -> None:
    graph = FactorGraph()
    u = graph.variable((2, 2))
    twice = graph.add(Sequence(stack([u[:, 0], u[:, 0]]), np.zeros((2, 2))))
    with pytest.raises(ValueError, match="factor 0 of .* contains a variable twice"):
        graph.gibbs(twice)


def test_bad_input_is_refused() -> None:
    graph, _, factor = sequences(np.zeros((2, 3, 2)))
    gibbs = graph.gibbs(factor)
    with pytest.raises(ValueError, match="gibbs: .* is not in this graph"):
        FactorGraph().gibbs(factor)
    with pytest.raises(ValueError, match="sample: n: got 0"):
        gibbs.sample(0)
    with pytest.raises(TypeError, match="k_best: k: got 1.5"):
        gibbs.k_best(1.5)  # type: ignore[arg-type]
    for shape in ((3, 2), (2, 2, 2), (2, 1, 1, 3, 2)):
        with pytest.raises(ValueError, match=r"variables has shape .*; expected \(2, 3, 2\)"):
            gibbs.log_probability(np.zeros(shape))
    with pytest.raises(ValueError, match="additionals is None; expected those of 2 structures, 8"):
        gibbs.log_probability(np.zeros((2, 3, 2)))
    with pytest.raises(TypeError, match="not functions of the marginals"):
        gibbs.k_best(2).pull_back(np.zeros((2, 2)))
    with pytest.raises(TypeError, match="not functions of the marginals"):
        gibbs.k_best(2).push_forward(np.zeros(12))


def test_a_structure_without_a_batch_has_one_probability() -> None:
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(Xor(graph.variable_from([0.0, np.log(3.0)]))))
    one, several = gibbs.log_probability([0.0, 1.0]), gibbs.log_probability(np.eye(2))
    np.testing.assert_allclose(one, np.log(0.75))
    assert one.shape == ()
    np.testing.assert_allclose(several, np.log([0.25, 0.75]))


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.filterwarnings("error")
def test_without_an_allowed_structure_there_are_no_probabilities(negated: bool) -> None:
    graph = FactorGraph()
    u = graph.variable_from([-np.inf, -np.inf])
    gibbs = graph.gibbs(graph.add(Xor(~u if negated else u)))
    assert gibbs.log_partition == -np.inf
    assert np.isnan(gibbs.log_probability([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])).all()


def test_samples_do_not_depend_on_numpys_global_state() -> None:
    graph, _, factor = sequences(np.zeros((2, 3, 2)))
    gibbs = graph.gibbs(factor)
    first = gibbs.sample(6, seed=1).variables
    np.random.seed(3)  # noqa: NPY002
    np.testing.assert_array_equal(gibbs.sample(6, seed=1).variables, first)
    assert (gibbs.sample(6, seed=2).variables != first).any()


def test_an_empty_batch_has_empty_answers() -> None:
    graph, _, factor = sequences(np.zeros((0, 3, 2)))
    gibbs = graph.gibbs(factor)
    assert gibbs.log_partition.shape == gibbs.entropy.shape == (0,)
    assert gibbs.marginals.shape == (0, 3, 2)
    assert gibbs.count().shape == (0,)
    assert gibbs.log_probability(np.empty((0, 3, 2)), np.empty((0, 8))).shape == (0,)
    assert gibbs.jvp(np.empty(0))[0].shape == (0,)
    assert len(gibbs.k_best(2)) == len(gibbs.sample(2, 0)) == 0


def test_additionals_have_their_own_axes() -> None:
    """Another order of the axes would count other transitions."""
    rng = np.random.default_rng(0)
    graph, _, factor = sequences(rng.standard_normal((2, 3, 2)))
    graph.rescore(factor, rng.standard_normal((2, 8)))
    gibbs = graph.gibbs(factor)
    best = gibbs.k_best(4)
    logs = gibbs.log_probability(best.variables, best.additionals)
    flat = gibbs.log_probability(best.variables, best.additionals.reshape(-1))
    np.testing.assert_array_equal(flat, logs)
    with pytest.raises(ValueError, match=r"additionals has shape .*; expected \(2, 4, 8\)"):
        gibbs.log_probability(best.variables, best.additionals.swapaxes(0, 1))
    with pytest.raises(ValueError, match=r"d_additionals has shape \(8, 2\); expected \(2, 8\)"):
        gibbs.jvp(np.zeros(12), np.zeros((8, 2)))
    d = rng.standard_normal((2, 8))
    for one, other in zip(
        gibbs.jvp(np.zeros(12), d), gibbs.jvp(np.zeros(12), d.ravel()), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    for shape in ((13,), (2,), (2, 3, 2)):
        for each in (gibbs, graph.gibbs()):
            with pytest.raises(ValueError, match=r"d_scores has shape .*; expected \(12,\)"):
                each.jvp(np.zeros(shape))


def test_additionals_of_graphs_have_their_own_axes() -> None:
    graph, _, _ = sequences(np.zeros((2, 3, 2)))
    gibbs = graph.gibbs()
    with pytest.raises(ValueError, match=r"jvp: d_additionals of .* \(8, 2\); expected \(2, 8\)"):
        gibbs.jvp(np.zeros(12), [np.zeros((8, 2))])
    with pytest.raises(ValueError, match="jvp: d_additionals has 2 entries; expected 1"):
        gibbs.jvp(np.zeros(12), [np.zeros((2, 8)), np.zeros(3)])
    with pytest.raises(TypeError, match="jvp: d_additionals is 3; expected a list"):
        gibbs.jvp(np.zeros(12), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"additionals of .* \(2, 5, 8\); expected \(5, 2, 8\)"):
        gibbs.log_probability(np.zeros((5, 12)), [np.zeros((2, 5, 8))])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_tangents_are_nan_where_a_score_is_not_finite(bad: float) -> None:
    scores = np.zeros((2, 3, 2))
    scores[0, 1, 1] = bad
    graph, _, factor = sequences(scores)
    tangents = graph.gibbs(factor).jvp(np.ones(12))
    log_z, values, (extra,) = graph.gibbs().jvp(np.ones(12))
    for tangent in (*tangents, log_z, values.reshape(2, 6), extra):
        assert np.isnan(tangent[0]).all()
        assert np.isfinite(tangent[1]).all()
    assert graph.gibbs(factor).k_best(2).counts.tolist() == [0, 2]


def test_more_structures_than_exist_need_no_memory() -> None:
    graph, _, factor = sequences(np.zeros((2, 3, 2)))
    assert graph.gibbs(factor).k_best(2**62).counts.tolist() == [8, 8]


def test_no_structures_have_variables_of_their_shape() -> None:
    graph, _, factor = sequences(np.full((2, 3, 2), -np.inf))
    assert graph.gibbs(factor).k_best(2)[0].variables.shape == (0, 3, 2)
