"""Solutions of the engine in tensor operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpsmap_core import Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, Vertices, cached_property
from lpsmap_torch.function import given
from lpsmap_torch.tensor.host_share import HostShare
from lpsmap_torch.tensor.oracle_batch import OracleBatch
from lpsmap_torch.tensor.problem import TensorProblem, problem_of
from lpsmap_torch.tensor.projection import project
from lpsmap_torch.tensor.projection_problem import Limits, Projected
from lpsmap_torch.tensors import is_eager

if TYPE_CHECKING:
    from lpsmap_torch.tensor.engine import TensorEngine


class SolvedOnTensors(SolvedGraph):
    """A part that was solved in tensors; numbers of components are copied to the host on access.

    The scores are those of the part's variables, then of its additionals; the share is the solution
    of the components on the host.
    """

    def __init__(
        self,
        part: Part,
        problem: TensorProblem,
        scores: Tensor,
        projected: Sequence[Projected],
        options: Options,
        share: HostShare | None,
    ) -> None:
        self.part, self.problem, self.projected, self.share = part, problem, projected, share
        self._scores, self._options = scores, options

    def numbers(self) -> Tensor:
        """Return the marginals in [0, 1] of the variables, then of the additionals."""
        found = self.problem.joined([batch.values for batch in self.projected], self._scores)
        return found if self.share is None else self.share.values_into(found)

    def marginals(self) -> Any:
        """Return the marginals in [0, 1] of the variables."""
        return self.numbers()[: self.part.n_variables]

    def additionals(self) -> Any:
        """Return the marginals of the additionals."""
        return self.numbers()[self.part.n_variables :]

    def multiply(self, d: Any, d_v: Any, chosen: BoolArray | None, threads: int) -> tuple[Any, Any]:
        """Multiply with the Jacobian on the faces; see `SolvedGraph.multiply`."""
        n, device = self.part.n_variables, self._scores.device
        if not len(d_v):
            d_v = d.new_zeros(self.part.n_additionals)
        vector = torch.cat([d.to(device), d_v.to(device)])
        if chosen is not None:
            of_numbers = self.part.component_of_numbers
            vector = torch.where(torch.from_numpy(chosen[of_numbers]).to(device), vector, 0.0)
        product = self.multiplied(vector)
        return product[:n], product[n:]

    def multiplied(self, d: Tensor) -> Tensor:
        """Multiply the Jacobian with a vector on variables and additionals; autograd can follow."""
        vectors = self.problem.split(d, 0.0)
        products = [
            batch.face.multiply(vector)
            for batch, vector in zip(self.projected, vectors, strict=True)
        ]
        found = self.problem.joined(products, d)
        return found if self.share is None else self.share.products_into(found, d)

    def differentiable(self, scores: Tensor) -> Tensor:
        """Return the marginals of variables and additionals as a function of the scores.

        On a face they are affine: the solution plus the Jacobian times a change of zero. All
        function transforms support these operations; autograd alone needs none in advance.
        """
        solution = self.numbers()
        if is_eager(scores):
            return given([solution], self._pull, self._pull, scores)[0]
        finite = torch.where(scores.detach() == -torch.inf, 0.0, scores)
        change = (finite - finite.detach()) * (1.0 + 0.0 * solution)  # keeps NaN
        return solution + self.multiplied(change)

    def _pull(self, gradient: Tensor) -> list[Tensor]:
        product = self.multiplied(gradient)
        if not self.is_known_solved:  # numbers that are NaN have gradients that are
            product = product + 0.0 * self.numbers()
        return [product]

    @cached_property
    def is_known_solved(self) -> bool:
        """Whether the host knows that all components are solved."""
        return self.share is None and all(batch.is_solved for batch in self.projected)

    def all_solved(self) -> bool:
        """Return whether all components are solved; this waits for the device if it must."""
        if self.is_known_solved:
            return True
        tol = self._options.tol
        if self.share is not None:
            return not self.share.bad.any() and all(status.ok for status in self.status().tolist())
        solved = [
            ((batch.exact | (batch.residual <= tol)) & ~batch.infeasible).all()
            for batch in self.projected
        ]
        return bool(torch.stack(solved).all()) if solved else True

    def infeasible_variables(self) -> Tensor:
        """Return (n_variables,) flags of the variables in infeasible components."""
        n = self.part.n_variables
        flags = [x.infeasible.unsqueeze(-1).expand_as(x.values) for x in self.projected]
        like = torch.zeros_like(self._scores, dtype=torch.bool)
        found = self.problem.joined(flags, like)[:n]
        if self.share is None:
            return found
        own = self.share.infeasible()[self.part.component]
        return found | torch.from_numpy(own).to(found.device) if own.any() else found

    # ---------------------------------------------------------------- on the host

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        status = np.full(self.part.n_components, Status.ITERATION_LIMIT, dtype=object)
        status[self.primal_residual <= self._options.tol] = Status.CONVERGED
        status[self._gathered(lambda batch: batch.infeasible, False)] = Status.INFEASIBLE
        status[self._gathered(lambda batch: batch.exact, False)] = Status.SOLVED
        if self.share is not None:
            own = self.share.components
            status[own] = self.share.solved.status()[own]
        return status

    def unfinished(self) -> BoolArray:
        """Return flags of the components that reached the iteration limit."""
        return np.asarray(self.status() == Status.ITERATION_LIMIT)

    @cached_property
    def iterations(self) -> IntArray:  # type: ignore[override]
        """(n_components,) iterations, as in `Projected`."""
        return self._gathered(lambda batch: batch.iterations, 0, lambda own: own.iterations)

    @cached_property
    def primal_residual(self) -> FloatArray:  # type: ignore[override]
        """(n_components,) maximum distances of sums from their bounds."""
        found = self._gathered(lambda x: x.residual, np.inf, lambda own: own.primal_residual)
        return found

    @cached_property
    def dual_residual(self) -> FloatArray:  # type: ignore[override]
        """(n_components,) zeros on the device: marginals follow from the multipliers of sums."""
        found = np.zeros(self.part.n_components)
        if self.share is not None:
            found[self.share.components] = self.share.solved.dual_residual[self.share.components]
        return found

    def gap(self) -> FloatArray:
        """Return the duality gaps: the maximum is at most this much above the objective."""
        return self._gathered(lambda batch: batch.gap, np.inf, lambda own: own.gap())

    def error_bound(self, threads: int) -> FloatArray:
        """Return bounds on the error from the gap, by strong convexity."""
        bound = np.sqrt(2.0 * np.maximum(self.gap(), 0.0))
        bound = np.where(self.status() == Status.SOLVED, bound, np.inf)
        if self.share is not None:
            own = self.share.components
            bound[own] = self.share.solved.error_bound(threads)[own]
        return bound

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return flags of the forbidden variables and additionals."""
        flags = (self._scores == -torch.inf).cpu().numpy()
        return flags[: self.part.n_variables], flags[self.part.n_variables :]

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return (bucket, factor) of the factors that contradict each other, by core's engine."""
        return self._on_host(self.status() == Status.INFEASIBLE).solved.contradictions()

    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the weighted structures of some factors, computed by core's engine."""
        return self._feasible_on_host.solved.structures(b, rows)

    @cached_property
    def _feasible_on_host(self) -> HostShare:
        return self._on_host(self.status() != Status.INFEASIBLE)

    def _on_host(self, components: Any) -> HostShare:
        return HostShare(self.part, np.asarray(components), self._scores, self._options)

    def _gathered(
        self,
        numbers: Callable[[Projected], Tensor],
        default: Any,
        of_share: Callable[[SolvedGraph], npt.NDArray[Any]] | None = None,
    ) -> npt.NDArray[Any]:
        """Return numbers of all components from those of the batches and of the host's share."""
        result = np.full(self.part.n_components, default)
        for batch, projected in zip(self.problem.batches, self.projected, strict=True):
            result[batch.members.components] = numbers(projected).cpu().numpy()
        if self.share is not None and of_share is not None:
            own = self.share.components
            result[own] = of_share(self.share.solved)[own]
        return result


