"""The layouts that a layer keeps between its calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from lpsmap_torch.layers.layout import Layout

__all__ = ["Layouts"]

MOST_LAYOUTS = 8
"""Layouts that a layer keeps: one for every shape, and for every ragged batch."""


class Layouts:
    """The layouts that were used last, by what they depend on.

    One that is in use is taken out, so that no two threads share it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Layout] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: Hashable) -> Layout | None:
        """Return the layout of a key if there is one, and keep it no longer."""
        with self._lock:
            return self._kept.pop(key, None)

    def give(self, key: Hashable, layout: Layout) -> None:
        """Keep a layout; of too many, drop the one that was used longest ago."""
        with self._lock:
            self._kept[key] = layout
            if len(self._kept) > MOST_LAYOUTS:
                self._kept.popitem(last=False)
