"""The conformance kit, and solutions by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core import FactorGraph, installed
from lpsmap_core.testing import parametrize_with_checks
from lpsmap_equal import Equal


@parametrize_with_checks(Equal.examples())
def test_protocol(factor, check):
    check(factor)


@pytest.mark.parametrize(
    ("scores", "value"), [([0.2, 0.8], 0.5), ([-3.0, 1.0], 0.0), ([1.0, 4.0], 1.0)]
)
def test_the_mean_of_the_scores_clipped(scores, value):
    graph = FactorGraph()
    u = graph.variable_from(np.array(scores))
    graph.add(Equal(u))
    graph.solve()
    np.testing.assert_allclose(u.value, value, atol=1e-6)


def test_a_forbidden_variable_forbids_all():
    graph = FactorGraph()
    u = graph.variable_from(np.array([-np.inf, 5.0, 5.0]))
    graph.add(Equal(u))
    graph.solve()
    np.testing.assert_array_equal(u.value, 0.0)


def test_it_is_found():
    assert installed().factors["Equal"].value is Equal
