"""Losses of ragged batches, in every precision, under the compiler; hostile input."""

from __future__ import annotations

import functools
import gc
import math
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from layer_cases import normal
from loss_cases import ALL, FIELDS, PROBLEMS, TREES, held, limited, losses, matching
from lpsmap import ConvergenceWarning, DepTree, Matching, Sequence, TorchFactorGraph, Xor
from lpsmap_torch import built_graph
from lpsmap_torch.layers import MatchingAttention, SequenceAttention
from lpsmap_torch.losses import (
    CRFLoss,
    MarginSparseMAPLoss,
    PerceptronLoss,
    SparseMAPLoss,
    StructuredHingeLoss,
    sparsemap_loss,
)


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
        scores, target, lengths=torch.tensor(lengths), root="self"
    )
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    for b, n in enumerate(lengths):
        inside = torch.zeros(6, 6, dtype=torch.bool)
        inside[:n, :n] = True
        assert not gradient[b][~inside].any()
        if n:
            alone = scores[b : b + 1, :n, :n].detach().requires_grad_()
            value = loss(factors, **options)(alone, target[b : b + 1, :n], root="self")
            value.backward()
            torch.testing.assert_close(found[b], value, rtol=0, atol=1e-7)
            torch.testing.assert_close(gradient[b, :n, :n], alone.grad[0], rtol=0, atol=1e-7)
    assert found[5] == 0.0


def test_masks_say_what_takes_part() -> None:
    """Scores outside count as little as if they were not there, whatever they are."""
    scores, target = normal(3, 5), torch.tensor([1, 0, 2])
    mask = torch.arange(5) < torch.tensor([[3], [1], [5]])
    with torch.no_grad():
        scores[~mask] = torch.nan
    found = SparseMAPLoss(Xor, reduction="none")(scores, target, mask=mask)
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert not gradient[~mask].any()
    alone = scores[:1, :3].detach().requires_grad_()
    value = SparseMAPLoss(Xor)(alone, target[:1])
    value.backward()
    torch.testing.assert_close(found[0], value)
    torch.testing.assert_close(gradient[:1, :3], alone.grad)


def test_reductions() -> None:
    problem = PROBLEMS["trees"]
    each = losses(SparseMAPLoss, problem)
    for reduction, expected in (("mean", each.mean()), ("sum", each.sum())):
        loss = SparseMAPLoss(DepTree, reduction=reduction)
        torch.testing.assert_close(loss(problem.scores, problem.target, root="self"), expected)


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
    value = PerceptronLoss(DepTree)(scores.requires_grad_(), torch.tensor([[-1, 0, 0, 0]]))
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
    SparseMAPLoss(DepTree)(spread.expand(3, 3, 3), problem.target, root="self").backward()
    assert spread.grad is not None and spread.grad.any()


@pytest.mark.filterwarnings("ignore")  # torch's about what its compiler looks at
def test_between_two_compiled_graphs() -> None:
    """A compiled step calls a loss as it is, and differentiates through it."""
    torch._dynamo.reset()
    problem = PROBLEMS["taggings"]
    own = problem.arguments["w"]

    def step(scores: Tensor) -> Tensor:
        arguments = {"w": 2.0 * own}
        changed = problem._replace(arguments=arguments)
        return losses(SparseMAPLoss, changed, 3.0 * scores).sum().cos()

    expected = step(problem.scores)
    for _ in range(2):
        found = torch.compile(step, backend="aot_eager")(problem.scores)
        torch.testing.assert_close(found, expected)
        pairs = (
            torch.autograd.grad(x, (problem.scores, own), retain_graph=True)
            for x in (found, expected)
        )
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other)
    torch._dynamo.reset()


