"""The layout of a graph with scores: the input of engines and decoders.

Scores of entries that are off in all structures have no effect, and may be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.layout import Layout
from lpsmap_core.layout.ragged import flags
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of, stored
from lpsmap_core.model.slots import slot_values
from lpsmap_jit.arrays import BoolArray, FloatArray


class ScoredGraph(NamedTuple):
    """The layout of a graph, with scores."""

    layout: Layout
    factors: Sequence[Factor]
    scores: FloatArray
    """(n_variables,) scores; ``-inf`` forbids a variable."""
    additional_scores: Sequence[FloatArray]
    """For every declaration, the (n_factors, n_additionals) scores; ``-inf`` forbids."""
    non_finite: BoolArray
    """For each component, whether one of its scores is NaN or ``+inf``."""

    def of_part(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the part's variables and additionals, zeros where not finite."""
        part, bad = self.layout.part, self.non_finite
        eta = part.of_graph(self.scores)
        eta_v = part.by_bucket(self.additional_scores, self.factors)
        if bad.any():
            eta[bad[part.component]] = 0.0
            eta_v[part.on_additionals(bad)] = 0.0
        return eta, eta_v


def scored_graph(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
) -> ScoredGraph:
    """Return a graph with scores; those that factors do not use are replaced by zeros.

    The scores of variables are modified in place; see `zero_unused_scores`.
    """
    additionals = zero_unused_scores(factors, scores, additionals)
    components = layout.component[~(scores < np.inf)]
    bad = flags(components[components >= 0], layout.n_components)
    eta_v = layout.part.by_bucket(additionals, factors, copy=False)
    bad[layout.part.components_of_additionals(np.flatnonzero(~(eta_v < np.inf)))] = True
    return ScoredGraph(layout, factors, scores, additionals, bad)


# -------------------------------------------------------------------- unused scores


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
    clean, fixed = (scores < np.inf).all(), list(additionals)  # a NaN is not less
    wrong = [i for i, x in enumerate(fixed) if not (stored(x) < np.inf).all()]
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
