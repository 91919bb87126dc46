"""Projections of small components by kernels of a GPU, which PyTorch compiles at first use."""

from __future__ import annotations

import functools
import importlib.resources
import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lpsmap_core.api import is_quiet
from lpsmap_torch.tensor import equations, interior_point, projection_problem
from lpsmap_torch.tensor.batch import Batch

WARP = 32

_log = logging.getLogger("lpsmap")

CONSTANTS = {
    "REFINEMENTS": equations.REFINEMENTS,
    **{
        name: getattr(interior_point, name)
        for name in (
            "FIRST_PRODUCT",
            "FIRST_SLACK",
            "MAX_CORRECTED",
            "TO_BOUNDARY",
            "CLOSE",
            "SMALL_PRODUCT",
            "EASE_WITHOUT_BOUNDS",
            "PROXIMAL",
            "MIN_PRODUCT",
        )
    },
    **{
        name: getattr(projection_problem, name)
        for name in ("MAX_SCORE", "EXACT", "ROUNDING", "MAX_DISTANCE", "PROVED")
    },
}
"""The constants of the modules that the kernels share their methods with."""


def serves(batch: Batch, scores: Tensor) -> bool:
    """Return whether the kernels can solve a batch.

    They need a GPU of Nvidia, whose shared memory holds a component, and a PyTorch that compiles
    kernels (2.9 or later). They compute in float64.
    """
    if not scores.is_cuda or not hasattr(torch.cuda, "_compile_kernel"):
        return False
    return (
        batch.linear is None
        and torch.version.cuda is not None
        and _bytes(batch) <= _most_bytes(scores.device)
    )


@functools.cache
def _most_bytes(device: torch.device) -> int:
    """Return the shared memory of a block of threads."""
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


def _bytes(batch: Batch) -> int:
    """Return the size of the shared memory of a component."""
    n_rows, n_columns = batch.matrix.shape[-2:]
    of_flags = (n_columns + 7) // 8
    return 8 * (9 * n_columns + 17 * n_rows + n_rows * (n_rows | 1) + of_flags)


class Solved(NamedTuple):
    """What a kernel returns for every instance; see `Projected` and `Face`."""

    values: Tensor
    y: Tensor
    ease: Tensor
    tight: Tensor
    gap: Tensor
    residual: Tensor
    exact: Tensor
    infeasible: Tensor
    iterations: Tensor


def solve(batch: Batch, scores: Tensor, most_iterations: int) -> Solved:
    """Solve all instances of a batch for scores, ``-inf`` where a column is forbidden.

    The limit is that of the interior point method, and of Newton's steps before it.
    """
    scores, n = scores.contiguous(), len(scores)
    values, ease, gap = torch.empty_like(scores), torch.empty_like(scores), scores.new_empty(n)
    y, tight = torch.empty_like(batch.low), torch.empty_like(batch.low, dtype=torch.bool)
    exact = gap.new_empty(n, dtype=torch.bool)
    found = Solved(
        *(values, y, ease, tight),
        *(gap, torch.empty_like(gap), exact, torch.empty_like(exact)),
        torch.empty_like(gap, dtype=torch.int64),
    )
    _kernel("projection", scores.device)(
        grid=(n, 1, 1),
        block=(WARP, 1, 1),
        shared_mem=_bytes(batch),
        args=[scores, batch.low, batch.high, *_of_matrices(batch), most_iterations, *found],
    )
    return found


def multiply(batch: Batch, ease: Tensor, tight: Tensor, d: Tensor) -> Tensor:
    """Return products of vectors with the Jacobians on faces, as `Face.multiply` does."""
    d, (n_rows, n_columns) = d.contiguous(), batch.matrix.shape[-2:]
    # the launch of zeros makes the device's context current in the threads of autograd
    found = torch.zeros_like(d)
    _kernel("product", d.device)(
        grid=(len(d), 1, 1),
        block=(WARP, 1, 1),
        shared_mem=8 * (n_columns + 6 * n_rows + n_rows * (n_rows | 1)),
        args=[d, ease, tight, *_of_matrices(batch), found],
    )
    return found


def _of_matrices(batch: Batch) -> list[Tensor | int]:
    """Return the entries of the matrices and their sizes, as arguments of a kernel."""
    entries = batch.entries
    widths = entries.row_places.shape[-2], entries.column_places.shape[-2]
    return [*entries, *batch.matrix.shape[-2:], *widths, int(len(batch.matrix) > 1)]


def source(name: str) -> str:
    """Return the source in CUDA C++ of a kernel, by the name of its file without the suffix."""
    defined = "".join(f"#define {key} {value!r}\n" for key, value in CONSTANTS.items())
    folder = importlib.resources.files("lpsmap_torch.tensor")
    files = (folder / f"{part}.cu" for part in ("matrix", name))
    return defined + "\n".join(file.read_text(encoding="utf-8") for file in files)


ENTRIES = {"projection": "project", "product": "multiply"}
"""The functions of the files."""


@functools.cache
def _kernel(name: str, device: torch.device) -> Any:
    if not is_quiet():
        _log.warning("lpsmap compiles a kernel for %s.", torch.cuda.get_device_name(device))
    with torch.cuda.device(device):
        kernel = torch.cuda._compile_kernel(source(name), ENTRIES[name])
        kernel.set_shared_memory_config(_most_bytes(device))

    def launch(**arguments: Any) -> None:
        with torch.cuda.device(device):  # it launches on that device's current stream
            kernel(**arguments)

    return launch
