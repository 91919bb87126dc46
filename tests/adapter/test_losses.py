"""Losses: their definitions by enumeration, the facts that hold of them, padding, and bad input."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from judges import EnumeratedFactor, linear_optimum, solve_graph
from lpsmap import (
    AtMostOne,
    Budget,
    ConvergenceWarning,
    DepTree,
    Pair,
    Sequence,
    TorchFactorGraph,
    Xor,
)
from lpsmap_core import Beliefs, Scores
from lpsmap_core.testing import check_factor
from lpsmap_torch.losses import (
    CRFLoss,
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
    sparsemap_loss,
)

ALL = (SparseMAPLoss, MarginSparseMAPLoss, PerceptronLoss, StructuredHingeLoss, CRFLoss)
SMOOTH = (SparseMAPLoss, MarginSparseMAPLoss, CRFLoss)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw a tensor that requires gradients."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()


def matching(u: Any) -> list[Any]:
    """One of every row, at most one of every column: factors that interact."""
    return [Xor(u), AtMostOne(u, axis=1)]


def limited(u: Any, **options: Any) -> list[Any]:
    """Trees in which no word has more than one modifier."""
    words = ~np.eye(u.shape[-1], dtype=bool)
    if "lengths" in options:
        inside = np.arange(u.shape[-1]) < np.asarray(options["lengths"])[:, None]
        words = words & inside[:, :, None] & inside[:, None, :]
    else:
        words = np.broadcast_to(words, u.shape)
    return [DepTree(u, **options), Budget(u, 1, axis=-2, mask=words)]


def tagging(u: Any, w: Any, **options: Any) -> Any:
    return Sequence(u, w, **options)


class Problem(NamedTuple):
    """Factors, scores and targets of a batch."""

    factors: Callable[..., Any]
    scores: Tensor
    target: Tensor
    arguments: dict[str, Any]
    interacts: bool = False


TREES = torch.tensor([[0, 0, 1], [1, 1, 1], [2, 2, 2]])
PROBLEMS = {
    "trees": Problem(DepTree, normal(3, 3, 3), TREES, {}),
    "taggings": Problem(
        tagging, normal(2, 3, 3), torch.tensor([[0, 2, 1], [1, 1, 0]]), {"w": normal(3, 3)}
    ),
    "matchings": Problem(
        matching, normal(2, 3, 4, seed=1), torch.tensor([[0, 3, 1], [2, 1, 0]]), {}, True
    ),
    "limited trees": Problem(limited, normal(3, 3, 3, seed=2), TREES * 0 + TREES[:1], {}, True),
}
HELD = [
    (loss, name)
    for loss in ALL
    for name, problem in PROBLEMS.items()
    if loss is not CRFLoss or not problem.interacts
]
held = pytest.mark.parametrize(
    ("loss", "name"), HELD, ids=lambda x: x if isinstance(x, str) else x.__name__
)


def losses(loss: type, problem: Problem, scores: Tensor | None = None, **options: Any) -> Tensor:
    found: Tensor = loss(problem.factors, reduction="none", **options)(
        problem.scores if scores is None else scores, problem.target, **problem.arguments
    )
    return found


# -------------------------------------------------------------------- facts


@held
def test_gradients(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    given = tuple(x for x in problem.arguments.values() if isinstance(x, Tensor))

    def value(scores: Tensor, *given: Tensor) -> Tensor:
        arguments = dict(zip(problem.arguments, given, strict=True))
        return losses(loss, problem._replace(arguments=arguments), scores)

    assert gradcheck(value, (problem.scores, *given))
    if loss in SMOOTH:
        assert gradgradcheck(value, (problem.scores, *given), fast_mode=True)


@held
def test_gradient_is_what_is_found_less_what_is_given(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    (gradient,) = torch.autograd.grad(losses(loss, problem).sum(), problem.scores)
    given = torch.nn.functional.one_hot(problem.target, problem.scores.shape[-1]).double()
    cost = 1.0 if loss in (MarginSparseMAPLoss, StructuredHingeLoss) else 0.0
    graph = TorchFactorGraph()
    u = graph.variable_from(problem.scores.detach() + cost * (1.0 - 2.0 * given))
    made = problem.factors(u, **problem.arguments)
    added = [graph.add(factor) for factor in (made if isinstance(made, list) else [made])]
    if loss is CRFLoss:
        found = graph.gibbs(added[0]).marginals
    elif loss in SMOOTH:
        graph.solve()
        found = u.value
    else:
        graph.solve_map()
        found = u.value
    torch.testing.assert_close(gradient, found.detach() - given, rtol=0, atol=1e-12)


@held
def test_never_negative_and_convex(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    for seed in range(3):
        a, b = (10.0**k * normal(*problem.scores.shape, seed=seed + 7).detach() for k in (0, 1))
        ends = [losses(loss, problem, x) for x in (a, b)]
        for t in (0.25, 0.5, 0.9):
            between = losses(loss, problem, (1.0 - t) * a + t * b)
            assert (between >= 0.0).all()
            assert (between <= (1.0 - t) * ends[0] + t * ends[1] + 1e-5).all()


@held
def test_zero_if_and_only_if_the_margin_holds(loss: type, name: str) -> None:
    """The margin of a structure: by how much it scores better than others, by their distance.

    The scores are m for what is on and -m for what is not: another structure scores less by m for
    every wrong variable. SparseMAP asks for 1/2, costs for 1 more, the perceptron for nothing.
    """
    problem = PROBLEMS[name]
    arguments = {key: torch.zeros_like(x) for key, x in problem.arguments.items()}
    problem = problem._replace(arguments=arguments)
    given = torch.nn.functional.one_hot(problem.target, problem.scores.shape[-1]).double()
    if loss is CRFLoss:
        assert (losses(loss, problem, 3.0 * (2.0 * given - 1.0)) > 0.0).all()
        assert (losses(loss, problem, 300.0 * (2.0 * given - 1.0)) < 1e-12).all()
        return
    asked = 0.5 * (loss in SMOOTH) + 1.0 * (loss in (MarginSparseMAPLoss, StructuredHingeLoss))
    rounding = 1e-14 if problem.interacts else 0.0
    assert (losses(loss, problem, (asked + 1e-6) * (2.0 * given - 1.0)) <= rounding).all()
    assert (losses(loss, problem, (asked - 0.05) * (2.0 * given - 1.0)) > 0.0).all()


# -------------------------------------------------------------------- definitions


def all_trees(n: int) -> list[tuple[int, ...]]:
    """Return the heads of all trees of n words, a word's own number for the root."""

    def ends(heads: tuple[int, ...], word: int) -> bool:
        for _ in range(n):
            word = heads[word]
        return heads[word] == word

    every = itertools.product(range(n), repeat=n)
    return [heads for heads in every if all(ends(heads, word) for word in range(n))]


