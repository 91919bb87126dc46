"""What the tests of a pack ask of its factor types."""

from __future__ import annotations

import inspect

from lpsmap_core import Factor
from lpsmap_core.plugins.registry import installed

__all__ = ["assert_examples_cover", "types_of"]


def types_of(distribution: str) -> dict[str, type[Factor]]:
    """Return the factor types that a distribution registers, by name."""
    registered = installed().factors.values()
    return {r.name: r.value for r in registered if r.plugin.distribution == distribution}


def assert_examples_cover(cls: type[Factor]) -> None:
    """Assert that a type's examples hold a batch, and lengths and masks where it takes them."""
    examples, options = cls.examples(), inspect.signature(cls).parameters
    assert all(isinstance(factor, cls) for factor in examples)
    assert any(factor.n_factors > 1 for factor in examples)
    if "lengths" in options:
        assert any(factor.lengths is not None for factor in examples)
    if "mask" in options:
        assert any(factor.keep is not None and factor.lengths is None for factor in examples)
