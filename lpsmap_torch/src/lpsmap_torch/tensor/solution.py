"""Solutions of the engine in tensor operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, Vertices
from lpsmap_torch.tensor.problem import TensorProblem, problem_of
from lpsmap_torch.tensor.projection import Limits, Projected, project

__all__ = ["SolvedOnTensors", "solve_on_tensors"]

INVOLVED = 1e-6
"""Factors with smaller multipliers, relative to the largest, are not part of a contradiction."""


class SolvedOnTensors(SolvedGraph):
    """A part that was solved in tensors; numbers of components are copied to the host on access.

    Parameters
    ----------
    part, problem
        The part, and its problem on the device.
    eta
        (n_variables,) scores of the part.
    projected
        The projections of its batches.
    options
        Limits and settings of the solve.
    """

    def __init__(
        self,
        part: Part,
        problem: TensorProblem,
        eta: Tensor,
        projected: Sequence[Projected],
        options: Options,
    ) -> None:
        self.part, self.problem, self.projected = part, problem, projected
        self._eta, self._options = eta, options

    def marginals(self) -> Any:
        """Return the marginals in [0, 1] of the variables."""
        return self.problem.joined([batch.u for batch in self.projected], self._eta)

    def additionals(self) -> Any:
        """Return an empty tensor: the engine supports no additionals."""
        return self._eta.new_zeros(self.part.n_additionals)

    def multiply(self, d: Any, d_v: Any, chosen: BoolArray | None, threads: int) -> tuple[Any, Any]:
        """Multiply with the Jacobian on the faces; see `SolvedGraph.multiply`."""
        d = d.to(self._eta.device)
        if chosen is not None:
            mask = torch.from_numpy(chosen[self.part.component]).to(d.device)
            d = torch.where(mask, d, 0.0)
        vectors = self.problem.split(d, 0.0)
        products = [
            batch.face.multiply(vector)
            for batch, vector in zip(self.projected, vectors, strict=True)
        ]
        return self.problem.joined(products, d), self.additionals()

    def differentiable(self, eta: Tensor) -> Tensor:
        """Return the marginals as a function of the scores.

        On a face they are affine: the solution plus the Jacobian times a change of zero. Autograd
        and all function transforms support these operations.

        Parameters
        ----------
        eta
            (n_variables,) the solved scores, with gradients.
        """
        solution = self.marginals()
        finite = torch.where(eta.detach() == -torch.inf, 0.0, eta)
        change = (finite - finite.detach()) * (1.0 + 0.0 * solution)  # keeps NaN
        marginals: Tensor = solution + self.multiply(change, self.additionals(), None, 1)[0]
        return marginals

    def all_solved(self) -> bool:
        """Return whether all components are solved; this waits for the device."""
        tol = self._options.tol
        solved = [
            ((batch.exact | (batch.residual <= tol)) & ~batch.infeasible).all()
            for batch in self.projected
        ]
        return bool(torch.stack(solved).all()) if solved else True

    def infeasible_variables(self) -> Tensor:
        """Return (n_variables,) flags of the variables in infeasible components."""
        flags = [x.infeasible.unsqueeze(-1).expand_as(x.u) for x in self.projected]
        return self.problem.joined(flags, torch.zeros_like(self._eta, dtype=torch.bool))

    # ---------------------------------------------------------------- on the host

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        status = np.full(self.part.n_components, Status.ITERATION_LIMIT, dtype=object)
        status[self.primal_residual <= self._options.tol] = Status.CONVERGED
        status[self._infeasible] = Status.INFEASIBLE
        status[self._gathered(lambda batch: batch.exact, False)] = Status.SOLVED
        return status

    def unfinished(self) -> BoolArray:
        """Return flags of the components that reached the iteration limit."""
        return np.array([s is Status.ITERATION_LIMIT for s in self.status().tolist()], dtype=bool)

    @functools.cached_property
    def iterations(self) -> IntArray:  # type: ignore[override]
        """(n_components,) iterations of the interior point method."""
        return self._gathered(lambda batch: batch.iterations, 0)

    @functools.cached_property
    def primal_residual(self) -> FloatArray:  # type: ignore[override]
        """(n_components,) maximum distances of sums from their bounds."""
        return self._gathered(lambda batch: batch.residual, np.inf)

    @functools.cached_property
    def dual_residual(self) -> FloatArray:  # type: ignore[override]
        """(n_components,) zeros: marginals follow from the multipliers of the sums."""
        return np.zeros(self.part.n_components)

    @functools.cached_property
    def _infeasible(self) -> BoolArray:
        return self._gathered(lambda batch: batch.infeasible, False)

    def gap(self) -> FloatArray:
        """Return the duality gaps: the maximum is at most this much above the objective."""
        return self._gathered(lambda batch: batch.gap(), np.inf)

    def error_bound(self, threads: int) -> FloatArray:
        """Return bounds on the error from the gap, by strong convexity."""
        bound = np.sqrt(2.0 * np.maximum(self.gap(), 0.0))
        solved = np.array([s is Status.SOLVED for s in self.status().tolist()], dtype=bool)
        return np.where(solved, bound, np.inf)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return flags of the forbidden variables, and of additionals, which are not supported."""
        return (self._eta == -torch.inf).cpu().numpy(), np.zeros(self.part.n_additionals, bool)

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return (bucket, factor) of the factors whose constraints contradict each other."""
        constraints, by_component = self.problem.constraints, dict[int, list[tuple[int, int]]]()
        for projected in self.projected:
            size = projected.y.abs().cpu().numpy()
            infeasible = projected.infeasible.cpu().numpy()
            involved = (size > INVOLVED * size.max(axis=1, keepdims=True)) & infeasible[:, None]
            for row in np.unique(projected.batch.rows[involved]).tolist():
                factors = by_component.setdefault(int(constraints.component[row]), [])
                factor = int(constraints.bucket[row]), int(constraints.factor[row])
                if factor not in factors:
                    factors.append(factor)
        return by_component

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the weighted structures of some factors, computed by core's engine."""
        return self._solved_on_host.structures(b, rows)

    @functools.cached_property
    def _solved_on_host(self) -> SolvedGraph:
        eta = self._eta.cpu().numpy().copy()
        skip = np.array([s is Status.INFEASIBLE for s in self.status().tolist()], dtype=bool)
        eta_v = np.zeros(self.part.n_additionals)
        return CompiledEngine().solve(self.part, eta, eta_v, skip, self._options)

    def _gathered(self, numbers: Callable[[Projected], Tensor], default: Any) -> npt.NDArray[Any]:
        """Return numbers of all components from those of the batches, with a default for others."""
        result = np.full(self.part.n_components, default)
        for projected in self.projected:
            result[projected.batch.components] = numbers(projected).cpu().numpy()
        return result


def solve_on_tensors(
    part: Part, eta: Tensor, skip: BoolArray | None, options: Options, check_every: int | None
) -> SolvedOnTensors:
    """Solve the covered components of a part, on the device of the scores.

    Parameters
    ----------
    part
        The part.
    eta
        (n_variables,) scores; the solution of a component with NaN or +inf is NaN.
    skip
        (n_components,) flags of components to skip, or None.
    options
        Limits and settings.
    check_every
        Number of iterations between checks of convergence; None for no checks.
    """
    problem, eta = problem_of(part, eta.device), eta.detach().double()
    if skip is not None and skip.any():
        skipped = torch.from_numpy(skip[part.component]).to(eta.device)
        eta = torch.where(skipped, 0.0, eta)
    limits = Limits(min(Limits.interior, options.max_iter), check_every=check_every)
    with torch.no_grad():
        scores = problem.split(eta, -torch.inf)
        projected = [
            project(batch, of_batch, limits)
            for batch, of_batch in zip(problem.batches, scores, strict=True)
        ]
    return SolvedOnTensors(part, problem, eta, projected, options)
