"""Layers under torch.library, torch.func and torch.compile; what they keep, and how long."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from layer_cases import CASES, Case, every_layer, normal, trained
from lpsmap_torch.function import attach
from lpsmap_torch.layers import LPMatchingAttention, Rationale, SequenceAttention, TopK, layouts
from lpsmap_torch.traced_calls import Evaluation, ticket_for, traced_call
from operator_calls import check_operator

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Model(nn.Module):
    """Two layers, one with a mask, between linear ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.sequence = SequenceAttention()
        self.matching = LPMatchingAttention(rescale=True)
        self.last = nn.Linear(8, 2)

    def forward(self, rows: Tensor, columns: Tensor, mask: Tensor, lengths: Tensor) -> Tensor:
        scores = self.first(rows) @ self.first(columns).mT
        weights = self.sequence(scores, lengths=lengths) + self.matching(scores, mask=mask)
        return self.last(weights @ columns).sum(1)


def example() -> tuple[Model, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    rows, columns = torch.randn(2, 4, 8), torch.randn(2, 6, 8)
    lengths = torch.tensor([[4, 6], [3, 5]])
    mask = (torch.arange(4)[:, None] < lengths[:, :1, None]) & (torch.arange(6) < 5)
    return Model(), (rows, columns, mask, lengths)


def check_compiled(backend: str) -> None:
    torch._dynamo.reset()
    model, inputs = example()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    results = []
    for forward in (model, compiled, compiled):
        model.zero_grad()
        out = forward(*inputs)
        out.square().sum().backward()
        results.append([out, *(p.grad.clone() for p in model.parameters())])
    for one, *others in zip(*results, strict=True):
        for other in others:
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


def test_a_model_is_compiled_in_one_graph() -> None:
    check_compiled("aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_compiled_to_machine_code() -> None:
    check_compiled("inductor")


@pytest.mark.parametrize("ragged", [False, True])
def test_opcheck(ragged: bool) -> None:
    layer = trained(CASES["SequenceAttention"])
    scores, weights = normal(2, 3, 4), normal(2, 9, seed=1)
    lengths = torch.tensor([[3, 4], [2, 3]]) if ragged else None
    given = {"parameters": weights, "lengths": lengths, "mask": None}
    vectors = [normal(2, 3, 4, seed=2), normal(2, 9, seed=3)]
    check_operator(layer._name, 3, scores, given, normal(2, 3, 4, seed=4), vectors)


def test_opcheck_without_parameters() -> None:
    layer = trained(CASES["LatentTree"])
    scores, d_scores = normal(2, 4, 4), normal(2, 4, 4, seed=2)
    given = {
        "parameters": None,
        "lengths": None,
        "mask": torch.arange(4) < torch.tensor([[4], [2]]),
    }
    check_operator(layer._name, 3, scores, given, normal(2, 4, 4, seed=4), [d_scores])


@every_layer
def test_products_with_jacobians(case: Case) -> None:
    """Both modes of torch.func say what rows of the Jacobian by backward() say."""
    layer, scores = trained(case), normal(2, *case.shape)
    jacobian = torch.autograd.functional.jacobian(layer, scores)
    d = torch.randn(scores.shape, dtype=scores.dtype)
    _, forward = torch.func.jvp(layer, (scores,), (d,))
    _, pull_back = torch.func.vjp(layer, scores)
    n = d.ndim
    torch.testing.assert_close(forward, torch.tensordot(jacobian, d, n))
    torch.testing.assert_close(pull_back(d)[0], torch.tensordot(d, jacobian, n))
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(mode(layer)(scores), jacobian)
    two = torch.func.hessian(lambda x: layer(x).square().sum() / 2)(scores)
    half = torch.tensordot(jacobian.movedim(tuple(range(n)), tuple(range(n, 2 * n))), jacobian, n)
    torch.testing.assert_close(two, half, rtol=0, atol=1e-6)


@every_layer
def test_vmap(case: Case) -> None:
    """Over scores is one batch; over parameters, an ensemble; of gradients, those of examples."""
    layer, scores = trained(case), normal(3, *case.shape)
    torch.testing.assert_close(torch.vmap(layer)(scores), layer(scores), rtol=0, atol=2e-6)
    last = torch.vmap(layer, in_dims=-1)(scores.movedim(0, -1))
    torch.testing.assert_close(last, layer(scores), rtol=0, atol=2e-6)
    own = dict(layer.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Any:
        return (torch.func.functional_call(layer, parameters, (x,)) * x).sum()

    found = torch.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, 0))(own, scores)
    for i, x in enumerate(scores):
        expected = torch.func.grad(loss, argnums=(0, 1))(own, x)
        torch.testing.assert_close(found[1][i], expected[1], rtol=0, atol=1e-5)
        for name in own:
            torch.testing.assert_close(found[0][name][i], expected[0][name], rtol=0, atol=1e-5)
    if own:
        two = {name: torch.stack([p, 2 * p]) for name, p in own.items()}
        each = torch.vmap(loss, in_dims=(0, None))(two, scores)
        second = {name: p[1] for name, p in two.items()}
        torch.testing.assert_close(each[1], loss(second, scores), rtol=0, atol=1e-4)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_batches_of_gradients(create_graph: bool, compiled: bool) -> None:
    """Those of torch.autograd.grad with `is_grads_batched`, and of gradients of gradients."""
    layer, scores = trained(CASES["SequenceAttention"]), normal(2, 3, 4).requires_grad_()
    others = {"parameters": layer._weights().expand(2, -1), "lengths": None, "mask": None}
    gradients = normal(5, 2, 3, 4, seed=1)

    def values() -> Tensor:
        return traced_call(layer._name, 3, scores, others) if compiled else layer(scores)

    def gradient() -> Tensor:
        return torch.autograd.grad(values().square().sum(), scores, create_graph=True)[0]

    for function in (values, gradient):
        (found,) = torch.autograd.grad(
            function(), scores, gradients, create_graph=create_graph, is_grads_batched=True
        )
        expected = [torch.autograd.grad(function(), scores, d)[0] for d in gradients]
        torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["marginals", "sample"])