def solve_on_tensors(
    part: Part,
    scores: Tensor,
    skip: BoolArray,
    options: Options,
    engine: TensorEngine,
) -> SolvedOnTensors:
    """Solve a part on the device of the scores, of its variables and then of its additionals.

    The solution of a component with NaN or +inf is NaN. Of the components that are not to `skip`,
    those that the engine does not serve are solved on the host.
    """
    problem = problem_of(part, scores.device, engine.with_oracles)
    scores, served = scores.detach().double(), engine.serves(part)
    if (skip & served).any():
        of_numbers = part.component_of_numbers
        skipped = torch.from_numpy(skip[of_numbers]).to(scores.device)
        scores = torch.where(skipped, 0.0, scores)
    limits = Limits(
        min(Limits.interior, options.max_iter),
        active=options.max_inner_iter,
        check_every=engine.check_every,
    )
    share = None
    with torch.no_grad():
        projected = [
            project(batch, of_batch, limits)
            for batch, of_batch in zip(
                problem.batches, problem.split(scores, -torch.inf), strict=True
            )
        ]
        on_host = ~served
        if engine.check_every is not None:
            on_host = on_host | _left_by_active_sets(problem, projected, part)
        on_host &= ~skip
        if on_host.any():
            share = HostShare(part, on_host, scores, options)
    return SolvedOnTensors(part, problem, scores, projected, options, share)


def _left_by_active_sets(
    problem: TensorProblem, projected: Sequence[Projected], part: Part
) -> BoolArray:
    """Return flags of the components that active sets did not solve; this waits for the device."""
    left = np.zeros(part.n_components, dtype=bool)
    for batch, found in zip(problem.batches, projected, strict=True):
        if isinstance(batch, OracleBatch):
            solved = found.exact | found.infeasible | found.values.isnan().any(1)
            left[batch.members.components] = ~solved.cpu().numpy()
    return left
