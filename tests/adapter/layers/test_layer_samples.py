"""Samples of layers' structures and their gradients, by enumeration and by tests of frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import judges
from judged_layers import Judged
from layer_cases import CASES, SUMMED, Case, every_layer, latent_trees, normal, over, trained
from lpsmap import AtMostOne, Pair, Xor
from lpsmap_torch.estimators import (
    PerturbAndMAP,
    Sample,
    score_function_loss,
)
from lpsmap_torch.layers import (
    LatentTree,
    SparseMAP,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:lpsmap. Components were not solved"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

double = torch.float64


# -------------------------------------------------------------------- samples


def connected(u: Any) -> list[Any]:
    """Three factors of a tree."""
    return [Xor(u[:, :3]), AtMostOne(u[:, 2:5]), Pair(u[:, 3], ~u[:, 5], 0.7)]


def of_connected(layer: nn.Module, shape: tuple[int, ...]) -> list[Any]:
    m, n = judges.pair()
    pair = judges.EnumeratedFactor(np.array([3, 5]), np.array([False, True]), m, n, np.array([0.7]))
    return [over(range(3), judges.xor(3)), over(range(2, 5), judges.at_most_one(3)), pair]


SAMPLED = {name: CASES[name] for name in SUMMED} | {
    "LatentTree": Case(LatentTree, (4, 4), 1, latent_trees),
    "LatentTree of one root": Case(lambda: LatentTree(single_root=True), (4, 4), 1, latent_trees),
    "a function": Case(lambda: SparseMAP(connected), (6,), 1, of_connected),
}


@pytest.mark.parametrize("case", SAMPLED.values(), ids=SAMPLED)
def test_samples_have_their_probabilities(case: Case) -> None:
    layer, n = trained(case), 4000
    scores = normal(2, *case.shape)
    torch.manual_seed(3)
    samples = layer.sample(scores, n)
    assert samples.values.shape == (n, 2, *case.shape) and samples.log_probabilities.shape == (n, 2)
    for i in range(2):
        judged = Judged(layer, case, scores[i])
        shown = np.array([judged.visible(x, case).reshape(-1) for x in judged.structures.variables])
        log_p = judged.scores - np.logaddexp.reduce(judged.scores)
        drawn = samples.values[:, i].reshape(n, -1).numpy()
        which = (drawn[:, None] == shown[None]).all(axis=-1).argmax(axis=1)
        assert (shown[which] == drawn).all()
        np.testing.assert_allclose(
            samples.log_probabilities[:, i].detach(), log_p[which], rtol=0, atol=1e-10
        )
        check_frequencies(np.bincount(which, minlength=len(shown)), np.exp(log_p))


def check_frequencies(counts: Any, probabilities: Any) -> None:
    """Hold frequencies to probabilities by a chi-square test; rare outcomes count as one."""
    n = counts.sum()
    common = n * probabilities >= 5.0
    seen = np.append(counts[common], counts[~common].sum())
    expected = np.append(n * probabilities[common], n * probabilities[~common].sum())
    seen, expected = seen[expected > 0], expected[expected > 0]
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-4


def test_samples_by_the_estimator_and_their_gradients() -> None:
    case = CASES["SequenceAttention"]
    layer, scores = trained(case), normal(3, *case.shape)
    d, given = normal(3, *case.shape, seed=5).detach(), (scores, *layer.parameters())
    layer.estimator = "marginals"
    expected = torch.autograd.grad(layer(scores), given, d)
    layer.estimator = Sample(generator=torch.Generator().manual_seed(1))
    drawn = layer(scores)
    again = Sample(generator=torch.Generator().manual_seed(1))
    layer.estimator = again
    torch.testing.assert_close(layer(scores), drawn, rtol=0, atol=0)
    assert set(drawn.detach().unique().tolist()) == {0.0, 1.0}
    assert (drawn.sum(-1) == 1.0).all()
    found = torch.autograd.grad(drawn, given, d)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    layer.estimator = Sample("identity")
    (found_d,) = torch.autograd.grad(layer(scores), scores, d)
    torch.testing.assert_close(found_d, d, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["LatentTree", "a function"])
def test_gradients_of_log_probabilities_of_samples(name: str) -> None:
    """The gradient of a log-probability is the sample less the marginals."""
    case = SAMPLED[name]
    layer, scores = trained(case), normal(3, *case.shape)
    weights = normal(20, 3, seed=2).detach()
    samples = layer.sample(scores, 20, generator=torch.Generator().manual_seed(0))
    (found,) = torch.autograd.grad((samples.log_probabilities * weights).sum(), scores)
    layer.estimator = "marginals"
    weights = weights.reshape(20, 3, *[1] * len(case.shape))
    expected = ((samples.values - layer(scores).detach()) * weights).sum(0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["LatentTree", "a function"])
def test_samples_of_batches_with_masks_lengths_and_other_dtypes(
    name: str, dtype: torch.dtype
) -> None:
    case = SAMPLED[name]
    layer, scores = trained(case), normal(4, *case.shape, dtype=dtype).detach()
    scores[0, 1] = -1e4 if dtype is torch.float16 else -1e9
    scores[1, 1] = -torch.inf if name == "a function" else scores[1, 1]
    scores[2] = torch.nan
    scores.requires_grad_()
    lengths = {"lengths": torch.tensor([4, 4, 4, 2])} if name == "LatentTree" else {}
    samples = layer.sample(scores, 50, **lengths)
    assert samples.values.dtype == dtype
    assert samples.log_probabilities.dtype == torch.promote_types(dtype, torch.float32)
    kept = samples.values[:, [0, 1, 3]]
    assert ((kept == 0.0) | (kept == 1.0)).all()
    log_p = samples.log_probabilities
    assert log_p[:, [0, 1, 3]].isfinite().all() and log_p[:, 2].isnan().all()
    if lengths:
        assert not kept[:, 2, 2:].any() and not kept[:, 2, :, 2:].any()
    with torch.no_grad():
        scores *= 2.0
    (gradient,) = torch.autograd.grad(log_p[:, [0, 1, 3]].sum(), scores)
    assert gradient[[0, 1, 3]].isfinite().all()
    assert layer.sample(scores[:0], 2).values.shape == (2, 0, *case.shape)


def test_estimates_by_samples_of_connected_factors() -> None:
    layer = SparseMAP(connected, estimator=Sample(generator=torch.Generator().manual_seed(0)))
    scores, d = normal(5, 6), normal(5, 6, seed=1).detach()
    drawn = layer(scores)
    assert (drawn[:, :3].sum(-1) == 1.0).all() and (drawn[:, 2:5].sum(-1) <= 1.0).all()
    (found,) = torch.autograd.grad(drawn, scores, d)
    layer.estimator = "marginals"
    torch.testing.assert_close(found, torch.autograd.grad(layer(scores), scores, d)[0])


def test_samples_of_factors_that_form_cycles() -> None:
    layer = SparseMAP(lambda u: [Xor(u[:, :3]), Xor(u[:, 1:])])
    drawn = layer.sample(normal(2, 4), 50).values
    assert (drawn[..., :3].sum(-1) == 1.0).all()
    assert (drawn[..., 1:].sum(-1) == 1.0).all()


def test_perturb_and_map_of_xor_is_a_sample_of_the_softmax() -> None:
    scores = torch.tensor([0.3, -1.0, 1.2, 0.0], dtype=double)
    torch.manual_seed(0)
    drawn = SparseMAP(Xor, estimator="perturb")(scores.expand(4000, 4))
    check_frequencies(drawn.sum(0).numpy(), torch.softmax(scores, 0).numpy())


@every_layer
def test_perturbed_structures_and_gradients_are_those_of_the_perturbed_scores(case: Case) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    layer.estimator = PerturbAndMAP(generator=torch.Generator().manual_seed(4))
    whole = (3, *case.shape, case.shown) if case.shown > 1 else (3, *case.shape)
    noise = torch.empty(whole, dtype=double)
    noise.exponential_(generator=torch.Generator().manual_seed(4)).log_().neg_()
    d = normal(3, *case.shape, seed=5).detach()
    drawn = layer(scores)
    assert set(drawn.detach().unique().tolist()) <= {0.0, 1.0}
    gradient = torch.autograd.grad(drawn, scores, d)
    if case.shown > 1:
        return  # the noise of hidden variables is not a score of the layer
    layer.estimator = "map"
    expected = layer(scores + noise)
    torch.testing.assert_close(drawn, expected, rtol=0, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, scores, d))


# -------------------------------------------------------------------- the score function


@pytest.mark.parametrize("baseline", ["leave-one-out", None, "critic"])
def test_score_function_gradients_are_unbiased(baseline: Any) -> None:
    """The exact expectation over all pairs of samples is the gradient of the expected cost."""
    theta = normal(4)
    weight = normal(4, seed=2)
    costs = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=double) * weight.exp()
    log_p = torch.log_softmax(theta, 0)
    expected = torch.autograd.grad((log_p.exp() * costs).sum(), (theta, weight), retain_graph=True)
    total = torch.zeros((), dtype=double)
    for i in range(4):
        for j in range(4):
            p = (log_p[i] + log_p[j]).exp().detach()
            pair = torch.tensor([i, j])
            given = torch.tensor(0.7) if baseline == "critic" else baseline
            total = total + p * score_function_loss(costs[pair], log_p[pair], baseline=given)
    assert abs(total.item() - (log_p.exp() * costs).sum().item()) < 1e-12
    found = torch.autograd.grad(total, (theta, weight))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_bad_input_of_the_score_function() -> None:
    one = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="at least 2 samples, got 1"):
        score_function_loss(one, one)
    with pytest.raises(ValueError, match="equal shapes"):
        score_function_loss(one, torch.zeros(3))
    with pytest.raises(ValueError, match="baseline is 'mean'"):
        score_function_loss(one, one, baseline="mean")
    with pytest.raises(ValueError, match="no sample"):
        score_function_loss(one[:0], one[:0], baseline=None)