def test_batches_of_gradients_of_gibbs_distributions(estimator: str) -> None:
    layer, scores = trained(CASES["SequenceAttention"]), normal(2, 3, 4)
    layer.estimator = estimator
    each, whole = (
        torch.autograd.functional.jacobian(layer, scores, vectorize=vectorized)
        for vectorized in (False, True)
    )
    torch.testing.assert_close(whole, each, rtol=0, atol=1e-12)


def test_products_with_products() -> None:
    """Of a linear map A, by the products in the order of derivatives."""
    a = normal(2, 3)
    x = normal(3).requires_grad_()
    evaluation = Evaluation([x], a @ x)
    d, g, e = normal(3, seed=1), normal(2, seed=2), normal(3, seed=3)
    zero = torch.zeros(3, dtype=torch.float64)
    for products, vectors, expected in (
        ([1], [g], [g @ a]),
        ([-1], [d], [a @ d]),
        ([1, 1], [g, d], [zero, a @ d]),
        ([1, -2], [g, d, g], [g @ a]),
        ([-1, 1], [d, g], [zero, g @ a]),
        ([1, 1, 2], [g, d, e, g], [zero, 0.0 * g, g @ a]),
    ):
        found = evaluation.multiplied(products, vectors)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_lengths_under_vmap() -> None:
    layer, scores = Rationale(2), normal(3, 2, 5)
    lengths = torch.tensor([[5, 2], [1, 0], [3, 4]])
    found = torch.vmap(lambda x, ends: layer(x, lengths=ends))(scores, lengths)
    torch.testing.assert_close(found, layer(scores, lengths=lengths), rtol=0, atol=2e-6)
    shared = torch.vmap(lambda x: layer(x, lengths=lengths[0]))(scores)
    expected = torch.stack([layer(x, lengths=lengths[0]) for x in scores])
    torch.testing.assert_close(shared, expected, rtol=0, atol=2e-6)


