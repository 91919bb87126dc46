"""Costs of mistakes: numbers, tensors, functions of the labels, and costs by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lpsmap_core.api import kind_of

__all__ = ["ZERO_ONE", "Cost", "augmented", "checked_cost"]

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
    """Validate the type of a cost, and the value of a number.

    Raises
    ------
    TypeError
        If it is of another type.
    ValueError
        If it is a negative or infinite number, or an unknown name.
    """
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

    Relative to the labels, this adds to every structure the costs of its wrong variables.

    Parameters
    ----------
    name
        The name of the loss, for error messages.
    scores
        Scores of the variables.
    labels
        0, 1, or NaN for unlabelled variables, which have no cost; like the scores.
    cost
        A cost that is a sum over variables.

    Raises
    ------
    TypeError
        If a function does not return a tensor or a number.
    ValueError
        If costs do not broadcast to the scores, or are negative or not finite.
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
