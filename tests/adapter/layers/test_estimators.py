"""Estimators of layers: values and gradients by enumeration, and by their definitions."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import judges
from judged_layers import Judged
from layer_cases import CASES, SUMMED, Case, every_layer, normal, trained
from lpsmap import Knapsack, Or, Pair, Permutation, Sequence, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_torch.estimators import (
    MAP,
    GibbsMarginals,
    PerturbAndMAP,
    Sample,
    SparseMarginals,
)
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    LPSequenceAttention,
    MatchingAttention,
    Rationale,
    SequenceAttention,
    SparseMAP,
    TopK,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:lpsmap. Components were not solved"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

double = torch.float64
with_sums = pytest.mark.parametrize("case", [CASES[name] for name in SUMMED], ids=SUMMED)


# -------------------------------------------------------------------- the best structure


@every_layer
@pytest.mark.parametrize("exact", [False, True])
def test_map_is_the_best_structure(case: Case, exact: bool) -> None:
    layer = trained(case)
    layer.estimator = MAP(exact=exact)
    scores = normal(5, *case.shape)
    found = layer(scores, return_solution=True)
    for i in range(5):
        judged = Judged(layer, case, scores[i])
        if exact or found.solved[i]:
            np.testing.assert_array_equal(
                found.marginals[i].detach(), judged.visible(judged.best, case)
            )
            assert abs(found.objective[i].item() - judged.scores.max()) < 1e-9
        assert set(found.marginals[i].detach().unique().tolist()) <= {0.0, 1.0}
    assert not exact or found.solved.all()


@every_layer
def test_straight_through_gradients_are_those_of_the_relaxation(case: Case) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    given = scores, *layer.parameters()
    d = normal(3, *case.shape, seed=5).detach()
    expected = torch.autograd.grad(layer(scores), given, d)
    layer.estimator = "map"
    found = torch.autograd.grad(layer(scores), given, d)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_layer
def test_identity_gradients_are_those_of_the_output(case: Case) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    layer.estimator = MAP("identity")
    d = normal(3, *case.shape, seed=5).detach()
    (found,) = torch.autograd.grad(layer(scores), scores, d)
    torch.testing.assert_close(found, d, rtol=0, atol=0)


@every_layer
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_spigot_gradients_are_a_step_of_projected_gradient(case: Case, step: float) -> None:
    layer = trained(case)
    layer.tol = 1e-10
    layer.estimator = MAP("spigot", step=step, exact=True)
    scores, d = normal(2, *case.shape), normal(2, *case.shape, seed=5).detach()
    (found,) = torch.autograd.grad(layer(scores), scores, d)
    for i in range(2):
        judged = Judged(layer, case, scores[i])
        moved = judged.best.reshape(-1, case.shown).copy()
        moved[:, 0] -= step * d[i].numpy().reshape(-1)
        still = [f._replace(eta_v=np.zeros_like(f.eta_v)) for f in judged.factors]
        projected, _, _ = judges.solve_graph(moved.reshape(-1), still)
        expected = judged.visible(judged.best - projected, case)
        np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-6)


def test_spigot_gradients_of_additionals() -> None:
    """With a gradient in the additionals as well, which have no quadratic term."""
    layer = SparseMAP(Sequence, estimator=MAP("spigot", step=0.4), tol=1e-10)
    scores, additionals = normal(4, 3), normal(3 + 3 * 9 + 3, seed=1)
    found = layer(scores, additionals, return_solution=True)
    d, d_v = normal(4, 3, seed=2).detach(), normal(33, seed=3).detach()
    total = (found.marginals * d).sum() + (found.additionals * d_v).sum()
    gradients = torch.autograd.grad(total, (scores, additionals))
    m, n = judges.sequences(4, 3)
    n = with_ends(m, n)
    worth = m @ scores.detach().numpy().reshape(-1) + n @ additionals.detach().numpy()
    best = worth.argmax()
    factor = judges.EnumeratedFactor(np.arange(12), np.zeros(12, bool), m, n, -0.4 * d_v.numpy())
    mu, (nu,), _ = judges.solve_graph(m[best] - 0.4 * d.numpy().reshape(-1), [factor])
    np.testing.assert_allclose(gradients[0].reshape(-1), m[best] - mu, rtol=0, atol=1e-6)
    np.testing.assert_allclose(gradients[1], n[best] - nu, rtol=0, atol=1e-6)


def with_ends(m: Any, n: Any) -> Any:
    """Return additionals of sequences of 4 steps and 3 states with those of both ends."""
    table = m.reshape(len(m), 4, 3)
    return np.concatenate([table[:, 0], n, table[:, -1]], axis=1)


def test_second_derivatives_of_spigot_are_refused() -> None:
    scores = normal(2, 5)
    value = SparseMAP(Xor, estimator=MAP("spigot"))(scores)[:, 0].sum()
    (first,) = torch.autograd.grad(value, scores, create_graph=True)
    if first.requires_grad:
        with pytest.raises(RuntimeError, match="straight-through"):
            torch.autograd.grad(first.sum(), scores)


def test_fractional_relaxations_are_rounded() -> None:
    """A cycle of disagreeing pairs, whose relaxation is one half everywhere."""

    def cycle(u: Any, worth: Any) -> Any:
        own = worth.expand(len(u))
        return [Pair(u[:, i], u[:, j], own) for i, j in ((0, 1), (1, 2), (0, 2))]

    scores, worth = torch.full((2, 3), 0.5, dtype=double), torch.tensor(-1.0, dtype=double)
    relaxed = SparseMAP(cycle, estimator="map")
    scores.requires_grad_()
    found = relaxed(scores, worth=worth, return_solution=True)
    assert set(found.marginals.detach().unique().tolist()) <= {0.0, 1.0}
    exact = SparseMAP(cycle, estimator=MAP(exact=True))(scores, worth=worth, return_solution=True)
    assert exact.solved.all()
    assert exact.objective.tolist() == [0.5, 0.5]
    assert (found.objective <= exact.objective + 1e-9).all()


# -------------------------------------------------------------------- sums


@with_sums
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_marginals_are_those_of_the_gibbs_distribution(case: Case, temperature: float) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    layer.estimator, layer.temperature = "marginals", temperature
    found = layer(scores, return_solution=True)
    torch.testing.assert_close(found.marginals, layer(scores), rtol=0, atol=0)
    for i in range(3):
        judged = Judged(layer, case, scores[i])
        worth = judged.scores / temperature
        p = np.exp(worth - worth.max())
        log_z = temperature * (np.log(p.sum()) + worth.max())
        expected = judged.visible(p @ judged.structures.variables / p.sum(), case)
        np.testing.assert_allclose(found.marginals[i].detach(), expected, rtol=0, atol=1e-12)
        assert abs(found.objective[i].item() - log_z) < 1e-11


@with_sums
def test_gradients_of_gibbs_marginals(case: Case) -> None:
    layer = trained(case)
    layer.estimator = GibbsMarginals()
    scores = normal(2, *case.shape)
    names, own = [n for n, _ in layer.named_parameters()], list(layer.parameters())

    def run(scores: Tensor, *parameters: Tensor) -> Any:
        given = dict(zip(names, parameters, strict=True))
        found = torch.func.functional_call(layer, given, (scores,), {"return_solution": True})
        return found.marginals, found.objective

    assert torch.autograd.gradcheck(run, (scores, *own))
    assert torch.autograd.gradgradcheck(lambda *x: run(*x)[1], (scores, *own))


# -------------------------------------------------------------------- batches and bad input


ESTIMATORS: dict[str, Any] = {
    "sparsemap": SparseMarginals,
    "map": MAP,
    "spigot": lambda: MAP("spigot"),
    "identity": lambda: MAP("identity"),
    "perturb": PerturbAndMAP,
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


@every_layer
@every_estimator
def test_padding_has_zeros_and_other_items_do_not_suffer(case: Case, estimator: Any) -> None:
    layer = trained(case)
    layer.estimator = estimator()
    torch.manual_seed(0)
    scores = normal(3, *case.shape).detach()
    scores[2] = torch.nan
    lengths = torch.ones(3, case.axes, dtype=torch.int64) * 2
    lengths = lengths if case.axes == 2 else lengths[:, 0]
    scores.requires_grad_()
    found = layer(scores, lengths=lengths, return_solution=True)
    inside = torch.zeros(3, *case.shape, dtype=torch.bool)
    inside[(slice(None), *[slice(0, 2)] * len(case.shape))] = True
    assert (found.marginals[~inside] == 0.0).all()
    assert found.marginals[:2].isfinite().all()
    assert found.marginals[2][inside[2]].isnan().any()
    (gradient,) = torch.autograd.grad(
        (found.marginals * normal(3, *case.shape, seed=3)).sum(), scores
    )
    assert (gradient[:2][~inside[:2]] == 0.0).all() and gradient[:2].isfinite().all()


@every_layer
@every_estimator
def test_empty_batches_and_instances_without_variables(case: Case, estimator: Any) -> None:
    layer = trained(case)
    layer.estimator = estimator()
    empty = layer(torch.zeros(0, *case.shape, dtype=double), return_solution=True)
    assert empty.marginals.shape == (0, *case.shape) and empty.objective.shape == (0,)
    nothing = torch.zeros(2, case.axes, dtype=torch.int64)
    nothing = nothing if case.axes == 2 else nothing[:, 0]
    found = layer(normal(2, *case.shape), lengths=nothing, return_solution=True)
    assert (found.marginals == 0.0).all() and found.objective.tolist() == [0.0, 0.0]
    assert found.solved.all()
    found.marginals.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@every_estimator
def test_other_dtypes(estimator: Any, dtype: torch.dtype) -> None:
    layer = LatentTree(estimator=estimator(), temperature=torch.tensor(0.5))
    scores = normal(2, 4, 4, dtype=dtype)
    found = layer(scores, return_solution=True)
    assert found.marginals.dtype == dtype
    assert found.objective.dtype == torch.float32
    found.marginals.sum().backward()
    assert scores.grad.dtype == dtype


def test_infeasible_instances_have_zeros() -> None:
    scores = normal(2, 3).detach()
    scores[0] = -torch.inf
    scores.requires_grad_()
    for make in ESTIMATORS.values():
        found = SparseMAP(Xor, estimator=make())(scores, return_solution=True)
        assert (found.marginals[0] == 0.0).all() and found.marginals[1].sum() > 0.99
        assert found.solved.tolist()[1] is True
        (gradient,) = torch.autograd.grad(found.marginals.sum(), scores)
        assert (gradient[0] == 0.0).all()


@every_estimator
def test_forbidden_variables_have_no_gradient(estimator: Any) -> None:
    scores = normal(3, 4).detach()
    scores[:, 1] = -torch.inf
    scores.requires_grad_()
    found = SparseMAP(Xor, estimator=estimator())(scores)
    assert (found[:, 1] == 0.0).all()
    (gradient,) = torch.autograd.grad((found * normal(3, 4, seed=1)).sum(), scores)
    assert (gradient[:, 1] == 0.0).all() and gradient.isfinite().all()


@pytest.mark.parametrize("estimator", [*ESTIMATORS.values()][1:], ids=[*ESTIMATORS][1:])
def test_in_place_changes_after_the_forward_pass(estimator: Any) -> None:
    layer, x = LatentTree(estimator=estimator()), normal(2, 4, 4)
    gradients = []
    for change in (0.0, 5.0):
        torch.manual_seed(0)
        scores = x * 1.0
        found = layer(scores)
        with torch.no_grad():
            scores.mul_(1.0 + change)
        gradients.append(torch.autograd.grad((found * normal(2, 4, 4, seed=1)).sum(), x)[0])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@every_estimator
@pytest.mark.filterwarnings("ignore:.*is not a leaf Tensor")  # the compiler reads all gradients
def test_compiled_layers(estimator: Any) -> None:
    layer = LatentTree(estimator=estimator())
    compiled = torch.compile(lambda scores: layer(2.0 * scores) + 1.0, backend="aot_eager")
    results = []
    for run in (compiled, lambda scores: layer(2.0 * scores) + 1.0):
        torch.manual_seed(0)
        scores = normal(2, 4, 4)
        found = run(scores)
        results.append((found, *torch.autograd.grad((found * found).sum(), scores)))
    torch.testing.assert_close(*results)


def test_estimators_by_name_repr_copies_and_pickles() -> None:
    for name in ("sparsemap", "marginals", "map", "sample", "perturb"):
        layer = pickle.loads(pickle.dumps(copy.deepcopy(SequenceAttention(estimator=name))))
        assert ("estimator=" in repr(layer)) == (name != "sparsemap")
        layer.estimator = MAP("spigot", step=0.5)
        assert "MAP('spigot', step=0.5)" in repr(layer)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: TopK(2, estimator="softmax"), ValueError, "estimator is 'softmax'; expected"),
        (lambda: TopK(2, estimator=MAP), TypeError, "expected one of 'sparsemap'"),
        (lambda: MAP("exact"), ValueError, "MAP: gradient is 'exact'"),
        (lambda: MAP("spigot", step=0.0), ValueError, "MAP: step"),
        (lambda: MAP(exact="yes"), TypeError, "MAP: exact"),
        (lambda: Sample("spigot"), ValueError, "Sample: gradient is 'spigot'"),
        (lambda: MatchingAttention().sample(normal(2, 3, 3)), TypeError, "Matching has no"),
        (
            lambda: MatchingAttention(estimator="marginals")(normal(2, 3, 3)),
            TypeError,
            "Matching has no",
        ),
        (
            lambda: SequenceAttention(estimator="sample")(
                normal(2, 3, 3), return_solution=True
            ).structures(),
            TypeError,
            "structures: the estimator sums",
        ),
    ],
)
def test_bad_input(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_export_is_refused() -> None:
    with pytest.raises(Exception, match="torch.export can only save marginals"):
        torch.export.export(LatentTree(estimator="map"), (torch.zeros(2, 3, 3),), strict=False)


def test_unsolved_instances_are_flagged() -> None:
    scores = normal(4, 6, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = LPSequenceAttention(max_iter=1, tol=1e-12)(scores, return_solution=True)
    assert not found.solved.any()


def test_rescaled_weights_are_part_of_the_solution() -> None:
    scores = normal(2, 3, 4)
    layer = LPMatchingAttention(rescale=True, max_iter=3, adapt=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = layer(scores, return_solution=True)
        torch.testing.assert_close(found.marginals, layer(scores))
    torch.testing.assert_close(found.marginals.sum(-1), torch.ones(2, 3, dtype=double))


def test_rationales_of_a_budget_of_zero() -> None:
    for make in ESTIMATORS.values():
        found = Rationale(0, estimator=make())(normal(2, 4))
        assert (found == 0.0).all()


@every_estimator
def test_functions_without_factors_have_zeros(estimator: Any) -> None:
    found = SparseMAP(lambda u: [], estimator=estimator())(normal(2, 3), return_solution=True)
    assert (found.marginals == 0.0).all() and found.objective.tolist() == [0.0, 0.0]
    assert found.structures() is not None


@with_sums
@pytest.mark.parametrize("name", ["marginals", "sample"])
def test_sums_over_padding_and_empty_batches(case: Case, name: str) -> None:
    layer = trained(case)
    layer.estimator = name
    nothing = torch.zeros(2, case.axes, dtype=torch.int64)
    nothing = nothing if case.axes == 2 else nothing[:, 0]
    found = layer(normal(2, *case.shape), lengths=nothing, return_solution=True)
    assert (found.marginals == 0.0).all() and found.objective.tolist() == [0.0, 0.0]
    assert layer(torch.zeros(0, *case.shape, dtype=double)).shape == (0, *case.shape)
    assert layer.sample(normal(2, *case.shape), 3, lengths=nothing).values.shape[0] == 3


def test_disjunctions_of_functions() -> None:
    found = SparseMAP(lambda u: Or(u), estimator="map")(torch.full((2, 3), -1.0))
    assert found.sum(-1).tolist() == [1.0, 1.0]


KNAPSACK = {"costs": [1.0, 2.0, 3.0, 1.0], "budget": 3.0}


@pytest.mark.parametrize("estimator", [MAP(), MAP("spigot"), PerturbAndMAP()], ids=repr)
def test_fractional_solutions_are_rounded_to_structures(estimator: Any) -> None:
    """The first node of a search may have no structure; then it goes on."""
    torch.manual_seed(0)
    scores = torch.cat([torch.tensor([[0.0, 0.0, 1.0, 0.5]]), torch.randn(50, 4)]).double()
    found = SparseMAP(Knapsack, estimator=estimator, **KNAPSACK)(scores)
    assert ((found == 0.0) | (found == 1.0)).all()
    assert (found @ torch.tensor(KNAPSACK["costs"]).double() <= KNAPSACK["budget"]).all()
    trees = LatentTree(
        budget=1, projective=True, single_root=True, budget_root=True, estimator=estimator
    )
    assert (trees(torch.randn(10, 6, 6)).sum(-1) == 1.0).all()
    alike = LPSequenceAttention(estimator=estimator)(torch.zeros(1, 3, 5))
    assert ((alike == 0.0) | (alike == 1.0)).all()


def test_rounded_structures_are_not_called_the_best() -> None:
    """The first structure that the search finds has score .85, the best one 1.08."""
    scores = torch.tensor([[0.45, 0.63, 0.35, 0.4]], dtype=torch.float64)
    for estimator, proved in ((MAP(), False), (MAP(exact=True), True)):
        layer = SparseMAP(Knapsack, estimator=estimator, **KNAPSACK)
        assert layer(scores, return_solution=True).solved.tolist() == [proved]


def test_a_type_without_structures_of_zeros_and_ones_is_reported() -> None:
    with pytest.warns(ConvergenceWarning, match="no structure of zeros and ones"):
        SparseMAP(Permutation, estimator="map")(torch.tensor([[0.3, -1.0, 2.0, 0.5]]))


@pytest.mark.parametrize("estimator", ["marginals", "sample"])
def test_sums_over_no_structures_are_reported(estimator: str) -> None:
    layer = TopK(2, estimator=estimator)
    with pytest.warns(ConvergenceWarning, match="constraints that allow no structure"):
        found = layer(torch.tensor([[0.0, -torch.inf, -torch.inf], [0.0, 1.0, 2.0]]))
    assert not found[0].any()
    assert found[1].any()


@pytest.mark.parametrize("estimator", ["marginals", "sample", "map"])
def test_solutions_without_a_batch_have_additionals(estimator: str) -> None:
    layer = Rationale(2, transition=0.5, estimator=estimator)
    one, batch = (layer(torch.ones(shape), return_solution=True) for shape in ((4,), (1, 4)))
    assert one.additionals.shape == batch.additionals.shape[1:]
