"""Random batches of factors with an oracle on tensors, and their judge: core's engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap import (
    Alignment,
    AtMostOne,
    BinaryTree,
    Budget,
    ConvergenceWarning,
    DepTree,
    Factor,
    HeadAutomaton,
    Knapsack,
    Nand,
    Or,
    SemiMarkov,
    Sequence,
    SequenceDistance,
    Status,
    TorchFactorGraph,
    Variables,
    Xor,
)
from lpsmap_dynamic import DynamicProgram

__all__ = ["KINDS", "Batch", "check_batch", "random_batch", "result_of"]


class Halves(DynamicProgram):
    """Half of the variables are on; a type that is declared by its hypergraph alone."""

    @classmethod
    def hypergraph(cls, row: Any, build: Any) -> Any:
        (n,) = row.event_shape
        build.edge((0, 0))
        for k in range(n):
            for on in range(k + 1):
                build.edge((k + 1, on), [(k, on)])
                build.edge((k + 1, on + 1), [(k, on)], [k])
        return n, n // 2


class Batch(NamedTuple):
    """The scores of a batch, and the factor over them."""

    scores: list[Tensor]
    """Of the variables, and of the additionals if there are any."""
    declare: Callable[..., Factor]
    """Declares the factor over variables and scores of additionals."""
    tied: bool
    """Whether scores are tied, so that marginals of additionals are not unique."""
    seed: int
    constrained: bool
    """Whether other factors constrain the variables."""

    def add_to(self, graph: TorchFactorGraph, u: Variables, *scores: Any) -> Factor:
        """Declare the factors over variables and scores of additionals; return the first."""
        factor = graph.add(self.declare(u, *scores))
        n, size = len(u), u[:1].size
        if self.constrained and n * size:
            rng = np.random.default_rng(self.seed)
            keep = np.ones(u.shape, dtype=bool) if factor.keep is None else factor.keep
            flat = u.reshape(n, size)
            for _ in range(rng.integers(1, 4)):
                mask = keep.reshape(n, size) & (rng.random((n, size)) < rng.choice([0.3, 0.7]))
                graph.add(_constraint(rng, ~flat if rng.random() < 0.2 else flat, mask))
        return factor


def _constraint(rng: np.random.Generator, u: Variables, mask: Any) -> Factor:
    """Return random constraints on the variables that a mask selects."""
    kind = rng.choice(["budget", "knapsack", "one", "nand", "xor", "or"])
    if kind == "one":
        return AtMostOne(u, mask=mask)
    if kind == "knapsack":
        costs = rng.uniform(0.5, 1.5, size=u.shape)
        return Knapsack(u, costs, float(rng.uniform(0.5, 3.0)), mask=mask)
    if kind != "budget" and mask.any(axis=1).all():
        return {"nand": Nand, "xor": Xor, "or": Or}[str(kind)](u, mask=mask)
    return Budget(u, int(rng.integers(1, 4)), mask=mask)


def random_batch(seed: int, kind: str | None = None, constrained: bool = False) -> Batch:
    """Draw a batch; some have masks, ties, negated slots or ragged lengths, some are empty."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(sorted(KINDS))) if kind is None else kind
    n = int(rng.choice([0, 1, 2, 3, 4], p=[0.05, 0.2, 0.25, 0.25, 0.25]))
    shape, extra, declare = KINDS[kind](rng, n)
    scale = float(10.0 ** rng.uniform(-1.5, 1.0))
    scores = [scale * rng.normal(size=(n, *shape))]
    if extra:
        scores.append(scale * rng.normal(size=(n, *extra)))
    change = rng.random()
    tied = change < 0.2
    if tied:
        scores = [np.round(2.0 * x) / 2.0 for x in scores]
    elif change < 0.4:
        scores[0][rng.random(scores[0].shape) < rng.choice([0.02, 0.2])] = -np.inf
    elif change < 0.5:
        scores[0][rng.random(scores[0].shape) < 0.1] = -1e9
    negated = rng.random() < 0.15

    def declared(u: Variables, *more: Any) -> Factor:
        return declare(~u if negated else u, *more)

    return Batch([torch.from_numpy(x) for x in scores], declared, tied, seed, constrained)


