"""Results of scores in half precision, and of scores and additionals of two dtypes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from layer_cases import CASES, normal, trained
from lpsmap import Sequence, TorchFactorGraph, Xor
from lpsmap_torch.layers import SparseMAP, TopK


def large() -> tuple[TorchFactorGraph, torch.Tensor]:
    """Return a graph whose sums exceed the largest number in half precision."""
    scores = torch.full((1, 300, 2), 300.0, dtype=torch.float16)
    graph = TorchFactorGraph()
    graph.add(Sequence(graph.variable_from(scores), torch.zeros(2, 2, dtype=torch.float16)))
    return graph, scores


def test_sums_are_in_single_precision() -> None:
    graph, scores = large()
    for gibbs in (graph.gibbs(graph.factors[0]), graph.gibbs()):
        expected = 300 * 300.0 + 300 * torch.tensor(2.0).log()
        torch.testing.assert_close(gibbs.log_partition, expected.reshape(1))
        assert gibbs.entropy.dtype == torch.float32
    assert graph.gibbs(graph.factors[0]).marginals.dtype == torch.float16
    assert graph.gibbs().kl(graph.gibbs()).dtype == torch.float32
    drawn = SparseMAP(partial(Sequence, transitions=np.zeros((2, 2)))).sample(scores)
    assert drawn.values.dtype == torch.float16
    torch.testing.assert_close(drawn.log_probabilities, -300 * torch.tensor(2.0).log().expand(1, 1))


@pytest.mark.parametrize("whole", [False, True])
def test_scores_of_additionals_count_for_the_dtype(whole: bool) -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(3, 2).detach().float())
    factor = graph.add(Sequence(u, normal(2, 2, 2).detach()))
    gibbs = graph.gibbs() if whole else graph.gibbs(factor)
    assert gibbs.log_partition.dtype == torch.float64
    graph.solve()
    assert u.value.dtype == (gibbs.value_of(u) if whole else gibbs.marginals).dtype


def test_decoded_structures_are_like_the_scores() -> None:
    layer = trained(CASES["SequenceAttention"])  # with parameters in double precision
    scores = normal(2, 3, 4, dtype=torch.float32).detach()
    assert layer.decode(scores).dtype == torch.float32
    assert TopK(2).decode(scores.half()).dtype == torch.float16


def test_infeasible_instances_have_no_log_probability() -> None:
    scores = torch.tensor([[-torch.inf, -torch.inf], [0.0, 1.0]])
    drawn = SparseMAP(Xor).sample(scores)
    assert drawn.log_probabilities.isnan().tolist() == [[True, False]]
