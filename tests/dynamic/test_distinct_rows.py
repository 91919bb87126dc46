"""Rows of different lengths, and equal rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap_dynamic import distinct_rows


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (4, 0), (1, 1), (60, 2), (40, 11)])
def test_distinct_rows(shape: tuple[int, int], order: Any, dtype: type) -> None:
    rows = np.random.default_rng(0).integers(0, 2, shape).astype(dtype, order=order)
    first, which = distinct_rows(rows)
    np.testing.assert_array_equal(rows[first][which], rows)
    assert len({row.tobytes() for row in rows}) == len(first)
    assert all(not (rows[:i] == rows[i]).all(axis=1).any() for i in first.tolist())
