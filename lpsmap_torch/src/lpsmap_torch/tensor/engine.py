"""The engine in tensor operations. Only a solve imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lpsmap_core import Engine, Options
from lpsmap_core.api import BoolArray, Part, WarmStart
from lpsmap_torch.backend import TorchBackend
from lpsmap_torch.tensor.served import constrained_components, oracle_components

if TYPE_CHECKING:
    from torch import Tensor

    from lpsmap_torch.tensor.solution import SolvedOnTensors


class TensorEngine(Engine):
    """Projects whole batches with operations of PyTorch, on the device of the scores.

    It solves components in which linear constraints describe all factors, and those of one factor
    with a `Factor.tensor_oracle` and linear constraints on its variables. All computations are in
    float64. Two runs on one CPU agree to the last bit.
    """

    name = "tensor"
    backend = TorchBackend
    needs_no_start = True
    check_every: ClassVar[int | None] = 5
    """Number of iterations between checks of convergence, which wait for the device; None for no
    checks."""
    with_oracles: ClassVar[bool] = True
    """Whether it solves factors with an oracle on tensors by the active set."""

    def refuses(self, part: Part, options: Options) -> str | None:
        """Refuse LP-MAP and time limits."""
        if not options.quadratic:
            return f"engine: {self.name!r} needs the quadratic term; expected 'auto' for LP-MAP."
        if options.max_time is not None or options.within is not None:
            return f"max_time: engine {self.name!r} has no time limit; expected None."
        return None

    def serves(self, part: Part) -> BoolArray:
        """Return flags of the components that it solves."""
        served = part.derived(constrained_components)
        return served | part.derived(oracle_components) if self.with_oracles else served

    def solve(
        self,
        part: Part,
        eta: Tensor,  # type: ignore[override]
        eta_v: Tensor,  # type: ignore[override]
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedOnTensors:
        """Solve the components that it serves; see `Engine.solve`. Warm starts are not used."""
        import torch

        from lpsmap_torch.tensor.solution import solve_on_tensors

        skip = skip | ~self.serves(part)
        return solve_on_tensors(part, torch.cat([eta, eta_v]), skip, options, self)


class AutomaticTensorEngine(TensorEngine):
    """The engine without what may be faster on the host: factors with an oracle."""

    with_oracles = False


class FixedTensorEngine(AutomaticTensorEngine):
    """The same with a fixed number of iterations, so that nothing waits for the device."""

    name = "tensor-fixed"
    check_every = None
