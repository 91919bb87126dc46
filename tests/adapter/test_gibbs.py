"""Gibbs distributions in tensors: gradients, gradients of gradients, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from layer_cases import normal
from lpsmap import Alignment, DepTree, FactorGraph, Sequence, TorchFactorGraph, Xor
from lpsmap_torch.gibbs import TorchGibbs
from lpsmap_torch.losses import CRFLoss


def sequences(eta: Tensor, w: Tensor, negated: bool = False) -> TorchGibbs:
    graph = TorchFactorGraph()
    u = graph.variable_from(eta)
    view = u ^ np.array([True, False, False]) if negated else u
    return graph.gibbs(graph.add(Sequence(view, additionals=w, lengths=[3, 2])))


def trees(eta: Tensor) -> TorchGibbs:
    graph = TorchFactorGraph()
    graph.variable_from(torch.zeros(2))  # other variables of the same graph
    u = graph.variable_from(eta)
    return graph.gibbs(graph.add(DepTree(u, projective=True, lengths=[3, 4])))


def parts(gibbs: TorchGibbs) -> tuple[Tensor, ...]:
    return gibbs.log_partition, gibbs.entropy, gibbs.marginals, gibbs.additionals


SEQUENCE = normal(2, 3, 3), normal(2, 6 + 18, seed=1)


@pytest.mark.parametrize("negated", [False, True])
def test_gradients_of_sequences(negated: bool) -> None:
    assert gradcheck(lambda eta, w: parts(sequences(eta, w, negated)), SEQUENCE)
    assert gradgradcheck(lambda eta, w: sequences(eta, w, negated).log_partition, SEQUENCE)


def test_gradients_of_trees() -> None:
    eta = normal(2, 4, 4)
    assert gradcheck(lambda eta: parts(trees(eta))[:3], (eta,))
    assert gradgradcheck(lambda eta: trees(eta).log_partition, (eta,))


def test_gradients_pass_by_what_is_forbidden() -> None:
    """Forbidden arcs have gradient 0, and the others that of the rest."""
    eta = normal(2, 4, 4)
    forbidden = torch.zeros(2, 4, 4, dtype=torch.bool)
    forbidden[0, 1, 0] = forbidden[1, 2, 3] = forbidden[1, 0, 0] = True

    def masked(scores: Tensor) -> tuple[Tensor, ...]:
        return parts(trees(scores.masked_fill(forbidden, -torch.inf)))[:3]

    assert gradcheck(masked, (eta,))
    (gradient,) = torch.autograd.grad(masked(eta)[0].sum(), eta)
    assert not gradient[forbidden].any()


def test_marginals_are_the_gradient() -> None:
    eta = normal(2, 4, 4)
    gibbs = trees(eta)
    (gradient,) = torch.autograd.grad(gibbs.log_partition.sum(), eta)
    torch.testing.assert_close(gradient, gibbs.marginals.detach())


def test_log_probabilities_train_a_random_field() -> None:
    """Their gradient is what was observed less what is expected."""
    eta, w = SEQUENCE
    gibbs = sequences(eta, w)
    best = gibbs.k_best(1)
    gold, extra = best.variables[:, 0], best.additionals[:, 0]
    log_p = gibbs.log_probability(gold, extra)
    torch.testing.assert_close(log_p.exp().detach(), best.probabilities[:, 0])
    (gradient,) = torch.autograd.grad(log_p.sum(), eta)
    torch.testing.assert_close(gradient, gold - gibbs.marginals.detach())
    assert gradcheck(lambda eta, w: sequences(eta, w).log_probability(gold, extra), SEQUENCE)


def test_a_structure_without_a_batch_has_one_probability() -> None:
    eta = normal(3)
    graph = TorchFactorGraph()
    gibbs = graph.gibbs(graph.add(Xor(graph.variable_from(eta))))
    found = gibbs.log_probability([0.0, 1.0, 0.0])
    torch.testing.assert_close(found, eta.log_softmax(0)[1])


def test_numbers_are_those_of_numpy() -> None:
    eta, w = SEQUENCE
    graph = FactorGraph()
    u = graph.variable_from(eta.detach().numpy())
    plain = graph.gibbs(graph.add(Sequence(u, additionals=w.detach().numpy(), lengths=[3, 2])))
    found = sequences(eta, w)
    for name in ("log_partition", "entropy", "marginals", "additionals"):
        tensor: Tensor = getattr(found, name)
        np.testing.assert_allclose(tensor.detach().numpy(), getattr(plain, name), atol=1e-14)
    drawn = found.sample(4, seed=0)
    assert isinstance(drawn.variables, Tensor)
    np.testing.assert_array_equal(drawn.variables.numpy(), plain.sample(4, seed=0).variables)
    assert found.count().tolist() == plain.count().tolist()


def test_dtypes_are_those_of_the_scores() -> None:
    eta = normal(2, 4, 4, dtype=torch.float32)
    gibbs = trees(eta)
    assert {part.dtype for part in parts(gibbs)[:3]} == {torch.float32}
    assert gibbs.k_best(2).variables.dtype == torch.float32
    gibbs.log_partition.sum().backward()
    assert eta.grad is not None and eta.grad.dtype == torch.float32


def test_without_gradients_nothing_is_tracked() -> None:
    with torch.no_grad():
        assert not trees(normal(2, 4, 4)).log_partition.requires_grad
    assert not trees(normal(2, 4, 4).detach()).marginals.requires_grad


def test_third_derivatives_say_that_they_are_none() -> None:
    eta = normal(2, 4, 4)
    (gradient,) = torch.autograd.grad(trees(eta).entropy.sum(), eta, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives of marginals and entropies"):
        gradient.sum().backward()


@pytest.mark.parametrize("name", ["log_partition", "entropy"])
def test_bad_rows_leave_the_others(name: str) -> None:
    eta: Any = normal(2, 4, 5).detach()
    eta[0, 0, 0] = torch.nan
    eta.requires_grad_()
    graph = TorchFactorGraph()
    gibbs = graph.gibbs(graph.add(Alignment(graph.variable_from(eta))))
    value: Tensor = getattr(gibbs, name)
    assert value[0].isnan() and value[1].isfinite()
    value[1].backward()
    assert eta.grad[1].isfinite().all()


@pytest.mark.parametrize("mask", [-1e9, -1e16, float(torch.finfo(torch.float32).min)])
def test_losses_of_trees_with_masked_words_are_those_of_the_others(mask: float) -> None:
    """A masked word has equal arcs, and what all trees score cancels."""
    scores = torch.zeros(1, 4, 4, dtype=torch.float64)
    scores[:, 3] = scores[:, :, 3] = mask
    scores.requires_grad_()
    heads = torch.tensor([[-1, 0, 0, 1]])
    loss = CRFLoss(DepTree)(scores, heads)
    loss.backward()
    torch.testing.assert_close(loss.item(), float(np.log(16.0 * 4.0)), rtol=1e-12, atol=0.0)
    assert scores.grad is not None and scores.grad.isfinite().all()


# -------------------------------------------------------------------- another library


def chain_of_peer(eta: Tensor, w: Tensor) -> Tensor:
    """Marginals of states by torch-struct, which has a table for each step."""
    from torch_struct import LinearChainCRF

    steps = w.transpose(-1, -2) + eta[:, 1:, :, None]
    steps = torch.cat([steps[:, :1] + eta[:, :1, None, :], steps[:, 1:]], 1)
    marginals = LinearChainCRF(steps).marginals
    return torch.cat([marginals[:, :1].sum(2), marginals.sum(3)], 1)


def trees_of_peer(eta: Tensor, projective: bool) -> Tensor:
    """Marginals of arcs by torch-struct, whose rows are the heads."""
    from torch_struct import DependencyCRF
    from torch_struct.deptree import deptree_nonproj

    heads = eta.transpose(-1, -2)
    if projective:
        return DependencyCRF(heads).marginals.transpose(-1, -2)
    return deptree_nonproj(heads, multi_root=True, eps=0.0).transpose(-1, -2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["chains", "projective", "crossing"])
def test_marginals_are_those_of_torch_struct(name: str) -> None:
    pytest.importorskip("torch_struct", reason="torch-struct is not installed")
    graph = TorchFactorGraph()
    scores = (
        (normal(4, 9, 5), normal(4, 8, 5, 5, seed=1)) if name == "chains" else (normal(4, 9, 9),)
    )
    u = graph.variable_from(scores[0])
    if name == "chains":
        factor: Any = Sequence(u, scores[1])
        expected = chain_of_peer(*scores)
    else:
        factor = DepTree(u, projective=name == "projective")
        expected = trees_of_peer(scores[0], name == "projective")
    found, weights = graph.gibbs(graph.add(factor)).marginals, normal(*u.shape, seed=2).detach()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    gradients = torch.autograd.grad((found * weights).sum(), scores)
    asked = torch.autograd.grad((expected * weights).sum(), scores)
    torch.testing.assert_close(gradients, asked, rtol=0, atol=1e-9)


@pytest.mark.parametrize("whole", [False, True])
def test_entropies_are_of_the_scores_as_they_were(whole: bool) -> None:
    given, found = normal(1, 3, 3), []
    for change in (False, True):
        scores, graph = given * 1.0, TorchFactorGraph()
        factor = graph.add(DepTree(graph.variable_from(scores)))
        gibbs = graph.gibbs() if whole else graph.gibbs(factor)
        if change:
            with torch.no_grad():
                scores.mul_(-3.0)
        found.append(torch.autograd.grad(gibbs.entropy.sum(), given)[0])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
