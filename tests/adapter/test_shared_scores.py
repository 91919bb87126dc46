"""Scores of additionals that factors, or steps, share: as if each had a copy of its own."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from layer_cases import normal
from lpsmap import TorchFactorGraph
from lpsmap_core import Factor, Variables, installed
from lpsmap_core.testing.declarations import _recorded
from placed_variables import placed_on

Call = tuple[Factor, inspect.BoundArguments]


def calls_of(cls: type[Factor]) -> list[Call]:
    """Return the examples of a type that have additionals, and the calls that made them."""
    calls: list[Call] = []
    with _recorded(cls, calls):
        kept = cls.examples()  # with their graphs
    assert kept
    return [(factor, call) for factor, call in calls if factor.n_additionals]


def are_scores(value: Any) -> bool:
    """Return whether an argument is an array of floats, or a list of them."""
    is_list = isinstance(value, list) and all(isinstance(x, float) for x in value)
    return is_list or (isinstance(value, np.ndarray) and value.dtype == np.float64)


def declared(call: Call, eta: Tensor, name: str, scores: Tensor) -> tuple[TorchFactorGraph, Factor]:
    """Declare a factor again, with scores for one argument."""
    factor, bound = call
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    arguments = {key: placed_on(u, value) for key, value in bound.arguments.items()}
    for key, value in arguments.items():
        if are_scores(value):  # all of one library
            arguments[key] = torch.as_tensor(np.asarray(value))
    given = inspect.BoundArguments(bound.signature, {**arguments, name: scores})
    return graph, graph.add(type(factor)(*given.args[1:], **given.kwargs))


def shared_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that broadcast to a shape, other than itself."""
    for flags in itertools.product([False, True], repeat=len(shape)):
        if any(flags):
            one = tuple(1 if shared else n for n, shared in zip(shape, flags, strict=True))
            first = next((k for k, n in enumerate(one) if n != 1), len(one))
            yield from {one, one[first:]} - {shape}


def cases(call: Call) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Yield the arguments of a call with scores, their shapes, and shapes that they may share."""
    eta = torch.zeros(call[0].variables.graph.n_variables, dtype=torch.float64)
    for name, value in list(call[1].arguments.items())[1:]:
        full = np.shape(value) if are_scores(value) else ()
        for shape in shared_shapes(full):
            scores = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
            try:
                _, factor = declared(call, eta, name, scores)
            except ValueError:  # not one of the shapes that the type takes
                continue
            if getattr(factor.additionals, "requires_grad", False):
                yield name, full, shape


def derivatives(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Return the value of a function, its gradients, and those of a sum of these."""
    value = function(*inputs)
    first = torch.autograd.grad(value, inputs, create_graph=True)
    change = sum((g * torch.cos(torch.arange(g.numel()).reshape(g.shape))).sum() for g in first)
    second: Any = [torch.zeros_like(x) for x in inputs]
    if isinstance(change, Tensor) and change.requires_grad:
        second = torch.autograd.grad(change, inputs, materialize_grads=True)
    return [value, *first, *second]


def log_partition(call: Call, name: str, eta: Tensor, scores: Tensor) -> Tensor:
    """Return the sum of the log-partition functions."""
    graph, factor = declared(call, eta, name, scores)
    total: Tensor = graph.gibbs(factor).log_partition.sum()
    return total


def moments(call: Call, name: str, eta: Tensor, scores: Tensor) -> Tensor:
    """Return a smooth function of the SparseMAP marginals."""
    graph, factor = declared(call, eta, name, scores)
    graph.solve(tol=1e-12)
    total: Tensor = torch.sin(factor.variables.value).sum()
    return total


def masked(call: Call, name: str, eta: Tensor, scores: Tensor) -> Tensor:
    """Return scores of variables of which one is forbidden, though not needed."""
    graph, _ = declared(call, eta, name, scores)
    marginals = torch.from_numpy(graph.solve().values)
    off = int(marginals.argmin())
    assert marginals[off] < 1.0
    return eta.index_fill(0, torch.tensor([off]), -torch.inf)


def is_simple(factor: Factor) -> bool:
    """Return whether no factor has a variable twice, which sums refuse."""
    rows = factor.variables.index.reshape(factor.n_factors, -1)
    return all(len(set(row)) == len(row) for row in rows.tolist())


COMPLETE = {"DMVTree"}
"""Types that take a score for every additional of every factor only."""

WITH_ADDITIONALS = sorted(
    name for name, found in installed().factors.items() if calls_of(found.value)
)


@pytest.mark.parametrize("name", WITH_ADDITIONALS)
def test_shared_scores_are_expanded_ones(name: str) -> None:
    """Values, gradients and second derivatives, for all arguments and shapes that a type takes.

    Every other case has a mask.
    """
    n_cases = 0
    for call in calls_of(installed().factors[name].value):
        n = call[0].variables.graph.n_variables
        for argument, full, shape in cases(call):
            eta, scores = normal(n, seed=1), normal(*shape, seed=2)
            if n_cases % 2:
                eta = masked(call, argument, eta.detach(), scores.detach()).requires_grad_()
            for measure in (moments, log_partition)[: 1 + is_simple(call[0])]:

                def shared(*x: Tensor, f=measure, call=call, argument=argument) -> Tensor:
                    return f(call, argument, *x)

                def expanded(u: Tensor, w: Tensor, f=shared, full=full) -> Tensor:
                    return f(u, w.expand(full).clone())

                mine, theirs = (derivatives(f, eta, scores) for f in (shared, expanded))
                for one, other in zip(mine, theirs, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
            n_cases += 1
    assert bool(n_cases) == (name not in COMPLETE)


def without_factors(call: Call) -> Call:
    """Return a call with an empty batch, all of whose scores are shared."""
    factor, bound = call
    arguments = dict(bound.arguments)
    for key, value in list(arguments.items())[1:]:
        if isinstance(value, list) and any(isinstance(x, Variables) for x in value):
            arguments[key] = [x[:0] if x.ndim > factor.variables_ndim else x for x in value]
        elif isinstance(value, Variables) or (np.ndim(value) and not are_scores(value)):
            arguments[key] = value[:0] if isinstance(value, Variables) else np.asarray(value)[:0]
        elif are_scores(value):
            arguments[key] = np.asarray(value)[:1]
    return factor, inspect.BoundArguments(bound.signature, arguments)


@pytest.mark.parametrize("name", WITH_ADDITIONALS)
def test_no_factor_shares_scores(name: str) -> None:
    """An empty batch has gradients of zero, of the shapes that it was given."""
    for call in calls_of(installed().factors[name].value):
        if len(call[0].batch_shape) != 1:
            continue
        n, empty = call[0].variables.graph.n_variables, without_factors(call)
        for argument, full, shape in cases(call):
            if len(shape) == len(full) and shape[0] != 1:
                continue  # not shared by the batch
            eta, scores = normal(n, seed=1), normal(*shape, seed=2)
            for found in derivatives(
                lambda *x, c=empty, a=argument: log_partition(c, a, *x), eta, scores
            ):
                assert not found.any()
