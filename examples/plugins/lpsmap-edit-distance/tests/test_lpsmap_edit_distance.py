"""The conformance kit, distances by another method, derivatives, samples, and invalid input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lpsmap_core import FactorGraph, installed
from lpsmap_core.testing import parametrize_with_checks
from lpsmap_edit_distance import EditScript


@parametrize_with_checks(EditScript.examples())
def test_protocol(factor, check):
    check(factor)


def script_of(one, other, opening=-1.0, extending=-1.0):
    """Return a graph and scripts from one word to another. Replacements score -1."""
    graph = FactorGraph()
    same = np.array([[a == b for b in other] for a in one])
    u = graph.variable_from(np.where(same, 0.0, -1.0))
    gaps = np.repeat([[opening], [extending]], len(one) + len(other), axis=1)
    return graph, graph.add(EditScript(u, gaps))


def levenshtein(one, other):
    """Return the distance by the textbook recursion."""
    if not one or not other:
        return len(one) + len(other)
    rest = levenshtein(one[1:], other[1:]) + (one[0] != other[0])
    return min(rest, levenshtein(one[1:], other) + 1, levenshtein(one, other[1:]) + 1)


def test_the_best_script_has_the_distance():
    words = ["kitten", "sitting", "ab", "ba", "aaa"]
    for one, other in itertools.product(words, words):
        graph, script = script_of(one, other)
        assert graph.gibbs(script).k_best(1).scores[0] == -levenshtein(one, other)


def test_long_gaps_are_cheaper_than_many():
    graph, script = script_of("abcd", "ad", opening=-1.0, extending=-0.1)
    best = graph.gibbs(script).k_best(1)[0][0]
    assert best.decoded == {"pairs": [[0, 0], [3, 1]]}
    np.testing.assert_allclose(best.score, -1.1)


def test_scripts_are_counted_once():
    """A script is a choice of equally many elements of both sequences, paired in order."""
    graph, script = script_of("abcde", "xyz")
    assert graph.gibbs(script).count() == sum(
        len(list(itertools.combinations(range(5), k))) * len(list(itertools.combinations("xyz", k)))
        for k in range(4)
    )


def test_projections_and_samples():
    graph, script = script_of("abc", "ac")
    graph.solve()
    found = graph.structures(script)[0]
    assert found[0].decoded == {"pairs": [[0, 0], [2, 1]]}
    gibbs = graph.gibbs(script)
    drawn = gibbs.sample(2000, seed=0).variables[:].mean(axis=0)
    np.testing.assert_allclose(drawn, gibbs.marginals, atol=0.05)


def test_gradients():
    torch = pytest.importorskip("torch")
    adapter = pytest.importorskip("lpsmap_torch")
    eta = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    gaps = torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True)

    def declared(eta, gaps):
        graph = adapter.TorchFactorGraph()
        u = graph.variable_from(eta)
        return graph, u, graph.add(EditScript(u, gaps, lengths=[[3, 2], [2, 1]]))

    def log_partition(eta, gaps):
        graph, _, script = declared(eta, gaps)
        return graph.gibbs(script).log_partition

    assert torch.autograd.gradcheck(log_partition, (eta, gaps))
    assert torch.autograd.gradgradcheck(log_partition, (eta, gaps))
    graph, u, _ = declared(eta, gaps)
    graph.solve()
    u.value.square().sum().backward()
    assert eta.grad.isfinite().all() and gaps.grad.isfinite().all()


def test_bad_input():
    with pytest.raises(ValueError, match="gaps has 4 scores per factor; expected 10"):
        EditScript(FactorGraph().variable((2, 3)), np.zeros((2, 2)))


def test_it_is_found():
    assert installed().factors["EditScript"].value is EditScript
