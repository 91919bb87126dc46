"""Layers in programs that are compiled, or exported and loaded elsewhere."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lpsmap import Budget, Knapsack, Xor
from lpsmap_torch import by_name
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    MatchingAttention,
    Rationale,
    SequenceAttention,
    SparseMAP,
    TopK,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

LAYERS: dict[str, nn.Module] = {
    "tree": LatentTree(budget=1),
    "top": TopK(2),
    "budget": SparseMAP(Budget, budget=1),
    "costs": SparseMAP(Knapsack, costs=np.array([1.0, 2.0, 0.5]), budget=2.0),
    "rationale": Rationale(2, 0.3),
    "sequence": SequenceAttention(),
    "matching": LPMatchingAttention(rescale=True),
}

LOADED = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from lpsmap_torch.layers import LatentTree, Rationale, TopK

others = [TopK(1), LatentTree(single_root=True), Rationale(1), TopK(3), Rationale(0)]
for other in others:
    other(torch.zeros(3, 3))
scores, found, gradient = torch.load(sys.argv[2])
loaded = torch.export.load(sys.argv[1]).module()
scores.requires_grad_()
values = loaded(scores)
values.square().sum().backward()
torch.testing.assert_close(values.detach(), found, rtol=0, atol=0)
torch.testing.assert_close(scores.grad, gradient, rtol=0, atol=0)
print("the same")
"""


class Model(nn.Module):
    """All layers, one beside the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(LAYERS)

    def forward(self, scores: Tensor) -> Tensor:
        return torch.cat([layer(scores) for layer in self.layers.values()])


def test_an_exported_program_is_the_same_in_another_process(tmp_path: Path) -> None:
    """Where other layers were made before: the program has its layers with it."""
    model, scores = Model(), torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    found = model(scores.requires_grad_())
    found.square().sum().backward()
    program, numbers = tmp_path / "program.pt2", tmp_path / "numbers.pt"
    torch.export.save(torch.export.export(model, (scores.detach(),)), program)
    torch.save((scores.detach(), found.detach(), scores.grad), numbers)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(program), str(numbers)], capture_output=True, text=True
    )
    assert done.stdout == "the same\n", done.stderr


def test_an_exported_program_needs_no_layer() -> None:
    """It holds neither its layers nor their parameters' first values."""
    layer, scores = Rationale(1, 0.5), torch.randn(3, 4)
    lengths, size = torch.tensor([4, 2, 0]), torch.export.Dim("size")
    program = torch.export.export(
        layer, (scores,), {"lengths": lengths}, dynamic_shapes=({0: size}, {0: size})
    )
    expected, gone = layer(scores, lengths=lengths), weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
    torch.testing.assert_close(program.module()(scores, lengths=lengths), expected)
    twice = program.module()(scores.repeat(2, 1), lengths=lengths.repeat(2))
    torch.testing.assert_close(twice, expected.repeat(2, 1))


class Own(Xor):
    """A type of no installed plugin."""


class Changed(TopK):
    """A layer that is declared otherwise."""

    def declare(self, *given: Any) -> Any:
        return super().declare(*given)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (SparseMAP(Own), "the factor type Own is not that of an installed plugin"),
        (Changed(1), "its type Changed is not one of lpsmap_torch.layers"),
        (SparseMAP(Budget, budget=torch.tensor(1)), "its option budget is of type Tensor"),
    ],
    ids=["type", "subclass", "option"],
)
def test_what_cannot_be_exported_is_refused(layer: nn.Module, why: str) -> None:
    scores = torch.randn(2, 3)
    with pytest.raises(RuntimeError, match=f"torch.export cannot save this layer: {why}"):
        torch.export.export(layer, (scores,))
    assert layer(scores).shape == scores.shape


@pytest.mark.parametrize("save", [torch.export.export, torch.jit.trace])
@pytest.mark.parametrize("layer", [TopK(2), Rationale(1)])
def test_onnx_is_refused(save: Any, layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the exporter over torch.export, and by that over torch.jit.trace."""
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    with pytest.raises(RuntimeError, match=r"torch.onnx.export cannot save .* no operator"):
        save(layer, (torch.randn(2, 3),))


def test_a_specification_of_what_is_not_installed_says_so() -> None:
    text, top = SparseMAP(Budget, budget=1)._name, TopK(1)._name
    for changed, why in (
        (text.replace("Budget", "Bidget"), "factor type Bidget is not installed"),
        (text.replace("lpsmap_factors_logic", "other"), "expected other"),
        (top.replace("max_iter", "most_iter"), "most_iter"),
        (top.replace("TopK", "TopOne"), "TopOne"),
    ):
        assert changed not in (text, top)
        with pytest.raises(RuntimeError, match=f"cannot build the layer .*{why}"):
            by_name.callee_named(changed)
    with pytest.raises(RuntimeError, match="the layer belongs to another process"):
        by_name.callee_named("layer 1")


class Block(nn.Module):
    """One of many that are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4)
        self.attention = LPMatchingAttention()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.encode(x) @ x.mT) @ x


