"""What the tests of structured factors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_core import Factor, FactorGraph
from lpsmap_core.layout import build_layout

FloatArray = npt.NDArray[np.float64]


def _run_oracle(factor: Factor, eta_u: FloatArray, eta_v: FloatArray) -> tuple[Any, Any]:
    """Return each factor's best 0/1 variables and additionals as a compiled oracle finds them."""
    layout = build_layout(factor.variables.graph.n_variables, [factor], 1)
    bucket = layout.buckets[0]
    width = factor.vertex_sizes(bucket.offsets, bucket.additional_offsets, bucket.parameters)
    start = np.append(0, np.cumsum(width))[:-1]
    index = np.full(width.sum(), -1, dtype=np.int32)
    value = np.full(width.sum(), np.nan)
    size = np.full(len(width), -1, dtype=np.int64)
    assert factor.map_kernel is not None
    factor.map_kernel(
        np.arange(len(width)),
        bucket.offsets,
        np.ascontiguousarray(eta_u, dtype=np.float64),
        bucket.additional_offsets,
        np.ascontiguousarray(eta_v, dtype=np.float64),
        bucket.parameters,
        bucket.link_parameter,
        start,
        index,
        value,
        size,
    )
    assert (size <= width).all()
    m, n = [], []
    for f in range(len(width)):
        arity = bucket.offsets[f + 1] - bucket.offsets[f]
        extra = bucket.additional_offsets[f + 1] - bucket.additional_offsets[f]
        vertex = np.zeros(arity + extra)
        entries = slice(start[f], start[f] + size[f])
        assert len(set(index[entries])) == size[f]
        vertex[index[entries]] = value[entries]
        m.append(vertex[:arity])
        n.append(vertex[arity:])
    return m, n


@pytest.fixture
def run_oracle() -> Callable[..., tuple[Any, Any]]:
    """Run a factor type's compiled oracle on scores of all slots and additionals."""
    return _run_oracle


@pytest.fixture
def graph() -> FactorGraph:
    """An empty graph."""
    return FactorGraph()
