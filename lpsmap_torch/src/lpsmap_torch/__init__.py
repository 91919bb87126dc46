"""PyTorch adapter: factor graphs whose solutions carry gradients.

torch is imported on the first use of a name, so that discovering the plugin does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpsmap_torch.built_graph import BuiltGraph
    from lpsmap_torch.graph import TorchFactorGraph

__version__ = "0.1.0"

__all__ = ["BuiltGraph", "TorchFactorGraph"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lpsmap_torch' has no attribute {name!r}")
    from lpsmap_torch import built_graph

    return getattr(built_graph, name)
