"""Projections of small components by one kernel of a GPU, which PyTorch compiles at first use."""

from __future__ import annotations

import functools
import importlib.resources
import logging
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from lpsmap_core.api import is_quiet
from lpsmap_torch.tensor import forced, interior_point
from lpsmap_torch.tensor.batch import Batch
from lpsmap_torch.tensor.newton import Pieces
from lpsmap_torch.tensor.row_batch import DenseBatch
from lpsmap_torch.tensors import is_transformed

__all__ = ["Start", "serves", "source", "start"]

WARP = 32

_log = logging.getLogger("lpsmap")

CONSTANTS = {
    "FORCED_ROUNDS": forced.ROUNDS,
    "SLACK": forced.SLACK,
    **{
        name: getattr(interior_point, name)
        for name in (
            "FIRST_PRODUCT",
            "FIRST_SLACK",
            "MOST_CORRECTED",
            "TO_BOUNDARY",
            "CLOSE",
            "SMALL_PRODUCT",
            "LOST",
            "WITHIN_REACH",
            "EASE_WITHOUT_BOUNDS",
            "PROXIMAL",
            "LEAST_PRODUCT",
        )
    },
}
"""The constants of the modules that the kernel shares its method with."""


def serves(batch: Batch, scores: Tensor) -> TypeGuard[DenseBatch]:
    """Return whether the kernel can solve a batch.

    It needs a GPU of Nvidia, whose shared memory holds a component, and a PyTorch that compiles
    kernels (2.9 or later). It computes in float64.
    """
    if not scores.is_cuda or is_transformed(scores) or not hasattr(torch.cuda, "_compile_kernel"):
        return False
    if not isinstance(batch, DenseBatch) or batch.linear is not None:
        return False
    is_double = batch.precision is torch.float64 and torch.version.cuda is not None
    return is_double and _bytes(batch) <= _most_bytes(scores.device)


@functools.cache
def _most_bytes(device: torch.device) -> int:
    """Return the shared memory of a block of threads."""
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


def _bytes(batch: DenseBatch) -> int:
    """Return the size of the shared memory of a component."""
    n_rows, n_columns = batch.matrix.shape[-2:]
    return 8 * (8 * n_columns + 16 * n_rows + n_rows * (n_rows | 1)) + n_columns


class Start(NamedTuple):
    """What the kernel returns for every instance; the caller checks whether it is a solution."""

    presolved: tuple[Tensor, Tensor, Tensor, Tensor]
    """What `Batch.presolved` returns."""
    pieces: Pieces
    inverse: Tensor
    """(n, n_rows, n_rows) inverses of the damped matrices of the tight rows; 0 without a face."""
    iterations: Tensor
    """(n, 1) iterations of the interior point method."""


def start(batch: DenseBatch, scores: Tensor, allowed: Tensor, most_iterations: int) -> Start:
    """Presolve and solve all instances of a batch.

    Parameters
    ----------
    batch
        The constraints.
    scores
        (n, n_columns) finite scores.
    allowed
        Flags of the numbers that may differ from zero.
    most_iterations
        Maximum number of iterations of the interior point method.
    """
    n, n_rows, n_columns = len(scores), *batch.matrix.shape[-2:]
    low, high = torch.empty_like(batch.low), torch.empty_like(batch.low)
    open_, fixed = torch.empty_like(allowed), torch.empty_like(scores)
    y, u, free = torch.empty_like(low), torch.empty_like(scores), torch.empty_like(allowed)
    tight, off = torch.empty_like(low, dtype=torch.bool), torch.empty_like(low)
    inverse, iterations = scores.new_empty((n, n_rows, n_rows)), scores.new_empty((n, 1))
    entries = batch.entries
    _kernel(scores.device)(
        grid=(n, 1, 1),
        block=(WARP, 1, 1),
        shared_mem=_bytes(batch),
        args=[
            *(x.contiguous() for x in (scores, allowed, batch.low, batch.high)),
            *entries,
            n_rows,
            n_columns,
            entries.row_places.shape[-1],
            entries.column_places.shape[-1],
            int(len(batch.matrix) > 1),
            most_iterations,
            *(low, high, open_, fixed, y, u, free, tight, off, inverse, iterations),
        ],
    )
    pieces = Pieces(u, free, tight, off, y, fixed, torch.zeros_like(iterations))
    return Start((low, high, open_, fixed), pieces, inverse, iterations)


def source() -> str:
    """Return the source of the kernel in CUDA C++."""
    defined = "".join(f"#define {name} {value!r}\n" for name, value in CONSTANTS.items())
    folder = importlib.resources.files("lpsmap_torch.tensor")
    return defined + (folder / "projection.cu").read_text(encoding="utf-8")


@functools.cache
def _kernel(device: torch.device) -> Any:
    if not is_quiet():
        _log.warning("lpsmap compiles a kernel for %s.", torch.cuda.get_device_name(device))
    with torch.cuda.device(device):
        kernel = torch.cuda._compile_kernel(source(), "project")
        kernel.set_shared_memory_config(_most_bytes(device))

    def launch(**arguments: Any) -> None:
        with torch.cuda.device(device):  # it launches on that device's current stream
            kernel(**arguments)

    return launch
