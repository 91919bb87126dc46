"""Graphs whose solutions stay on the device of the scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor, Options, Solution
from lpsmap_core.api import AUTO, Layout, Part, report_unsolved, solve_laid_out
from lpsmap_torch.tensor.engine import AutomaticTensorEngine, FixedTensorEngine, TensorEngine
from lpsmap_torch.tensor.solution import SolvedOnTensors, solve_on_tensors
from lpsmap_torch.tensors import numbers

ENGINES = {engine.name: engine for engine in (TensorEngine, FixedTensorEngine)}

WITHOUT_FLOAT64 = ("mps", "meta")
"""Types of devices that cannot compute in float64, or not at all."""


def engine_on(device: str, name: str) -> TensorEngine | None:
    """Return the engine for scores on a device, or None for core's engine or another.

    ``"auto"`` takes core's engine on the CPU, which is faster there, and `AutomaticTensorEngine`
    elsewhere. The device is its type, such as ``"cuda"``.
    """
    if device in WITHOUT_FLOAT64:
        return None
    if name == AUTO:
        return None if device == "cpu" else AutomaticTensorEngine()
    return ENGINES[name]() if name in ENGINES else None


def tensor_engine(
    name: str, scores: Sequence[Tensor], part: Part, options: Options
) -> TensorEngine | None:
    """Return the engine that solves a part on the device of its scores, or None.

    It solves the components that it serves, and leaves the others to core's engine. The scores are
    those of variables and additionals.
    """
    if len({block.device for block in scores}) != 1:
        return None
    engine = engine_on(scores[0].device.type, name)
    if engine is None or options.trace or engine.refuses(part, options) is not None:
        return None  # core solves the graph, or reports the reason
    return engine if engine.serves(part).any() else None


def solve_on_device(
    name: str,
    layout: Layout,
    factors: Sequence[Factor],
    blocks: Sequence[Tensor],
    additionals: Sequence[Tensor | None],
    options: Options,
) -> DeviceSolution | None:
    """Solve a graph on the device of its scores by a named engine; None if core must solve it.

    Scores are those of blocks of variables, and for every declaration of its additionals, or None
    without additionals.
    """
    own, given = options._replace(quadratic=1.0), [x for x in additionals if x is not None]
    engine = tensor_engine(name, [*blocks, *given], layout.part, options)
    if engine is None:
        return None
    scores = torch.cat([block.reshape(-1) for block in blocks])
    dtype = scores.dtype
    for tensor in given:
        dtype = torch.promote_types(dtype, tensor.dtype)
    # copies, since the given tensors may change before all numbers are read
    blocks = [x.reshape(-1).to(torch.float64, copy=True) for x in (scores, *given)]
    flat = torch.cat(blocks) if given else blocks[0]
    eta = flat if options.quadratic == 1.0 else flat / options.quadratic
    places = _places_of(layout, factors, scores.device)
    inside = eta if places is None else eta[places]
    nothing = np.zeros(layout.part.n_components, dtype=bool)
    solved = solve_on_tensors(layout.part, inside, nothing, own, engine)
    found = solved.differentiable(inside)
    sizes = [len(scores), *(factor.n_factors * factor.n_additionals for factor in factors)]
    whole = found if places is None else _among_free(eta, sizes[0], found, places)
    # copies, since callers may change them in place
    marginals, *rows = (x.to(dtype, copy=True) for x in torch.split(whole, sizes))
    pairs = zip(factors, rows, additionals, strict=True)
    nus = [None if y is None else x.reshape(f.n_factors, f.n_additionals) for f, x, y in pairs]

    def gather() -> Solution:
        values, *extra = np.split(numbers(flat), np.cumsum(sizes)[:-1])
        shaped = zip(factors, extra, strict=True)
        arrays = [x.reshape(f.n_factors, f.n_additionals) for f, x in shaped]
        return solve_laid_out(_SolvedEngine(solved), layout, factors, values, arrays, options)

    return DeviceSolution(marginals, nus, solved, places, engine.check_every is not None, gather)


def _places_of(layout: Layout, factors: Sequence[Factor], device: torch.device) -> Tensor | None:
    """Return the place of each number of a part among those of its graph, and cache it.

    It is None if they are in this order. A part has one list of declarations.
    """
    cached = layout.part.derived(_cached)
    if device not in cached:
        part, given, first = layout.part, [], layout.n_variables
        for factor in factors:
            shape = factor.n_factors, factor.n_additionals
            given.append(first + np.arange(math.prod(shape), dtype=np.float64).reshape(shape))
            first += math.prod(shape)
        # core's map between declarations and parts moves numbers, here those of places
        places = np.concatenate([part.variables, part.by_bucket(given, factors).astype(np.int64)])
        in_order = np.array_equal(places, np.arange(first))
        with torch.inference_mode(False):  # later calls may need gradients
            cached[device] = None if in_order else torch.from_numpy(places).to(device)
    return cached[device]


def _cached(part: Part) -> dict[torch.device, Tensor | None]:
    return {}


def _among_free(scores: Tensor, n_variables: int, found: Tensor, places: Tensor) -> Tensor:
    """Return the marginals of a graph, given those of its part; free variables are clipped."""
    free = scores[:n_variables]
    free = torch.where((free > 0.0) & (free < 1.0), free, free.detach().clamp(0.0, 1.0))
    free = torch.where(free == torch.inf, torch.nan, free)
    outside = torch.cat([free, torch.zeros_like(scores[n_variables:])])
    return outside.index_put((places,), found)


class _SolvedEngine(TensorEngine):
    """An engine that returns an existing solution."""

    def __init__(self, solved: SolvedOnTensors) -> None:
        self._solved = solved

    def solve(self, *arguments: Any) -> SolvedOnTensors:
        """Return the solution for any arguments."""
        return self._solved


class DeviceSolution(Solution):
    """A solution whose arrays are copied to the host on first access, which `gather` does.

    The marginals, and for every declaration those of its additionals, carry gradients. The places
    are those of the part's numbers among the graph's; None if they are in order.
    """

    def __init__(
        self,
        marginals: Tensor,
        of_additionals: list[Tensor | None],
        on_tensors: SolvedOnTensors,
        places: Tensor | None,
        may_wait: bool,
        gather: Callable[[], Solution],
    ) -> None:
        self.marginals, self.of_additionals = marginals, of_additionals
        self.on_tensors, self._places = on_tensors, places
        self._may_wait, self._gather = may_wait, gather

    def report(self, shapes: Callable[[], list[tuple[int, ...]]]) -> None:
        """Warn if a component is not solved, unless this must not wait for the device.

        The shapes are those of the blocks of variables.
        """
        if self._may_wait and not self.on_tensors.all_solved():
            report_unsolved(self, shapes, False)

    def infeasible(self) -> Tensor | None:
        """Return (n_variables,) flags of variables in infeasible components; None without any."""
        if self.on_tensors.is_known_solved:
            return None
        flags = self.on_tensors.infeasible_variables()
        if self._places is None:
            return flags
        everywhere = torch.zeros_like(self.marginals, dtype=torch.bool)
        return everywhere.index_put((self._places[: len(flags)],), flags)

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(name)
        vars(self).update({**vars(self._gather()), **vars(self)})
        return vars(self)[name]


FIELDS = {field.name for field in dataclasses.fields(Solution)}
