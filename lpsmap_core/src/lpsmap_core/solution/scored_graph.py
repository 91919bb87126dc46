"""The layout of a graph with scores: the input of engines and decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.layout import Layout
from lpsmap_core.layout.ragged import flags
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.unused import zero_unused_scores
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
    components = layout.component[np.isnan(scores) | (scores == np.inf)]
    bad = flags(components[components >= 0], layout.n_components)
    eta_v = layout.part.by_bucket(additionals, factors, copy=False)
    bad[layout.part.components_of_additionals(np.flatnonzero(~(eta_v < np.inf)))] = True
    return ScoredGraph(layout, factors, scores, additionals, bad)