@pytest.mark.parametrize("loss", ALL)
def test_graphs_go_with_their_values(loss: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a loss has solved waits for the collector of cycles, nor outlives its value."""
    made: list[weakref.ref[TorchFactorGraph]] = []
    monkeypatch.setattr(
        built_graph,
        "TorchFactorGraph",
        lambda: made.append(weakref.ref(g := TorchFactorGraph())) or g,
    )
    problem = PROBLEMS["taggings"]
    losses(loss, problem)  # loads kernels, which leaves cycles behind
    gc.collect()
    gc.disable()
    try:
        value = losses(loss, problem)
        value.sum().backward()
        with torch.no_grad():
            kept = losses(loss, problem)
        assert len(made) == 3 and made[2]() is None and not kept.requires_grad
        del value
        assert made[1]() is None
    finally:
        gc.enable()


def test_of_a_solved_graph() -> None:
    """A hidden layer's solution is supervised without another solve."""
    problem = PROBLEMS["matchings"]
    graph = TorchFactorGraph()
    u = graph.variable_from(problem.scores)
    for factor in matching(u):
        graph.add(factor)
    with pytest.raises(RuntimeError, match="no solution for its current scores"):
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
    assert sparsemap_loss(v, TREES[:1], root="self").dtype == torch.float32
    with pytest.raises(TypeError, match="expected variables of a solved TorchFactorGraph"):
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
    unknown = torch.full((3, 3), -100)
    scores = problem.scores.detach().requires_grad_()
    value = losses(loss, problem._replace(target=unknown), scores)
    value.sum().backward()
    assert scores.grad is not None and not scores.grad.any() and not value.any()


@pytest.mark.parametrize("loss", ALL)
def test_numbers_that_are_none_stay_in_their_item(loss: type) -> None:
    problem = PROBLEMS["trees"]
    scores = problem.scores.detach().clone()
    scores[1, 0, 2] = torch.nan
    if loss in FIELDS:
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


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("loss", ALL)
def test_decoded_trees_are_targets(loss: type, packed: bool) -> None:
    """The root is -1 in both; what is not known is -100."""
    scores = torch.zeros(2, 3, 3, dtype=torch.float64)
    scores[:, :, 1] = 1.0
    at_root = torch.eye(3, dtype=torch.bool) if packed else torch.arange(3).expand(3, 3) == 0
    roots = 3.0 * at_root.double()

    def trees(u: Any) -> DepTree:
        return DepTree(u, packed)

    graph = TorchFactorGraph()
    tree = graph.add(trees(graph.variable_from(scores + roots)))
    graph.solve_map()
    heads = torch.tensor([found[0].decoded["heads"] for found in graph.structures(tree)])
    assert (heads == -1).all()
    criterion = loss(trees, reduction="none")
    table = at_root.double().expand(2, 3, 3)
    torch.testing.assert_close(criterion(scores, heads), criterion(scores, table), rtol=0, atol=0)
    assert (criterion(scores, heads) > 0.5).all()
    heads[0, 1] = -100
    table = table.clone()
    table[0, 1] = torch.nan
    torch.testing.assert_close(criterion(scores, heads), criterion(scores, table), rtol=0, atol=0)


def test_rows_of_no_tree_have_no_root() -> None:
    """Of tags -1 is a mistake, and not a position; beyond the lengths anything goes."""
    tags = torch.tensor([[0, 1, -1], [1, 0, 2]])
    criterion = SparseMAPLoss(functools.partial(Sequence, transitions=torch.zeros(3, 3)))
    with pytest.raises(ValueError, match=r"target holds -1 at \[0, 2\], .*-100 for unlabelled"):
        criterion(SCORES, tags)
    full = criterion(SCORES, tags.clamp(min=0), lengths=[2, 3])
    for padding in (-1, -100, -7, 9):
        tags[0, 2] = padding
        assert criterion(SCORES, tags, lengths=[2, 3]) == full


def test_the_root_is_written_one_way_inside_the_lengths() -> None:
    heads, scores = torch.tensor([[-1, 0, 2], [-1, -1, -1]]), normal(2, 3, 3)
    found = SparseMAPLoss(DepTree)(scores, heads, lengths=[2, 3])
    heads[0, 2] = -100
    assert SparseMAPLoss(DepTree)(scores, heads, lengths=[2, 3]) == found
    heads[0, 1] = 1
    with pytest.raises(ValueError, match="root is -1"):
        SparseMAPLoss(DepTree)(scores, heads, lengths=[2, 3])


def test_the_loss_of_a_solved_graph_knows_roots() -> None:
    graph = TorchFactorGraph()
    v = graph.variable_from(SCORES.clone())
    graph.add(DepTree(v[:, :, [1, 0, 2]][:, [1, 0, 2]]))  # a view in another order
    graph.solve()
    own = torch.tensor([[0, 1, 2]]).expand(2, 3)
    given = sparsemap_loss(v, own, root="self")
    assert sparsemap_loss(v, torch.full((2, 3), -1)) == given > 0.5


def test_labels_of_padding_are_ignored() -> None:
    scores, lengths = torch.zeros(2, 3, 3), torch.tensor([3, 2])
    target = torch.eye(3).expand(2, 3, 3).clone()  # every word is a root
    expected = SparseMAPLoss(DepTree)(scores, target, lengths=lengths)
    for value in (0.5, 7.0, torch.nan):
        target[1, 2], target[1, :, 2] = value, value
        assert SparseMAPLoss(DepTree)(scores, target, lengths=lengths) == expected


SCORES, HEADS = torch.zeros(2, 3, 3), torch.tensor([[-1, 0, 1], [1, -1, 1]])
REFUSED: list[tuple[Any, Any, type[Exception], str]] = [
    (SCORES.long(), HEADS, TypeError, "scores: got dtype torch.int64; expected .* floating-point"),
    (SCORES.numpy(), HEADS, TypeError, "scores: got an ndarray"),
    (torch.tensor(0.0), HEADS, ValueError, "scores have no axis"),
    (SCORES, HEADS[:1], ValueError, r"target has shape \(1, 3\); expected \(2, 3, 3\)"),
    (SCORES, HEADS.float(), TypeError, "expected integers"),
    (SCORES, HEADS + 2, ValueError, r"target holds 3 at \[0, 2\]; expected positions"),
    (
        SCORES,
        SCORES + 1.5,
        ValueError,
        r"target holds 1.5 at \[0, 0, 0\]; expected 0, 1, marginals",
    ),
    (SCORES, SCORES + 0.5, ValueError, "item 0 is no mixture .* of DepTree: a sum .* is 1.5"),
    (SCORES, SCORES, ValueError, "item 0 is not a structure that DepTree allows"),
    (SCORES, "heads", TypeError, "target"),
    (SCORES, HEADS.to("meta"), ValueError, "target is on meta, and scores are on cpu"),
    (SCORES - torch.inf, HEADS, ValueError, "whose score is -inf"),
    (
        SCORES,
        torch.tensor([[-100, 2, 1], [-1, 0, 0]]),
        ValueError,
        "no structure of (item 0|an item)",
    ),
    (SCORES, HEADS - 3, ValueError, r"target holds -4 at \[0, 0\]; .*, or -100 for unlabelled"),
    # heads counted from 1, as far as they cannot be others counted from 0
    (
        SCORES,
        torch.tensor([[3, 1, 0], [0, 1, 2]]),
        ValueError,
        r"target holds 3 at \[0, 0\]; .* counted from 0, .* subtract 1 from heads counted from 1",
    ),
    (
        SCORES,
        torch.tensor([[2, 0, 1], [-1, 0, 1]]),
        ValueError,
        "item 0 is not a structure that DepTree allows; .* subtract 1 from heads counted from 1",
    ),
    (
        SCORES,
        torch.tensor([[-1, 1, 2], [2, -1, 2]]),
        ValueError,
        r"target holds 1 at \[0, 1\]; .* the root is -1",
    ),
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
    for loss, verb in ((SparseMAPLoss, "solve"), (StructuredHingeLoss, "solve_map")):
        words = rf"{loss.__name__}: got budget=2; expected options of TorchFactorGraph.{verb}, .*by"
        with pytest.raises(TypeError, match=words):
            loss(DepTree, budget=2)
    with pytest.raises(TypeError, match=r"CRFLoss: got single_root=True; expected options of the"):
        CRFLoss(DepTree, single_root=True)  # type: ignore[arg-type]
    for cost, error in (
        (-1.0, ValueError),
        (float("nan"), ValueError),
        ("1", ValueError),
        (None, TypeError),
    ):
        with pytest.raises(error, match="cost is"):
            StructuredHingeLoss(DepTree, cost=cost)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="factors form a cycle: factor 0 of DepTree"):
        CRFLoss(lambda u: [DepTree(u), DepTree(u)])(SCORES, HEADS)
    with pytest.raises(TypeError, match="Matching has no inference over its structures"):
        CRFLoss(Matching)(SCORES, HEADS.clamp(min=0))
    with pytest.raises(ValueError, match=r"connect the items \d and \d"):
        SparseMAPLoss(DepTree)(torch.zeros(3, 3), torch.tensor([-1, 0, 1]))


@pytest.mark.parametrize(
    ("loss", "options", "error", "words"),
    [
        (SparseMAPLoss, {"tol": -1.0}, ValueError, "tol: got -1.0"),
        (MarginSparseMAPLoss, {"max_iters": 3}, TypeError, "got max_iters=3; expected options"),
        (SparseMAPLoss, {"engine": "none"}, ValueError, "engine: got 'none'"),
        (PerceptronLoss, {"max_iter": 0}, ValueError, "max_iter: got 0"),
        (PerceptronLoss, {"exact": 2}, TypeError, "exact: got 2"),
        (PerceptronLoss, {"exact": True, "gap": -1.0}, ValueError, "gap: got -1.0"),
        (PerceptronLoss, {"exact": True, "solver": "none"}, ValueError, "solver: got 'none'"),
        (StructuredHingeLoss, {"exact": True, "max_nodes": 0}, ValueError, "max_nodes: got 0"),
    ],
)
def test_options_are_checked_when_a_loss_is_made(
    loss: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        loss(DepTree, **options)


@pytest.mark.parametrize("loss", [SparseMAPLoss, PerceptronLoss, StructuredHingeLoss])
def test_a_loss_is_made_without_a_solve(loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def solved(*_: Any) -> None:
        raise AssertionError("a solve of an empty graph")

    monkeypatch.setattr(TorchFactorGraph, "_run", solved)
    loss(DepTree, max_iter=5, tol=1e-8, threads=1, engine="compiled", verbose=1)


def test_words_of_a_loss() -> None:
    assert repr(StructuredHingeLoss(DepTree, cost=0.5)) == (
        "StructuredHingeLoss(DepTree, reduction='mean', cost=0.5)"
    )


@pytest.mark.parametrize("loss", ALL)
def test_arguments_of_factors_are_named(loss: type) -> None:
    words = rf"{loss.__name__}: got a Tensor as the argument after scores and target; .*lengths="
    with pytest.raises(TypeError, match=words):
        loss(DepTree)(SCORES, HEADS, torch.tensor([3, 2]))


def test_decoded_structures_have_the_dtype_of_the_scores() -> None:
    scores = torch.zeros(1, 3, 3, dtype=torch.float16)
    assert SparseMAPLoss(DepTree).decode(scores).dtype is torch.float16


def test_arguments_that_a_factor_type_does_not_take() -> None:
    tags = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(TypeError, match="Sequence: unexpected argument 'mask'; expected transit"):
        CRFLoss(Sequence)(SCORES, tags, mask=tags > 0)
    for criterion in (CRFLoss(Sequence), CRFLoss(functools.partial(Sequence, final=None))):
        with pytest.raises(TypeError, match="Sequence: .* 'transition'; expected transitions[.]"):
            criterion(SCORES, tags, transition=SCORES[0])


def test_nan_rows_at_the_end_without_lengths() -> None:
    """Rows of NaN in a target like the scores are unlabelled, as rows of -100 are."""
    scores, target = torch.zeros(1, 3, 2), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [math.nan] * 2]])
    call = {"transitions": torch.zeros(2, 2)}
    with pytest.warns(UserWarning, match="give lengths="):
        SparseMAPLoss(Sequence)(scores, target, **call)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseMAPLoss(Sequence)(scores, target, lengths=torch.tensor([2]), **call)
        SparseMAPLoss(Sequence)(scores, target, lengths=torch.tensor([3]), **call)


