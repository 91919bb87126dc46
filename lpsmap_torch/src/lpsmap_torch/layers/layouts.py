"""The layouts that a solver keeps between its calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from lpsmap_torch.layers.layout import Layout

__all__ = ["Layouts"]

Kept = tuple[Layout, dict[str, Any]]
"""A layout, and the options of its solves."""

MOST_LAYOUTS = 8
"""Layouts that a solver keeps: one for every shape, and for every ragged batch."""


class Layouts:
    """The layouts that were used last, by what they depend on.

    One that is in use is taken out, so that no two threads share it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: Hashable) -> Kept | None:
        """Return the layout of a key if there is one, and keep it no longer."""
        with self._lock:
            return self._kept.pop(key, None)

    def give(self, key: Hashable, layout: Kept) -> None:
        """Keep a layout; of too many, drop the one that was used longest ago."""
        with self._lock:
            self._kept[key] = layout
            if len(self._kept) > MOST_LAYOUTS:
                self._kept.popitem(last=False)
