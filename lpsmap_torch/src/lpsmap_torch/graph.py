"""The factor graph with torch tensors as scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import (
    Distributions,
    Engine,
    Factor,
    FactorGraph,
    Options,
    Solution,
    Variables,
)
from lpsmap_core.api import AUTO, checked_shape
from lpsmap_torch.function import attach, attach_probabilities
from lpsmap_torch.gibbs import TorchGibbs, TorchGraphGibbs
from lpsmap_torch.temperature import Temperature, checked_temperature, divided
from lpsmap_torch.tensor.device_solution import DeviceSolution, engine_on, solve_on_device
from lpsmap_torch.tensors import as_tensor, check_not_compiled, numbers


class TorchFactorGraph(FactorGraph):
    """A factor graph whose scores are tensors and whose solutions carry gradients.

    The methods are those of `lpsmap_core.FactorGraph`. Scores of variables and of additionals are
    dense float16, bfloat16, float32 or float64 tensors with any strides, on any device. The solve
    runs in float64: on the CPU by core's engine, and on other devices there, except for what needs
    the CPU or is faster on it. ``u.value`` has the dtype and device of the scores. Gradients flow
    to all scores, and so do second derivatives: the solution is piecewise affine, and its second
    derivative with respect to the scores is zero within a face.

    A solve cannot be part of a compiled or transformed function, unlike `lpsmap_torch.layers`.
    Decorate the function that builds and solves the graph with ``torch.compiler.disable``, and use
    batch axes of the scores instead of ``torch.vmap``.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import TorchFactorGraph, Xor
    >>> scores = torch.tensor([0.3, 0.1, -1.0], dtype=torch.float64, requires_grad=True)
    >>> graph = TorchFactorGraph()
    >>> u = graph.variable_from(scores)
    >>> _ = graph.add(Xor(u))
    >>> _ = graph.solve()
    >>> u.value[0].backward()
    >>> scores.grad
    tensor([ 0.5000, -0.5000,  0.0000], dtype=torch.float64)
    """

    refuses_non_finite = False  # NaN propagates as in a softmax, without affecting other components

    def __init__(self) -> None:
        check_not_compiled("TorchFactorGraph")
        super().__init__()
        self._values = torch.empty(0)
        self._nu: list[Tensor | None] = []
        self._temperature: Temperature = 1.0

    def __getstate__(self) -> dict[str, Any]:
        without_solution = {"_values": torch.empty(0), "_nu": [], "_temperature": 1.0}
        return {**super().__getstate__(), **without_solution}

    def variable(self, shape: int | tuple[int, ...] = ()) -> Variables:
        """Create variables of a given shape with zero scores, in the default dtype of torch."""
        return self.variable_from(torch.zeros(checked_shape("variable: shape", shape)))

    def solve(self, *args: Any, temperature: Any = 1.0, **kwargs: Any) -> Solution:
        """Solve the graph; the arguments `args` are those of `lpsmap_core.FactorGraph.solve`.

        Afterwards ``u.value`` is a tensor, differentiable in the scores.

        Parameters
        ----------
        temperature
            As in `lpsmap_core.FactorGraph.solve`; or a floating-point tensor of one element, in
            which ``u.value`` is differentiable, too.
        """
        check_not_compiled("solve")
        weight, before = checked_temperature("temperature", temperature), self.solution
        if isinstance(weight, Tensor):
            weight = as_tensor("temperature", weight)
            if weight.numel() != 1:
                raise ValueError(
                    f"temperature has shape {tuple(weight.shape)}; expected one element. Layers "
                    "take a temperature for every instance."
                )
            weight, temperature = weight.reshape(()), weight.item()
        self._temperature, earlier = weight, self._temperature
        try:
            return super().solve(*args, temperature=temperature, **kwargs)
        except BaseException:
            if self.solution is before:  # not an error of a report about the new one
                self._temperature = earlier
            raise

    def _store(self, solution: Any) -> None:
        """Make a solution the latest one, with tensors for its marginals."""
        super()._store(solution)
        if isinstance(solution, DeviceSolution):
            self._values, self._nu = solution.marginals, solution.of_additionals
        elif self._scores:
            self._values, self._nu = attach(solution, *self._inputs())

    def _inputs(self) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the scores of variables and additionals as functions of the temperature, too."""
        if not isinstance(self._temperature, Tensor) or not self._temperature.requires_grad:
            return self._scores, self._additionals
        change = self._temperature / self._temperature.detach()  # 1, with a derivative

        def moved(scores: Tensor | None) -> Any:
            return None if scores is None else divided(scores, change).to(scores.dtype)

        return list(map(moved, self._scores)), list(map(moved, self._additionals))

    def _run(
        self,
        options: Options,
        verbose: int,
        warm_start: Any,
        engine: str,
        to_decode: bool = False,
    ) -> Solution:
        """Solve on the scores' device if an engine serves the whole graph there.

        Core solves with a warm start, which it checks, and writes the log.
        """
        solution, device = None, self._scores[0].device.type if self._scores else "cpu"
        if engine_on(device, engine) and not to_decode and warm_start is None and not verbose:
            given = self._laid_out(), self.factors, *self._inputs()
            solution = solve_on_device(engine, *given, options)
        if solution is None:
            return super()._run(options, verbose, warm_start, engine, to_decode)
        self._store(solution)
        solution.report(self._shapes)
        return solution

    def _engine_of_scores(self, engine: str) -> tuple[Engine, str] | None:
        device = self._scores[0].device.type if self._scores else "cpu"
        chosen = engine_on(device, engine) if engine == AUTO else None
        if chosen is None or not chosen.serves(self._laid_out().part).any():
            return None
        return chosen, f"was chosen for scores on {device!r}"

    def solve_map(self, *args: Any, **kwargs: Any) -> Solution | Any:
        """Solve MAP inference; the arguments `args` are those of `FactorGraph.solve_map`.

        Afterwards ``u.value`` is a tensor without gradients: the solution is piecewise constant in
        the scores.
        """
        check_not_compiled("solve_map")
        with torch.no_grad():
            return super().solve_map(*args, **kwargs)

    def k_best(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """Return the k best assignments; the arguments `args` are those of `FactorGraph.k_best`.

        Afterwards ``u.value`` is the first one as a tensor, without gradients.
        """
        check_not_compiled("k_best")
        with torch.no_grad():
            return super().k_best(*args, **kwargs)

    def value_of(self, variables: Variables) -> Tensor:
        """Return the marginals of a view as a tensor; see `Variables.value`."""
        self._check_own(variables)
        self._solved("value")
        return values_of(self._values, variables)

    def additionals_of(self, factor: Factor) -> Tensor:
        """Return the marginals of a declaration's additionals, in the shape of their scores."""
        self._solved("additionals_of")
        position = self._number(factor, "additionals_of")
        scores, values = self._additionals[position], self._nu[position]
        return (
            self._values.new_empty(0) if values is None else torch.view_copy(values, scores.shape)
        )

    def structures(self, factor: Factor) -> Distributions:
        """Return the sparse distributions over a declaration's structures, as tensors.

        Like `lpsmap_core.Solution.structures`, with ``probabilities`` that carry gradients to all
        scores, so that an expected loss can be trained by sparse marginalisation::

            structures = graph.structures(trees)
            (structures.probabilities * loss(structures.variables)).sum().backward()

        Within a face, the probabilities are an affine function of the marginals; their second
        derivatives are those of the marginals.
        """
        return attach_probabilities(super().structures(factor), self._values)

    def gibbs(self, factor: Factor | None = None) -> Any:
        """Return the Gibbs distributions of a declaration's factors, or the graph's, as tensors.

        Like `lpsmap_core.FactorGraph.gibbs`; log-partition functions, entropies and marginals carry
        gradients to all scores, for training conditional random fields.
        """
        check_not_compiled("gibbs")
        if factor is None:
            return TorchGraphGibbs(self)
        return TorchGibbs(factor, self._scores, self._additionals[self._number(factor, "gibbs")])

    def _divide_scores(self, temperature: Temperature) -> None:
        self._scores = [divided(x, temperature) for x in self._scores]
        self._additionals = [
            None if x is None else divided(x, temperature) for x in self._additionals
        ]
        self._scores_changed()

    def _as_scores(self, name: str, scores: Any) -> Tensor:
        return as_tensor(name, scores)

    def _numbers(self, array: Any) -> NDArray[np.float64]:
        return numbers(array) if isinstance(array, Tensor) else super()._numbers(array)

    def _forbid(self, scores: Tensor, flags: NDArray[np.bool_]) -> Tensor:
        return scores.masked_fill(torch.from_numpy(flags).to(scores.device), -torch.inf)


def values_of(values: Tensor, variables: Variables) -> Tensor:
    """Return the values of a view, given the (..., n_variables) values of a graph."""
    if variables.span is not None:
        span = variables.span
        whole = span.stop - span.start == values.shape[-1]
        part = values if whole else values[..., span].contiguous()
        return torch.view_copy(part, (*values.shape[:-1], *variables.shape))
    index = torch.from_numpy(np.array(variables.index)).to(values.device)
    chosen = values[..., index]
    if not variables.negated.any():
        return chosen
    negated = torch.from_numpy(np.array(variables.negated)).to(values.device)
    return torch.where(negated, 1.0 - chosen, chosen)
