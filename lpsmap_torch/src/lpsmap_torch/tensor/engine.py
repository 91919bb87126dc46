"""The engine in tensor operations, without torch until it solves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lpsmap_core import Engine, Options
from lpsmap_core.api import BoolArray, Part, WarmStart
from lpsmap_torch.backend import TorchBackend
from lpsmap_torch.tensor.rows import served_components

if TYPE_CHECKING:
    from torch import Tensor

    from lpsmap_torch.tensor.solution import SolvedOnTensors

__all__ = ["FixedTensorEngine", "TensorEngine"]


class TensorEngine(Engine):
    """Projections of whole batches in operations of PyTorch, on the device of the scores.

    It serves components whose factors are described by linear constraints on their slots, unless
    they are too large for dense matrices. All is done in float64. Two runs on one CPU have the same
    bits.
    """

    name = "tensor"
    backend = TorchBackend
    needs_no_start = True
    check_every: ClassVar[int | None] = 5
    """Iterations after which it looks whether all components are done, and waits for the device;
    None for never."""

    def refuses(self, part: Part, options: Options) -> str | None:
        """Refuse LP-MAP, and limits of time."""
        if not options.quadratic:
            return f"engine: {self.name!r} needs the quadratic term; expected 'auto' for LP-MAP."
        if options.max_time is not None or options.within is not None:
            return f"max_time: engine {self.name!r} has no limit of time; leave it at None."
        return None

    def serves(self, part: Part) -> BoolArray:
        """Return which components are described by few enough linear constraints."""
        return part.derived(served_components)

    def solve(
        self,
        part: Part,
        eta: Tensor,  # type: ignore[override]
        eta_v: Tensor,  # type: ignore[override]
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedOnTensors:
        """Solve the components that it serves, see `Engine.solve`; a warm start is not used."""
        from lpsmap_torch.tensor.solution import solve_on_tensors

        return solve_on_tensors(part, eta, skip, options, self.check_every)


class FixedTensorEngine(TensorEngine):
    """The same with a fixed number of iterations, so that no number is read from the device."""

    name = "tensor-fixed"
    check_every = None
