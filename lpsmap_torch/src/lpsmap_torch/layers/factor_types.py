"""Installed factor types, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core import Factor, Variables, installed
from lpsmap_core.api import FloatArray, missing_name_advice

__all__ = ["factor_type", "no_factor"]


def factor_type(name: str) -> Any:
    """Return an installed factor type.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    factors = installed().factors
    if name not in factors:
        raise ImportError(f"{name}: no such factor type; {missing_name_advice(name, factors)}")
    return factors[name].value


def no_factor(u: Variables) -> Factor:
    """Return a declaration of zero factors, for a batch of padding only."""
    return _Nothing(u.reshape(-1)[:0].reshape(0, 1))


class _Nothing(Factor):
    """A variable that is off: a type that needs no pack."""

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> int:
        return 0

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        return np.zeros(1), np.empty(0)