def listed(name: str, problem: Problem, b: int) -> list[tuple[Tensor, float]]:
    """Return all trees or taggings of an item: variables, and what else they score."""
    n, k = problem.scores.shape[1:]
    found = []
    for y in all_trees(n) if name == "trees" else itertools.product(range(k), repeat=n):
        extra = 0.0
        if name == "taggings":
            w = problem.arguments["w"].detach()
            extra = sum(float(w[a, c]) for a, c in itertools.pairwise(y))
        found.append((torch.nn.functional.one_hot(torch.tensor(y), k).double(), extra))
    return found


@pytest.mark.parametrize("partly", [False, True], ids=["all known", "partly known"])
@pytest.mark.parametrize("name", ["trees", "taggings"])
@pytest.mark.parametrize("loss", [PerceptronLoss, StructuredHingeLoss, CRFLoss])
def test_definition_by_enumeration(loss: type, name: str, partly: bool) -> None:
    problem = PROBLEMS[name]
    target = problem.target.clone()
    if partly:
        target[0, 1] = target[1, 0] = -1
    found = losses(loss, problem._replace(target=target))
    for b in range(len(target)):
        gold = torch.nn.functional.one_hot(target[b].clamp(min=0), problem.scores.shape[-1])
        known = (target[b] >= 0)[:, None]
        cost = 1.0 if loss is StructuredHingeLoss else 0.0
        worth, agrees = [], []
        for y, extra in listed(name, problem, b):
            wrong = (known & (y != gold)).sum()
            score = (y * problem.scores[b].detach()).sum() + extra
            worth.append(float(score + cost * wrong))
            agrees.append(wrong == 0)
        values = torch.tensor(worth, dtype=torch.float64)
        chosen = values[torch.tensor(agrees)]
        if loss is CRFLoss:
            expected = values.logsumexp(0) - chosen.logsumexp(0)
        else:
            expected = values.max() - chosen.max()
        torch.testing.assert_close(found[b].detach(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("partly", [False, True], ids=["all known", "partly known"])
def test_relaxations_by_the_judge(partly: bool) -> None:
    """Interacting factors: quadratic and linear programs over the listed vertices."""
    problem = PROBLEMS["matchings"]
    target = problem.target.clone()
    if partly:
        target[:, 0] = -1
    found = losses(SparseMAPLoss, problem._replace(target=target), tol=1e-10)
    linear = losses(PerceptronLoss, problem._replace(target=target), tol=1e-10)
    one, none = np.eye(4), np.zeros((1, 3))
    places = np.arange(12).reshape(3, 4)
    for b, eta in enumerate(problem.scores.detach().numpy().reshape(2, 12)):
        worth, best = [], []
        known = [one[y : y + 1] if y >= 0 else one for y in target[b].tolist()]
        for rows in ([one] * 3, known):
            factors = [
                EnumeratedFactor(places[i], [False] * 4, rows[i], np.empty((len(rows[i]), 0)), [])
                for i in range(3)
            ]
            columns = np.concatenate([np.eye(3), none])
            factors += [
                EnumeratedFactor(places[:, j], [False] * 3, columns, np.empty((4, 0)), [])
                for j in range(4)
            ]
            mu, _, _ = solve_graph(eta, factors)
            worth.append(eta @ mu - 0.5 * mu @ mu)
            best.append(linear_optimum(eta, factors, mu)[0])
        assert np.isclose(found[b].item(), worth[0] - worth[1], atol=1e-8)
        assert np.isclose(linear[b].item(), best[0] - best[1], atol=1e-6)


def test_latent_variables_do_not_count_themselves() -> None:
    """A variable of the function's own is whatever suits the labels best: summed or maximised."""
    scores, own = normal(2, 3), normal(2, seed=3)

    def factors(u: Any) -> list[Any]:
        h = u.graph.variable_from(own)
        return [Pair(u[:, 0], h, 2.0 * torch.ones(2).double()), Xor(u)]

    target = torch.tensor([0, 2])
    found = SparseMAPLoss(factors, reduction="none")(scores, target)
    (gradient,) = torch.autograd.grad(found.sum(), own)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores.detach())
    h = graph.variable_from(own.detach())
    graph.add(Pair(u[:, 0], h, 2.0 * torch.ones(2).double()))
    graph.add(Xor(u))
    graph.solve()
    on = (target == 0).double()
    given = (own.detach() + 2.0 * on).clamp(0.0, 1.0)
    torch.testing.assert_close(gradient, h.value - given, rtol=0, atol=1e-6)


class Chosen(Xor):
    """A type that sums over its structures, as somebody else would write it."""

    def log_partition(self) -> Any:
        return Softmax(self.batch_shape[0])


class Softmax(NamedTuple):
    """Log-partition functions of one of several."""

    n: int

    def beliefs(self, rows: Any, scores: Scores) -> Beliefs:
        table = scores.eta_u.reshape(self.n, -1)
        log_z = np.logaddexp.reduce(table, axis=1)
        p = np.exp(table - log_z[:, None])
        logs = np.log(p, where=p > 0.0, out=np.zeros_like(p))
        return Beliefs(log_z, -(p * logs).sum(axis=1), p.reshape(-1), np.empty(0))

    def hessian_product(self, rows: Any, scores: Scores, direction: Scores) -> Scores:
        p = self.beliefs(rows, scores).m.reshape(self.n, -1)
        d = direction.eta_u.reshape(self.n, -1)
        return Scores((p * (d - (p * d).sum(axis=1, keepdims=True))).reshape(-1), np.empty(0))


def test_types_of_others_bring_log_partition_functions() -> None:
    """A random field of one variable of several is a softmax: its loss is the cross-entropy."""
    scores, target = normal(4, 3), torch.tensor([0, 2, 1, 1])
    check_factor(Chosen(TorchFactorGraph().variable((2, 3))), draws=4)
    expected = torch.nn.functional.cross_entropy(scores, target)
    torch.testing.assert_close(CRFLoss(Chosen)(scores, target), expected)
    assert gradcheck(lambda x: CRFLoss(Chosen)(x, target), (scores,))
    assert gradgradcheck(lambda x: CRFLoss(Chosen)(x, target), (scores,))


# -------------------------------------------------------------------- batches


@pytest.mark.parametrize("loss", ALL)
def test_ragged_batches_are_their_items(loss: type) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 7, size=64)
    lengths[5] = 0
    scores = normal(64, 6, 6, seed=4)
    target = torch.full((64, 6), 3)  # what stands on padding does not matter
    for b, n in enumerate(lengths):
        target[b, :n] = torch.tensor([0, *rng.integers(0, np.arange(1, max(n, 1)))][:n])
    factors, options = DepTree, {}
    if loss in (SparseMAPLoss, MarginSparseMAPLoss):
        factors, options = limited, {"tol": 1e-9}
        target[:, 1:] = torch.arange(5)  # a chain, so that no word has two modifiers
    found = loss(factors, reduction="none", **options)(
        scores, target, lengths=torch.tensor(lengths)
    )
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    for b, n in enumerate(lengths):
        inside = torch.zeros(6, 6, dtype=torch.bool)
        inside[:n, :n] = True
        assert not gradient[b][~inside].any()
        if n:
            alone = scores[b : b + 1, :n, :n].detach().requires_grad_()
            value = loss(factors, **options)(alone, target[b : b + 1, :n])
            value.backward()
            torch.testing.assert_close(found[b], value, rtol=0, atol=1e-7)
            torch.testing.assert_close(gradient[b, :n, :n], alone.grad[0], rtol=0, atol=1e-7)
    assert found[5] == 0.0


