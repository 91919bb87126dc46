"""Losses under torch.compile with one graph, and under the transforms of torch.func."""

from __future__ import annotations

import copy
import functools
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from layer_cases import normal
from loss_cases import ALL, FIELDS, PROBLEMS, SMOOTH, losses
from lpsmap import DepTree, Sequence, TopK, TorchFactorGraph, Xor
from lpsmap_torch import traced_calls
from lpsmap_torch.layers import LatentTree, Rationale
from lpsmap_torch.losses import (
    CRFLoss,
    MarginCRFLoss,
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
)
from lpsmap_torch.traced_calls import _OWNERS
from operator_calls import called, check_operator

double = torch.float64
pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about what its compiler looks at
every_loss = pytest.mark.parametrize("loss", ALL)


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Any) -> Any:
    return torch.compile(function, fullgraph=True, backend="aot_eager")


def check_same(step: Any, inputs: tuple[Tensor, ...], *arguments: Any, **named: Any) -> None:
    """Values and gradients of a compiled step are those of eager mode, also the second time."""
    expected = step(*inputs, *arguments, **named)
    gradients = torch.autograd.grad(expected, inputs)
    fast = compiled(step)
    for _ in range(2):
        found = fast(*inputs, *arguments, **named)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        for one, other in zip(torch.autograd.grad(found, inputs), gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("reduction", ["none", "mean", "token_mean"])
@pytest.mark.parametrize("name", ["trees", "taggings"])
@every_loss
def test_compiled_in_one_graph(loss: type, name: str, reduction: str) -> None:
    problem = PROBLEMS[name]
    criterion = loss(problem.factors, reduction=reduction)
    own = list(problem.arguments)

    def step(scores: Tensor, *given: Tensor) -> Tensor:
        arguments = dict(zip(own, given, strict=True))
        return criterion(3.0 * scores, problem.target, root="self", **arguments).square().sum()

    check_same(step, (problem.scores, *problem.arguments.values()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@every_loss
def test_targets_lengths_weights_and_precision(loss: type, dtype: torch.dtype) -> None:
    scores = normal(3, 4, 4).detach().to(dtype).requires_grad_()
    lengths, weight = torch.tensor([4, 2, 3]), torch.tensor([1.0, 0.5, 2.0])
    heads = torch.tensor([[-1, 0, 1, 1], [1, -1, 9, 9], [-1, -100, 0, -100]])
    criterion = loss(DepTree)

    def step(scores: Tensor, target: Tensor) -> Tensor:
        return criterion(scores, target, lengths=lengths, weight=weight)

    check_same(step, (scores,), heads)
    table = torch.eye(4).expand(3, 4, 4).clone()
    table[2, 1] = torch.nan
    check_same(step, (scores,), table)
    check_same(step, (scores,), torch.eye(4).expand(3, 4, 4).bool())


def test_arguments_of_every_kind() -> None:
    """Tensors, arrays, lists, numbers, strings, None; a new number does not compile again."""
    scores, w = normal(2, 3, 3), normal(2, 3, 3, seed=1)
    seen: list[Any] = []

    def factors(u: Any, ws: Any, on: int, scale: float, **other: Any) -> Any:
        seen.append(
            (on, scale, other["mode"], other["flag"], other["nothing"], type(other["table"]))
        )
        return Sequence(u, scale * ws[0] + on * ws["b"] if isinstance(ws, dict) else scale * ws[on])

    criterion, counter = SparseMAPLoss(factors), torch._dynamo.testing.CompileCounter()
    step = torch.compile(criterion, fullgraph=True, backend=counter)
    other = {"mode": "a", "flag": True, "nothing": None, "table": np.eye(2)}
    for on, scale in ((0, 0.5), (1, 0.5), (1, 2.0), (0, 3.0)):
        given = {"ws": [w[0], w[1]], "on": on, "scale": scale, **other}
        target = torch.tensor([[0, 1, 2], [1, 1, 0]])
        found, expected = step(scores, target, **given), criterion(scores, target, **given)
        torch.testing.assert_close(found, expected)
        assert seen[-1] == seen[-2] == (on, scale, "a", True, None, np.ndarray)
        torch.testing.assert_close(
            torch.autograd.grad(found, w)[0], torch.autograd.grad(expected, w)[0]
        )
    assert counter.frame_count <= 3


def test_marginals_as_targets() -> None:
    scores, w = normal(2, 3, 3), normal(3, 3, seed=1)
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 3, 3, seed=2).detach())
    factor = graph.add(Sequence(u, torch.zeros(3, 3, dtype=double)))
    graph.solve()
    mu, nu = u.value, graph.additionals_of(factor)
    for loss in (SparseMAPLoss, PerceptronLoss, CRFLoss):
        criterion = loss(lambda u, transitions: Sequence(u, transitions))

        def step(scores: Tensor, w: Tensor, criterion: Any = criterion) -> Tensor:
            return criterion(scores, mu, target_additionals=nu, transitions=w)

        check_same(step, (scores, w))


@pytest.mark.parametrize("loss", SMOOTH)
def test_modules_with_parameters(loss: type) -> None:
    """The loss of a layer, its temperature and its costs: all of them are inputs."""
    layer = Rationale(2, transition=0.3).double() if loss not in FIELDS else None
    factors = layer if layer is not None else (lambda u: Sequence(u, torch.zeros(2, 2)))
    options = {} if loss in (SparseMAPLoss, CRFLoss) else {"cost": nn.Parameter(torch.tensor(0.7))}
    temperature = nn.Parameter(torch.tensor(0.8, dtype=double))
    criterion = loss(factors, temperature=temperature, **options)
    scores = normal(2, 4) if layer is not None else normal(2, 4, 2)
    target = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0]])
    model = nn.Sequential(nn.Linear(scores.shape[-1], scores.shape[-1])).double()

    def step() -> Tensor:
        return criterion(model(scores), target)

    inputs = *model.parameters(), *criterion.parameters()
    expected = torch.autograd.grad(step(), inputs)
    found = torch.autograd.grad(compiled(step)(), inputs)
    assert len(inputs) >= 3
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_views_that_change_in_place() -> None:
    """A function may build scores of additionals in any way that autograd supports."""
    scores, w, target = normal(2, 3, 3), normal(3, seed=1), torch.tensor([[0, 1, 2], [1, 1, 0]])

    def factors(u: Any, w: Tensor) -> Any:
        steps = torch.zeros(3, 3, dtype=double)
        steps[0] = w
        steps[..., 1].mul_(2.0)
        return Sequence(u, steps)

    criterion = CRFLoss(factors)
    check_same(lambda scores, w: criterion(scores, target, w=w), (scores, w))


