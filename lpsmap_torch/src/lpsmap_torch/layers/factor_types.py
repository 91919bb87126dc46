"""Installed factor types, by name."""

from __future__ import annotations

from typing import Any

from lpsmap_core import Factor, Variables, installed
from lpsmap_core.api import missing_type_advice
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row

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
        raise ImportError(f"{name}: no such factor type; {missing_type_advice(name, factors)}")
    return factors[name].value


def no_factor(u: Variables) -> Factor:
    """Return a declaration of zero factors, for a batch of padding only."""
    return _Nothing(u.reshape(-1)[:0].reshape(0, 1))


class _Nothing(DynamicProgram):
    """A variable that is off: a type with sums and samples that needs no pack of factors."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the goal of the only derivation."""
        build.edge(0)
        return 0