@pytest.mark.parametrize("layer", [MatchingAttention, SequenceAttention])
def test_padding_without_lengths_in_losses_of_layers(layer: type) -> None:
    scores, partners, criterion = torch.zeros(1, 3, 3), [[0, 1, -100]], SparseMAPLoss(layer())
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [math.nan] * 3]
    for target in (torch.tensor(partners), torch.tensor([rows])):
        with pytest.warns(UserWarning, match="give lengths="):
            criterion(scores, target)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            criterion(scores, target, lengths=torch.tensor([[3, 3]]))
            criterion(scores, target, lengths=torch.tensor([[2, 3]]))


def test_padding_of_labelled_trees_without_lengths() -> None:
    """Rows are words: unknown words warn, and the last heads of a word may be unknown."""
    scores, target = torch.zeros(1, 3, 3, 2), torch.zeros(1, 3, 3, 2)
    target[0, 0, 0, 1] = target[0, 1, 0, 0] = target[0, 2, 0, 0] = 1.0
    criterion = CRFLoss(functools.partial(DepTree, labelled=True))
    some_heads = target.clone()
    some_heads[0, 1, 2] = math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion(scores, some_heads)
    target[0, 2] = math.nan
    with pytest.warns(UserWarning, match="give lengths="):
        criterion(scores, target)


def test_attributes_are_validated_when_they_are_set() -> None:
    """Another reduction was the sum, and a cost that the loss refuses took the margin away."""
    loss = MarginSparseMAPLoss(Xor)
    with pytest.raises(ValueError, match="reduction is 'avg'"):
        loss.reduction = "avg"
    with pytest.raises(ValueError, match="cost is 'zero-one'"):
        loss.cost = "zero-one"
    with pytest.raises(TypeError, match="cost is"):
        loss.cost = None
    assert (loss.reduction, loss.cost) == ("mean", 1.0)
    loss.cost, loss.reduction = 2, "sum"
    assert (loss.reduction, loss.cost) == ("sum", 2.0)
