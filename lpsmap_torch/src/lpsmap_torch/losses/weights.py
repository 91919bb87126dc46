"""Weights and reductions of losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lpsmap_core import Variables
from lpsmap_core.api import FloatArray, kind_of
from lpsmap_dynamic import in_factors

__all__ = ["check_weight", "checked_reduction", "n_labelled_rows", "reduced", "weighted"]

REDUCTIONS = ("none", "mean", "sum", "token_mean")


def checked_reduction(name: str, reduction: str) -> str:
    """Validate the name of a reduction.

    Raises
    ------
    ValueError
        If it is not one of `REDUCTIONS`.
    """
    if reduction not in REDUCTIONS:
        names = ", ".join(map(repr, REDUCTIONS))
        raise ValueError(f"{name}: reduction is {reduction!r}; expected one of {names}.")
    return reduction


def check_weight(name: str, weight: Any, shape: tuple[int, ...]) -> None:
    """Validate weights.

    Parameters
    ----------
    name
        The name of the loss, for error messages.
    weight
        The weights.
    shape
        The shape of the scores.

    Raises
    ------
    TypeError
        If they are not a tensor of real numbers.
    ValueError
        If their shape is not that of the first axes of the scores, or a weight is negative or not
        finite.
    """
    if not isinstance(weight, Tensor) or weight.is_complex():
        raise TypeError(f"{name}: weight is {kind_of(weight)}; expected a tensor of numbers.")
    weight_shape = tuple(weight.shape)
    if not weight_shape or weight_shape != shape[: len(weight_shape)]:
        raise ValueError(
            f"{name}: weight has shape {weight_shape}; expected {shape[:1]}, one weight for every "
            f"item, or more of the first axes of the scores, {shape}."
        )
    values = weight.detach()
    wrong = values[~((values >= 0) & (values < torch.inf))]
    if wrong.numel():
        raise ValueError(
            f"{name}: weight holds {wrong[0].item():g}; expected finite numbers, 0 or more."
        )


def weighted(losses: Tensor, weight: Tensor) -> Tensor:
    """Return the sum of weighted losses for every item.

    Parameters
    ----------
    losses
        Flat losses, one for every weight.
    weight
        The weights, the items on the first axis.
    """
    products = losses.reshape(weight.shape) * weight.to(losses)
    return products if weight.ndim == 1 else products.flatten(1).sum(1)


def n_labelled_rows(u: Variables, known: FloatArray) -> int:
    """Return the number of rows of the last axis that have a label.

    Parameters
    ----------
    u
        The variables, the batch first.
    known
        Their labels, NaN for unlabelled variables.
    """
    labelled = (known == known) & in_factors(u.graph)[u.index]
    return int((labelled.any(axis=-1) if u.ndim > 1 else labelled).sum())


def reduced(losses: Tensor, reduction: str, n_rows: int) -> Tensor:
    """Return the losses of items, their mean, their sum, or their sum over the number of rows."""
    if reduction == "none":
        return losses
    if reduction == "mean":
        return losses.mean()
    total = losses.sum()
    return total / max(n_rows, 1) if reduction == "token_mean" else total
