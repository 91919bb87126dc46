"""Scores of entries that are off in all structures: they have no effect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of, stored
from lpsmap_core.model.score_magnitude import are_scores
from lpsmap_core.model.slots import slot_values
from lpsmap_jit.arrays import BoolArray, FloatArray


def zero_unused_scores(
    factors: Sequence[Factor], scores: FloatArray, additionals: Sequence[FloatArray]
) -> list[FloatArray]:
    """Replace NaN and +inf by zeros where factors declare the score unused.

    Parameters
    ----------
    factors
        The declarations of a graph.
    scores
        (n_variables,) scores, modified in place.
    additionals
        For every declaration, the (n_factors, n_additionals) scores of its additionals.

    Returns
    -------
    list
        The additionals; changed arrays are copies.
    """
    clean, fixed = are_scores(scores), list(additionals)
    wrong = [i for i, x in enumerate(fixed) if x.size and not are_scores(_plain(stored(x)))]
    for i in wrong if clean else range(len(fixed)):
        slots, unused = unused_of(factors[i])
        if slots is not None and not clean:
            index = slot_values(factors[i], factors[i].variables.index)[
                slot_values(factors[i], slots)
            ]
            scores[index[~(scores[index] < np.inf)]] = 0.0
        if unused is not None and i in wrong:
            fixed[i] = np.where(unused & ~(fixed[i] < np.inf), 0.0, fixed[i])
    return fixed


def _plain(scores: FloatArray) -> FloatArray:
    """Return scores as the flat, writable array that kernels take."""
    return np.require(scores, requirements=["C", "W"]).reshape(-1)


def unused_of(factor: Factor) -> tuple[BoolArray | None, BoolArray | None]:
    """Return and validate the result of a factor's ``unused``, for its slots and additionals."""
    result = factor.unused()
    if result is None:
        return None, None
    shapes = factor.variables.shape, (factor.n_factors, factor.n_additionals)
    is_pair = isinstance(result, tuple) and len(result) == 2
    if not is_pair or not all(map(_are_flags, result, shapes)):
        got = " and ".join(map(_description, result if is_pair else [result]))
        raise TypeError(
            f"{type(factor).__name__}.unused returned {got}; expected a pair of boolean arrays, of "
            f"shape {shapes[0]} for the variables and {shapes[1]} for the additionals, or None "
            "where all are used."
        )
    return result


def _are_flags(value: object, shape: tuple[int, ...]) -> bool:
    if value is None:
        return True
    return isinstance(value, np.ndarray) and value.dtype == np.bool_ and value.shape == shape


def _description(value: object) -> str:
    more = f" of {value.dtype} and shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"{kind_of(value)}{more}"
