"""Linear constraints of factor types: what cannot describe a declaration is rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap import Factor, FactorGraph, Xor
from lpsmap_core import LinearConstraints

GOOD = {"row": [0, 0], "column": [0, 1], "coefficient": [1.0, 1.0], "low": [0.0], "high": [1.0]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row": [0, 1]}, "rows up to 1, and bounds of 1 rows"),
        ({"row": [0, -1]}, "got numbers from -1 on"),
        ({"column": [0, -2]}, "got numbers from -2 on"),
        ({"column": [0, 1, 2]}, r"got shapes \(2,\) and \(3,\)"),
        ({"coefficient": [1.0, np.nan]}, "coefficient that is not finite"),
        ({"coefficient": np.inf}, "coefficient that is not finite"),
        ({"high": [np.nan]}, "bound that is NaN"),
        ({"row": [0, 0.5]}, "row holds 0.5; expected whole numbers"),
        ({"column": [0, 0.5]}, "column holds 0.5; expected whole numbers"),
        ({"low": [[0.0]]}, r"low, high: got shape \(1, 1\); expected a number for each row"),
        ({"n_auxiliary": -1}, "n_auxiliary"),
    ],
)
def test_wrong_entries_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearConstraints(**{**GOOD, **changed})


def test_rows_without_entries_and_bounds_at_infinity() -> None:
    found = LinearConstraints([], [], [], [0.0, -np.inf], [np.inf, 1.0])
    assert found.low.tolist() == [0.0, -np.inf]


class OneOf(Factor):
    """Exactly one variable is on; its constraints are those of the test."""

    described: Any = None

    def solve_map(self, eta_u: np.ndarray, eta_v: np.ndarray) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(self.event_shape[0])[y], np.empty(0)

    def linear_constraints(self) -> Any:
        return self.described


@pytest.mark.parametrize(
    ("described", "error", "message"),
    [
        (LinearConstraints(**{**GOOD, "column": [0, 6]}), ValueError, "column 6; expected columns"),
        (np.eye(3), TypeError, "linear_constraints returned an ndarray; expected"),
    ],
)
def test_constraints_that_do_not_describe_a_declaration(
    described: Any, error: type[Exception], message: str
) -> None:
    pytest.importorskip("highspy")
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(2, 3)))
    graph.add(OneOf(u)).described = described
    graph.add(Xor(u[:, 0]))
    with pytest.raises(error, match=message):
        graph.solve_map(exact=True, solver="highs")
