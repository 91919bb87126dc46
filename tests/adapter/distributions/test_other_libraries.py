"""Distributions against values of torch-struct 0.5 and pytorch-crf 0.7.2, for scores of sines."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lpsmap_torch import CRF
from lpsmap_torch.distributions import BinaryTree, Chain, ProjectiveTree, SemiMarkov, Tree


def sines(*shape: int) -> Tensor:
    return torch.arange(1.0, math.prod(shape) + 1, dtype=torch.float64).sin().reshape(shape)


def equal(ours: Tensor, theirs: list[float], atol: float = 1e-12) -> None:
    expected = torch.tensor(theirs, dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=0.0, atol=atol)


def test_linear_chain() -> None:
    """LinearChainCRF: partition, entropy, and the third of kmax."""
    chain = Chain(sines(2, 4, 3), sines(3, 3), lengths=[4, 3])
    equal(chain.log_partition, [5.4755469529613245, 4.828515794680564])
    equal(chain.entropy(), [4.038525631041475, 2.9351074126708983])
    third = chain.k_best(3).log_probs[2] + chain.log_partition
    equal(third, [2.3145985660249426, 2.213722575978207])


def test_dependency_trees() -> None:
    """DependencyCRF with arcs transposed; NonProjectiveDependencyCRF adds 1e-5 to its matrix."""
    arcs = sines(2, 4, 4)
    projective = ProjectiveTree(arcs)
    equal(projective.log_partition, [4.6935419376817835, 4.75519525253169])
    equal(projective.entropy(), [3.526347791325702, 3.1570491681597055])
    single = ProjectiveTree(arcs, single_root=True)
    equal(single.log_partition, [4.296879018500928, 4.314439989564528])
    equal(Tree(arcs).log_partition, [5.662319476873798, 5.555724036723792], atol=1e-4)


def test_constituency() -> None:
    """TreeCRF: partition, entropy, and the third of kmax."""
    trees = BinaryTree(sines(2, 4, 4, 2), labelled=True, lengths=[4, 3])
    equal(trees.log_partition, [8.187539934533671, 4.96928355915029])
    equal(trees.entropy(), [5.799275878834244, 3.612087220042768])
    third = trees.k_best(3).log_probs[2] + trees.log_partition
    equal(third, [4.0586886231737695, 2.1408666877654663])


def test_segments() -> None:
    """SemiMarkovCRF, which sums over a state before the first segment, too."""
    scores, transitions = sines(2, 4, 3, 2), sines(2, 2)
    scores[:, 0] += transitions.logsumexp(0)
    segments = SemiMarkov(scores, transitions)
    equal(segments.log_partition, [8.491796603922388, 6.517936419787083])


def test_module_of_pytorch_crf() -> None:
    crf = CRF(3, reduction="none", dtype=torch.float64)
    with torch.no_grad():
        crf.transitions.copy_(sines(3, 3))
        crf.initial.copy_(sines(3))
        crf.final.copy_(2 * sines(3))
    scores, tags = sines(2, 4, 3), torch.tensor([[0, 1, 2, 1], [2, 0, 1, 1]])
    mask = torch.arange(4) < torch.tensor([[4], [2]])
    equal(-crf(scores, tags, mask).detach(), [-4.0766527598378275, -1.8693376298510005])
    assert crf.decode(scores, mask) == [[0, 0, 0, 0], [0, 0]]
