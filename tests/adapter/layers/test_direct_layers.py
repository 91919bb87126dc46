"""Layers of lone closed forms: the solution of one call, and of the graph where that is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import lpsmap_core.graph as graph
from lpsmap import AtMostOne, Budget, ConvergenceWarning, Knapsack, Or, Xor
from lpsmap_core.api import DirectSolution, Layout, solve_directly
from lpsmap_torch.layers import LatentTree, SparseMAP, layouts

pytestmark = pytest.mark.compiled

LAYERS: dict[str, Callable[[], SparseMAP]] = {
    "Xor": lambda: SparseMAP(Xor),
    "columns": lambda: SparseMAP(Xor, axis=-2),
    "AtMostOne": lambda: SparseMAP(AtMostOne),
    "Or": lambda: SparseMAP(Or),
    "Budget": lambda: SparseMAP(Budget, budget=2),
    "Knapsack": lambda: SparseMAP(Knapsack, costs=[1.0, 2.0, 1.0, 3.0], budget=2.5),
    "tempered": lambda: SparseMAP(Xor, temperature=0.3),
}


class Spy:
    """Records the kind of every solution of layers, and forbids the direct ones if told to."""

    def __init__(self) -> None:
        self.kinds: list[type] = []
        self.forbids = False

    def __call__(self, *given: Any) -> Any:
        found = given[-1]() if self.forbids else solve_directly(*given)
        self.kinds.append(type(found))
        return found


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    found = Spy()
    monkeypatch.setattr(layouts, "solve_directly", found)
    return found


def answers(layer: SparseMAP, scores: Tensor, gradient: Tensor, **given: Any) -> list[Tensor]:
    """Return marginals, gradients, and the product of the second derivative."""
    leaf = scores.clone().requires_grad_()
    cotangent = gradient.clone().requires_grad_()
    out = layer(leaf, **given)
    (d,) = torch.autograd.grad(out, leaf, cotangent, create_graph=True)
    (twice,) = torch.autograd.grad(d, cotangent, torch.ones_like(d))
    return [out.detach(), d.detach(), twice]


def both(
    spy: Spy, layer: SparseMAP, scores: Tensor, gradient: Tensor, **given: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the answers of one call of the closed form and of the graph's solve."""
    spy.forbids = False
    found = answers(layer, scores, gradient, **given)
    spy.forbids = True
    return found, answers(layer, scores, gradient, **given)


def assert_equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_graph_gives_the_same(spy: Spy, kind: str, dtype: torch.dtype) -> None:
    scores, gradient = torch.randn(2, 7, 3, 4, generator=torch.manual_seed(0)).to(dtype)
    assert_equal(*both(spy, LAYERS[kind](), scores, gradient))
    assert spy.kinds[0] is DirectSolution
    assert spy.kinds[-1] is not DirectSolution


@pytest.mark.parametrize("kind", LAYERS)
def test_masks(spy: Spy, kind: str) -> None:
    scores, gradient = torch.randn(2, 7, 3, 4, generator=torch.manual_seed(1))
    forbidden = scores.clone()
    forbidden[:, 1, 2] = forbidden[3, 0] = -torch.inf
    forbidden[3, 0, 1] = 0.0
    assert_equal(*both(spy, LAYERS[kind](), forbidden, gradient))
    assert spy.kinds[0] is DirectSolution
    mask = torch.ones(7, 3, 4, dtype=torch.bool)
    mask[2, :, 3] = mask[4, 1] = False
    if kind != "columns":  # two of which it would leave empty
        spy.kinds.clear()
        assert_equal(*both(spy, LAYERS[kind](), scores, gradient, mask=mask))
        assert spy.kinds[0] is DirectSolution


def test_lengths(spy: Spy) -> None:
    scores, gradient = torch.randn(2, 7, 4, generator=torch.manual_seed(2))
    lengths = torch.tensor([4, 1, 2, 3, 4, 4, 1])
    found, wanted = both(spy, SparseMAP(Xor), scores, gradient, lengths=lengths)
    assert_equal(found, wanted)
    assert spy.kinds[0] is DirectSolution
    padding = torch.arange(4) >= lengths[:, None]
    assert not any(x[padding].any() for x in found)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e150, 1e-200])
def test_unusual_gradients(spy: Spy, number: float) -> None:
    scores, gradient = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.manual_seed(3))
    gradient[1, 2] = number
    found, wanted = both(spy, SparseMAP(Xor), scores, gradient)
    assert_equal(found, wanted)
    assert spy.kinds[0] is DirectSolution
    assert found[1][1].isnan().all() == (not abs(number) < torch.inf)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e9, -1e9])
@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")
def test_unusual_scores(spy: Spy, number: float) -> None:
    scores, gradient = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.manual_seed(4))
    scores[1, 2] = number
    assert_equal(*both(spy, SparseMAP(Xor), scores, gradient))
    assert DirectSolution not in spy.kinds


def test_an_infeasible_row_warns(spy: Spy) -> None:
    scores = torch.zeros(3, 4)
    scores[1] = -torch.inf
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        found = SparseMAP(Xor)(scores)
    assert not found[1].any()
    assert DirectSolution not in spy.kinds


def test_changes_in_place_between_passes(spy: Spy) -> None:
    scores = torch.randn(5, 4, dtype=torch.float64, generator=torch.manual_seed(5))
    gradient = torch.full((5, 4), 1e150, dtype=torch.float64)  # needs a solution of the graph
    gradient[:, 0] = 0.0
    given, layer = scores.clone(), SparseMAP(Xor)
    leaf = given.clone().requires_grad_()
    x = leaf * 1.0
    out = layer(x)
    with torch.no_grad():
        x.zero_()
    (found,) = torch.autograd.grad(out, leaf, gradient)
    again = scores.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(layer(again), again, gradient)
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=0.0)
    assert spy.kinds[0] is DirectSolution


def test_engines_by_name(spy: Spy) -> None:
    scores = torch.zeros(2, 3)
    SparseMAP(Xor, engine="compiled")(scores)
    assert spy.kinds == [DirectSolution]
    SparseMAP(Xor, engine="tensor")(scores)
    assert DirectSolution not in spy.kinds[1:]


def test_empty_batches(spy: Spy) -> None:
    leaf = torch.empty(0, 4, requires_grad=True)
    SparseMAP(Xor)(leaf).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.shape == (0, 4)


@pytest.mark.parametrize("make", [lambda: SparseMAP(Xor), LatentTree])
def test_every_batch_is_laid_out_once(
    make: Callable[[], torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts: list[Layout] = []
    build = graph.build_layout

    def recorded(*given: Any) -> Layout:
        layouts.append(build(*given))
        return layouts[-1]

    monkeypatch.setattr(graph, "build_layout", recorded)
    layer, scores = make(), torch.randn(3, 5, 5, generator=torch.manual_seed(7))
    for lengths in (torch.tensor([5, 2, 3]), torch.tensor([1, 5, 4]), torch.tensor([5, 2, 3])):
        given = lengths if isinstance(layer, LatentTree) else lengths[:, None]
        layer(scores.requires_grad_(), lengths=given).sum().backward()
    assert len(layouts) == 2
