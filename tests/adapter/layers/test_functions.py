"""Layers of functions, losses of layers, and decoding: all solve the graph of one declaration."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from layer_cases import CASES, normal, trained
from lpsmap import AtMostOne, DepTree, Or, Pair, Sequence, Xor
from lpsmap_torch import TorchFactorGraph
from lpsmap_torch.layers import LatentTree, LPMatchingAttention, Rationale, SparseMAP
from lpsmap_torch.losses import (
    CRFLoss,
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
)

HEADS = torch.tensor([[-1, 0, 1, 1], [1, -1, -100, -100]])
WORDS = torch.tensor([4, 2])


def constrained(u: Any, transitions: Any, on: int = 0) -> list[Any]:
    """A sequence that has one state exactly once."""
    return [Sequence(u, transitions=transitions), Xor(u[..., on])]


def both_ways(u: Any) -> list[Any]:
    """A matching as two sides, a loop of factors."""
    return [AtMostOne(u), AtMostOne(u, axis=-2)]


# -------------------------------------------------------------------- layers of functions


def test_a_function_is_the_graph_that_it_builds() -> None:
    scores, transitions = normal(2, 4, 3), normal(3, 3, seed=1)
    found = SparseMAP(constrained, tol=1e-10)(scores, transitions=transitions, on=1)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    for factor in constrained(u, transitions, 1):
        graph.add(factor)
    graph.solve(tol=1e-10)
    assert torch.equal(found, u.value)
    inputs = scores, transitions
    direction = normal(2, 4, 3, seed=2).detach()
    expected = torch.autograd.grad(u.value, inputs, direction)
    for one, other in zip(torch.autograd.grad(found, inputs, direction), expected, strict=True):
        assert torch.equal(one, other)


def test_gradients_of_functions_are_those_of_differences() -> None:
    scores, transitions = normal(1, 4, 3), normal(3, 3, seed=1)
    layer = SparseMAP(constrained, tol=1e-11)
    assert torch.autograd.gradcheck(lambda s, t: layer(s, transitions=t), (scores, transitions))
    assert torch.autograd.gradgradcheck(
        lambda s: SparseMAP(both_ways, tol=1e-11)(s), normal(1, 2, 3)
    )


def test_functions_have_a_temperature() -> None:
    scores, transitions = normal(2, 4, 3), normal(3, 3, seed=1)
    temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    for given in (0.5, temperature):
        found = SparseMAP(constrained, tol=1e-10, temperature=given)(
            scores, transitions=transitions
        )
        expected = SparseMAP(constrained, tol=1e-10)(2.0 * scores, transitions=2.0 * transitions)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    found.square().sum().backward()
    assert temperature.grad is not None and temperature.grad != 0.0


def test_the_class_of_a_layer_is_no_layer() -> None:
    with pytest.raises(TypeError, match=r"the class LatentTree; expected a layer: LatentTree\("):
        SparseMAPLoss(LatentTree)


def test_the_temperature_of_a_layer_in_a_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature of its own"):
        SparseMAPLoss(LatentTree(temperature=2.0))(normal(2, 4, 4), HEADS, lengths=WORDS)


def test_a_function_may_connect_items_and_leave_variables_out() -> None:
    scores = normal(3, 2)
    found = SparseMAP(lambda u: Xor(u[:, 0]))(scores)
    assert torch.equal(found[:, 0], SparseMAP(Xor)(scores[:, 0]))
    assert not found[:, 1].any()
    found.sum().backward()
    assert scores.grad is not None
    assert not scores.grad[:, 1].any()


def test_arguments_of_the_layer_and_of_the_call_reach_the_function() -> None:
    scores, transitions = normal(2, 4, 3), torch.zeros(3, 3)
    given = SparseMAP(constrained, on=2)(scores, transitions=transitions)
    assert torch.equal(given, SparseMAP(constrained)(scores, transitions=transitions, on=2))
    lengths = torch.tensor([4, 2])
    assert torch.equal(
        SparseMAP(lambda u, lengths: Sequence(u, transitions=transitions, lengths=lengths))(
            scores, lengths=lengths
        ),
        SparseMAP(Sequence)(scores, torch.zeros(3 + 3 * 9 + 3).double(), lengths=lengths),
    )


@pytest.mark.parametrize("make", [SparseMAP, PerceptronLoss])
def test_an_argument_that_a_function_does_not_take_is_named(make: Any) -> None:
    called = make(lambda u: Xor(u))
    targets = [] if make is SparseMAP else [torch.zeros(2, dtype=torch.long)]
    with pytest.raises(TypeError, match=r"no parameter for mask.*def build\(u, mask\)"):
        called(torch.zeros(2, 3), *targets, mask=torch.ones(2, 3, dtype=torch.bool))


def test_infeasible_items_of_functions_have_no_weight() -> None:
    scores = torch.tensor([[1.0, 0.5], [-torch.inf, -torch.inf]])
    with pytest.warns(UserWarning, match="infeasible|INFEASIBLE"):
        found = SparseMAP(lambda u: Or(u))(scores)
    assert found[0, 0] > 0.5
    assert not found[1].any()


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3)])
def test_empty_batches_of_functions(shape: tuple[int, ...]) -> None:
    scores = normal(*shape)
    found = SparseMAP(both_ways)(scores)
    found.sum().backward()
    assert found.shape == shape
    assert SparseMAP(both_ways).decode(scores).shape == shape


def test_functions_are_compiled_around_and_refused_by_export() -> None:
    layer, scores = SparseMAP(both_ways), normal(1, 2, 3)
    with warnings.catch_warnings():  # of the compiler, which looks at gradients of all tensors
        warnings.filterwarnings("ignore", message=".*is not a leaf Tensor")
        compiled = torch.compile(lambda s: 2.0 * layer(s), backend="eager")(scores)
    assert torch.equal(compiled, 2.0 * layer(scores))
    with pytest.raises(Exception, match="cannot save this layer"):
        torch.export.export(layer, (scores.detach(),))


def test_layers_of_functions_are_pickled() -> None:
    layer = pickle.loads(pickle.dumps(SparseMAP(both_ways, tol=1e-8)))
    scores = normal(1, 2, 3)
    assert torch.equal(layer(scores), SparseMAP(both_ways, tol=1e-8)(scores))
    assert repr(layer) == "SparseMAP(factors=both_ways, tol=1e-08)"


def test_what_is_no_factor_is_named() -> None:
    with pytest.raises(TypeError, match="factors is 3; expected a factor type"):
        SparseMAP(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected arguments 'budget'"):
        SparseMAP(Xor)(normal(2, 3), budget=1)
    with pytest.raises(TypeError, match="scores"):
        SparseMAP(both_ways)([[1.0]])
    with pytest.raises(TypeError, match="add"):
        SparseMAP(lambda u: None)(normal(2, 3))


def test_structures_of_functions_are_those_of_the_first_factor() -> None:
    scores, transitions = normal(2, 4, 3), torch.zeros(3, 3)
    layer = SparseMAP(constrained, tol=1e-10)
    found = layer.structures(scores, transitions=transitions)
    mean = torch.zeros(2, 4, 3).double()
    for i in range(2):
        for structure in found[i]:
            mean[i] += structure.probability * torch.as_tensor(structure.variables)
    assert torch.allclose(mean, layer(scores, transitions=transitions).detach(), atol=1e-8)


# -------------------------------------------------------------------- losses of layers


@pytest.mark.parametrize(
    "loss",
    [SparseMAPLoss, MarginSparseMAPLoss, PerceptronLoss, StructuredHingeLoss, CRFLoss],
)
def test_a_layer_in_a_loss_is_its_factors(loss: Any) -> None:
    scores = normal(2, 4, 4)
    one, other = loss(LatentTree()), loss(DepTree)
    found, expected = (each(scores, HEADS, lengths=WORDS) for each in (one, other))
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(each, scores)[0] for each in (found, expected)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_loss_of_a_layer_is_zero_at_its_decoded_structure_in_the_limit(case: Any) -> None:
    """Of the layer's polytope, the best structure, far above the others, is the solution."""
    layer = trained(case)
    scores = 1000.0 * normal(3, *case.shape).detach()
    best = layer.decode(scores)
    assert set(best.unique().tolist()) <= {0.0, 1.0}
    loss = SparseMAPLoss(layer)(scores, best)
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert SparseMAPLoss(layer)(-scores, best).item() > 1.0