def test_per_instance_limits() -> None:
    scores, words = normal(2, 4, 4), torch.tensor([4, 3])
    tree = SparseMAPLoss(LatentTree())
    heads = torch.tensor([[-1, 0, 1, 1], [1, -1, 1, -100]])
    given = {"lengths": words, "budget": torch.tensor([2, 2])}
    check_same(lambda s: tree(s, heads, **given), (scores,))
    subsets = SparseMAPLoss(TopK)
    on = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
    check_same(lambda s: subsets(s, on, k=torch.tensor([1, 2])), (normal(2, 4),))


@every_loss
def test_gradients_of_transforms(loss: type) -> None:
    problem = PROBLEMS["taggings"]
    criterion = loss(problem.factors)
    d = normal(*problem.scores.shape, seed=5).detach()

    def value(scores: Tensor, w: Tensor) -> Tensor:
        return criterion(scores, problem.target, w=w)

    inputs = problem.scores, problem.arguments["w"]
    expected = torch.autograd.grad(value(*inputs), inputs)
    found = torch.func.grad(value, argnums=(0, 1))(*inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    _, moved = torch.func.jvp(lambda s: value(s, inputs[1]), (inputs[0],), (d,))
    torch.testing.assert_close(moved, (d * expected[0]).sum())
    curved = torch.func.jacrev(torch.func.grad(value))(*inputs)
    plain = torch.autograd.functional.hessian(lambda s: value(s, inputs[1]), inputs[0].detach())
    torch.testing.assert_close(curved, plain, rtol=0, atol=1e-6)
    if loss not in FIELDS:
        forward = torch.func.hessian(value)(*inputs)
        torch.testing.assert_close(forward, plain, rtol=0, atol=1e-6)


@every_loss
def test_gradients_of_examples(loss: type) -> None:
    """By vmap, of every item with its own label, and of an ensemble of parameters."""
    problem = PROBLEMS["taggings"]
    criterion, w = loss(problem.factors, reduction="sum"), problem.arguments["w"]

    def value(scores: Tensor, target: Tensor, w: Tensor) -> Tensor:
        return criterion(scores[None], target[None], w=w)

    each = torch.vmap(torch.func.grad(value, argnums=(0, 2)), in_dims=(0, 0, None))
    found = each(problem.scores, problem.target, w)
    total = criterion(problem.scores, problem.target, w=w)
    expected = torch.autograd.grad(total, (problem.scores, w))
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1].sum(0), expected[1])
    two = torch.vmap(lambda w: losses(loss, problem._replace(arguments={"w": w})))(
        torch.stack([w, 2.0 * w])
    )
    torch.testing.assert_close(two[0], losses(loss, problem))


def test_functional_calls_of_modules() -> None:
    criterion = SparseMAPLoss(Xor, temperature=nn.Parameter(torch.tensor(0.5, dtype=double)))
    scores, target = normal(2, 3), torch.tensor([0, 2])

    def value(own: dict[str, Tensor]) -> Any:
        return torch.func.functional_call(criterion, own, (scores, target))

    found = torch.func.grad(value)({"temperature": criterion.temperature.detach()})
    expected = torch.autograd.grad(criterion(scores, target), criterion.temperature)
    torch.testing.assert_close(found["temperature"], expected[0])


