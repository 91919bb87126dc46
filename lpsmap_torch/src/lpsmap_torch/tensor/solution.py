"""What the engine in tensor operations returns."""

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
"""Factors whose multipliers are smaller than this, relative to the largest, prove nothing."""


class SolvedOnTensors(SolvedGraph):
    """A part that was solved in tensors; numbers of components come to the host when asked for.

    Parameters
    ----------
    part, problem
        What was solved.
    eta
        (n_variables,) its scores.
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
        """Return one number in [0, 1] a variable."""
        return self.problem.joined([found.u for found in self.projected], self._eta)

    def additionals(self) -> Any:
        """Return none."""
        return self._eta.new_zeros(self.part.n_additionals)

    def multiply(self, d: Any, d_v: Any, chosen: BoolArray | None, threads: int) -> tuple[Any, Any]:
        """Multiply with the Jacobian on the faces, see `SolvedGraph.multiply`."""
        d = d.to(self._eta.device)
        if chosen is not None:
            mask = torch.from_numpy(chosen[self.part.component]).to(d.device)
            d = torch.where(mask, d, 0.0)
        vectors = self.problem.split(d, 0.0)
        products = [
            found.face.multiply(vector)
            for found, vector in zip(self.projected, vectors, strict=True)
        ]
        return self.problem.joined(products, d), self.additionals()

    def differentiable(self, eta: Tensor) -> Tensor:
        """Return the marginals as a function of the scores.

        On a face they are affine: the solution, plus the Jacobian times a change that is zero. All
        of this is operations that autograd, and every transform of functions, knows.

        Parameters
        ----------
        eta
            (n_variables,) the scores that were solved for, of which gradients are wanted.
        """
        solution = self.marginals()
        known = torch.where(eta.detach() == -torch.inf, 0.0, eta)
        change = (known - known.detach()) * (1.0 + 0.0 * solution)  # NaN comes through
        found: Tensor = solution + self.multiply(change, self.additionals(), None, 1)[0]
        return found

    def all_solved(self) -> bool:
        """Return whether all components are solved; this waits for the device."""
        tol = self._options.tol
        solved = [
            ((found.exact | (found.residual <= tol)) & ~found.infeasible).all()
            for found in self.projected
        ]
        return bool(torch.stack(solved).all()) if solved else True

    def infeasible_variables(self) -> Tensor:
        """Return (n_variables,) whether a variable is in a component that nothing satisfies."""
        flags = [x.infeasible.unsqueeze(-1).expand_as(x.u) for x in self.projected]
        return self.problem.joined(flags, torch.zeros_like(self._eta, dtype=torch.bool))

    # ---------------------------------------------------------------- on the host

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        status = np.full(self.part.n_components, Status.ITERATION_LIMIT, dtype=object)
        status[self.primal_residual <= self._options.tol] = Status.CONVERGED
        status[self._infeasible] = Status.INFEASIBLE
        status[self._gathered(lambda found: found.exact, False)] = Status.SOLVED
        return status

    def unfinished(self) -> BoolArray:
        """Return which components ran out of iterations."""
        return np.array([s is Status.ITERATION_LIMIT for s in self.status().tolist()], dtype=bool)

    @functools.cached_property
    def iterations(self) -> IntArray:  # type: ignore[override]
        """(n_components,) iterations of the interior point."""
        return self._gathered(lambda found: found.iterations, 0)

    @functools.cached_property
    def primal_residual(self) -> FloatArray:  # type: ignore[override]
        """(n_components,) how far sums are from the bounds that they have to keep."""
        return self._gathered(lambda found: found.residual, np.inf)

    @functools.cached_property
    def dual_residual(self) -> FloatArray:  # type: ignore[override]
        """(n_components,) zeros: marginals follow from the multipliers of the sums."""
        return np.zeros(self.part.n_components)

    @functools.cached_property
    def _infeasible(self) -> BoolArray:
        return self._gathered(lambda found: found.infeasible, False)

    def gap(self) -> FloatArray:
        """Return how far the maximum can lie above the objective: the dual function at hand."""
        return self._gathered(lambda found: found.gap(), np.inf)

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the error, which strong convexity draws from the gap."""
        bound = np.sqrt(2.0 * np.maximum(self.gap(), 0.0))
        solved = np.array([s is Status.SOLVED for s in self.status().tolist()], dtype=bool)
        return np.where(solved, bound, np.inf)

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables were forbidden; there are no additionals."""
        return (self._eta == -torch.inf).cpu().numpy(), np.zeros(self.part.n_additionals, bool)

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return (bucket, row) of the factors whose constraints contradict."""
        rows, named = self.problem.rows, dict[int, list[tuple[int, int]]]()
        for found in self.projected:
            size = found.y.abs().cpu().numpy()
            wrong = found.infeasible.cpu().numpy()
            involved = (size > INVOLVED * size.max(axis=1, keepdims=True)) & wrong[:, None]
            for row in np.unique(found.batch.rows[involved]).tolist():
                factors = named.setdefault(int(rows.component[row]), [])
                factor = int(rows.bucket[row]), int(rows.factor[row])
                if factor not in factors:
                    factors.append(factor)
        return named

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the weighted structures of some factors, which core's engine finds."""
        return self._solved_on_host.structures(b, rows)

    @functools.cached_property
    def _solved_on_host(self) -> SolvedGraph:
        eta = self._eta.cpu().numpy().copy()
        skip = np.array([s is Status.INFEASIBLE for s in self.status().tolist()], dtype=bool)
        nothing = np.zeros(self.part.n_additionals)
        return CompiledEngine().solve(self.part, eta, nothing, skip, self._options)

    def _gathered(self, numbers: Callable[[Projected], Tensor], otherwise: Any) -> npt.NDArray[Any]:
        """Return numbers of all components, from those of every batch's instances."""
        whole = np.full(self.part.n_components, otherwise)
        for found in self.projected:
            whole[found.batch.components] = numbers(found).cpu().numpy()
        return whole


def solve_on_tensors(
    part: Part, eta: Tensor, skip: BoolArray | None, options: Options, check_every: int | None
) -> SolvedOnTensors:
    """Solve the covered components of a part, on the device of the scores.

    Parameters
    ----------
    part
        The part.
    eta
        (n_variables,) scores; a component with NaN or +inf has NaN for its solution.
    skip
        Components to leave out, if any.
    options
        Limits and settings.
    check_every
        Iterations after which to look whether all is done; None for never.
    """
    problem, eta = problem_of(part, eta.device), eta.detach().double()
    if skip is not None and skip.any():
        left_out = torch.from_numpy(skip[part.component]).to(eta.device)
        eta = torch.where(left_out, 0.0, eta)
    limits = Limits(min(Limits.interior, options.max_iter), check_every=check_every)
    with torch.no_grad():
        scores = problem.split(eta, -torch.inf)
        projected = [
            project(batch, given, limits)
            for batch, given in zip(problem.batches, scores, strict=True)
        ]
    return SolvedOnTensors(part, problem, eta, projected, options)