def test_parameters_of_a_layer_are_those_of_its_loss() -> None:
    layer = Rationale(2, transition=0.25)  # a float32 number
    loss = SparseMAPLoss(layer, tol=1e-9)
    assert [name for name, _ in loss.named_parameters()] == ["factors.transition"]
    scores, target = normal(2, 5), torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 1, 1.0]])
    loss.double()

    def by_differences(step: float) -> float:
        with torch.no_grad():
            layer.transition.fill_(0.25 + step)
            return float(loss(scores, target))

    (found,) = torch.autograd.grad(loss(scores, target), list(loss.parameters()))
    expected = (by_differences(1e-5) - by_differences(-1e-5)) / 2e-5
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_margins_leave_forbidden_pairs_forbidden() -> None:
    mask = torch.ones(1, 2, 3, dtype=torch.bool)
    mask[0, 0, 0] = False
    target = torch.tensor([[[0, 1, 0], [1, 0, 0.0]]])
    scores = normal(1, 2, 3)
    loss = StructuredHingeLoss(LPMatchingAttention())(scores, target, mask=mask)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient[0, 0, 0] == 0.0
    assert loss.item() > 0.0


# -------------------------------------------------------------------- decoding


def best_of_all(factors: list[Any], eta: Any) -> Any:
    """Return the best of all assignments that enumerated factors allow together."""
    found = [(np.full(len(eta), np.nan), 0.0)]
    for factor in factors:
        worth = np.asarray(factor.vertices_n) @ np.asarray(factor.eta_v)
        joined = []
        for x, score in found:
            known = ~np.isnan(x[factor.variables])
            for m, more in zip(factor.vertices_m, worth, strict=True):
                if (x[factor.variables] == m)[known].all():
                    longer = x.copy()
                    longer[factor.variables] = m
                    joined.append((longer, score + more))
        found = joined
    return max(found, key=lambda one: eta @ one[0] + one[1])[0]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decoded_structures_are_the_best_of_all(case: Any) -> None:
    layer, scores = trained(case), normal(3, *case.shape, seed=3).detach()
    found = layer.decode(scores)
    assert not found.requires_grad
    for one, item in zip(found, scores, strict=True):
        eta = np.zeros(item.numel() * case.shown)
        eta[:: case.shown] = item.reshape(-1)
        expected = best_of_all(case.factors(layer, case.shape), eta)[:: case.shown]
        assert one.reshape(-1).tolist() == expected.tolist()


