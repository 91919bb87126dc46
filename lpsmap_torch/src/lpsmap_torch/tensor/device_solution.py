"""Graphs whose solutions stay on the device of the scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor, Options, Solution
from lpsmap_core.api import AUTO, IntArray, Layout, Part, solve_laid_out
from lpsmap_torch.tensor.engine import AutomaticTensorEngine, FixedTensorEngine, TensorEngine
from lpsmap_torch.tensor.solution import SolvedOnTensors, solve_on_tensors
from lpsmap_torch.tensors import is_transformed, numbers

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
    if is_transformed(scores[0]):  # function transforms have no concrete numbers to check or copy
        engine = FixedTensorEngine()
        return engine if engine.serves(part).all() else None
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
    inside = eta if places.inside is None else eta[places.inside]
    settings = engine.with_oracles, engine.check_every
    solved = solve_on_tensors(layout.part, inside, None, own, *settings)
    found = solved.differentiable(inside)
    marginals = _with_free_variables(eta[: len(scores)], found, layout.part, places)
    padded = torch.cat([found, found.new_zeros(1)]) if given else found
    nus = [None if x is None else padded[x].to(dtype) for x in places.additionals]

    def gather() -> Solution:
        values, end = numbers(flat), len(scores)
        arrays = []
        for factor, extra in zip(factors, additionals, strict=True):
            shape, begin = (factor.n_factors, factor.n_additionals), end
            end = begin if extra is None else begin + math.prod(shape)
            arrays.append(np.zeros(shape) if extra is None else values[begin:end].reshape(shape))
        eta = values[: len(scores)]
        return solve_laid_out(_SolvedEngine(solved), layout, factors, eta, arrays, options)

    may_wait = engine.check_every is not None
    marginals = marginals.to(dtype, copy=True)  # callers may change them in place
    return DeviceSolution(marginals, nus, solved, places.variables, may_wait, gather)


class _Places(NamedTuple):
    """Where the numbers of a part are among those of its graph, on a device."""

    inside: Tensor | None
    """For each variable of the part, then each additional, its place in the graph's scores; None if
    they are in this order."""
    variables: Tensor
    """For each variable of the part, its number in the graph."""
    additionals: list[Tensor | None]
    """For every declaration, (n_factors, n_additionals) places in the part's numbers; their number
    for additionals outside the part."""


def _places_of(layout: Layout, factors: Sequence[Factor], device: torch.device) -> _Places:
    """Return the places on a device, and cache them; a part has one list of declarations."""
    cached = layout.part.derived(_cached)
    if device not in cached:
        inside, additionals = _places_on_host(layout, factors)
        n_additionals = sum(factor.n_factors * factor.n_additionals for factor in factors)
        in_order = np.array_equal(inside, np.arange(layout.n_variables + n_additionals))
        cached[device] = _Places(
            None if in_order else torch.from_numpy(inside).to(device),
            torch.from_numpy(layout.part.variables).to(device),
            [None if x is None else torch.from_numpy(x).to(device) for x in additionals],
        )
    return cached[device]


def _cached(part: Part) -> dict[torch.device, _Places]:
    return {}


def _places_on_host(
    layout: Layout, factors: Sequence[Factor]
) -> tuple[IntArray, list[IntArray | None]]:
    """Return the places of the part's numbers in the graph's, and of additionals in the part's."""
    part, given, first = layout.part, [], layout.n_variables
    for factor in factors:
        shape = factor.n_factors, factor.n_additionals
        given.append(first + np.arange(math.prod(shape), dtype=np.float64).reshape(shape))
        first += math.prod(shape)
    # core's maps between declarations and parts move numbers, here those of places
    inside = np.concatenate([part.variables, part.by_bucket(given, factors).astype(np.int64)])
    found = part.by_declaration(np.arange(1.0, part.n_additionals + 1.0), factors)
    places = [
        np.where(x > 0, part.n_variables + x - 1, len(inside)).astype(np.int64) for x in found
    ]
    return inside, [
        x if x.size or f.n_additionals else None for f, x in zip(factors, places, strict=True)
    ]


def _with_free_variables(scores: Tensor, found: Tensor, part: Part, places: _Places) -> Tensor:
    """Return the marginals of a graph, given those of its part; free variables are clipped."""
    inside = found if part.n_additionals == 0 else found[: part.n_variables]
    if part.whole:
        return inside
    outside = torch.where((scores > 0.0) & (scores < 1.0), scores, scores.detach().clamp(0.0, 1.0))
    outside = torch.where(scores == torch.inf, torch.nan, outside)
    return outside.index_put((places.variables,), inside)


class _SolvedEngine(TensorEngine):
    """An engine that returns an existing solution."""

    def __init__(self, solved: SolvedOnTensors) -> None:
        self._solved = solved

    def solve(self, *arguments: Any) -> SolvedOnTensors:
        """Return the solution for any arguments."""
        return self._solved


class DeviceSolution(Solution):
    """A solution whose arrays are copied to the host on first access, which `gather` does.

    The marginals, and for every declaration those of its additionals, carry gradients. `variables`
    are the numbers in the graph of those of the part.
    """

    def __init__(
        self,
        marginals: Tensor,
        of_additionals: list[Tensor | None],
        on_tensors: SolvedOnTensors,
        variables: Tensor,
        may_wait: bool,
        gather: Callable[[], Solution],
    ) -> None:
        self.marginals, self.of_additionals = marginals, of_additionals
        self.on_tensors, self._variables = on_tensors, variables
        self._may_wait, self._gather = may_wait, gather

    def has_failed(self) -> bool:
        """Return whether a component is not solved; False if it must not wait for the device."""
        return self._may_wait and not self.on_tensors.all_solved()

    def infeasible(self) -> Tensor | None:
        """Return (n_variables,) flags of variables in infeasible components; None without any."""
        if self.on_tensors.is_known_solved:
            return None
        flags = self.on_tensors.infeasible_variables()
        if self.on_tensors.part.whole:
            return flags
        everywhere = torch.zeros_like(self.marginals, dtype=torch.bool)
        return everywhere.index_put((self._variables,), flags)

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(name)
        vars(self).update({**vars(self._gather()), **vars(self)})
        return vars(self)[name]


FIELDS = {field.name for field in dataclasses.fields(Solution)}
