"""The cache of layouts of a solver."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from lpsmap_torch.layers.layer_graph import LayerGraph

__all__ = ["GraphCache"]

CachedGraph = tuple[LayerGraph, dict[str, Any]]
"""A layout, and the options of its solves."""

MOST_LAYOUTS = 8
"""Maximum number of cached layouts: one for every shape and every ragged batch."""


class GraphCache:
    """An LRU cache of layouts.

    A layout in use is removed from the cache, so that threads do not share it.
    """

    def __init__(self) -> None:
        self._graphs: OrderedDict[Hashable, CachedGraph] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._graphs)

    def take(self, key: Hashable) -> CachedGraph | None:
        """Remove and return the layout of a key, if it is cached."""
        with self._lock:
            return self._graphs.pop(key, None)

    def give(self, key: Hashable, layout: CachedGraph) -> None:
        """Cache a layout; evict the least recently used one if there are too many."""
        with self._lock:
            self._graphs[key] = layout
            if len(self._graphs) > MOST_LAYOUTS:
                self._graphs.popitem(last=False)
