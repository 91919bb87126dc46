"""Layers: values, derivatives, padding, dtypes, copies."""

from __future__ import annotations

import copy
import io
import itertools
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import judges
from layer_cases import CASES, Case, every_layer, normal, trained
from lpsmap import DepTree, ModifierBudget, Sequence, TorchFactorGraph
from lpsmap_core import Factor
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    LPSequenceAttention,
    SparseMAP,
    TopK,
)
from lpsmap_torch.layers.checks import Instances


@every_layer
def test_marginals_are_the_judges(case: Case) -> None:
    hold_to_the_judge(trained(case), case)


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("budget", [None, 2])
def test_options_of_latent_trees(projective: bool, single_root: bool, budget: int | None) -> None:
    """All together: crossing arcs, roots, and budgets of heads, the root's with them or without."""
    for root in {False, budget is not None}:
        layer = LatentTree(
            projective=projective, single_root=single_root, budget=budget, budget_root=root
        )
        hold_to_the_judge(layer, CASES["LatentTree"])


def test_budgets_of_latent_trees_are_modifier_budgets() -> None:
    u = TorchFactorGraph().variable((2, 4, 4))
    for budget, kinds in ((None, [DepTree]), (1, [DepTree, ModifierBudget])):
        declared = LatentTree(budget=budget).declare(u, Instances(), 0)
        assert [type(factor) for factor in declared.factors] == kinds


def hold_to_the_judge(layer: nn.Module, case: Case) -> None:
    scores = normal(3, *case.shape)
    found = layer(scores).detach().numpy()
    for values, eta in zip(found, scores.detach().numpy(), strict=True):
        whole = np.zeros((eta.size, case.shown))
        whole[:, 0] = eta.reshape(-1)
        mu, _, _ = judges.solve_graph(whole.reshape(-1), case.factors(layer, case.shape))
        expected = mu.reshape(-1, case.shown)[:, 0].reshape(case.shape)
        np.testing.assert_allclose(values, expected, atol=2e-6)


@every_layer
def test_gradients_of_layers(case: Case) -> None:
    layer, names = trained(case), [name for name, _ in case.make().named_parameters()]

    def function(scores: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        found: Tensor = torch.func.functional_call(layer, given, (scores,))
        return found

    layer.tol = 1e-10
    inputs = normal(2, *case.shape, seed=3), *layer.parameters()
    assert torch.autograd.gradcheck(function, inputs, atol=1e-5)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-5, fast_mode=True)


@every_layer
def test_scores_and_weights_may_change_before_the_backward_pass(case: Case) -> None:
    layer, scores = trained(case), normal(*case.shape).requires_grad_()
    weights = [weight for weight in layer.parameters() if weight.requires_grad]
    expected = torch.autograd.grad(layer(scores).square().sum(), [scores, *weights])
    changed = scores * 1.0
    loss = layer(changed).square().sum()
    with torch.no_grad():
        for tensor in (changed, *weights):
            tensor.add_(1.0)
    found = torch.autograd.grad(loss, [scores, *weights])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def ragged(case: Case, size: int) -> tuple[Tensor, Tensor, list[tuple[slice, ...]]]:
    """Return scores with NaN for padding, lengths, and each item's place."""
    rng = np.random.default_rng(0)
    shape = tuple(n + 3 for n in case.shape)
    ends = rng.integers(1, np.array(shape[: case.axes]) + 1, size=(size, case.axes))
    places = []
    for row in ends:
        cut = row if case.axes == len(shape) else np.repeat(row, len(shape))
        places.append(tuple(slice(int(end)) for end in cut))
    scores = torch.full((size, *shape), torch.nan, dtype=torch.float64)
    for b, place in enumerate(places):
        inside = scores[b][place]
        inside.copy_(torch.from_numpy(rng.normal(size=inside.shape)))
    lengths = torch.from_numpy(ends if case.axes > 1 else ends[:, 0])
    return scores.requires_grad_(), lengths, places


def masks_of(case: Case, scores: Tensor, places: list[tuple[slice, ...]], ndim: int) -> Tensor:
    mask = torch.zeros(scores.shape[: 1 + ndim], dtype=torch.bool)
    for row, place in zip(mask, places, strict=True):
        row[place[:ndim]] = True
    return mask


