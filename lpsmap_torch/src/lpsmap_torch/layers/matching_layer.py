"""The base class of layers of matchings: which side is full, and the score of no partner."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lpsmap_core import Distributions
from lpsmap_core.api import checked_number
from lpsmap_torch.built_graph import BuiltGraph
from lpsmap_torch.layers.checks import check_scores
from lpsmap_torch.layers.estimates import Samples
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

    def forward(self, scores: Tensor, **arguments: Any) -> Any:
        """Return the weights; see `Layer.forward`.

        Parameters
        ----------
        scores
            Scores of the pairs, ``(..., m, n)``.
        arguments
            ``lengths``, ``mask`` and ``return_solution``, as in `Layer.forward`.
        """
        return super().forward(self._above_null(scores), **arguments)

    def structures(self, scores: Tensor, *others: Any, **arguments: Any) -> Distributions:
        """Return a sparse distribution over matchings; see `Layer.structures`.

        Parameters
        ----------
        scores, others, arguments
            As in `Layer.structures`.
        """
        return super().structures(self._above_null(scores), *others, **arguments)

    def sample(self, scores: Tensor, n: int = 1, **arguments: Any) -> Samples:
        """Return samples; see `Layer.sample`.

        Parameters
        ----------
        scores, n, arguments
            As in `Layer.sample`.
        """
        return super().sample(self._above_null(scores), n, **arguments)

    def build(self, scores: Tensor, *others: Any, **arguments: Any) -> BuiltGraph:
        """Return the factor graph for given scores; see `Layer.build`.

        Parameters
        ----------
        scores, others, arguments
            As in `Layer.build`.
        """
        built = super().build(self._above_null(scores), *others, **arguments)
        return built._replace(place=lambda x: built.place(self._above_null(x)))

    def _above_null(self, scores: Tensor) -> Tensor:
        """Return the scores by which pairs exceed no partner."""
        if self.null is None:
            return scores
        check_scores(type(self).__name__, scores, self.event_ndim)
        return scores - (self.null.to(scores) if isinstance(self.null, Tensor) else self.null)

    def _repr_arguments(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"full": self.full}
        if self.null is not None:
            shown = {"null": True if isinstance(self.null, Tensor) else self.null}
        return {**shown, **super()._repr_arguments()}