def labelled(target: Tensor) -> dict[str, Any]:
    """Return the arguments of a traced call of a loss without parameters."""
    return {"named": {"target": target}, "state": {}, "graded": True}


def test_opcheck() -> None:
    criterion, scores = SparseMAPLoss(Xor, reduction="none"), normal(2, 3)
    given = labelled(torch.tensor([0, 2]))
    d = normal(2, 3, seed=3)
    check_operator(criterion._name, 1, scores, given, normal(2, seed=3), [d])


def test_a_copied_ticket_is_evaluated_again() -> None:
    criterion, scores, target = SparseMAPLoss(Xor), normal(2, 3), torch.tensor([0, 2])
    expected = torch.func.grad(lambda s: criterion(s, target))(scores)
    step = compiled(lambda s: criterion(s, target))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        value = step(scores)
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], expected)


def test_evaluations_go_with_their_values() -> None:
    criterion, scores, target = CRFLoss(DepTree), normal(2, 3, 3), torch.tensor([[-1, 0, 1]] * 2)
    step = compiled(lambda s: criterion(s, target))
    torch.autograd.grad(step(scores), scores)
    gc.collect()
    before = len(_OWNERS)
    value = step(scores)
    torch.autograd.grad(value, scores)
    del value
    with torch.no_grad():
        step(scores)
    assert len(_OWNERS) == before


def test_changes_between_forward_and_backward() -> None:
    criterion, target = SparseMAPLoss(Xor), torch.tensor([0, 2])
    step = compiled(lambda s: criterion(s, target))
    scores = normal(2, 3)
    expected = torch.autograd.grad(criterion(scores, target), scores)[0]
    value = step(scores)
    with torch.no_grad():
        scores.fill_(7.0)
    try:
        (found,) = torch.autograd.grad(value, scores)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        torch.testing.assert_close(found, expected)


def test_copies_are_losses_of_their_own() -> None:
    criterion, scores, target = (
        SparseMAPLoss(Xor, temperature=0.5),
        normal(2, 3),
        torch.tensor([0, 2]),
    )
    other = copy.deepcopy(criterion)
    other.temperature = 3.0
    assert criterion._name != other._name
    for one in (criterion, other):
        found = torch.func.grad(lambda s, one=one: one(s, target))(scores)
        torch.testing.assert_close(found, torch.autograd.grad(one(scores, target), scores)[0])


@every_loss
def test_empty_batches_and_no_gradients(loss: type) -> None:
    criterion = loss(DepTree, reduction="none")
    step = compiled(criterion)
    assert step(torch.zeros(0, 3, 3), torch.zeros(0, 3, 3)).shape == (0,)
    scores, heads = torch.zeros(1, 3, 3), torch.tensor([[-1, 0, 1]])
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = step(scores, heads)
        assert not found.requires_grad
        torch.testing.assert_close(found, criterion(scores, heads))


# -------------------------------------------------------------------- errors


def test_lost_gradients_are_refused_in_words() -> None:
    """Of a tensor that the function refers to; as an argument it is none."""
    w = normal(3, 3, seed=1)
    scores, target = normal(2, 3, 3), torch.tensor([[0, 1, 2], [1, 1, 0]])
    hidden = SparseMAPLoss(functools.partial(Sequence, transitions=2.0 * w))
    for run in (
        lambda: torch.func.grad(lambda s: hidden(s, target))(scores),
        lambda: compiled(lambda s: hidden(s, target))(scores),
    ):
        with pytest.raises(RuntimeError, match="gradient that is no argument of the call"):
            run()
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(lambda s: hidden(s, target))(scores), hidden(scores, target)
        )


def test_bad_arguments_are_refused_in_words() -> None:
    criterion = MarginSparseMAPLoss(lambda u, f: Xor(u))
    with pytest.raises(TypeError, match="f: got an object; expected tensors, arrays, numbers"):
        torch.func.grad(lambda s: criterion(s, torch.tensor([0]), f=object()))(normal(1, 3))
    with pytest.raises(ValueError, match="is not a structure that DepTree allows"):
        compiled(MarginCRFLoss(DepTree))(torch.zeros(1, 3, 3), torch.tensor([[1, 0, 0]]))
    lost = StructuredHingeLoss(Xor)
    call = called(lost._name, 0, torch.zeros(1, 3), labelled(torch.tensor([0])))
    del lost
    gc.collect()
    with pytest.raises(RuntimeError, match="the loss no longer exists"):
        traced_calls._operator(*call)


def test_hooks_run_once() -> None:
    scores, target = normal(2, 3, 3), torch.tensor([[-1, 0, 1], [-1, 0, 0]])
    criterion, calls = CRFLoss(DepTree), []
    criterion.register_forward_hook(lambda module, args, output: calls.append(output))
    expected = criterion(scores, target)
    for _ in range(2):
        calls.clear()
        found = torch.compile(criterion, backend="aot_eager")(scores, target)
        torch.testing.assert_close(found, expected)
        assert len(calls) == 1
