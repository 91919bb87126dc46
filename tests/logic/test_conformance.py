"""Every factor type of the package passes the conformance kit, as an outsider's would have to."""

from __future__ import annotations

import inspect

import pytest

from lpsmap_core.registry import installed
from lpsmap_core.testing import parametrize_with_checks

TYPES = {
    name: registration.value
    for name, registration in installed().factors.items()
    if registration.plugin.distribution == "lpsmap-factors-logic"
}
EXAMPLES = [factor for cls in TYPES.values() for factor in cls.examples()]


@parametrize_with_checks(EXAMPLES)
def test_the_protocol(factor, check):
    check(factor)


@pytest.mark.slow
@parametrize_with_checks(EXAMPLES)
def test_the_protocol_with_many_draws(factor, check):
    check(factor, seed=1, draws=100)


@pytest.mark.parametrize("name", TYPES)
def test_examples_cover_the_type(name):
    cls, examples = TYPES[name], TYPES[name].examples()
    assert examples
    assert all(isinstance(factor, cls) for factor in examples)
    assert any(factor.n_factors > 1 for factor in examples)
    options = inspect.signature(cls).parameters
    if "lengths" in options:
        assert any(factor.lengths is not None for factor in examples)
    if "mask" in options:
        assert any(factor.keep is not None and factor.lengths is None for factor in examples)


def test_all_types_are_there():
    import lpsmap_factors_logic

    assert set(TYPES) == set(lpsmap_factors_logic.__all__)
