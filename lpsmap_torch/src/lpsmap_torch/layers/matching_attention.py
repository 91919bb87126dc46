"""Attention by matchings."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from lpsmap_core import Variables
from lpsmap_torch.layers.factor_types import factor_type
from lpsmap_torch.layers.layer import Lengths, Mask
from lpsmap_torch.layers.layer_graph import Declarations
from lpsmap_torch.layers.pairs import PairLayer

__all__ = ["MatchingAttention"]


class MatchingAttention(PairLayer):
    """Bidirectional attention: a sparse mixture of matchings of rows and columns.

    Every word of the shorter side attends to words of the longer side with weights that sum to 1,
    and every word of the longer side receives a total weight of at most 1 (Niculae et al. 2018,
    section 5.2; Niculae & Martins 2020, Eq. 20). For attention from the columns, transpose the
    weights.

    Parameters
    ----------
    full
        Which side must be matched completely, as in `Matching`.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Raises
    ------
    ValueError
        If `full` is another word.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers in the shape of the batch with a last axis of
    two, rows and columns; axes of the batch may be 1, and the last ones may be omitted. A mask
    marks the allowed pairs, and broadcasts to the scores; rows and columns without pairs have
    weights of zero, and must come last.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("full",)

    def __init__(
        self, full: Literal["rows", "shorter", "none"] = "shorter", **options: Any
    ) -> None:
        super().__init__(**options)
        if full not in ("rows", "shorter", "none"):
            raise ValueError(
                f"MatchingAttention: full is {full!r}; expected 'rows', 'shorter' or 'none'."
            )
        self.full = full

    def declare(self, u: Variables, lengths: Lengths, mask: Mask, n_weights: int) -> Declarations:
        """Return one matching per instance."""
        rectangles, forbidden = self._rectangles(self._allowed(u.shape, lengths, mask))
        matching = factor_type("Matching")(u, self.full, lengths=rectangles)
        return Declarations([matching], forbidden)

    def _repr_arguments(self) -> dict[str, Any]:
        return {"full": self.full}