@every_layer
@pytest.mark.parametrize("how", ["lengths", "mask"])
def test_padding(case: Case, how: str) -> None:
    """Values and gradients of 64 ragged items are those of each by itself, zero elsewhere."""
    layer = trained(case)
    layer.tol = 1e-10
    scores, lengths, places = ragged(case, 64)
    given = {"lengths": lengths}
    if how == "mask":
        given = {"mask": masks_of(case, scores, places, layer.mask_ndim)}
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=scores.shape))
    values = layer(scores, **given)
    (values * weights).sum().backward()
    together = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    outside = torch.ones(scores.shape, dtype=torch.bool)
    for b, place in enumerate(places):
        own = scores.detach()[b][place].clone().requires_grad_()
        one = layer(own[None])[0]
        (one * weights[b][place]).sum().backward()
        torch.testing.assert_close(values[b][place], one, rtol=0, atol=1e-9)
        torch.testing.assert_close(scores.grad[b][place], own.grad, rtol=0, atol=1e-9)
        outside[b][place] = False
    assert not values[outside].any()
    assert not scores.grad[outside].any()
    for found, parameter in zip(together, layer.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=0, atol=1e-8)


@every_layer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(case: Case, dtype: torch.dtype) -> None:
    scores = normal(4, *case.shape, dtype=dtype)
    double = scores.detach().double().requires_grad_()
    values, expected = trained(case)(scores), trained(case)(double)
    assert values.dtype == dtype
    d = torch.randn(values.shape, dtype=dtype)
    values.backward(d)
    expected.backward(d.double())
    accuracy = {"rtol": 0, "atol": 8 * torch.finfo(dtype).eps + 1e-5}
    torch.testing.assert_close(values.double(), expected, **accuracy)
    assert scores.grad.dtype == dtype
    accuracy = {"rtol": 0, "atol": max(1e-4, 32 * torch.finfo(dtype).eps)}
    torch.testing.assert_close(scores.grad.double(), double.grad, **accuracy)


@every_layer
def test_autocast_and_layouts(case: Case) -> None:
    """Scores that a matrix product leaves in half precision, sliced, expanded, transposed."""
    layer, scores = trained(case, torch.float32), normal(2, *case.shape, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = layer((scores.reshape(2, -1) @ torch.eye(scores[0].numel())).reshape(scores.shape))
    assert half.dtype == torch.bfloat16
    half.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == p.dtype for p in layer.parameters())
    stored = torch.stack([scores, scores], -1).detach().transpose(0, -2)
    torch.testing.assert_close(layer(stored[..., 0].transpose(0, -1)), layer(scores).detach())
    same = layer(scores[:1].expand(3, *case.shape))
    torch.testing.assert_close(same, layer(scores)[:1].expand_as(same), rtol=0, atol=1e-5)


@every_layer
def test_batch_axes(case: Case) -> None:
    """Any number of them, and none; an empty batch."""
    layer, scores = trained(case), normal(2, 3, *case.shape)
    found = layer(scores)
    for i, j in itertools.product(range(2), range(3)):
        torch.testing.assert_close(found[i, j], layer(scores[i, j]), rtol=0, atol=2e-6)
    empty = normal(0, *case.shape)
    layer(empty).sum().backward()
    assert empty.grad.shape == empty.shape


