"""Marginals and gradients of the adapter to JAX equal those of the adapter to torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lpsmap
from lpsmap_core import Factor, Variables, installed, stack
from lpsmap_core.testing.declarations import _recorded
from lpsmap_jax import sparse_map
from random_graphs import KINDS, random_graph

torch = pytest.importorskip("torch")

EXACT = {"rtol": 0.0, "atol": 1e-12}


class Problem(NamedTuple):
    """A function of variables with the shape of its scores, and arguments."""

    build: Callable[..., Any]
    shape: tuple[int, ...]
    scores: dict[str, tuple[int, ...]] = {}
    """Shapes of scores of additionals."""
    constants: dict[str, Any] = {}


def by_torch(
    build: Callable[..., Any], scores: list[Any], weights: Any, constants: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """Return the marginals, and the gradients of their weighted sum."""
    eta, *others = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in scores]
    graph = lpsmap.TorchFactorGraph()
    u = graph.variable_from(eta)
    made = build(u, *others, **constants)
    for factor in made if isinstance(made, list) else [made]:
        graph.add(factor)
    graph.solve()
    inside = np.zeros(graph.n_variables, dtype=bool)
    for factor in graph.factors:
        index = factor.variables.index
        inside[index if factor.keep is None else index[factor.keep]] = True
    values = u.value * torch.tensor(inside.reshape(u.shape))
    (values * torch.tensor(weights)).sum().backward()
    found = [torch.zeros_like(x) if x.grad is None else x.grad for x in (eta, *others)]
    return values.detach().numpy(), [x.numpy() for x in found]


def check_agreement(
    build: Callable[..., Any], scores: list[Any], constants: dict[str, Any] | None = None
) -> None:
    """Compare both adapters, with and without compilation."""
    constants = constants or {}
    arrays = {k: v for k, v in constants.items() if isinstance(v, np.ndarray)}
    fixed = {k: v for k, v in constants.items() if k not in arrays}
    weights = np.random.default_rng(5).normal(size=np.shape(scores[0]))
    names = [f"scores_{i}" for i in range(1, len(scores))]

    def by_names(u: Any, **given: Any) -> Any:
        return build(u, *(given.pop(name) for name in names), **given, **fixed)

    marginals = sparse_map(by_names)

    def total(given: list[Any], traced: dict[str, Any]) -> tuple[Any, Any]:
        eta, *others = given
        values = marginals(eta, **dict(zip(names, others, strict=True)), **traced)
        return (values * weights).sum(), values

    expected, expected_gradients = by_torch(build, scores, weights, constants)
    for transform in (lambda f: f, jax.jit):
        function = transform(jax.value_and_grad(total, has_aux=True))
        given = [jnp.asarray(x) for x in scores]
        (_, values), gradients = function(given, {k: jnp.asarray(v) for k, v in arrays.items()})
        np.testing.assert_allclose(values, expected, **EXACT)
        for own, other in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(own, other, **EXACT)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int) -> None:
    """Many factors, negated slots, variables of any degree, additionals of some factors."""
    drawn = random_graph(np.random.default_rng(seed), kinds=[*KINDS, "Sequence"])
    some = [i for i, declared in enumerate(drawn.declared) if declared.eta_v.size]

    def build(u: Variables, *eta_v: Any) -> list[Factor]:
        given: list[Any] = [np.zeros(0)] * len(drawn.declared)
        for i, scores in zip(some, eta_v, strict=True):
            given[i] = scores
        return [d.declare(u, x) for d, x in zip(drawn.declared, given, strict=True)]

    check_agreement(build, [drawn.eta, *(drawn.declared[i].eta_v for i in some)])


def placed_on(u: Variables, value: Any) -> Any:
    """Return an argument of a factor type with its variables on another graph."""
    if isinstance(value, Variables):
        return u[value.index] ^ value.negated
    if isinstance(value, (list, tuple)) and any(isinstance(x, Variables) for x in value):
        return [placed_on(u, x) for x in value]
    return value


@pytest.mark.parametrize("name", sorted(installed().factors))
def test_every_type(name: str) -> None:
    """The examples that each type gives of itself, at random scores."""
    cls, calls = installed().factors[name].value, []
    with _recorded(cls, calls):
        kept = cls.examples()  # with their graphs
    for k, (factor, call) in enumerate(calls):
        rng = np.random.default_rng(k)

        def build(u: Variables, *w: Any, factor: Any = factor, call: Any = call) -> Factor:
            arguments = {key: placed_on(u, value) for key, value in call.arguments.items()}
            given = inspect.BoundArguments(call.signature, arguments)
            again: Factor = type(factor)(*given.args[1:], **given.kwargs)
            if w:
                again.additionals = w[0].reshape(np.shape(again.additionals))
            return again

        extra = factor.n_factors * factor.n_additionals
        scores = [rng.normal(size=factor.variables.graph.n_variables)]
        check_agreement(build, [*scores, *([rng.normal(size=extra)] if extra else [])])
    assert kept


PROBLEMS = {
    "Sequence": Problem(
        lambda u, transitions, initial, final, lengths: lpsmap.Sequence(
            u, transitions, initial, final, lengths=lengths
        ),
        (3, 4, 3),
        {"transitions": (3, 3), "initial": (3,), "final": (3, 3)},
        {"lengths": np.array([4, 1, 3])},
    ),
    "SequenceBudget": Problem(
        lambda u, transitions: lpsmap.SequenceBudget(u, budget=2, transitions=transitions),
        (2, 4, 2),
        {"transitions": (2, 2)},
    ),
    "Pair": Problem(lambda u, w: lpsmap.Pair(u[:, :-1], ~u[:, 1:], w), (2, 5), {"w": (2, 4)}),
    "Dense": Problem(lambda u, w: lpsmap.Dense([u[:, 0], u[:, 1]], w), (3, 2, 2), {"w": (2, 2)}),
    "tree with a budget, by lengths": Problem(
        lambda u, lengths: [lpsmap.DepTree(u, lengths=lengths), lpsmap.Budget(u, 2, axis=-2)],
        (3, 4, 4),
        {},
        {"lengths": np.array([4, 2, 3])},
    ),
    "matching by a mask": Problem(
        lambda u, mask: [lpsmap.AtMostOne(u, mask=mask), lpsmap.AtMostOne(u.T, mask=mask.T)],
        (4, 5),
        {},
        {"mask": np.random.default_rng(0).random((4, 5)) < 0.7},
    ),
    "logic over views": Problem(
        lambda u: [
            lpsmap.OrOut(stack([~u[:, 0], u[:, 1], ~u[:, 2]])),
            lpsmap.Xor(stack([u[:, 0], u[:, 3]])),
            lpsmap.Imply(u[::-1, 1:]),
        ],
        (4, 4),
    ),
    "factors that share scores": Problem(
        lambda u, w: [
            lpsmap.Pair(u[0], u[1], w[0]),
            lpsmap.Pair(u[1], u[2], w),
            lpsmap.Or(u[:, 0]),
        ],
        (3, 2),
        {"w": (2,)},
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_functions(name: str) -> None:
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    shapes = problem.shape, *problem.scores.values()
    check_agreement(problem.build, [rng.normal(size=s) for s in shapes], problem.constants)
