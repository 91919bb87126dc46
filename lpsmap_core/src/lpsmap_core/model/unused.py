"""Scores of entries that no structure has on: whatever they are, they count for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of
from lpsmap_core.model.slots import slot_values
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.compile import leaf

__all__ = ["MAGNITUDE", "are_scores", "forget_unused", "largest_magnitude", "unused_of"]

MAGNITUDE = np.int64(2**63 - 1)
"""All bits of a number but its sign."""


def forget_unused(
    factors: Sequence[Factor], scores: FloatArray, additionals: Sequence[FloatArray]
) -> list[FloatArray]:
    """Write zeros for NaN and +inf where factors say that the score is not used.

    Parameters
    ----------
    factors
        The declarations of a graph.
    scores
        (n_variables,) scores, written into.
    additionals
        For every declaration the (n_factors, n_additionals) scores of its additionals.

    Returns
    -------
    list
        The additionals, copies of those that changed.
    """
    clean, mended = are_scores(scores), list(additionals)
    wrong = [i for i, x in enumerate(mended) if x.size and not are_scores(x.reshape(-1))]
    for i in wrong if clean else range(len(mended)):
        slots, unused = unused_of(factors[i])
        if slots is not None and not clean:
            index = slot_values(factors[i], factors[i].variables.index)[
                slot_values(factors[i], slots)
            ]
            scores[index[~(scores[index] < np.inf)]] = 0.0
        if unused is not None and i in wrong:
            mended[i] = np.where(unused & ~(mended[i] < np.inf), 0.0, mended[i])
    return mended


def unused_of(factor: Factor) -> tuple[BoolArray | None, BoolArray | None]:
    """Return what a factor's ``unused`` says of its slots and additionals; None is nothing.

    Raises
    ------
    TypeError
        If it is no pair of booleans of the right shapes, or None.
    """
    found = factor.unused()
    if found is None:
        return None, None
    shapes = factor.variables.shape, (factor.n_factors, factor.n_additionals)
    proper = isinstance(found, tuple) and len(found) == 2
    if not proper or not all(map(_are_flags, found, shapes)):
        got = " and ".join(map(_shown, found if proper else [found]))
        raise TypeError(
            f"{type(factor).__name__}.unused returned {got}; expected a pair, of booleans of shape "
            f"{shapes[0]} for the variables and {shapes[1]} for the additionals, or None for "
            "nothing."
        )
    return found


def _are_flags(given: object, shape: tuple[int, ...]) -> bool:
    if given is None:
        return True
    return isinstance(given, np.ndarray) and given.dtype == np.bool_ and given.shape == shape


def _shown(given: object) -> str:
    more = f" of {given.dtype} and shape {given.shape}" if isinstance(given, np.ndarray) else ""
    return f"{kind_of(given)}{more}"


@leaf
def are_scores(values: FloatArray) -> bool:
    """Whether none of some numbers is NaN or +inf."""
    wrong = 0
    for value in values:
        wrong += not value < np.inf  # a NaN is not less
    return wrong == 0


@leaf
def largest_magnitude(values: FloatArray) -> float:
    """Return the largest magnitude of some numbers, 0 for none, NaN if one is.

    Bits, read as integers, are in the order of the magnitudes, and vector instructions compare
    them, which for numbers that may be NaN compilers do not let them do.
    """
    most = np.int64(0)
    for bits in values.view(np.int64):
        most = max(most, bits & MAGNITUDE)
    found = np.int64(most)  # numba has views of numbers that are assigned once
    magnitude: float = found.view(np.float64)
    return magnitude