Kind = tuple[tuple[int, ...], tuple[int, ...], Callable[..., Factor]]


def _lengths(rng: np.random.Generator, n: int, *most: int) -> Any:
    """Return random lengths, or None for all."""
    if rng.random() < 0.4:
        return None
    found = np.stack([rng.integers(0, size + 1, size=n) for size in most], axis=-1)
    return found[:, 0] if len(most) == 1 else found


def _tree(rng: np.random.Generator, n: int, projective: bool = True) -> Kind:
    size = int(rng.integers(1, 7))
    lengths, single_root, packed = _lengths(rng, n, size), rng.random() < 0.3, rng.random() < 0.5
    labels = (2,) if rng.random() < 0.3 else ()

    def declare(u: Variables) -> Factor:
        return DepTree(
            u,
            packed,
            projective=projective,
            single_root=single_root,
            lengths=lengths,
            labelled=bool(labels),
        )

    return (size, size, *labels), (), declare


def _sequence(rng: np.random.Generator, n: int) -> Kind:
    length, states = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    lengths = _lengths(rng, n, length)
    # all steps may share transitions
    size = 2 * states + int(rng.choice([1, length - 1])) * states**2
    return (
        (length, states),
        (size,),
        lambda u, x: Sequence(u, additionals=x, lengths=lengths),
    )


def _distances(rng: np.random.Generator, n: int) -> Kind:
    length, states = int(rng.integers(1, 6)), int(rng.integers(2, 6))
    lengths = _lengths(rng, n, length)
    return (length, states), (5,), lambda u, x: SequenceDistance(u, x, lengths=lengths)


def _segments(rng: np.random.Generator, n: int) -> Kind:
    length, longest, states = (int(x) for x in rng.integers(1, [6, 4, 4]))
    lengths = _lengths(rng, n, length)
    if rng.random() < 0.5:
        return (length, longest, states), (), lambda u: SemiMarkov(u, lengths=lengths)
    square = states, states
    return (length, longest, states), square, lambda u, x: SemiMarkov(u, x, lengths=lengths)


def _spans(rng: np.random.Generator, n: int) -> Kind:
    size, labels = int(rng.integers(1, 7)), (2,) if rng.random() < 0.3 else ()
    lengths = _lengths(rng, n, size)
    declare = lambda u: BinaryTree(u, bool(labels), lengths=lengths)  # noqa: E731
    return (size, size, *labels), (), declare


def _alignment(rng: np.random.Generator, n: int) -> Kind:
    rows, columns = (int(x) for x in rng.integers(1, 7, size=2))
    lengths = _lengths(rng, n, rows, columns)
    return (rows, columns), (), lambda u: Alignment(u, lengths=lengths)


def _siblings(rng: np.random.Generator, n: int) -> Kind:
    size = int(rng.integers(1, 7))
    lengths = _lengths(rng, n, size)
    return (size,), (size + 1, size + 1), lambda u, x: HeadAutomaton(u, x, lengths=lengths)


def _halves(rng: np.random.Generator, n: int) -> Kind:
    size = int(rng.integers(1, 8))
    lengths = _lengths(rng, n, size)
    return (size,), (), lambda u: Halves(u, lengths=lengths)


def _arborescence(rng: np.random.Generator, n: int) -> Kind:
    return _tree(rng, n, projective=False)


KINDS: dict[str, Callable[[np.random.Generator, int], Kind]] = {
    "DepTree": _tree,
    "non-projective DepTree": _arborescence,
    "Sequence": _sequence,
    "SequenceDistance": _distances,
    "SemiMarkov": _segments,
    "BinaryTree": _spans,
    "Alignment": _alignment,
    "HeadAutomaton": _siblings,
    "Halves": _halves,
}


class Result(NamedTuple):
    """The solution of a batch, and first and second derivatives of a function of it."""

    values: list[Tensor]
    solved: Tensor
    """For each variable, whether its factor is solved."""
    statuses: list[Status]
    first: list[Tensor]
    second: list[Tensor]


