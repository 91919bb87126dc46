"""Every layer with scores of a size at which all its structures can be listed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import judges
from judges import EnumeratedFactor
from lpsmap_torch.layers import (
    LatentTree,
    LPMatchingAttention,
    LPSequenceAttention,
    MatchingAttention,
    Rationale,
    SequenceAttention,
    SparseMAP,
    TopK,
)

__all__ = ["CASES", "SUMMED", "Case", "every_layer", "normal", "trained"]


class Case(NamedTuple):
    """A layer, its scores' shape, and how an item that is ragged is cut."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Of one instance's scores."""
    axes: int
    """How many lengths an instance has."""
    factors: Callable[[nn.Module, tuple[int, ...]], list[Any]]
    """Enumerates the factors of an instance of some shape, for the judge."""
    shown: int = 1
    """One of how many variables of the judge's has a score, the first."""


def sparsemax() -> nn.Module:
    from lpsmap import Xor

    return SparseMAP(Xor)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw scores that require gradients."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def trained(case: Case, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Return the layer with parameters that are not zero."""
    layer, generator = case.make().to(dtype), torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    return layer


def vertices(m: Any, n: Any = None, eta_v: Any = ()) -> EnumeratedFactor:
    """Return a factor over the first variables."""
    m = np.asarray(m, dtype=float)
    n = np.zeros((len(m), 0)) if n is None else n
    k = m.shape[1]
    return EnumeratedFactor(np.arange(k), np.zeros(k, bool), m, n, np.asarray(eta_v))


def over(variables: Any, listed: Any) -> EnumeratedFactor:
    """Return a factor without additionals over some variables."""
    variables = np.asarray(variables).reshape(-1)
    return EnumeratedFactor(variables, np.zeros(len(variables), bool), *listed, np.empty(0))


def matchings(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    m, n = shape
    short, long = min(shape), max(shape)
    tables = []
    for chosen in itertools.permutations(range(long), short):
        table = np.zeros((short, long))
        table[range(short), chosen] = 1.0
        tables.append((table if m <= n else table.T).reshape(-1))
    return [vertices(tables)]


def rows_and_columns(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    index = np.arange(np.prod(shape)).reshape(shape)
    index = index if shape[0] <= shape[1] else index.T
    full = [over(row, judges.xor(len(row))) for row in index]
    return full + [over(column, judges.at_most_one(len(column))) for column in index.T]


def distances(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    length, states = shape
    reach = layer.reach
    m, n = [], []
    for path in itertools.product(range(states), repeat=length):
        table, counts = np.zeros(shape), np.zeros(4 * reach + 1)
        table[range(length), path] = 1.0
        counts[min(path[0], reach - 1)] += 1
        for a, b in itertools.pairwise(path):
            counts[2 * reach + np.clip(b - a, -reach, reach)] += 1
        counts[3 * reach + 1 + max(path[-1] - states + reach, 0)] += 1
        m.append(table.reshape(-1))
        n.append(counts)
    scores = [layer.initial, layer.distances, layer.final]
    return [vertices(m, np.array(n), torch.cat(scores).detach().double().numpy())]


def neighbours(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    index = np.arange(np.prod(shape)).reshape(shape)
    index = index if shape[0] <= shape[1] else index.T
    length, states = index.shape
    m, used = judges.sequences(length, states)
    step = np.abs(np.subtract.outer(np.arange(states), np.arange(states))) == 1
    scores = np.tile(step.reshape(-1) * layer.transition.item(), max(length - 1, 0))
    places, off = index.reshape(-1), np.zeros(index.size, bool)
    chain = EnumeratedFactor(places, off, m, used, scores)
    return [chain, *(over(column, judges.at_most_one(length)) for column in index.T)]


def crosses(heads: tuple[int, ...]) -> bool:
    """Whether two arcs of a tree cross, the root's from before the first word among them."""
    arcs = [sorted((word, -1 if head == word else head)) for word, head in enumerate(heads)]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


def latent_trees(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    n = shape[0]
    index = np.arange(n * n).reshape(n, n)
    heads = judges.tree_heads(n, single_root=layer.single_root)
    kept = np.array([h for h in heads if not (layer.projective and crosses(h))])
    factors = [vertices(np.eye(n)[kept].reshape(len(kept), -1))]
    if layer.budget is not None:
        limited = [np.delete(index[:, head], head) for head in range(n)]
        if layer.budget_root:
            limited.append(np.diagonal(index))
        factors += [over(each, judges.budget(len(each), layer.budget)) for each in limited]
    return factors


def rationales(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    (length,) = shape
    m, used = judges.sequences(length, 2)
    kept = m.reshape(len(m), length, 2)[..., 0].sum(axis=1) <= layer.budget
    both = used.reshape(len(m), -1, 2, 2)[:, :, 0, 0].sum(axis=1, keepdims=True)
    return [vertices(m[kept], both[kept], layer.transition.detach().double().numpy())]


def subsets(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    return [vertices(judges.budget(shape[0], min(layer.k, shape[0]), exact=True)[0])]


CASES: dict[str, Case] = {
    "SparseMAP": Case(sparsemax, (6,), 1, lambda layer, shape: [vertices(np.eye(shape[0]))]),
    "MatchingAttention": Case(MatchingAttention, (3, 4), 2, matchings),
    "LPMatchingAttention": Case(LPMatchingAttention, (4, 3), 2, rows_and_columns),
    "SequenceAttention": Case(SequenceAttention, (3, 4), 2, distances),
    "LPSequenceAttention": Case(LPSequenceAttention, (4, 3), 2, neighbours),
    "LatentTree": Case(lambda: LatentTree(budget=1, budget_root=True), (4, 4), 1, latent_trees),
    "projective LatentTree": Case(
        lambda: LatentTree(projective=True, single_root=True), (4, 4), 1, latent_trees
    ),
    "Rationale": Case(lambda: Rationale(2), (5,), 1, rationales, shown=2),
    "TopK": Case(lambda: TopK(2), (5,), 1, subsets),
}

every_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

SUMMED = "SparseMAP", "TopK", "SequenceAttention", "Rationale", "projective LatentTree"
"""Layers whose structures can be summed and sampled."""
