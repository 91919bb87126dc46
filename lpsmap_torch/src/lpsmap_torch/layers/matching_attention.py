"""Attention by matchings."""

from __future__ import annotations

from lpsmap_core import Variables
from lpsmap_torch.built_graph import Declarations
from lpsmap_torch.layers.checks import Instances
from lpsmap_torch.layers.factor_types import factor_type
from lpsmap_torch.layers.matching_layer import MatchingLayer

__all__ = ["MatchingAttention"]


class MatchingAttention(MatchingLayer):
    """Bidirectional attention: a sparse mixture of matchings of rows and columns.

    Every word of the shorter side attends to words of the longer side with weights that sum to 1,
    and every word of the longer side receives a total weight of at most 1 (Niculae et al. 2018,
    section 5.2; Niculae & Martins 2020, Eq. 20). For attention from the columns, transpose the
    weights.

    Parameters
    ----------
    full
        Which side must be matched completely, as in `Matching`.
    null
        Words may also have no partner: a pair is worth its score less `null`, the score of no
        partner for its two words. A number; or True for a parameter of this name, 0 at first. None:
        `full` says which words may have none.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Raises
    ------
    ValueError
        If `full` is another word, or ``"rows"`` with `null`.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers in the shape of the batch with a last axis of
    two, rows and columns; axes of the batch may be 1, and the last ones may be omitted. A mask
    marks the allowed pairs, and broadcasts to the scores; rows and columns without pairs have
    weights of zero, and must come last.
    """

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return one matching per instance."""
        rectangles, forbidden = self._rectangles(self._allowed(u.shape, instances))
        lengths = None if instances.are_whole else rectangles  # losses tell them from full ones
        matching = factor_type("Matching")(u, self.full, lengths=lengths)
        return Declarations([matching], forbidden)
