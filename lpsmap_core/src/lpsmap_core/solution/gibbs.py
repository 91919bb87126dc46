"""Gibbs distributions of factors, of the class that their type names."""

from __future__ import annotations

from typing import Any

from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import FloatArray

__all__ = ["gibbs_of"]


def gibbs_of(factor: Factor, scores: FloatArray, additionals: FloatArray) -> Any:
    """Return the Gibbs distributions of a declaration's factors, of the class its type names.

    Parameters
    ----------
    factor
        The declaration.
    scores
        (n_variables,) scores of the graph's variables.
    additionals
        (n_factors, n_additionals) scores of the factors' additionals.

    Raises
    ------
    TypeError
        If the type cannot sum over structures, or has no class for these distributions.
    """
    make = type(factor).gibbs
    if make is None:
        factor.log_partition()  # raises an error for a type without sums
        raise TypeError(
            f"{type(factor).__name__} has sums over its structures, but its attribute gibbs is "
            "None; expected a class of distributions. Run pip install lpsmap-dynamic, and set "
            "gibbs = lpsmap_dynamic.Gibbs in the class."
        )
    return make(factor, scores, additionals)
