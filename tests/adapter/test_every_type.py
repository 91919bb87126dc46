"""Derivatives of every installed factor type, in double and in single precision."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import Tensor

from layer_cases import normal
from lpsmap import TorchFactorGraph
from lpsmap_core import Factor, installed
from lpsmap_core.testing.declarations import _recorded
from placed_variables import placed_on


def solve(factor: Factor, call: inspect.BoundArguments, eta: Tensor, w: Tensor) -> list[Tensor]:
    """Declare a factor again with these scores; return all marginals."""
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    arguments = {name: placed_on(u, value) for name, value in call.arguments.items()}
    given = inspect.BoundArguments(call.signature, arguments)
    again = graph.add(type(factor)(*given.args[1:], **given.kwargs))
    if not factor.n_additionals:
        graph.solve(tol=1e-10)
        return [u.value]
    graph.rescore(again, w.reshape(np.shape(again.additionals)))
    graph.solve(tol=1e-10)
    return [u.value, graph.additionals_of(again)]


@pytest.mark.parametrize("name", sorted(installed().factors))
def test_derivatives_of_every_type(name: str) -> None:
    """At random points, of the examples that each type gives of itself."""
    cls, calls = installed().factors[name].value, []
    with _recorded(cls, calls):
        kept = cls.examples()  # with their graphs
    for k, (factor, call) in enumerate(calls):
        n, extra = factor.variables.graph.n_variables, factor.n_factors * factor.n_additionals
        inputs = normal(n, seed=10 + k), normal(extra, seed=20 + k)
        inputs = inputs if extra else inputs[:1]

        def function(eta: Tensor, *w: Tensor, factor=factor, call=call) -> tuple[Tensor, ...]:
            return tuple(solve(factor, call, eta, *w, *(() if w else (torch.empty(0),))))

        checks = torch.autograd.gradcheck, torch.autograd.gradgradcheck
        assert all(check(function, inputs, atol=1e-5, fast_mode=True) for check in checks)
        single = [x.detach().float().requires_grad_() for x in inputs]
        double = [x.detach().double().requires_grad_() for x in single]
        found = [(function(*x), x) for x in (single, double)]
        gradients = [
            torch.autograd.grad(
                [torch.cos(value * k).sum() for k, value in enumerate(values, 1)], x
            )
            for values, x in found
        ]
        for one, other in zip(
            (*found[0][0], *gradients[0]), (*found[1][0], *gradients[1]), strict=True
        ):
            torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-4)
    assert kept
