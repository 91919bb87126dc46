"""Rationales of exactly so many words, in a few spans of a minimum length."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from layer_cases import normal
from lpsmap_torch.layers import Rationale

OPTIONS: list[dict[str, Any]] = [
    {"exactly": True},
    {"max_spans": 1},
    {"min_span": 2},
    {"exactly": True, "min_span": 2, "max_spans": 2},
]


def fits(chosen: tuple[int, ...], budget: int, options: dict[str, Any]) -> bool:
    spans = [len(list(run)) for on, run in itertools.groupby(chosen) if on]
    n = sum(spans)
    return (
        (n == budget if options.get("exactly") else n <= budget)
        and min(spans, default=9) >= options.get("min_span", 1)
        and len(spans) <= options.get("max_spans", 9)
    )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("n", [6, 4])
def test_the_best_rationale(options: dict[str, Any], n: int) -> None:
    layer, scores = Rationale(4, 0.5, **options), normal(2, 6)
    best = layer.decode(scores, lengths=torch.tensor([n, 6]))[0]
    every = [y for y in itertools.product((0, 1), repeat=n) if fits(y, 4, options)]
    neighbours = [sum(a & b for a, b in itertools.pairwise(y)) for y in every]
    worth = torch.tensor(every).double() @ scores[0, :n] + 0.5 * torch.tensor(neighbours)
    assert best.tolist() == [*every[int(worth.argmax())], *[0] * (6 - n)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_marginals_are_means_of_rationales(options: dict[str, Any]) -> None:
    layer, scores = Rationale(3, 0.2, tol=1e-10, **options).double(), normal(2, 6)
    found = layer.structures(scores)
    for i, of_text in enumerate(found):
        chosen = [one.decoded["tags"] for one in of_text]
        assert all(fits(tuple(y), 3, options) for y in chosen)
        mean = found.probabilities[i, : len(of_text)] @ torch.tensor(chosen).double()
        torch.testing.assert_close(layer(scores)[i], mean, rtol=0, atol=1e-8)

    def marginals(x: torch.Tensor, transition: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"transition": transition}, (x,))

    assert gradcheck(marginals, (scores, layer.transition.detach().requires_grad_()), atol=1e-4)


def test_tags_of_structures_are_the_selection() -> None:
    scores = torch.tensor([[3.0, -1.0, 3.0, -2.0]])
    for layer in (Rationale(2), Rationale(2, max_spans=2)):
        (best,) = layer(scores, return_solution=True).structures()[0]
        assert best.decoded == {"tags": [1, 0, 1, 0]}
        assert layer.decode(scores).tolist() == [[1.0, 0.0, 1.0, 0.0]]


def test_texts_of_other_lengths() -> None:
    layer, scores = Rationale(4, exactly=True, max_spans=2), normal(3, 6)
    lengths, budget = torch.tensor([6, 3, 0]), torch.tensor([4, 2, 4])
    chosen = layer(scores, lengths=lengths, budget=budget)
    torch.testing.assert_close(chosen.sum(-1), torch.tensor([4.0, 2.0, 0.0]).double())
    with pytest.raises(
        ValueError, match="Rationale: budget is 4 with exactly=.*instance 1 .*has 3 words"
    ):
        layer(scores, lengths=lengths)
    with pytest.raises(
        ValueError, match="Rationale: budget is 7 with exactly=True.*the text has 6"
    ):
        Rationale(7, exactly=True)(scores[0])
    with pytest.raises(ValueError, match="Rationale: budget is 2, .*min_span is 3"):
        Rationale(2, exactly=True, min_span=3)(scores)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_norm_counts_both_states(temperature: float) -> None:
    scores = torch.tensor([0.6, -0.2, -1.0]).double()
    found = Rationale(3, temperature=temperature)(temperature * scores)
    expected = torch.tensor([0.8, 0.4, 0.0]).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_layers_keep_the_limits() -> None:
    layer, scores = Rationale(4, exactly=True, min_span=2, max_spans=2), normal(1, 8)
    assert repr(layer) == "Rationale(budget=4, exactly=True, min_span=2, max_spans=2)"
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(scores), layer(scores))
    layer.max_spans = 1
    (spans,) = [[len(list(r)) for on, r in itertools.groupby(layer.decode(scores)[0]) if on]]
    assert spans == [4]
    with pytest.raises(ValueError, match="min_span"):
        Rationale(2, min_span=0)
    with pytest.raises(TypeError, match="exactly"):
        Rationale(2, exactly="yes")


def test_limits_that_select_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="max_spans: got 0; expected an integer of at least 1"):
        Rationale(2, max_spans=0)
    with pytest.raises(ValueError, match="budget is 2, but min_span is 3"):
        Rationale(2, min_span=3)
    layer, lengths = Rationale(3, exactly=True), torch.tensor([5, 2])
    with pytest.raises(ValueError, match="instance 1 has 2 words"):
        layer(normal(2, 5), lengths=lengths)
    found = layer(normal(2, 5), lengths=lengths, budget=lengths.clamp(max=3))
    torch.testing.assert_close(found[1, :2], torch.ones(2).double())
