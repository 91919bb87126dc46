"""PyTorch adapter: factor graphs whose solutions carry gradients.

torch is imported on the first use of a name, so that discovering the plugin does not import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpsmap_torch.built_graph import BuiltGraph
    from lpsmap_torch.crf import CRF
    from lpsmap_torch.graph import TorchFactorGraph

__version__ = "0.1.0"

__all__ = ["CRF", "BuiltGraph", "TorchFactorGraph"]

_MODULES = {"BuiltGraph": "built_graph", "CRF": "crf", "TorchFactorGraph": "graph"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lpsmap_torch' has no attribute {name!r}")
    return getattr(import_module(f"lpsmap_torch.{_MODULES[name]}"), name)
