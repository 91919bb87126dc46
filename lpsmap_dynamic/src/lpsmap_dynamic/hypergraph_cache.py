"""Caches of hypergraphs, which take long to build, and are limited by their memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from lpsmap_dynamic.declaration import Hypergraph

MAX_BYTES = 1 << 28
"""Maximum bytes of the hypergraphs of a cache, not counting the latest one."""

Entry = TypeVar("Entry", bound="Hypergraph | None")


class HypergraphCache(Generic[Entry]):
    """An LRU cache of hypergraphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, build: Callable[[], Entry]) -> Entry:
        """Return the hypergraph of a key, built on first use.

        The lock is not held meanwhile: a process forked by another thread could never acquire it.
        Threads may therefore build the same hypergraph; all get the first that is stored.
        """
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        built = build()
        with self._lock:
            entry = self._entries.setdefault(key, built)
            if entry is built:
                self._bytes += _n_bytes(entry)
            while self._bytes > MAX_BYTES and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= _n_bytes(oldest)
            return entry


def _n_bytes(hypergraph: Hypergraph | None) -> int:
    return 0 if hypergraph is None else hypergraph.code.nbytes
