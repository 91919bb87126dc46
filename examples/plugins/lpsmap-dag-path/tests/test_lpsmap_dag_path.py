"""The conformance kit, solutions by hand, and invalid input."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core import FactorGraph, installed
from lpsmap_core.testing import parametrize_with_checks
from lpsmap_dag_path import DagPath

DIAMOND = [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")]


@parametrize_with_checks(DagPath.examples())
def test_protocol(factor, check):
    check(factor)


def test_two_paths_share_the_weight():
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.3, 0.0, 0.3, 0.0]))
    paths = graph.add(DagPath(u, DIAMOND, "s", "t"))
    graph.solve()
    np.testing.assert_allclose(u.value, [0.65, 0.35, 0.65, 0.35], atol=1e-6)
    assert graph.structures(paths)[0][0].decoded == {"nodes": ["s", "a", "t"]}


@pytest.mark.parametrize(
    ("edges", "target", "words"),
    [
        (DIAMOND[:3], "t", "3 different edges for 4 variables"),
        ([*DIAMOND[:3], DIAMOND[0]], "t", "3 different edges for 4 variables"),
        ([*DIAMOND[:3], ("t", "s")], "t", "edges has a cycle"),
        (DIAMOND, "x", "no path leads from 's' to 'x'"),
    ],
)
def test_bad_input(edges, target, words):
    with pytest.raises(ValueError, match=words):
        DagPath(FactorGraph().variable(4), edges, "s", target)


def test_it_is_found():
    assert installed().factors["DagPath"].value is DagPath
