"""Scores of a network, decoded by the workers of an executor."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from lpsmap import AtMostOne, TorchFactorGraph, Xor, solve_many


def alignment(scores: torch.Tensor) -> TorchFactorGraph:
    """Return a graph in which every row chooses a column, and no two the same one."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    return graph


@pytest.mark.parametrize("workers", ["none", "threads", "processes"])
def test_scores_in_tensors_are_decoded_without_gradients(workers: str) -> None:
    network = torch.nn.Linear(4, 4, dtype=torch.float32)
    torch.manual_seed(0)
    problems = [network(torch.randn(3, 4)) for _ in range(6)]
    executor: Executor | None = {
        "none": lambda: None,
        "threads": lambda: ThreadPoolExecutor(2),
        "processes": lambda: ProcessPoolExecutor(1, mp_context=get_context("fork")),
    }[workers]()
    for outcome in solve_many(problems, executor, task="map", build=alignment):
        assert outcome.error is None, outcome.traceback
        values, scores = outcome.values[0], problems[outcome.index].detach().double().numpy()
        assert outcome.status == ("PROVED",)
        assert isinstance(values, np.ndarray)
        rows, columns = linear_sum_assignment(scores, maximize=True)
        np.testing.assert_array_equal(values.argmax(axis=1), columns)
        np.testing.assert_array_equal(values.sum(axis=1), 1.0)
        np.testing.assert_allclose(outcome.score.sum(), scores[rows, columns].sum())
    assert network.weight.grad is None
