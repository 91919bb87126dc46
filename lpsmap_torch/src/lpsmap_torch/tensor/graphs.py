"""Graphs whose solutions stay on the device of the scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lpsmap_core import Solution
from lpsmap_core.api import AUTO, Layout, Options, Part
from lpsmap_torch.tensor.engine import FixedTensorEngine, TensorEngine
from lpsmap_torch.tensor.solution import SolvedOnTensors, solve_on_tensors

__all__ = ["DeviceSolution", "Known", "differentiable_marginals", "tensor_engine"]

ENGINES = {engine.name: engine for engine in (TensorEngine, FixedTensorEngine)}


def tensor_engine(
    name: str, device: torch.device, part: Part, options: Options
) -> TensorEngine | None:
    """Return the engine that solves a whole part where its scores are, if one does.

    Parameters
    ----------
    name
        The engine that the user asks for; ``"auto"`` chooses by the device.
    device
        That of the scores. On the host compiled code is faster.
    part, options
        What is to be solved.
    """
    chosen = TensorEngine.name if name == AUTO and device.type != "cpu" else name
    if chosen not in ENGINES:
        return None
    engine = ENGINES[chosen]()
    if not engine.serves(part).all() or engine.refuses(part, options) is not None:
        return None  # core shares the graph out, or says why not
    return engine


def differentiable_marginals(
    layout: Layout, scores: Tensor, options: Options, engine: TensorEngine
) -> tuple[Tensor, SolvedOnTensors]:
    """Return the marginals of a graph as a function of its scores, and the solution.

    Parameters
    ----------
    layout
        The graph's layout.
    scores
        (n_variables,) scores of its variables, in float64.
    options, engine
        What solves it, and how.
    """
    part = layout.part
    variables = torch.from_numpy(part.variables).to(scores.device)
    eta = scores if part.whole else scores[variables]
    solved = solve_on_tensors(part, eta, None, options, engine.check_every)
    found = solved.differentiable(eta)
    if part.whole:
        return found, solved
    free = torch.where((scores > 0.0) & (scores < 1.0), scores, scores.detach().clamp(0.0, 1.0))
    free = torch.where(scores == torch.inf, torch.nan, free)
    return free.index_put((variables,), found), solved


class Known(TensorEngine):
    """An engine that returns what was solved before.

    Parameters
    ----------
    solved
        What that is.
    """

    def __init__(self, solved: SolvedOnTensors) -> None:
        self._solved = solved

    def solve(self, *given: Any) -> SolvedOnTensors:
        """Return the solution, whatever is given."""
        return self._solved


class DeviceSolution(Solution):
    """A solution whose arrays come to the host when one is first read.

    Parameters
    ----------
    marginals
        (n_variables,) the graph's marginals, with gradients.
    gather
        Returns the solution with its arrays.
    """

    def __init__(self, marginals: Tensor, gather: Callable[[], Solution]) -> None:
        self.marginals, self._gather = marginals, gather

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(name)
        vars(self).update(vars(self._gather()))
        return vars(self)[name]


FIELDS = {field.name for field in dataclasses.fields(Solution)}
