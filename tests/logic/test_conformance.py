"""Every factor type of the package passes the conformance kit, as an outsider's would have to."""

from __future__ import annotations

import pytest

import lpsmap_factors_logic
from lpsmap_core.testing import parametrize_with_checks
from packs import assert_examples_cover, types_of

TYPES = types_of("lpsmap-factors-logic")
EXAMPLES = [factor for cls in TYPES.values() for factor in cls.examples()]


@parametrize_with_checks(EXAMPLES)
def test_the_protocol(factor, check):
    check(factor)


@pytest.mark.slow
@parametrize_with_checks(EXAMPLES)
def test_the_protocol_with_many_draws(factor, check):
    check(factor, seed=1, draws=100)


@pytest.mark.parametrize("name", lpsmap_factors_logic.__all__)
def test_every_public_type_has_examples_of_all_that_it_takes(name):
    assert_examples_cover(TYPES[name])
