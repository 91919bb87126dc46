"""The module CRF: its likelihood, its masks, and its lists of tags."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch

from lpsmap_torch import CRF
from lpsmap_torch.distributions import Chain


@pytest.fixture
def crf() -> CRF:
    torch.manual_seed(0)
    module = CRF(3, reduction="none", dtype=torch.float64)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def scores_and_tags() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    return scores, torch.randint(3, (2, 5), generator=generator)


MASK = torch.tensor([[False, True, True, False, True], [True, True, False, False, False]])


def test_masked_positions_are_skipped(crf: CRF) -> None:
    scores, tags = scores_and_tags()
    tags[~MASK] = 99
    losses = crf(scores, tags, MASK)
    for b in range(2):
        alone = crf(scores[b : b + 1, MASK[b]], tags[b : b + 1, MASK[b]])
        torch.testing.assert_close(losses[b : b + 1], alone, rtol=0.0, atol=1e-12)
    losses.sum().backward()
    assert scores.grad is not None and not scores.grad[~MASK].any() and scores.grad[MASK].all()


def test_the_loss_is_that_of_the_distribution(crf: CRF) -> None:
    scores, tags = scores_and_tags()
    for arguments in ({"mask": MASK}, {"lengths": torch.tensor([5, 2])}, {}):
        d = crf.distribution(scores, **arguments)
        assert isinstance(d, Chain)
        torch.testing.assert_close(
            crf(scores, tags, **arguments), -d.log_prob(tags), rtol=0.0, atol=1e-12
        )


def test_tags_are_lists(crf: CRF) -> None:
    scores, _ = scores_and_tags()
    tags = crf.decode(scores, MASK)
    assert [len(x) for x in tags] == [3, 2]
    assert tags[1] == crf.decode(scores[1, :2])
    assert crf.decode(scores, lengths=[0, 0]) == [[], []]
    assert crf.decode(scores[:0]) == []
    assert [len(x) for x in crf.decode(scores[:, None])] == [1, 1]


INVERTED = {
    "padded": [[False, False, False, False, False], [False, False, True, True, True]],
    "to a fixed length": [[False, False, False, False, True], [False, False, True, True, True]],
    "a word": [[False, False, False, False, False], [False, True, True, True, True]],
    "without padding": [[False] * 5] * 2,
}
RIGHT = {
    "padding": [[True, True, True, True, True], [True, True, False, False, False]],
    "padding at the beginning": [[True, True, True, True, True], [False, False, True, True, True]],
    "first token": [[False, True, True, True, True]] * 2,
    "first and last token": [[False, True, True, True, False], [False, True, True, False, False]],
    "an item without words": [[True, True, True, False, False], [False] * 5],
}


@pytest.mark.parametrize("mask", INVERTED.values(), ids=INVERTED)
def test_inverted_masks_are_reported(crf: CRF, mask: list[list[bool]]) -> None:
    scores, tags = scores_and_tags()
    for call in (lambda m: crf(scores, tags, m), lambda m: crf.decode(scores, m)):
        with pytest.warns(UserWarning, match="mask is false .* give ~mask") as caught:
            call(torch.tensor(mask))
        assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize("mask", RIGHT.values(), ids=RIGHT)
def test_other_masks_are_not_reported(crf: CRF, mask: list[list[bool]]) -> None:
    scores, tags = scores_and_tags()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf(scores, tags, torch.tensor(mask))
        crf.decode(scores[:0], torch.zeros(0, 5, dtype=torch.bool))


def test_unknown_tags_are_summed_over(crf: CRF) -> None:
    scores, tags = scores_and_tags()
    some = tags.clone()
    some[0, 1] = -100
    summed = sum((-crf(scores, tags.index_fill(1, torch.tensor(1), y))).exp()[0] for y in range(3))
    torch.testing.assert_close(crf(scores, some)[0], -summed.log(), rtol=0.0, atol=1e-12)


def test_a_module_of_torch(crf: CRF) -> None:
    scores, tags = scores_and_tags()
    losses = crf(scores, tags, MASK)
    for other in (copy.deepcopy(crf), pickle.loads(pickle.dumps(crf))):
        torch.testing.assert_close(other(scores, tags, MASK), losses)
    assert set(crf.state_dict()) == {"transitions", "initial", "final"}
    half = crf.half()
    assert half(scores.half(), tags).dtype == torch.float32
    crf.reset_parameters()
    assert not any(x.any() for x in crf.parameters())
    with pytest.raises(ValueError, match="reduction"):
        CRF(3, reduction="median")
    with pytest.raises(ValueError, match="CRF: scores has shape"):
        CRF(4)(scores.float(), tags)


def test_it_compiles() -> None:
    crf = CRF(3)
    scores, tags = scores_and_tags()
    scores = scores.detach().float().requires_grad_()
    compiled = torch.compile(lambda s, t, m: crf(s, t, m), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(scores, tags, MASK), crf(scores, tags, MASK))


def test_errors_are_in_its_name(crf: CRF) -> None:
    scores, tags = scores_and_tags()
    for call in (lambda *x, **y: crf(x[0], tags, **y), crf.decode, crf.distribution):
        for given, arguments, message in (
            (scores, {"mask": MASK.float()}, "CRF: mask is a Tensor of float32"),
            (scores, {"lengths": [5.0, 2.0]}, "CRF: lengths are a list"),
            (scores[..., :2], {}, "CRF: scores has shape .*; expected 3 tags"),
            (scores.long(), {}, "CRF: scores has dtype torch.int64"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                call(given, **arguments)


def test_a_tag_out_of_range_is_refused(crf: CRF) -> None:
    scores, tags = scores_and_tags()
    tags[0, 1] = 3
    with pytest.raises(ValueError, match=r"holds 3 at \[0, 1\]; expected .*, 0 to 2, .* rows\.$"):
        crf(scores, tags)
