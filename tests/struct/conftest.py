"""What the tests of structured factors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import checks
from lpsmap_core import FactorGraph


@pytest.fixture
def run_oracle() -> Callable[..., tuple[Any, Any]]:
    """Run a factor type's compiled oracle on scores of all slots and additionals."""
    return checks.run_oracle


@pytest.fixture
def graph() -> FactorGraph:
    """An empty graph."""
    return FactorGraph()
