"""The hooks of this package. Only hooks that need torch import it."""

from __future__ import annotations

from collections.abc import Sequence

from lpsmap_core import Backend, Engine, FactorGraph, hookimpl

lpsmap_api_version = 3


@hookimpl
def lpsmap_graphs() -> Sequence[type[FactorGraph]]:
    """Return the factor graph classes of this package."""
    from lpsmap_torch import TorchFactorGraph

    return [TorchFactorGraph]


@hookimpl
def lpsmap_backends() -> Sequence[type[Backend]]:
    """Return torch as an array library."""
    from lpsmap_torch.backend import TorchBackend

    return [TorchBackend]


@hookimpl
def lpsmap_engines() -> Sequence[type[Engine]]:
    """Return the engines in tensor operations."""
    from lpsmap_torch.tensor.engine import FixedTensorEngine, TensorEngine

    return [TensorEngine, FixedTensorEngine]