def test_reductions() -> None:
    problem = PROBLEMS["trees"]
    each = losses(SparseMAPLoss, problem)
    for reduction, expected in (("mean", each.mean()), ("sum", each.sum())):
        loss = SparseMAPLoss(DepTree, reduction=reduction)
        torch.testing.assert_close(loss(problem.scores, problem.target), expected)


@held
def test_single_precision(loss: type, name: str) -> None:
    problem = PROBLEMS[name]
    arguments = {key: x.detach().float() for key, x in problem.arguments.items()}
    problem = problem._replace(arguments=arguments)
    single = problem.scores.detach().float().requires_grad_()
    double = single.detach().double().requires_grad_()
    found = [losses(loss, problem, x) for x in (single, double)]
    gradients = [
        torch.autograd.grad(x.sum(), s)[0] for x, s in zip(found, (single, double), strict=True)
    ]
    assert found[0].dtype == gradients[0].dtype == torch.float32
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_single(dtype: torch.dtype) -> None:
    scores = torch.zeros(1, 4, 4, dtype=dtype)
    scores[:, :, 3] = 3e4
    value = PerceptronLoss(DepTree)(scores.requires_grad_(), torch.tensor([[0, 0, 0, 0]]))
    assert value.dtype == torch.float32 and value.isfinite() and value > 65504
    value.backward()
    assert scores.grad is not None and scores.grad.dtype == dtype


