"""The conformance kit, solutions by hand, and invalid input."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from lpsmap_core import FactorGraph, installed
from lpsmap_core.testing import parametrize_with_checks
from lpsmap_span import Span


@parametrize_with_checks(Span.examples())
def test_protocol(factor, check):
    check(factor)


def test_a_row_of_each_length():
    graph = FactorGraph()
    u = graph.variable_from(np.tile([5.0, 4.0, -1.0, 6.0], (2, 1)))
    spans = graph.add(Span(u, longest=[1, 4]))
    graph.solve()
    np.testing.assert_allclose(u.value, [[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]], atol=1e-6)
    assert graph.structures(spans)[0][0].decoded == {"span": [3, 4]}


def test_negative_scores_have_an_empty_span():
    graph = FactorGraph()
    u = graph.variable_from(np.array([-1.0, -2.0]))
    graph.add(Span(u, 2))
    graph.solve()
    np.testing.assert_allclose(u.value, 0.0, atol=1e-6)


@pytest.mark.parametrize("longest", [0, -1, 1.5])
def test_bad_input(longest):
    with pytest.raises(ValueError, match="Span: longest .*expected (a )?whole number"):
        Span(FactorGraph().variable(3), longest)


def test_longer_than_a_row_is_the_row():
    assert Span(FactorGraph().variable((2, 3)), sys.maxsize).longest.tolist() == [3, 3]


def test_it_is_found():
    assert installed().factors["Span"].value is Span
