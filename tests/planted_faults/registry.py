"""Registry of faulty factor types by the check of the conformance kit that must catch them."""

from __future__ import annotations

from lpsmap_core import Factor

FAULTS: dict[str, list[type[Factor]]] = {}
"""For every check, the faulty types that it must catch."""


def caught_by(check):
    """Register a faulty factor type."""

    def register(cls):
        FAULTS.setdefault(check, []).append(cls)
        return cls

    return register
