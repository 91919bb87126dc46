"""Conditional gradient: against the solve, an exact judge, and its own guarantees."""

from __future__ import annotations

import doctest
import sys
import warnings
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

import judges
from conditional_gradient import ConditionalGradient, Variant, conditional_gradient
from lpsmap import AtMostOne, Budget, DepTree, Matching, Nand, Pair, Sequence, Xor
from lpsmap_core import ConvergenceWarning, Factor, FactorGraph, Variables, stack
from lpsmap_core.api import slot_values
from random_graphs import Polytope, random_polytope

FloatArray = npt.NDArray[np.float64]

VARIANTS = get_args(Variant)
LINEAR = ("away", "pairwise")


def unfinished(factor: Factor, variant: Variant, **options: Any) -> ConditionalGradient:
    """Run with a limit that may be hit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return conditional_gradient(factor, variant, **options)


def declared(scores: Any, make: Callable[[Variables], Factor]) -> tuple[FactorGraph, Factor]:
    """Declare a factor over variables of these scores; the graph has to be kept."""
    graph = FactorGraph()
    return graph, graph.add(make(graph.variable_from(np.array(scores))))


def tree(rng: np.random.Generator, n: int = 6) -> tuple[FactorGraph, Factor]:
    """Declare a tree with normal scores."""
    return declared(rng.normal(size=(n, n)), DepTree)


def polytope(
    m: FloatArray, n: FloatArray, eta: FloatArray, eta_v: FloatArray, negated: Any
) -> tuple[FactorGraph, Factor]:
    """Declare a factor with these structures over variables some of which are negated."""

    def make(u: Variables) -> Factor:
        literals = Variables(u.graph, u.index, np.array(negated))
        return Polytope(literals, m, n, eta_v if eta_v.size else None)

    return declared(eta, make)


# -------------------------------------------------------------------- the right answer

FACTORS: dict[str, Callable[[Variables, np.random.Generator], Factor]] = {
    "DepTree": lambda u, rng: DepTree(u),
    "DepTree, shorter": lambda u, rng: DepTree(u[None], lengths=[3]),
    "Matching": lambda u, rng: Matching(u[:3]),
    "Sequence": lambda u, rng: Sequence(u, rng.normal(size=(4, 4))),
    "Budget": lambda u, rng: Budget(u.reshape(-1), 3),
    "Budget, exactly": lambda u, rng: Budget(u.reshape(-1), 3, True),
    "AtMostOne, masked": lambda u, rng: AtMostOne(u.reshape(-1), mask=np.arange(16) % 3 > 0),
    "Xor, some negated": lambda u, rng: Xor(stack([u[0, 0], ~u[0, 1], ~u[1, 0]])),
    "Nand": lambda u, rng: Nand(u[0]),
    "Pair": lambda u, rng: Pair(u[0, 0], u[0, 1], -0.7),
}


@pytest.mark.parametrize("variant", LINEAR)
@pytest.mark.parametrize("make", FACTORS.values(), ids=FACTORS)
def test_agrees_with_solve(rng: np.random.Generator, make: Any, variant: Variant) -> None:
    for _ in range(5):
        graph = FactorGraph()
        factor = graph.add(make(graph.variable_from(rng.normal(size=(4, 4))), rng))
        solution = graph.solve(tol=1e-9)
        found = conditional_gradient(factor, variant, max_iter=5000, tol=1e-12)
        marginals = slot_values(factor, graph.value_of(factor.variables))
        np.testing.assert_allclose(found.marginals, marginals, atol=found.error_bound + 1e-12)
        assert found.objective[-1] == pytest.approx(solution.objective.sum(), abs=1e-10)
        assert found.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.variables.shape == (len(found.probabilities), len(marginals))
        assert found.additionals.shape == (len(found.probabilities), factor.n_additionals)


@pytest.mark.parametrize("ties", [False, True], ids=["plain", "ties"])
def test_agrees_with_an_exact_judge(rng: np.random.Generator, ties: bool) -> None:
    """On polytopes without structure, of structures that differ in their additionals alone too."""
    for _ in range(40):
        k, a = int(rng.integers(1, 7)), int(rng.integers(0, 4))
        m, n = random_polytope(rng, k, a, 20)
        draw = (lambda size: rng.integers(-2, 3, size).astype(float)) if ties else rng.normal
        eta, eta_v, negated = draw(size=k), draw(size=a), rng.random(k) < 0.3
        turned = np.where(negated, 1.0 - m, m)
        expected, _ = judges.project_polytope(turned, n, eta, eta_v, np.ones(k))
        _graph, factor = polytope(m, n, eta, eta_v, negated)
        for variant in VARIANTS:
            found = unfinished(factor, variant, max_iter=2000, tol=1e-12)
            assert found.converged or variant == "vanilla"
            mu = np.where(negated, 1.0 - found.marginals, found.marginals)
            assert np.linalg.norm(mu - expected) <= found.error_bound + 1e-9


def test_other_factors_of_the_graph_are_left_out() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([2.0, 1.9, 0.0]))
    choice = graph.add(Xor(u))
    graph.add(Xor(u[1:]))
    np.testing.assert_allclose(conditional_gradient(choice).marginals, [0.55, 0.45, 0], atol=1e-3)


# -------------------------------------------------------------------- what theory promises


@pytest.mark.parametrize("variant", VARIANTS)
def test_objective_rises_and_the_gap_bounds_what_is_left(
    rng: np.random.Generator, variant: Variant
) -> None:
    for _ in range(5):
        graph, factor = tree(rng)
        best = graph.solve().objective.item()
        found = unfinished(factor, variant, max_iter=200, tol=1e-9)
        rounding = 1e-13 * abs(best)
        assert (np.diff(found.objective) >= -rounding).all()
        assert (best - found.objective <= found.gap + rounding).all()
        assert len(found.objective) == len(found.gap) == len(found.support_size)
        assert found.support_size[0] == 1
        assert found.support_size[-1] == len(found.probabilities)
        distance = np.linalg.norm(found.marginals - factor.variables.value.reshape(-1))
        assert distance <= found.error_bound + 1e-9


def test_vanilla_is_slow_but_within_its_bound(rng: np.random.Generator) -> None:
    """Jaggi (2013), Theorem 1: ``f* - f_t <= 2 C / (t + 2)``, C the largest ``||m - m'||^2``.

    Two trees of n words differ in at most 2 n arcs.
    """
    n = 6
    for _ in range(5):
        graph, factor = tree(rng, n)
        best = graph.solve().objective.item()
        found = unfinished(factor, "vanilla", max_iter=300, tol=1e-10)
        t = np.arange(1, found.iterations + 1)
        assert (best - found.objective[1:] <= 2 * 2 * n / (t + 2)).all()
        assert not found.converged
        assert found.gap[-1] > 1e-5


@pytest.mark.parametrize("variant", LINEAR)
def test_away_and_pairwise_steps_converge_geometrically(
    rng: np.random.Generator, variant: Variant
) -> None:
    """A quarter of the iterations brings a factor of about 1,000 as long as they last."""
    for _ in range(5):
        _graph, factor = tree(rng)
        found = conditional_gradient(factor, variant, max_iter=2000, tol=1e-12)
        smallest = np.minimum.accumulate(found.gap)
        quarters = smallest[np.linspace(0, found.iterations, 5).astype(int)]
        assert (quarters[1:] < 0.1 * quarters[:-1]).all()


def test_steps_away_drop_structures(rng: np.random.Generator) -> None:
    sizes = []
    for _ in range(5):
        _graph, factor = tree(rng, 8)
        sizes.append(conditional_gradient(factor, "away", max_iter=2000).support_size)
    assert any((np.diff(size) < 0).any() for size in sizes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ties(variant: Variant) -> None:
    """Equal scores: the uniform marginals of a square, found by whatever vertices come first."""
    graph = FactorGraph()
    factor = graph.add(Matching(graph.variable((3, 3))))
    found = unfinished(factor, variant, max_iter=3000, tol=1e-8)
    np.testing.assert_allclose(found.marginals, 1 / 3, rtol=0, atol=found.error_bound + 1e-12)
    assert len(np.unique(found.variables, axis=0)) == len(found.variables)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_structure_takes_no_step(variant: Variant) -> None:
    graph = FactorGraph()
    choice = graph.add(Xor(graph.variable_from(np.array([3.0, 0.0]))))
    found = conditional_gradient(choice, variant)
    assert (found.iterations, found.converged, found.gap.tolist()) == (0, True, [0.0])
    assert found.marginals.tolist() == [1.0, 0.0]


def test_a_gap_below_rounding_ends_in_bounded_time(rng: np.random.Generator) -> None:
    _graph, factor = tree(rng)
    found = unfinished(factor, "pairwise", max_iter=5000, tol=1e-300)
    assert found.gap[-1] < 1e-12


# -------------------------------------------------------------------- input and output


def test_iteration_limit_is_a_status_and_a_warning(rng: np.random.Generator) -> None:
    _graph, factor = tree(rng)
    with pytest.warns(ConvergenceWarning, match=r"pairwise stopped after 3 iterations .* 1.0e-09"):
        found = conditional_gradient(factor, max_iter=3, tol=1e-9)
    assert (found.converged, found.iterations, len(found.gap)) == (False, 3, 4)


def test_a_variant_that_is_none(rng: np.random.Generator) -> None:
    _graph, factor = tree(rng)
    with pytest.raises(ValueError, match="expected one of .'vanilla', 'away', 'pairwise'"):
        conditional_gradient(factor, "fully-corrective")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scores", "make", "words"),
    [
        ([[0.0, 1], [2, 3]], Xor, r"got Xor\(2 factors .* as in Xor\(u\[0\]\)"),
        ([0.0, 1], lambda u: Budget(u[[0, 1, 1]], 2), "one in several slots"),
        ([0.0, 1], lambda u: Budget(u[:0], 2), "covers no variable"),
        ([np.nan, 1], Xor, "a score that is not finite"),
        ([-np.inf, 1], Xor, "a score that is not finite"),
        ([0.0, 1], lambda u: Pair(u[0], u[1], -np.inf), "a score that is not finite"),
    ],
)
def test_factors_that_cannot_be_solved(scores: Any, make: Any, words: str) -> None:
    _graph, factor = declared(scores, make)
    with pytest.raises(ValueError, match=words):
        conditional_gradient(factor)


def test_takes_the_scores_of_a_torch_graph() -> None:
    torch = pytest.importorskip("torch")
    from lpsmap import TorchFactorGraph

    graph = TorchFactorGraph()
    u = graph.variable_from(torch.tensor([0.5, 0.3, -1.0], requires_grad=True))
    found = conditional_gradient(graph.add(Xor(u)))
    np.testing.assert_allclose(found.marginals, [0.6, 0.4, 0.0], atol=1e-3)


def test_the_docstrings_example() -> None:
    result = doctest.testmod(sys.modules[conditional_gradient.__module__])
    assert (result.attempted, result.failed) == (6, 0)
