"""The base class of losses with a margin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from lpsmap_core.api import FloatArray, kind_of
from lpsmap_torch.built_graph import Factors
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.losses.structured import StructuredLoss
from lpsmap_torch.temperature import shown


class MarginLoss(StructuredLoss):
    """A loss with a margin: the cost of mistakes is added to the scores.

    Parameters
    ----------
    cost
        As in `MarginSparseMAPLoss`; or ``"zero-one"`` for 1 for every wrong structure.
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
        if isinstance(cost, Tensor) and not isinstance(cost, nn.Parameter):
            self.register_buffer("cost", cost)
        else:
            self.cost = cost

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "cost":
            value = checked_cost(type(self).__name__, value)
            if isinstance(value, str) and value == ZERO_ONE:
                self._check_zero_one()
        super().__setattr__(name, value)

    @property
    def _is_zero_one(self) -> bool:
        return isinstance(self.cost, str) and self.cost == ZERO_ONE

    def _check_zero_one(self) -> None:
        """Validate that the loss supports the cost of whole structures."""

    def _augmented(self, scores: Tensor, known: FloatArray) -> Tensor:
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
        cost = f"{cost:g}" if isinstance(cost, float) else getattr(cost, "__name__", shown(cost))
        return f"{super().extra_repr()}, cost={cost}"


Cost: TypeAlias = float | Tensor | str | Callable[[Tensor], Tensor]
"""The cost of a wrong variable, see `MarginLoss`."""

ZERO_ONE = "zero-one"
"""The cost of a wrong structure, which is not a sum over variables."""

NAMED: dict[str, Callable[[Tensor], Tensor]] = {
    "hamming": torch.ones_like,
    "positions": lambda labels: 1.0 - labels,
}
"""The costs of wrong variables by name, as functions of the labels."""

EXPECTED = (
    f"a number, a tensor, a function of the labels, or one of "
    f"{', '.join(map(repr, (*NAMED, ZERO_ONE)))}"
)


def checked_cost(name: str, cost: Any) -> Cost:
    """Validate the type of a cost, and the value of a number."""
    if isinstance(cost, str):
        if cost not in NAMED and cost != ZERO_ONE:
            raise ValueError(f"{name}: cost is {cost!r}; expected {EXPECTED}.")
        return cost
    if isinstance(cost, Tensor) or callable(cost):
        checked: Cost = cost
        return checked
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        raise TypeError(f"{name}: cost is {kind_of(cost)}; expected {EXPECTED}.")
    if not 0.0 <= cost < math.inf:
        raise ValueError(f"{name}: cost is {cost}; expected a finite number, 0 or more.")
    return float(cost)


def augmented(name: str, scores: Tensor, labels: Tensor, cost: Cost) -> Tensor:
    """Return cost-augmented scores: wrong variables gain their cost, and correct ones lose it.

    Relative to the labels, this adds to every structure the costs of its wrong variables. Labels
    are 0, 1, or NaN for unlabelled variables, which have no cost.
    """
    function = NAMED[cost] if isinstance(cost, str) else cost
    if isinstance(function, Tensor) or not callable(function):
        costs = _broadcast(name, function, scores)
    else:
        costs = _broadcast(f"{name}: the function", function(labels.clone()), scores)
    known = ~labels.isnan()
    wrong = known & ~((costs >= 0.0) & (costs < math.inf))
    if wrong.any():
        raise ValueError(
            f"{name}: cost holds {costs[wrong][0]:g}; expected finite numbers, 0 or more."
        )
    # zeros for NaN: a gradient of zero times NaN would be NaN
    return scores + torch.where(known, costs, 0.0) * (1.0 - 2.0 * labels.nan_to_num(0.0))


def _broadcast(name: str, cost: Any, scores: Tensor) -> Tensor:
    """Return costs in the shape, dtype and device of the scores."""
    if not isinstance(cost, (Tensor, int, float)):
        raise TypeError(f"{name}: cost is {kind_of(cost)}; expected a tensor or a number.")
    costs = cost.to(scores) if isinstance(cost, Tensor) else scores.new_tensor(cost)
    try:
        return costs.expand(scores.shape)
    except RuntimeError as error:
        raise ValueError(
            f"{name}: cost has shape {tuple(costs.shape)}; expected one that broadcasts to "
            f"{tuple(scores.shape)}, the shape of the scores."
        ) from error