def test_criteria_decode_as_their_layers_do() -> None:
    scores = normal(2, 4, 4)
    layer = LatentTree(budget=2)
    for found in (
        SparseMAPLoss(layer).decode(scores, lengths=WORDS),
        SparseMAPLoss(layer).decode(scores, {"exact": True}, lengths=WORDS),
    ):
        assert torch.equal(found, layer.decode(scores, lengths=WORDS))
    assert not found[1, 2:].any()
    assert found[0].sum() == 4
    trees = PerceptronLoss(DepTree).decode(scores, {"exact": False}, lengths=WORDS)
    assert torch.equal(trees, LatentTree().decode(scores, lengths=WORDS))


def test_items_without_a_structure_are_decoded_to_zeros() -> None:
    scores = torch.tensor([[1.0, 0.5], [-torch.inf, -torch.inf]])
    with pytest.warns(UserWarning):
        found = SparseMAP(Xor).decode(scores)
    assert found.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_a_function_decodes_with_interacting_factors() -> None:
    scores = normal(1, 3, 3, seed=5).detach()

    def build(u: Any) -> list[Any]:
        return [AtMostOne(u), AtMostOne(u, axis=-2), Pair(u[:, 0, 0], u[:, 0, 1], [-3.0])]

    found = SparseMAP(build).decode(scores)
    best, value = None, -np.inf
    for bits in np.ndindex(*[2] * 9):
        x = np.array(bits).reshape(3, 3)
        if x.sum(0).max() <= 1 and x.sum(1).max() <= 1:
            score = (x * scores[0].numpy()).sum() - 3.0 * x[0, 0] * x[0, 1]
            if score > value:
                best, value = x, score
    assert found[0].tolist() == np.asarray(best).tolist()