def test_forms_of_the_target() -> None:
    problem = PROBLEMS["trees"]
    on = torch.nn.functional.one_hot(problem.target, 3)
    expected = losses(SparseMAPLoss, problem)
    for target in (on, on.bool(), on.float(), on.numpy(), problem.target.to(torch.int32)):
        torch.testing.assert_close(
            losses(SparseMAPLoss, problem._replace(target=target)), expected, rtol=0, atol=0
        )


def test_strided_scores_and_no_gradients() -> None:
    problem = PROBLEMS["trees"]
    wide = torch.stack([problem.scores, problem.scores], dim=-1)[..., 0].transpose(1, 2)
    turned = losses(SparseMAPLoss, problem, wide.transpose(1, 2))
    torch.testing.assert_close(turned, losses(SparseMAPLoss, problem), rtol=0, atol=0)
    with torch.no_grad():
        assert not losses(SparseMAPLoss, problem).requires_grad
    spread = torch.zeros(1, 3, 3, dtype=torch.float64, requires_grad=True)
    SparseMAPLoss(DepTree)(spread.expand(3, 3, 3), problem.target).backward()
    assert spread.grad is not None and spread.grad.any()


def test_of_a_solved_graph() -> None:
    """A hidden layer's solution is supervised without another solve."""
    problem = PROBLEMS["matchings"]
    graph = TorchFactorGraph()
    u = graph.variable_from(problem.scores)
    for factor in matching(u):
        graph.add(factor)
    with pytest.raises(RuntimeError, match="no solution of its latest scores"):
        sparsemap_loss(u, problem.target)
    graph.solve()
    found = sparsemap_loss(u, problem.target, reduction="none")
    torch.testing.assert_close(found, losses(SparseMAPLoss, problem))
    negated = sparsemap_loss(~u, 1 - torch.nn.functional.one_hot(problem.target, 4))
    torch.testing.assert_close(negated, found.mean())
    half = TorchFactorGraph()
    v = half.variable_from(torch.zeros(1, 3, 3, dtype=torch.float16, requires_grad=True))
    half.add(DepTree(v))
    half.solve()
    assert sparsemap_loss(v, TREES[:1]).dtype == torch.float32
    with pytest.raises(TypeError, match="expected variables of a TorchFactorGraph"):
        sparsemap_loss(problem.scores, problem.target)  # type: ignore[arg-type]


# -------------------------------------------------------------------- hostile input