def test_twelve_compiled_blocks_share_one_graph() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    graphs: list[Any] = []

    def keep(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    blocks, x = [Block() for _ in range(12)], torch.randn(2, 3, 4)
    for block in blocks:
        expected = block(x)
        block.compile(fullgraph=True, backend=keep)
        torch.testing.assert_close(block(x), expected)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_a_model_of_twelve_layers_is_compiled_in_one_graph() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Block() for _ in range(12))), torch.randn(2, 3, 4)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    for forward in (model, compiled):
        model.zero_grad()
        value = forward(x)
        value.square().mean().backward()
        results.append([value.detach(), *(p.grad.clone() for p in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


def test_an_option_that_is_set_later_counts() -> None:
    """In a layout that was made before, too; and compiled code is made anew."""
    torch._dynamo.reset()
    layer, scores = TopK(1), torch.tensor([3.0, 2.0, -9.0])
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    for k, expected in ((1, [1.0, 0.0, 0.0]), (2, [1.0, 1.0, 0.0])):
        layer.k = k
        assert layer(scores).tolist() == expected
        assert compiled(scores).tolist() == expected
    torch._dynamo.reset()


def test_traced_layers_do_not_follow_the_options_of_an_equal_one() -> None:
    """The latest of equal layers had the name, and kept it when its options changed."""
    scores = torch.tensor([[0.3, 0.1, 0.2, -0.1, 0.0]], dtype=torch.float64)
    layer, program = TopK(2), torch.export.export(TopK(2), (scores,)).module()
    twin, other = copy.deepcopy(layer), TopK(2)
    expected = layer(scores)
    twin.k, other.k = 3, 4
    assert float(expected.sum()) == pytest.approx(2.0)
    _, along = torch.func.jvp(layer, (scores,), (torch.ones_like(scores),))
    torch.testing.assert_close(along, torch.zeros_like(scores))
    for traced in (torch.func.vmap(layer), torch.compile(layer, backend="aot_eager"), program):
        torch.testing.assert_close(traced(scores), expected)
    torch._dynamo.reset()


def test_options_are_copies() -> None:
    """Layouts are shared by the values of options, which a caller may change in place."""
    budget, scores = np.array([1, 1]), torch.full((2, 4), 0.8)
    layer = SparseMAP(Budget, budget=budget)
    budget[:] = 3
    for shape in (scores, scores[:, :3]):
        torch.testing.assert_close(layer(shape).sum(-1), torch.ones(2))
    with pytest.raises(TypeError, match="does not support item assignment"):
        layer.options["budget"] = 2
    for same in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert same._name == layer._name
        torch.testing.assert_close(same(scores).sum(-1), torch.ones(2))
    layer.options = {"budget": 2}
    torch.testing.assert_close(layer(scores).sum(-1), torch.full((2,), 2.0))


def test_layers_of_one_specification_share_layouts_while_they_live() -> None:
    one, other = MatchingAttention(max_iter=77), MatchingAttention(max_iter=77)
    copies = [
        copy.deepcopy(one),
        pickle.loads(pickle.dumps(one)),
        one._replicate_for_data_parallel(),
    ]
    assert all(layer._layouts is one._layouts for layer in (other, *copies))
    assert MatchingAttention(max_iter=78)._layouts is not one._layouts
    own, again = SparseMAP(Own), SparseMAP(Own)
    assert len({own._name, again._name, copy.deepcopy(own)._name}) == 3
    name, layouts = one._name, weakref.ref(one._layouts)
    del one, other, copies
    gc.collect()
    assert layouts() is None
    assert by_name.callee_named(name)._name == name  # as for a program that was loaded


def test_threads_share_layouts() -> None:
    layers, scores = [LPMatchingAttention() for _ in range(4)], torch.randn(8, 2, 3, 4)
    expected, found = layers[0](scores), {}

    def work(i: int) -> None:
        for k in range(8):
            found[i, k] = layers[i](scores[(i + k) % 8])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (i, k), values in found.items():
        torch.testing.assert_close(values, expected[(i + k) % 8], rtol=0, atol=2e-6)
    assert len(found) == 32
