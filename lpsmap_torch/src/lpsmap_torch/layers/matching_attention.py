"""Attention by matchings."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from lpsmap_core import Variables
from lpsmap_torch.layers.layer import Lengths, Mask, factor_type
from lpsmap_torch.layers.layout import Declared
from lpsmap_torch.layers.pairs import PairLayer

__all__ = ["MatchingAttention"]


class MatchingAttention(PairLayer):
    """Attention both ways at once: a mixture of few matchings of rows and columns.

    Every word of the shorter side attends to words of the other with weights that sum to 1, and
    those of the longer side are attended to by 1 at most in all (Niculae et al. 2018, section 5.2;
    Niculae & Martins 2020, Eq. 20). For attention from the columns, transpose the weights.

    Parameters
    ----------
    full
        Which side must be matched to the last, as for `Matching`.
    max_iter, max_inner_iter, tol, step_size, adapt, relaxation, threads, engine
        As for `FactorGraph.solve`.

    Notes
    -----
    Scores are ``(..., m, n)``. Lengths are integers of the batch's shape with an axis of two, rows
    and columns; axes of the batch may be 1, and the last ones left out. A mask says which pairs are
    allowed, and broadcasts to the scores; rows and columns of no pair have weights of zero, and
    have to come last.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("full",)

    def __init__(
        self, full: Literal["rows", "shorter", "none"] = "shorter", **options: Any
    ) -> None:
        super().__init__(**options)
        self.full = full

    def declare(self, u: Variables, lengths: Lengths, mask: Mask, n_weights: int) -> Declared:
        """Return a matching an instance."""
        rectangles, forbidden = self._rectangles(self._allowed(u.shape, lengths, mask))
        matching = factor_type("Matching")(u, self.full, lengths=rectangles)
        return Declared([matching], forbidden)

    def _own_repr(self) -> dict[str, Any]:
        return {"full": self.full}