def test_saved_tensors_may_be_copied() -> None:
    """As where saved tensors are packed elsewhere, or kept on disk."""
    layer, scores = trained(CASES["SequenceAttention"]), normal(2, 3, 4)
    (expected,) = torch.autograd.grad(layer(scores).square().sum(), scores)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        value = layer(scores).square().sum()
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], expected)
    value = torch.utils.checkpoint.checkpoint(layer, scores, use_reentrant=False).square().sum()
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], expected)


def test_backward_passes_need_no_layer() -> None:
    """With a specification or without one; nor where saved tensors are copied."""

    class Own(TopK):
        pass

    for make in (TopK, Own):
        layer, scores = make(2), normal(2, 4)
        (expected,) = torch.autograd.grad(layer(scores).square().sum(), scores)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
            value = layer(scores).square().sum()
        del layer
        gc.collect()
        torch.testing.assert_close(torch.autograd.grad(value, scores)[0], expected)


def test_evaluations_die_without_python_code_in_which_ctrl_c_would_be_lost() -> None:
    ticket, events = ticket_for(object()), []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    del ticket
    sys.setprofile(None)
    assert "call" not in events


@every_layer
def test_solutions_live_as_long_as_their_graph(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept without gradients, or after them; nothing waits for the collector."""
    solutions: list[weakref.ref[Any]] = []

    def attached(solution: Any, *arguments: Any, **options: Any) -> Any:
        solutions.append(weakref.ref(solution))
        return attach(solution, *arguments, **options)

    def n_living() -> int:
        return sum(solution() is not None for solution in solutions)

    monkeypatch.setattr(layouts, "attach", attached)
    layer, scores = trained(case), normal(2, *case.shape)
    once = torch.autograd.grad(layer(scores).square().sum(), scores, create_graph=True)[0]
    torch.autograd.grad(once.square().sum(), scores)  # loads kernels, which leaves cycles behind
    del once
    gc.collect()
    gc.disable()
    try:
        value = layer(scores)
        assert n_living() == 1
        inputs = scores, *layer.parameters()
        first = torch.autograd.grad(value.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), inputs)
        del value, first, second
        assert n_living() == 0
        with torch.no_grad():
            kept = layer(scores)
        assert len(solutions) > 1
        assert n_living() == 0
        assert not kept.requires_grad
        values = weakref.ref(layer(scores.detach()))
        assert values() is None
        gone = weakref.ref(layer)
        del layer
        assert gone() is None
    finally:
        gc.enable()


MEMORY = """
import gc, sys, torch
from pathlib import Path
from lpsmap_torch.layers import LPMatchingAttention, LatentTree

torch.manual_seed(0)
torch.set_num_threads(1)
layers = LPMatchingAttention(threads=1), LatentTree(budget=2, threads=1)
weight = torch.nn.Parameter(torch.randn(6, 6))
optimizer = torch.optim.Adam([weight], lr=1e-3)
gc.disable()
for step in range(int(sys.argv[1])):
    size = 1 + step % 3
    x = torch.randn(size, 5, 6)
    scores = x @ weight @ x.mT
    lengths = torch.randint(1, 6, (size,))
    value = layers[0](scores, lengths=lengths[:, None].expand(size, 2)) + layers[1](scores)
    loss = (value @ x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (int(sys.argv[1]) // 10, int(sys.argv[1]) - 1):
        memory = Path("/proc/self/status").read_text().split("VmHWM:")[1]
        print(memory.split()[0], flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow() -> None:
    """In 20,000 steps of training, without the collector of cycles.

    A child's `ru_maxrss` is at least its parent's, which hides growth.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY, "20000"],
        capture_output=True,
        text=True,
        check=True,
    )
    early, late = map(int, done.stdout.split())
    assert late - early < 4_000, f"{late - early} kB in 18,000 steps"
