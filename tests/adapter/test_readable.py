"""Tensors that are no plain numbers, and transforms around a solve: refused in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import lpsmap
from lpsmap import FactorGraph, Knapsack, Pair, Sequence, TorchFactorGraph, Xor

EYE = torch.eye(4)


def chosen(scores: Any) -> torch.Tensor:
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.solve()
    value: torch.Tensor = u.value
    return value


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.eye(4)


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


NO_NUMBERS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "coo": (EYE.to_sparse, TypeError, r"layout torch.sparse_coo; .*to_dense\(\)"),
    "csr": (EYE.to_sparse_csr, TypeError, r"layout torch.sparse_csr; .*to_dense\(\)"),
    "meta": (lambda: EYE.to("meta"), TypeError, "got a meta tensor, which has no numbers"),
    "nested": (nested, TypeError, "got a nested tensor"),
    "complex": (lambda: EYE + 0j, TypeError, "dtype torch.complex64; expected real numbers"),
    "fake": (fake, RuntimeError, "got a FakeTensor, which does not hold plain values"),
    "a word": (lambda: "abc", TypeError, "is 'abc'; expected real numbers"),
    "nothing": (lambda: None, TypeError, "is None; expected real numbers"),
    "masked": (lambda: np.ma.masked_array(np.eye(4), np.eye(4)), TypeError, "a masked array"),
    "ragged": (lambda: [[1.0], [1.0, 2.0]], TypeError, "a list that is not an array of numbers"),
    "uneven": (lambda: [torch.ones(2), torch.ones(3)], TypeError, "tensors that do not stack"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's about its own prototypes
@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_scores_that_are_no_numbers(kind: str) -> None:
    make, error, words = NO_NUMBERS[kind]
    with pytest.raises(error, match=f"variable_from: scores.*{words}"):
        TorchFactorGraph().variable_from(make())
    graph = TorchFactorGraph()
    u = graph.variable((4, 4))
    with pytest.raises(error, match=f"rescore: scores.*{words}"):
        graph.rescore(u, make())


@pytest.mark.parametrize("kind", ["coo", "meta", "complex"])
def test_additionals_that_are_no_numbers(kind: str) -> None:
    make, error, words = NO_NUMBERS[kind]
    u = TorchFactorGraph().variable((2, 4))
    with pytest.raises(error, match=f"Pair: scores.*{words}"):
        Pair(u[0], u[1], make()[0])
    with pytest.raises(error, match=f"Sequence: transitions.*{words}"):
        Sequence(u, make())


def test_arrays_that_torch_does_not_take_are_copied() -> None:
    numbers = np.arange(12.0).reshape(3, 4) / 12
    for array in (
        numbers[::-1, ::-1],
        numbers[::-1, ::-1].astype(">f8"),
        numbers[::-1, ::-1].astype(np.longdouble),
    ):
        expected = chosen(torch.from_numpy(numbers[::-1, ::-1].copy()))
        torch.testing.assert_close(chosen(array), expected, rtol=0, atol=0)
    graph = TorchFactorGraph()
    u = graph.variable_from(torch.zeros(2, 4))
    graph.add(Pair(u[0], u[1], np.arange(4.0)[::-1]))
    assert graph.solve().ok
    graph.rescore(graph.factors[0], np.arange(4.0)[::-1])
    assert graph.solve().ok


def test_a_list_of_tensors_keeps_their_gradients() -> None:
    rows = [torch.tensor([0.3, 0.1], requires_grad=True), torch.tensor([0.2, 0.4])]
    chosen(rows)[0, 0].backward()
    assert rows[0].grad.tolist() == [0.5, -0.5]


def test_a_warning_of_a_solve_is_about_the_line_of_the_user() -> None:
    with pytest.warns(lpsmap.ConvergenceWarning) as caught:
        graph = TorchFactorGraph()
        graph.add(Xor(graph.variable_from([[np.nan, 1.0], [0.0, 1.0]])))
        graph.solve()
    assert [warning.filename for warning in caught] == [__file__]


PLAIN: dict[str, Callable[[torch.Tensor], Any]] = {
    "variable_from: scores": lambda x: FactorGraph().variable_from(x),
    "variable_from: scores: got a list": lambda x: FactorGraph().variable_from([x, x]),
    "add: additionals of Pair": lambda x: declared(lambda u: Pair(u[0], u[1], x[0])),
    "add: additionals of Sequence": lambda x: declared(lambda u: Sequence(u, x)),
    "Knapsack: costs": lambda x: declared(lambda u: Knapsack(u, x[0], 1.0)),
}


def declared(make: Callable[..., Any]) -> FactorGraph:
    graph = FactorGraph()
    graph.add(make(graph.variable((4, 4))))
    return graph


@pytest.mark.parametrize("place", PLAIN)
def test_a_plain_graph_does_not_lose_gradients(place: str) -> None:
    with pytest.raises(TypeError, match=f"{place}.*TorchFactorGraph"):
        PLAIN[place](torch.eye(4, requires_grad=True))
    for dtype in (torch.float32, torch.int64):
        PLAIN[place](torch.eye(4).to(dtype)[..., 0] if "list" in place else torch.eye(4).to(dtype))


TRANSFORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap": lambda x: torch.vmap(chosen)(x[None]),
    "func.grad": lambda x: torch.func.grad(lambda y: chosen(y)[0, 0])(x),
    "jacrev": lambda x: torch.func.jacrev(chosen)(x),
    "jacfwd": lambda x: torch.func.jacfwd(chosen)(x),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_around_a_solve(name: str) -> None:
    with pytest.raises(RuntimeError, match="inside a transform of torch.func or a batched grad"):
        TRANSFORMS[name](torch.randn(3, 4))


def test_transforms_of_additionals() -> None:
    def paired(scores: torch.Tensor) -> torch.Tensor:
        graph = TorchFactorGraph()
        u = graph.variable((2, 4))
        graph.add(Pair(u[0], u[1], scores))
        graph.solve()
        value: torch.Tensor = u.value
        return value

    with pytest.raises(RuntimeError, match="add: additionals of Pair.* transform of torch.func"):
        torch.vmap(paired)(torch.randn(2, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forward_mode_says_what_to_use() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.randn(3, 4), torch.ones(3, 4))
        with pytest.raises(RuntimeError, match="its tangent would be lost. Use solution.jvp"):
            chosen(dual)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_would_keep_one_answer() -> None:
    with pytest.raises(RuntimeError, match="jit.trace would record the solution"):
        torch.jit.trace(chosen, torch.randn(3, 4))


@pytest.mark.filterwarnings("ignore::UserWarning")  # dynamo reads gradients of what is no leaf
def test_a_solve_is_kept_out_of_what_is_compiled() -> None:
    scores = torch.zeros(3, 4, requires_grad=True)
    for options in ({}, {"fullgraph": True}):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: chosen(2 * x), backend="eager", **options)
        with pytest.raises(RuntimeError, match="cannot compile a solve") as caught:
            compiled(scores)
        assert "compiler.disable" in str(caught.value)
    graph = TorchFactorGraph()
    graph.add(Xor(graph.variable_from(scores)))
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="torch.compile cannot compile a solve"):
        torch.compile(lambda: graph.solve(), backend="eager")()
    apart = torch.compiler.disable(chosen)
    torch._dynamo.reset()
    value = torch.compile(lambda x: apart(2 * x) + 1, backend="eager")(scores)
    assert torch.equal(value, chosen(2 * scores) + 1)
    value[0, 0].backward()
    assert scores.grad.abs().sum() > 0
    torch._dynamo.reset()
