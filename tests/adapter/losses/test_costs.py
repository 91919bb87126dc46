"""Costs of mistakes: cost-augmented maxima and sums by enumeration."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from judges import EnumeratedFactor, solve_graph
from layer_cases import normal
from lpsmap import AtMostOne, Bits, DepTree, Sequence, Xor
from lpsmap_torch.losses import (
    CRFLoss,
    MarginCRFLoss,
    MarginSparseMAPLoss,
    PerceptronLoss,
    StructuredHingeLoss,
)

double = torch.float64


def asymmetric(labels: Tensor) -> Tensor:
    """A variable that is wrongly off costs 2, one that is wrongly on 0.5."""
    return torch.where(labels == 1.0, 2.0, 0.5)


TABLE = torch.rand(3, 1, dtype=double, generator=torch.Generator().manual_seed(3))
COSTS: dict[str, tuple[Any, Any]] = {
    "hamming": ("hamming", lambda y, s: (y != s).sum()),
    "positions": ("positions", lambda y, s: ((s == 1) & (y == 0)).sum()),
    "tensor": (TABLE, lambda y, s: (TABLE * (y != s)).sum()),
    "single": (TABLE.float(), lambda y, s: (TABLE.float() * (y != s)).sum()),
    "half": (TABLE.half(), lambda y, s: (TABLE.half() * (y != s)).sum()),
    "whole": (torch.tensor(2), lambda y, s: 2 * (y != s).sum()),
    "function": (asymmetric, lambda y, s: 2.0 * (y > s).sum() + 0.5 * (y < s).sum()),
    "heads": (lambda y: 3.0 * (1.0 - y), lambda y, s: 3.0 * (y < s).sum()),
}


def taggings(n: int, k: int) -> list[Tensor]:
    every = itertools.product(range(k), repeat=n)
    return [nn.functional.one_hot(torch.tensor(y), k).double() for y in every]


def trees(n: int) -> list[Tensor]:
    def rooted(heads: tuple[int, ...], word: int) -> bool:
        for _ in range(n):
            word = heads[word]
        return heads[word] == word

    return [
        y for y in taggings(n, n) if all(rooted(tuple(y.argmax(1).tolist()), w) for w in range(n))
    ]


def tagger(u: Any, **options: Any) -> Sequence:
    return Sequence(u, torch.zeros(3, 3), **options)


HEADS = torch.tensor([[0, 0, 1], [1, 1, 1]])
PROBLEMS = {"trees": (DepTree, trees(3)), "taggings": (tagger, taggings(3, 3))}


@pytest.mark.parametrize("partly", [False, True], ids=["all known", "partly known"])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("loss", [StructuredHingeLoss, MarginCRFLoss])
def test_definition_by_enumeration(loss: type, cost: str, name: str, partly: bool) -> None:
    factors, structures = PROBLEMS[name]
    scores, target = normal(2, 3, 3, seed=5), HEADS.clone()
    if partly:
        target[0, 1] = target[1, 0] = -100
    given, of_structure = COSTS[cost]
    found = loss(factors, cost=given, reduction="none")(scores, target, root="self")
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    again = scores.detach().clone().requires_grad_()
    for b in range(2):
        known = target[b] >= 0
        y = nn.functional.one_hot(target[b].clamp(min=0), 3)
        worth, agrees = [], []
        for s in structures:
            mistakes = torch.as_tensor(of_structure(*(x * known[:, None] for x in (y, s.long()))))
            if cost in ("tensor", "single", "half"):
                table = given.double() * known[:, None]
                mistakes = (table * (y != s)).sum()
            worth.append((s * again[b]).sum() + mistakes)
            agrees.append(bool((s[known] == y[known]).all()))
        values = torch.stack(worth)
        chosen = values[torch.tensor(agrees)]
        if loss is MarginCRFLoss:
            expected = values.logsumexp(0) - chosen.logsumexp(0)
        else:
            expected = values.max() - chosen.max()
        torch.testing.assert_close(found[b], expected, rtol=1e-10, atol=1e-10)
        (own,) = torch.autograd.grad(expected, again)
        torch.testing.assert_close(gradient[b], own[b], rtol=0, atol=1e-9)


@pytest.mark.parametrize("cost", ["positions", "tensor", "function"])
def test_marginals_by_the_judge(cost: str) -> None:
    """Of trees: the quadratic program over the listed structures."""
    scores, structures = normal(2, 3, 3, seed=5), trees(3)
    given, of_structure = COSTS[cost]
    found = MarginSparseMAPLoss(DepTree, cost=given, reduction="none", tol=1e-10)(
        scores, HEADS, root="self"
    )
    listed = torch.stack(structures).reshape(-1, 9).numpy()
    factor = EnumeratedFactor(np.arange(9), [False] * 9, listed, np.empty((len(listed), 0)), [])
    for b in range(2):
        y = nn.functional.one_hot(HEADS[b], 3)
        costs = np.array([float(of_structure(y, s.long())) for s in structures])
        eta = scores[b].detach().numpy().reshape(-1)
        # the cost is affine in the structure
        linear, *_ = np.linalg.lstsq(np.c_[listed, np.ones(len(listed))], costs, rcond=None)
        mu, _, _ = solve_graph(eta + linear[:-1], [factor])
        own = y.numpy().reshape(-1)
        worth = [(eta + linear[:-1]) @ x - 0.5 * x @ x for x in (mu, own)]
        torch.testing.assert_close(found[b].item(), worth[0] - worth[1], rtol=0, atol=1e-8)


# -------------------------------------------------------------------- whole structures


def rows(u: Any) -> Any:
    """Independent rows, of which an item has three."""
    return Xor(u)


def matching(u: Any) -> list[Any]:
    return [Xor(u), AtMostOne(u, axis=1)]


MATCHINGS = [s for s in taggings(3, 3) if bool((s.sum(0) <= 1).all())]


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    ("factors", "structures"),
    [(DepTree, trees(3)), (rows, taggings(3, 3)), (matching, MATCHINGS), (tagger, taggings(3, 3))],
    ids=["trees", "rows", "matchings", "taggings"],
)
def test_hinges_of_whole_structures(factors: Any, structures: list[Tensor], scale: float) -> None:
    scores = scale * normal(20, 3, 3, seed=8).detach()
    scores.requires_grad_()
    best = [int(torch.stack([(s * x).sum() for s in structures]).argmax()) for x in scores.detach()]
    chosen = [b if i % 2 else i % len(structures) for i, b in enumerate(best)]
    target = torch.stack([structures[i] for i in chosen])
    loss = StructuredHingeLoss(factors, cost="zero-one", exact=True, reduction="none")
    found = loss(scores, target, root="self")
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    again = scores.detach().clone().requires_grad_()
    worth = torch.stack([(s * again).sum((1, 2)) + 1.0 for s in structures], 1)
    worth = torch.where(
        torch.arange(len(structures)) == torch.tensor(chosen)[:, None], worth - 1.0, worth
    )
    expected = worth.amax(1) - (target * again).sum((1, 2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 * max(1.0, scale))
    (own,) = torch.autograd.grad(expected.sum(), again)
    torch.testing.assert_close(gradient, own, rtol=0, atol=1e-12)


def test_the_only_structure_has_no_rival() -> None:
    scores = torch.tensor([[2.0, -torch.inf], [0.5, 0.0]], requires_grad=True)
    loss = StructuredHingeLoss(Xor, cost="zero-one", exact=True, reduction="none")
    found = loss(scores, torch.tensor([0, 0]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5]))
    found.sum().backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[0.0, 0.0], [-1.0, 1.0]]))
    assert loss(torch.zeros(0, 2), torch.zeros(0, 2)).shape == (0,)


@pytest.mark.parametrize("partly", [False, True], ids=["all known", "partly known"])
@pytest.mark.parametrize("temperature", [1.0, 0.1, 50.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_fields_of_whole_structures(scale: float, temperature: float, partly: bool) -> None:
    scores = (scale * normal(2, 3, 3, seed=5).detach()).requires_grad_()
    target = HEADS.clone()
    if partly:
        target[0, 1] = target[1, 0] = -100
    t = torch.tensor(temperature, dtype=double, requires_grad=True)
    loss = MarginCRFLoss(DepTree, cost="zero-one", temperature=t, reduction="none")
    found = loss(scores, target, root="self")
    again = scores.detach().clone().requires_grad_()
    u = torch.tensor(temperature, dtype=double, requires_grad=True)
    expected = []
    for b in range(2):
        known = target[b] >= 0
        y = nn.functional.one_hot(target[b].clamp(min=0), 3)
        worth = torch.stack([(s * again[b]).sum() for s in trees(3)])
        wrong = torch.tensor([bool((s[known] != y[known]).any()) for s in trees(3)])
        z = ((worth + wrong.double()) / u).logsumexp(0)
        expected.append(u * (z - (worth[~wrong] / u).logsumexp(0)))
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-9, atol=1e-10)
    inputs = zip(
        torch.autograd.grad(found.sum(), (scores, t)),
        torch.autograd.grad(torch.stack(expected).sum(), (again, u)),
        strict=True,
    )
    for one, other in inputs:
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


# -------------------------------------------------------------------- gradients, modules, input


def test_costs_have_gradients() -> None:
    """A cost that is a parameter is learned: its gradient is the mistakes of the maximum."""
    scores, table = normal(2, 3, 3), torch.rand(3, 3, dtype=double).requires_grad_()
    for loss, options in ((MarginSparseMAPLoss, {"tol": 1e-11}), (MarginCRFLoss, {})):

        def value(
            scores: Tensor, table: Tensor, loss: Any = loss, options: Any = options
        ) -> Tensor:
            return loss(DepTree, cost=lambda y: table, reduction="none", **options)(
                scores, HEADS, root="self"
            )

        assert gradcheck(value, (scores, table), atol=1e-5)
        assert gradgradcheck(value, (scores, table), atol=1e-4, fast_mode=True)
    own = nn.Parameter(table.detach())
    criterion = StructuredHingeLoss(DepTree, cost=own)
    assert [name for name, _ in criterion.named_parameters()] == ["cost"]
    criterion(scores, HEADS, root="self").backward()
    assert own.grad is not None and own.grad.isfinite().all()


def test_softmax_margins_bound_their_peers() -> None:
    scores = 3.0 * normal(2, 3, 3, seed=9).detach()
    margin = MarginCRFLoss(DepTree, reduction="none")(scores, HEADS, root="self")
    for other in (CRFLoss, StructuredHingeLoss, PerceptronLoss):
        assert (margin >= other(DepTree, reduction="none")(scores, HEADS, root="self")).all()


def test_costs_belong_to_the_module() -> None:
    table = torch.rand(3, 3)
    criterion = MarginCRFLoss(DepTree, cost=table)
    assert torch.equal(criterion.state_dict()["cost"], table)
    assert criterion.to(double).cost.dtype == double
    scores = normal(2, 3, 3)
    for other in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert torch.equal(other(scores, HEADS, root="self"), criterion(scores, HEADS, root="self"))
    words = {
        "positions": "cost='positions'",
        asymmetric: "cost=asymmetric",
        2: "cost=2",
        table: r"cost=<tensor of shape \(3, 3\)>",
        nn.Parameter(table): r"cost=<parameter of shape",
    }
    for cost, shown in words.items():
        assert re.search(shown, repr(StructuredHingeLoss(DepTree, cost=cost)))


def test_lengths_masks_and_precision() -> None:
    """Costs of padding, of masked variables and of unlabelled ones do not count."""
    table = torch.rand(2, 3, 3)
    table[1, 2:] = torch.inf
    scores = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    scores[0, 2, 0] = -1e9
    lengths = torch.tensor([3, 2])
    for loss in (MarginSparseMAPLoss, StructuredHingeLoss, MarginCRFLoss):
        criterion = loss(DepTree, cost=table[:, :, :], reduction="none")
        heads = torch.tensor([[-1, 0, 1], [1, -1, -100]])
        found = criterion(scores, heads, lengths=lengths)
        alone = loss(DepTree, cost=table[1:, :2, :2])(scores[1:, :2, :2], heads[1:, :2])
        torch.testing.assert_close(found[1], alone)
        half = criterion(scores.clamp(min=-1e4).half(), heads, lengths=lengths)
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, found, rtol=1e-2, atol=1e-2)


def test_negated_variables() -> None:
    """Costs are of the variables of the scores, as factors may negate them."""
    scores, target = normal(4, 3), torch.tensor([0, 2, 1, 1])
    on = nn.functional.one_hot(target, 3)
    plain = StructuredHingeLoss(Xor, cost=asymmetric)(scores, on)
    turned = StructuredHingeLoss(lambda u: Xor(~u), cost=lambda y: torch.where(y == 0.0, 2.0, 0.5))(
        -scores, 1 - on
    )
    torch.testing.assert_close(plain, turned)


@pytest.mark.parametrize("loss", [MarginSparseMAPLoss, StructuredHingeLoss, MarginCRFLoss])
def test_bad_costs_are_refused_in_words(loss: type) -> None:
    scores = torch.zeros(2, 3, 3)
    for cost, error, words in (
        (-1.0, ValueError, "cost is -1.0; expected a finite"),
        (True, TypeError, "cost is a bool"),
        ("hammin", ValueError, "cost is 'hammin'; expected a number, .*'positions', 'zero-one'"),
        (torch.ones(2), ValueError, r"cost has shape \(2,\); expected .* \(2, 3, 3\)"),
        (-torch.ones(3, 3), ValueError, "cost holds -1; expected finite numbers"),
        (torch.full((3, 3), torch.nan), ValueError, "cost holds nan"),
        (lambda y: "1", TypeError, "the function: cost is a str; expected a tensor"),
        (lambda y: y - 5.0, ValueError, "cost holds -[45]"),
    ):
        with pytest.raises(error, match=f"{loss.__name__}: .*{words}"):
            loss(DepTree, cost=cost)(scores, HEADS, root="self")
    with pytest.raises(ValueError, match="a margin separates one structure"):
        loss(Bits)(torch.zeros(1, 2), torch.tensor([[0.5, 0.5]]))


def test_costs_of_whole_structures_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="which marginals do not have"):
        MarginSparseMAPLoss(DepTree, cost="zero-one")
    with pytest.raises(ValueError, match="expected exact=True"):
        StructuredHingeLoss(DepTree, cost="zero-one")
    with pytest.raises(ValueError, match="temperature is 0.01 with the cost 'zero-one'"):
        MarginCRFLoss(DepTree, cost="zero-one", temperature=0.01)(
            torch.zeros(2, 3, 3), HEADS, root="self"
        )
    with pytest.raises(TypeError, match="takes no max_iter"):
        StructuredHingeLoss(DepTree, cost="zero-one", exact=True, max_iter=5)
    loss = StructuredHingeLoss(DepTree, cost="zero-one", exact=True, max_nodes=10)
    with pytest.raises(ValueError, match="expected 0 or 1 for every variable"):
        loss(torch.zeros(1, 3, 3), torch.tensor([[-1, -100, 0]]))
    with pytest.raises(ValueError, match="is not a structure that DepTree allows"):
        loss(torch.zeros(1, 3, 3), torch.tensor([[1, 0, 0]]))


@pytest.mark.parametrize("loss", [StructuredHingeLoss, MarginSparseMAPLoss, MarginCRFLoss])
def test_learned_costs_have_gradients_beside_unlabelled_variables(loss: Any) -> None:
    scores, target = normal(2, 3), torch.tensor([0, -100])
    cost = torch.tensor([0.4, 0.9, 0.7], dtype=double)
    criterion = loss(Xor, cost=nn.Parameter(cost.clone()))
    criterion(scores, target).backward()
    for i, h in enumerate(1e-6 * torch.eye(3, dtype=double)):
        above, below = (
            loss(Xor, cost=nn.Parameter(cost + move))(scores, target) for move in (h, -h)
        )
        slope = ((above - below) / 2e-6).item()
        assert criterion.cost.grad[i].item() == pytest.approx(slope, abs=1e-5)
