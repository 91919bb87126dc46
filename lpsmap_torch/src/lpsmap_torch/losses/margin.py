"""The base class of losses with a margin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lpsmap_core.api import FloatArray
from lpsmap_torch.built_graph import Factors
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.losses.costs import ZERO_ONE, Cost, augmented, checked_cost
from lpsmap_torch.losses.structured import StructuredLoss

__all__ = ["MarginLoss"]


class MarginLoss(StructuredLoss):
    """A loss with a margin: the cost of mistakes is added to the scores.

    Parameters
    ----------
    factors, reduction, options
        As in the loss without a margin.
    cost
        The cost of a wrong variable: a number; a tensor that broadcasts to the scores; or a
        function of the labels, a tensor like the scores with NaN for unlabelled variables, that
        returns the cost of each variable if it is wrong. By name: ``"hamming"`` is 1 for every
        wrong variable; ``"positions"`` is 1 for every wrong variable that is on, so that a wrong
        head or tag costs 1 instead of 2; ``"zero-one"`` is 1 for every wrong structure.
    """

    cost: Cost

    def __init__(
        self,
        factors: Factors | Layer,
        *,
        cost: Cost = 1.0,
        reduction: str = "mean",
        **options: Any,
    ) -> None:
        super().__init__(factors, reduction=reduction, **options)
        cost = checked_cost(type(self).__name__, cost)
        if isinstance(cost, Tensor) and not isinstance(cost, nn.Parameter):
            self.register_buffer("cost", cost)
        else:
            self.cost = cost
        if self._is_zero_one:
            self._check_zero_one()

    @property
    def _is_zero_one(self) -> bool:
        return isinstance(self.cost, str) and self.cost == ZERO_ONE

    def _check_zero_one(self) -> None:
        """Validate that the loss supports the cost of whole structures."""

    def _augmented(self, scores: Tensor, known: FloatArray) -> Tensor:
        """Return cost-augmented scores."""
        if ((known > 0.0) & (known < 1.0)).any():
            raise ValueError(
                f"{type(self).__name__}: target: a margin separates one structure from the others; "
                "expected 0, 1, or NaN. For marginals use the loss without a margin."
            )
        if self._is_zero_one:
            return scores
        labels = torch.from_numpy(known).to(dtype=scores.dtype, device=scores.device)
        return augmented(type(self).__name__, scores, labels, self.cost)

    def extra_repr(self) -> str:
        """Return the arguments for `repr`."""
        cost: Any = self.cost
        if isinstance(cost, Tensor):
            kind = "parameter" if isinstance(cost, nn.Parameter) else "tensor"
            shown = f"<{kind} of shape {tuple(cost.shape)}>"
        elif isinstance(cost, float):
            shown = f"{cost:g}"
        else:
            shown = repr(cost) if isinstance(cost, str) else getattr(cost, "__name__", repr(cost))
        return f"{super().extra_repr()}, cost={shown}"
