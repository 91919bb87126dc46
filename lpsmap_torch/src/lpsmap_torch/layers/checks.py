"""The input of layers: what is refused, in words, and what padding leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core.model.inputs import check_readable, kind_of

__all__ = [
    "check_ends",
    "check_parameters",
    "check_scores",
    "checked_lengths",
    "checked_mask",
    "leading",
    "present",
]


def check_scores(name: str, scores: Any, ndim: int) -> None:
    """Refuse scores that are no dense floating-point tensor of enough axes.

    Raises
    ------
    TypeError
        If they are none.
    ValueError
        If axes are missing.
    """
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"{name}: scores is {kind_of(scores)}; expected a torch.Tensor. Use torch.as_tensor."
        )
    if not torch.compiler.is_compiling():
        check_readable(f"{name}: scores", scores)
    if not scores.is_floating_point():
        raise TypeError(
            f"{name}: scores has dtype {scores.dtype}; expected floating-point scores, which can "
            "have gradients. Use scores.float()."
        )
    if scores.ndim < ndim:
        raise ValueError(
            f"{name}: scores has shape {tuple(scores.shape)}; expected {ndim} axes or more, the "
            "batch first."
        )


def check_parameters(name: str, parameters: Tensor, scores: Tensor) -> None:
    """Refuse parameters that lie elsewhere than the scores.

    Raises
    ------
    ValueError
        If they do.
    """
    if parameters.device != scores.device:
        raise ValueError(
            f"{name}: parameters on {parameters.device}, but scores on {scores.device}; expected "
            "one device. Move the layer, or the tensors, with to()."
        )


def checked_lengths(name: str, lengths: Any, batch: tuple[int, ...], most: int) -> Tensor | None:
    """Return lengths, if there are any; on whatever device.

    Parameters
    ----------
    name
        The layer, for messages.
    lengths
        As the user gave them.
    batch
        The shape of the batch.
    most
        How many lengths an instance can have, on an axis of their own.

    Raises
    ------
    TypeError
        If they are no tensor of integers.
    ValueError
        If they are not of the batch's shape.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor) or lengths.dtype not in _INTEGERS:
        got = lengths.dtype if isinstance(lengths, Tensor) else kind_of(lengths)
        raise TypeError(
            f"{name}: lengths is {got}; expected a tensor of integers. Use torch.tensor(lengths)."
        )
    shape = tuple(lengths.shape)
    if shape != batch and (most == 1 or shape != (*batch, most)):
        pairs = f", or {(*batch, most)} for rows and columns" if most > 1 else ""
        raise ValueError(
            f"{name}: lengths has shape {shape}; expected {batch}, one for every instance of the "
            f"batch{pairs}."
        )
    return lengths


def checked_mask(name: str, mask: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Return a mask in the shape of what it masks, if there is any; on whatever device.

    Raises
    ------
    TypeError
        If it is no tensor of booleans.
    ValueError
        If it does not broadcast to the shape.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else kind_of(mask)
        raise TypeError(
            f"{name}: mask is {got}; expected a tensor of booleans, true where a score takes part. "
            "Use mask.bool()."
        )
    given = tuple(mask.shape)
    fits = len(given) <= len(shape) and all(
        a in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"{name}: mask has shape {given}; expected one that broadcasts to {shape}, true where "
            "a score takes part."
        )
    return mask.expand(shape)


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def leading(name: str, on: NDArray[np.bool_], what: str) -> NDArray[np.int64]:
    """Return how many entries of the last axis are on, which have to be the first ones.

    Parameters
    ----------
    name
        The layer, for messages.
    on
        Truth values.
    what
        What the entries are, such as "rows".

    Raises
    ------
    ValueError
        If others come behind one that is off.
    """
    lengths: NDArray[np.int64] = on.sum(axis=-1)
    wrong = np.argwhere((np.arange(on.shape[-1]) < lengths[..., None]) != on)
    if wrong.size:
        where = tuple(wrong[0, :-1].tolist())
        raise ValueError(
            f"{name}: mask of instance {where[0] if len(where) == 1 else where} leaves out "
            f"{what} before others that take part; expected padding behind all that takes part. "
            "Move it there."
        )
    return lengths


def check_ends(name: str, lengths: NDArray[np.int64], longest: tuple[int, ...]) -> None:
    """Refuse lengths beyond their axes.

    Parameters
    ----------
    name
        The layer, for messages.
    lengths
        (..., axes) the lengths.
    longest
        The lengths of the axes.

    Raises
    ------
    ValueError
        If one is.
    """
    wrong = np.argwhere(((lengths < 0) | (lengths > np.array(longest))).any(axis=-1))
    if wrong.size:
        where = tuple(wrong[0].tolist())
        which = f" of instance {where[0] if len(where) == 1 else where}" if where else ""
        got = tuple(lengths[where].tolist())
        one = len(got) == 1
        raise ValueError(
            f"{name}: lengths{which} {'is' if one else 'are'} {got[0] if one else got}; expected 0 "
            f"to {longest[0] if one else longest}."
        )


def present(
    name: str, shape: tuple[int, ...], lengths: NDArray[np.int64] | None, mask: Any
) -> NDArray[np.bool_]:
    """Return which entries of a last axis are there.

    Parameters
    ----------
    name
        The layer, for messages.
    shape
        The shape of the entries.
    lengths, mask
        As `Layer.declare` gets them.

    Raises
    ------
    ValueError
        If a length is beyond the axis.
    """
    there = np.ones(shape, dtype=bool) if mask is None else mask
    if lengths is None:
        return there
    check_ends(name, lengths[..., None], shape[-1:])
    return there & (np.arange(shape[-1]) < lengths[..., None])