def result_of(batch: Batch, engine: str, dtype: torch.dtype, unique: bool) -> Result:
    """Solve a batch; the function is a sum of random multiples of cubes of marginals."""
    inputs = [x.to(dtype, copy=True).requires_grad_() for x in batch.scores]
    graph = TorchFactorGraph()
    u = graph.variable_from(inputs[0])
    factor = batch.add_to(graph, u, *inputs[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = graph.solve(engine=engine, tol=1e-12, max_iter=20_000)
    statuses = list(solution.status)
    if engine == "tensor":  # as a whole
        solvers = {row.solved_by for row in graph.plan(engine=engine).components}
        assert solvers <= {"tensor", "clipped to [0, 1]"}
    ok = np.array([*(status.ok for status in statuses), True])  # the last is of free variables
    solved = torch.from_numpy(ok[solution.layout.component]).reshape(u.value.shape)
    values = [torch.where(solved, u.value, 0.0)]
    if unique and len(inputs) > 1:
        whole = solved.flatten(1).all(1, keepdim=True)
        values.append(torch.where(whole, graph.additionals_of(factor), 0.0))
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(x.shape, dtype=dtype, generator=generator) for x in values]
    pairs = zip(weights, values, strict=True)
    loss = torch.stack([(w * x.pow(3)).sum() for w, x in pairs]).sum()
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    size = torch.stack([x.square().sum() for x in first]).sum()
    second = torch.autograd.grad(size, inputs)
    return Result(
        [x.detach() for x in values], solved, statuses, [x.detach() for x in first], list(second)
    )


def check_batch(
    seed: int,
    dtype: torch.dtype = torch.float64,
    kind: str | None = None,
    constrained: bool = False,
) -> None:
    """Both engines find the same solution, statuses and derivatives; two runs the same bits."""
    batch = random_batch(seed, kind, constrained)
    masks = torch.cat([x.flatten() for x in batch.scores if x.numel()] or [torch.zeros(1)])
    unique = not batch.tied and bool((masks > -1e6).all()) and dtype is torch.float64
    found, again, expected = (
        result_of(batch, engine, dtype, unique) for engine in ("tensor", "tensor", "compiled")
    )
    assert found.statuses == expected.statuses
    within = 1e-9 if dtype is torch.float64 else 1e-4
    both = [torch.where(found.solved, x.values[0], 0.0) for x in (found, expected)]
    torch.testing.assert_close(*both, rtol=0, atol=within)
    for mine, theirs in zip(
        [*found.values, *found.first], [*again.values, *again.first], strict=True
    ):
        assert torch.equal(mine, theirs)
    if batch.tied:
        check_jacobian(batch)
    elif torch.equal(found.solved, expected.solved):
        chosen = slice(None) if unique else slice(1)
        check_near(found.values[chosen], expected.values[chosen], within)
        check_near(found.first[chosen], expected.first[chosen], 10.0 * within)
        check_near(found.second[chosen], expected.second[chosen], 100.0 * within)


def check_near(found: list[Tensor], expected: list[Tensor], within: float) -> None:
    """Numbers differ by a multiple of the largest of those expected, or of 1."""
    size = max([1.0, *(float(x.abs().max()) for x in expected if x.numel())])
    torch.testing.assert_close(found, expected, rtol=0, atol=within * size)


def check_jacobian(batch: Batch) -> None:
    """At a kink there is no derivative; the products are of an element of the generalised one.

    It is an orthogonal projection.
    """
    scores = batch.scores[0].clone().requires_grad_()
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    batch.add_to(graph, u, *batch.scores[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        graph.solve(engine="tensor")
    found, generator = u.value, torch.Generator().manual_seed(1)
    a, b = (torch.randn(scores.shape, dtype=torch.float64, generator=generator) for _ in range(2))

    def product(vector: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(found, scores, vector, retain_graph=True)
        return result

    torch.testing.assert_close((product(a) * b).sum(), (a * product(b)).sum(), rtol=0, atol=1e-8)
    torch.testing.assert_close(product(product(a)), product(a), rtol=0, atol=1e-8)