@every_layer
def test_structures_have_the_marginals_for_mean(case: Case) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    found = layer.structures(scores)
    if isinstance(layer, LPMatchingAttention):
        return  # a structure is a row's
    p, variables = found.probabilities, found.variables
    if case.shown > 1:
        variables = variables[..., 1]
    mean = torch.einsum("bk,bk...->b...", p, variables)
    if isinstance(layer, LPSequenceAttention):
        mean = mean.transpose(1, 2)
    values = layer(scores)
    torch.testing.assert_close(mean, values, rtol=0, atol=2e-6)
    d = torch.randn(values.shape, dtype=values.dtype)
    inputs = scores, *layer.parameters()
    gradients = [torch.autograd.grad(x, inputs, d) for x in (mean, values)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


@every_layer
def test_layouts_are_kept_and_few(case: Case) -> None:
    layer = trained(case)
    scores, lengths, _ = ragged(case, 5)
    first = layer(scores, lengths=lengths)
    for size in range(1, 12):
        layer(normal(size, *case.shape))
        layer(normal(size, *case.shape))
    assert len(layer._layouts.graphs) == 8
    torch.testing.assert_close(layer(scores, lengths=lengths), first)


@every_layer
def test_copies(case: Case) -> None:
    layer, scores = trained(case), normal(2, *case.shape)
    expected = layer(scores)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    others = [
        copy.deepcopy(layer),
        copy.copy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(file, weights_only=False),
    ]
    fresh = case.make().double()
    assert not fresh.load_state_dict(layer.state_dict()).missing_keys
    for other in [*others, fresh]:
        torch.testing.assert_close(other(scores), expected)
        assert other._name == layer._name
        assert repr(other) == repr(layer)
    if isinstance(getattr(layer, "transition", None), nn.Parameter):
        others[0].reset_parameters()
        assert not others[0].transition.any()


def test_reprs_say_what_was_chosen() -> None:
    assert repr(trained(CASES["LatentTree"])) == "LatentTree(budget=1, budget_root=True)"
    assert repr(TopK(3, tol=1e-4, threads=2)) == "TopK(k=3, exact=True, tol=0.0001, threads=2)"
    assert repr(CASES["SparseMAP"].make()) == "SparseMAP(factors=Xor)"


def test_additionals_of_any_type() -> None:
    """Shared by all instances, or one row each."""
    layer, scores = SparseMAP(Sequence), normal(2, 3, 2)
    shared, each = normal(12), normal(2, 12, seed=1)
    for w in (shared, each):
        found = layer(scores, w, lengths=torch.tensor([3, 2]))
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(Sequence(u, additionals=w.expand(2, 12), lengths=[3, 2]))
        graph.solve()
        inside = torch.tensor([[True, True, True], [True, True, False]])[..., None]
        torch.testing.assert_close(found, torch.where(inside, u.value, 0.0))
        d = torch.randn(found.shape, dtype=found.dtype) * inside
        gradients = (torch.autograd.grad(x, (scores, w), d) for x in (found, u.value))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0, 1e4])
def test_the_start_of_a_matching_changes_nothing(scale: float) -> None:
    """Newton's method finds duals that the loop only has to look at, and never another answer."""
    layer, scores = LPMatchingAttention(tol=1e-8), scale * normal(8, 7, 5).detach()
    exact = CASES["MatchingAttention"].make()(scores)
    lengths = torch.tensor([[7, 5], [3, 5], [1, 1], [7, 1], [1, 5], [5, 5], [0, 3], [2, 4]])
    torch.testing.assert_close(layer(scores), exact, rtol=0, atol=1e-6)
    cut = layer(scores, lengths=lengths)
    exact = CASES["MatchingAttention"].make()(scores, lengths=lengths)
    torch.testing.assert_close(cut, exact, rtol=0, atol=1e-6)
    solution = layer(scores, return_solution=True).estimate.result
    assert solution.ok
    assert scale > 1.0 or solution.iterations.max() <= 2


def test_rescaled_rows_sum_to_one() -> None:
    """Where the solver was cut off, too; the shorter side of every item."""
    scores = normal(4, 6, 5).detach()
    lengths = torch.tensor([[6, 5], [3, 5], [0, 0], [4, 4]])
    for rescale in (False, True):
        layer = LPSequenceAttention(rescale, max_iter=3)
        with pytest.warns(UserWarning, match="were not solved"):
            found = layer(scores, lengths=lengths)
        sums = [found[0].sum(0), found[1, :3].sum(1), found[3, :4].sum(1)]
        off = max((s - 1).abs().max().item() for s in sums)
        assert off < 1e-6 if rescale else off > 1e-4
        assert not found[2].any()


def test_a_type_needs_no_examples_of_ours() -> None:
    """A factor of two methods is a layer as well."""

    class First(Factor):
        def solve_map(self, eta_u, eta_v):  # type: ignore[no-untyped-def]
            return int(np.argmax(np.cumsum(eta_u)))

        def vertex(self, y):  # type: ignore[no-untyped-def]
            return np.arange(self.event_shape[0]) <= y, np.empty(0)

    layer = SparseMAP(First)
    assert torch.autograd.gradcheck(layer, (normal(2, 4),), atol=1e-5)
