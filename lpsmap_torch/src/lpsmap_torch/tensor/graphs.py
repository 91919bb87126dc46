"""Graphs whose solutions stay on the device of the scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor, Options, Solution
from lpsmap_core.api import Layout, Part, solve_laid_out
from lpsmap_torch.tensor.engine import FixedTensorEngine, TensorEngine
from lpsmap_torch.tensor.solution import SolvedOnTensors, solve_on_tensors
from lpsmap_torch.tensors import is_transformed, numbers

__all__ = ["ENGINES", "DeviceSolution", "solve_on_device", "tensor_engine"]

ENGINES = {engine.name: engine for engine in (TensorEngine, FixedTensorEngine)}


def tensor_engine(
    name: str, scores: Sequence[Tensor], part: Part, options: Options
) -> TensorEngine | None:
    """Return the engine that solves a whole part on the device of its scores, or None.

    Parameters
    ----------
    name
        The name of the requested engine.
    scores
        The blocks of scores.
    part, options
        The graph, and the options of the solve.
    """
    if name not in ENGINES or len({block.device for block in scores}) != 1:
        return None
    engine = ENGINES[name]()
    if is_transformed(scores[0]):
        engine = FixedTensorEngine()  # function transforms have no concrete numbers to check
    if not engine.serves(part).all() or engine.refuses(part, options) is not None:
        return None  # core splits the graph, or reports the reason
    return engine


def solve_on_device(
    layout: Layout,
    factors: Sequence[Factor],
    scores: Tensor,
    options: Options,
    engine: TensorEngine,
) -> DeviceSolution:
    """Solve a graph on the device of its scores.

    Parameters
    ----------
    layout, factors
        The graph's layout, and its declarations.
    scores
        (n_variables,) scores of its variables.
    options, engine
        The options of the solve, and the engine.
    """
    temperature, exact = options.quadratic, scores.double()
    eta = exact if temperature == 1.0 else exact / temperature
    marginals, solved = _differentiable(layout, eta, options._replace(quadratic=1.0), engine)

    def gather() -> Solution:
        empty = [np.zeros((factor.n_factors, factor.n_additionals)) for factor in factors]
        return solve_laid_out(
            _SolvedEngine(solved), layout, factors, numbers(scores), empty, options
        )

    may_wait = engine.check_every is not None
    return DeviceSolution(marginals.to(scores.dtype), solved, may_wait, gather)


def _differentiable(
    layout: Layout, scores: Tensor, options: Options, engine: TensorEngine
) -> tuple[Tensor, SolvedOnTensors]:
    """Return the marginals of a graph as a function of its scores, and the solution."""
    part = layout.part
    variables = torch.from_numpy(part.variables).to(scores.device)
    eta = scores if part.whole else scores[variables]
    solved = solve_on_tensors(part, eta, None, options, engine.check_every)
    marginals = solved.differentiable(eta)
    if part.whole:
        return marginals, solved
    outside = torch.where((scores > 0.0) & (scores < 1.0), scores, scores.detach().clamp(0.0, 1.0))
    outside = torch.where(scores == torch.inf, torch.nan, outside)
    return outside.index_put((variables,), marginals), solved


class _SolvedEngine(TensorEngine):
    """An engine that returns an existing solution.

    Parameters
    ----------
    solved
        The solution.
    """

    def __init__(self, solved: SolvedOnTensors) -> None:
        self._solved = solved

    def solve(self, *arguments: Any) -> SolvedOnTensors:
        """Return the solution for any arguments."""
        return self._solved


class DeviceSolution(Solution):
    """A solution whose arrays are copied to the host on first access.

    Parameters
    ----------
    marginals
        (n_variables,) the graph's marginals, with gradients.
    on_tensors
        The solution on the device.
    may_wait
        Whether `has_failed` may wait for the device.
    gather
        Returns the solution with its arrays on the host.
    """

    def __init__(
        self,
        marginals: Tensor,
        on_tensors: SolvedOnTensors,
        may_wait: bool,
        gather: Callable[[], Solution],
    ) -> None:
        self.marginals, self.on_tensors = marginals, on_tensors
        self._may_wait, self._gather = may_wait, gather

    def has_failed(self) -> bool:
        """Return whether a component is not solved; False if it must not wait for the device."""
        return self._may_wait and not self.on_tensors.all_solved()

    def infeasible(self) -> Tensor:
        """Return (n_variables,) flags of the variables in infeasible components."""
        flags, part = self.on_tensors.infeasible_variables(), self.on_tensors.part
        if part.whole:
            return flags
        variables = torch.from_numpy(part.variables).to(flags.device)
        return torch.zeros_like(self.marginals, dtype=torch.bool).index_put((variables,), flags)

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(name)
        vars(self).update({**vars(self._gather()), **vars(self)})
        return vars(self)[name]


FIELDS = {field.name for field in dataclasses.fields(Solution)}
