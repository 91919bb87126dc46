"""Gibbs distributions of trees of factors in tensors: gradients, and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from layer_cases import normal
from lpsmap import (
    AtMostOne,
    Bits,
    Budget,
    Dense,
    DepTree,
    Or,
    Pair,
    Sequence,
    TorchFactorGraph,
    Xor,
)
from lpsmap_torch.gibbs import TorchGraphGibbs
from lpsmap_torch.losses import CRFLoss
from random_forests import enumerate_graph


def tree(eta: Tensor, w: Tensor, transitions: Tensor) -> tuple[TorchGraphGibbs, list[Any]]:
    """Return a distribution of two items: taggings, a tree, and what connects them."""
    graph = TorchFactorGraph()
    graph.variable_from(eta.new_zeros(2))  # variables in no factor
    u = graph.variable_from(eta)
    tags, arcs, rest = u[:, :6].reshape(2, 3, 2), u[:, 6:10].reshape(2, 2, 2), u[:, 10:]
    factors = [
        Sequence(tags, transitions),
        DepTree(arcs),
        Pair(tags[:, 0, 1], ~rest[:, 0], w),
        AtMostOne(rest),
        Or([~rest[:, 1], arcs[:, 1, 0]]),
    ]
    gibbs = [graph.add(factor) for factor in factors] and graph.gibbs()
    return gibbs, [u, ~rest, *factors]


def parts(*scores: Tensor) -> tuple[Tensor, ...]:
    gibbs, (u, rest, sequence, _, pair, *_) = tree(*scores)
    views = gibbs.value_of(u), gibbs.value_of(rest)
    extra = gibbs.additionals_of(sequence), gibbs.additionals_of(pair)
    return gibbs.log_partition, gibbs.entropy, *views, *extra


SCORES = normal(2, 12), normal(2, seed=1), normal(2, 2, seed=2)


def test_gradients() -> None:
    assert gradcheck(parts, SCORES)
    assert gradgradcheck(lambda *scores: tree(*scores)[0].log_partition, SCORES)


def test_gradients_pass_by_what_is_forbidden() -> None:
    forbidden = torch.zeros(2, 12, dtype=torch.bool)
    forbidden[0, 1] = forbidden[1, 10] = forbidden[0, 8] = True

    def masked(eta: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return parts(eta.masked_fill(forbidden, -torch.inf), *others)

    assert gradcheck(masked, SCORES)
    (gradient,) = torch.autograd.grad(masked(*SCORES)[0].sum(), SCORES[0])
    assert not gradient[forbidden].any()


def test_marginals_are_the_gradient() -> None:
    gibbs, (u, _, _, _, pair, *_) = tree(*SCORES)
    gradients = torch.autograd.grad(gibbs.log_partition.sum(), SCORES)
    torch.testing.assert_close(gradients[0], gibbs.value_of(u).detach(), rtol=0, atol=1e-14)
    torch.testing.assert_close(gradients[1], gibbs.additionals_of(pair).detach())


def test_scores_that_are_no_numbers_stay_in_their_component() -> None:
    eta, w, transitions = (x.detach().clone() for x in SCORES)
    eta[0, 3] = torch.nan
    eta.requires_grad_()
    gibbs, (u, *_) = tree(eta, w, transitions)
    (gibbs.log_partition.sum() + gibbs.value_of(u).pow(2).sum()).backward()
    assert eta.grad[0].isnan().all() and eta.grad[1].isfinite().all()  # type: ignore[index]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision(dtype: torch.dtype) -> None:
    low = [x.detach().to(dtype).requires_grad_() for x in SCORES]
    high = [x.detach().double().requires_grad_() for x in low]
    (found, *_), (expected, *_) = parts(*low), parts(*high)
    assert found.dtype == torch.float32  # sums overflow in half precision
    torch.testing.assert_close(found, expected.float())
    gradients = torch.autograd.grad(found.sum(), low)
    for got, asked in zip(gradients, torch.autograd.grad(expected.sum(), high), strict=True):
        torch.testing.assert_close(got, asked.to(dtype))


def test_changes_in_place_do_not_reach_the_gradient() -> None:
    eta, w, transitions = (x.detach().clone() for x in SCORES)
    eta.requires_grad_()
    moved = eta * 1.0
    gibbs, (u, *_) = tree(moved[:, torch.arange(12).flip(0)].flip(1), w, transitions)
    loss = gibbs.value_of(u).pow(2).sum()
    with torch.no_grad():
        w.zero_()
        transitions.zero_()
    loss.backward()
    expected = torch.autograd.grad(parts(*SCORES)[2].pow(2).sum(), SCORES[0])[0]
    torch.testing.assert_close(eta.grad, expected)


# -------------------------------------------------------------------- losses


def connected(u: Any, w: Tensor, transitions: Tensor) -> list[Any]:
    """Return the factors of items: tags, a budget of one of them, and pairs with the others."""
    tags, rest = u[:, :6].reshape(len(u), 3, 2), u[:, 6:]
    return [
        Sequence(tags, transitions),
        Pair(tags[:, 0, 0], rest[:, 0], w),
        Budget([rest[:, 0], ~rest[:, 1], rest[:, 2]], 2),
    ]


def loss_of(known: Any, *scores: Tensor, temperature: float = 1.0) -> Tensor:
    eta, w, transitions = scores
    target = torch.as_tensor(known, dtype=torch.float64).expand(len(eta), -1)
    loss = CRFLoss(connected, temperature=temperature, reduction="none")
    return loss(eta, target, w=w, transitions=transitions)


ITEMS = normal(2, 9), normal(2, seed=1), normal(2, 2, seed=2)
NAN = float("nan")
COMPLETE = [0, 1, 1, 0, 0, 1, 1, 1, 1]
PARTLY = [0, 1, NAN, NAN, NAN, NAN, NAN, 1, 1]


@pytest.mark.parametrize("known", [COMPLETE, PARTLY])
def test_losses_are_log_probabilities(known: list[float]) -> None:
    losses = loss_of(known, *ITEMS).detach()
    eta, w, transitions = (x.detach() for x in ITEMS)
    for b in range(2):
        everything, given = TorchFactorGraph(), TorchFactorGraph()
        known_b = torch.tensor(known)
        masked = eta[b].masked_fill(known_b == 0, -torch.inf)
        sign = torch.where(known_b == 1, 1e3, 0.0).double()
        for graph, scores in ((everything, eta[b]), (given, masked + sign)):
            u = graph.variable_from(scores[None])
            for factor in connected(u, w[b : b + 1], transitions):
                graph.add(factor)
        log_z = enumerate_graph(everything).log_partition
        log_z_given = enumerate_graph(given).log_partition - float(sign.sum())
        assert losses[b].item() == pytest.approx(log_z - log_z_given, abs=1e-9)


@pytest.mark.parametrize("known", [COMPLETE, PARTLY])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_gradients_of_losses(known: list[float], temperature: float) -> None:
    def loss(*scores: Tensor) -> Tensor:
        return loss_of(known, *scores, temperature=temperature)

    assert gradcheck(loss, ITEMS)


def test_losses_of_tables_and_choices() -> None:
    """Cross-entropy is the loss of an Xor; binary cross-entropy that of free bits."""
    eta, target = normal(4, 5), torch.tensor([0, 4, 2, 2])
    expected = functional.cross_entropy(eta, target)
    torch.testing.assert_close(CRFLoss(Xor)(eta, target), expected)
    bits = torch.tensor(np.random.default_rng(0).integers(0, 2, (4, 5)))
    expected = functional.binary_cross_entropy_with_logits(eta, bits.double(), reduction="sum")
    torch.testing.assert_close(CRFLoss(Bits, reduction="sum")(eta, bits), expected)
    table = normal(3, 2, seed=1)

    def tables(u: Any, table: Tensor) -> Dense:
        return Dense([u[:, :3], u[:, 3:]], table)

    given = torch.tensor([[1, 0, 0, 0, 1]] * 4)
    joint = eta[:, :3, None] + eta[:, None, 3:] + table
    asked = joint.logsumexp((1, 2)) - joint[:, 0, 1]
    found = CRFLoss(tables, reduction="none")(eta, given, table=table)
    torch.testing.assert_close(found, asked)
    assert gradgradcheck(lambda *x: CRFLoss(tables)(x[0], given, table=x[1]), (eta, table))


def cyclic(eta: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Return the sums of two items: tables over two blocks, and a budget over both."""
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    dense = Dense([u[:, :2], u[:, 2:4]], table)
    factors = [dense, Budget(u[:, 1:], 2), Pair(u[:, 0], ~u[:, 4], table[:, 0, 1])]
    gibbs = [graph.add(factor) for factor in factors] and graph.gibbs()
    return gibbs.log_partition, gibbs.entropy, gibbs.value_of(~u), gibbs.additionals_of(dense)


def test_gradients_of_factors_that_form_cycles() -> None:
    eta, table = normal(2, 5), normal(2, 2, 2, seed=1)
    assert gradcheck(cyclic, (eta, table))
    assert gradgradcheck(lambda *x: cyclic(*x)[0], (eta, table))


def test_losses_of_factors_that_form_cycles() -> None:
    """Both permutations of two, by rows and columns."""

    def matching(u: Any) -> list[Any]:
        return [Xor(u), AtMostOne(u, axis=1)]

    eta, heads = normal(1, 2, 2), torch.tensor([[0, 1]])
    found = CRFLoss(matching)(eta, heads)
    both = torch.stack([eta[0, 0, 0] + eta[0, 1, 1], eta[0, 0, 1] + eta[0, 1, 0]])
    torch.testing.assert_close(found, both.logsumexp(0) - both[0])
    assert gradgradcheck(lambda x: CRFLoss(matching)(x, heads), (eta,))
