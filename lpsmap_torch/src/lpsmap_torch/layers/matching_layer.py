"""The base class of layers of matchings: which side is full, and the score of no partner."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lpsmap_core.api import checked_number
from lpsmap_torch.layers.pairs import PairLayer

__all__ = ["Full", "MatchingLayer"]

Full = Literal["rows", "shorter", "none"]


class MatchingLayer(PairLayer):
    """A layer of matchings, in which words can be left without a partner.

    Parameters
    ----------
    full
        Which side must be matched completely, as in `Matching`.
    null
        The score of no partner, see `MatchingAttention`.
    options
        As in `Layer`.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("full",)

    def __init__(
        self, full: Full = "shorter", *, null: bool | float | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        name = type(self).__name__
        if full not in ("rows", "shorter", "none"):
            raise ValueError(f"{name}: full is {full!r}; expected 'rows', 'shorter' or 'none'.")
        has_null = null is not None and null is not False
        if has_null and full == "rows":
            raise ValueError(
                f"{name}: full is 'rows' and null is {null!r}, but with null no row needs a "
                "partner; expected one of them."
            )
        self.full: Full = "none" if has_null else full
        self.null: Tensor | float | None = None
        if null is True:
            self.null = nn.Parameter(torch.zeros(1))
        elif has_null:
            self.null = checked_number(f"{name}: null", null, "a number, or True", lambda x: x == x)

    def _prepared(self, scores: Tensor) -> Tensor:
        """Return the scores by which pairs exceed no partner."""
        if self.null is None:
            return scores
        return scores - (self.null.to(scores) if isinstance(self.null, Tensor) else self.null)

    def _repr_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"full": self.full}
        if self.null is not None:
            shown = {"null": True if isinstance(self.null, Tensor) else self.null}
        return {**shown, **super()._repr_arguments()}
