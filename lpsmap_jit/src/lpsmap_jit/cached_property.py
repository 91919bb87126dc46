"""Cached properties that threads and forked processes can share."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property  # noqa: TID251
else:

    class cached_property(functools.cached_property):  # noqa: TID251
        """`functools.cached_property` without the lock that it has before Python 3.12.

        That lock belongs to the property and not to the instance. Threads that read it from
        different objects wait for each other, and a process forked during a computation waits
        forever. Threads that read it from one object may both compute; all get the first value.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            cache = instance.__dict__
            if self.attrname in cache:
                return cache[self.attrname]
            return cache.setdefault(self.attrname, self.func(instance))