@pytest.mark.parametrize("loss", ALL)
def test_masks_and_empty_batches(loss: type) -> None:
    problem = PROBLEMS["trees"]
    for mask in (-torch.inf, -1e9, torch.finfo(torch.float32).min):
        scores = problem.scores.detach().clone()
        scores[0, 1, 2] = scores[0, 2, 0] = mask
        scores.requires_grad_()
        value = losses(loss, problem, scores)
        assert value.isfinite().all() and (value >= 0.0).all()
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert gradient[0, 1, 2] == gradient[0, 2, 0] == 0.0
    empty = loss(DepTree, reduction="none")(torch.zeros(0, 3, 3), torch.zeros(0, 3, 3))
    assert empty.shape == (0,)
    unknown = torch.full((3, 3), -1)
    scores = problem.scores.detach().requires_grad_()
    value = losses(loss, problem._replace(target=unknown), scores)
    value.sum().backward()
    assert scores.grad is not None and not scores.grad.any() and not value.any()


@pytest.mark.parametrize("loss", ALL)
def test_numbers_that_are_none_stay_in_their_item(loss: type) -> None:
    problem = PROBLEMS["trees"]
    scores = problem.scores.detach().clone()
    scores[1, 0, 2] = torch.nan
    if loss is CRFLoss:
        value = losses(loss, problem, scores)
    else:
        with pytest.warns(ConvergenceWarning, match="not finite|NaN"):
            value = losses(loss, problem, scores)
    assert value[1].isnan()
    torch.testing.assert_close(value[[0, 2]], losses(loss, problem)[[0, 2]].detach())


def test_what_is_not_solved_is_warned_of() -> None:
    problem = PROBLEMS["limited trees"]
    with pytest.warns(ConvergenceWarning, match="were not solved"):
        value = losses(SparseMAPLoss, problem, 10.0 * problem.scores, max_iter=1)
    assert (value >= 0.0).all()


SCORES, HEADS = torch.zeros(2, 3, 3), torch.tensor([[0, 0, 1], [1, 1, 1]])
REFUSED: list[tuple[Any, Any, type[Exception], str]] = [
    (SCORES.long(), HEADS, TypeError, "scores: got dtype torch.int64; expected .* floating-point"),
    (SCORES.numpy(), HEADS, TypeError, "scores: got ndarray"),
    (torch.tensor(0.0), HEADS, ValueError, "scores have no axis"),
    (SCORES, HEADS[:1], ValueError, r"target has shape \(1, 3\); expected \(2, 3, 3\)"),
    (SCORES, HEADS.float(), TypeError, "expected integers"),
    (SCORES, HEADS + 2, ValueError, r"target holds 3 at \[0, 2\]; expected positions"),
    (SCORES, SCORES + 0.5, ValueError, r"target holds 0.5 at \[0, 0, 0\]; expected 0, 1, or NaN"),
    (SCORES, SCORES, ValueError, "item 0 is none that DepTree allows"),
    (SCORES, "heads", TypeError, "target"),
    (SCORES, HEADS.to("meta"), ValueError, "target is on meta, and scores are on cpu"),
    (SCORES - torch.inf, HEADS, ValueError, "a score of -inf forbids"),
    (SCORES, torch.tensor([[1, 0, -1], [0, 0, 0]]), ValueError, "no structure of (item 0|an item)"),
]


@pytest.mark.parametrize("loss", [SparseMAPLoss, PerceptronLoss, CRFLoss])
@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")
def test_bad_input_is_refused_in_words(loss: type) -> None:
    for scores, target, error, words in REFUSED:
        with pytest.raises(error, match=words):
            loss(DepTree)(scores, target)


def test_bad_options_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="reduction is 'avg'; expected one of 'none'"):
        CRFLoss(DepTree, reduction="avg")
    with pytest.raises(TypeError, match="factors is a str"):
        SparseMAPLoss("DepTree")  # type: ignore[arg-type]
    for cost, error in ((-1.0, ValueError), (float("nan"), ValueError), ("1", TypeError)):
        with pytest.raises(error, match="cost is"):
            StructuredHingeLoss(DepTree, cost=cost)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="factors share variables"):
        CRFLoss(lambda u: [DepTree(u), DepTree(u)])(SCORES, HEADS)
    with pytest.raises(TypeError, match="Xor has no inference over its structures"):
        CRFLoss(Xor)(SCORES, HEADS)
    with pytest.raises(ValueError, match=r"connect the items \d and \d"):
        SparseMAPLoss(DepTree)(torch.zeros(3, 3), torch.tensor([0, 0, 1]))


def test_words_of_a_loss() -> None:
    assert repr(StructuredHingeLoss(DepTree, cost=0.5)) == (
        "StructuredHingeLoss(DepTree, reduction='mean', cost=0.5)"
    )
