"""Validation of the inputs of layers: scores, lengths and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core.api import check_readable, kind_of

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
    """Validate that scores are a dense floating-point tensor with enough axes.

    Raises
    ------
    TypeError
        If they are not a dense floating-point tensor.
    ValueError
        If they have too few axes.
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
    """Validate that parameters are on the device of the scores.

    Raises
    ------
    ValueError
        If they are on another device.
    """
    if parameters.device != scores.device:
        raise ValueError(
            f"{name}: parameters on {parameters.device}, but scores on {scores.device}; expected "
            "the same device. Move the layer or the tensors with to()."
        )


def checked_lengths(
    name: str, lengths: Any, batch: tuple[int, ...], most: int = 1, one_will_do: bool = True
) -> Tensor | None:
    """Validate lengths and expand them to all instances, on any device.

    The axes of lengths are the first axes of the batch, each of its size or 1: lengths of shape
    ``(B,)`` or ``(B, 1)`` apply to all heads of a batch of shape ``(B, H)``.

    Parameters
    ----------
    name
        The layer, for error messages.
    lengths
        The lengths given by the user.
    batch
        The shape of the batch.
    most
        The number of lengths that an instance can have, on an additional last axis.
    one_will_do
        Whether an instance can have a single length instead.

    Returns
    -------
    Tensor
        Lengths of shape `batch`, or of `batch` with an additional axis.

    Raises
    ------
    TypeError
        If they are not a tensor of integers.
    ValueError
        If their shape does not fit, or is ambiguous.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor) or lengths.dtype not in _INTEGERS:
        got = lengths.dtype if isinstance(lengths, Tensor) else kind_of(lengths)
        raise TypeError(
            f"{name}: lengths is {got}; expected a tensor of integers. Use torch.tensor(lengths)."
        )
    shape = tuple(lengths.shape)
    of_all = len(shape) == 1 and len(batch) > 0  # one row of lengths for the whole batch
    one = _leads(shape, batch)
    many = most > 1 and shape[-1:] == (most,) and _leads(shape[:-1], batch)
    many = many and not (of_all and one_will_do)
    if many and (one or of_all):
        whole = (*shape[:-1], *(1,) * (len(batch) - len(shape) + 1), most)
        raise ValueError(
            f"{name}: lengths has shape {shape}, which is ambiguous for a batch of shape {batch}: "
            f"{most} lengths for every entry of its first {len(shape) - 1} axes, or one length for "
            f"every entry. Use lengths.reshape{whole} for the first, and torch.stack([lengths, "
            "lengths], -1) for the second."
        )
    if many:
        return _expanded(lengths, batch, (most,))
    if one and (most == 1 or one_will_do):
        return _expanded(lengths, batch, ())
    expected = [f"{batch}, one for every instance of the batch"] if one_will_do else []
    if most > 1:
        what = "rows and columns" if most == 2 else f"{most} axes"
        expected.append(f"{(*batch, most)} for {what}")
    raise ValueError(
        f"{name}: lengths has shape {shape}; expected {', or '.join(expected)}; axes of the batch "
        "may be 1, and its last axes may be omitted."
    )


def _leads(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to the first axes of the batch."""
    return len(shape) <= len(batch) and all(a in (1, b) for a, b in zip(shape, batch, strict=False))


def _expanded(lengths: Tensor, batch: tuple[int, ...], own: tuple[int, ...]) -> Tensor:
    """Return lengths expanded to the whole batch, followed by their own axes."""
    given = lengths.shape[: lengths.ndim - len(own)]
    left_out = (1,) * (len(batch) - len(given))
    return lengths.reshape(*given, *left_out, *own).expand(*batch, *own)


def checked_mask(name: str, mask: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Validate a mask and expand it to a shape, on any device.

    Raises
    ------
    TypeError
        If it is not a tensor of booleans.
    ValueError
        If it does not broadcast to the shape.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else kind_of(mask)
        raise TypeError(
            f"{name}: mask is {got}; expected a tensor of booleans, true for scores that take "
            "part. Use mask.bool()."
        )
    given = tuple(mask.shape)
    fits = len(given) <= len(shape) and all(
        a in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"{name}: mask has shape {given}; expected one that broadcasts to {shape}, true for "
            "scores that take part."
        )
    return mask.expand(shape)


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def leading(name: str, on: NDArray[np.bool_], what: str) -> NDArray[np.int64]:
    """Return how many entries of the last axis are on; these must be the first ones.

    Parameters
    ----------
    name
        The layer, for error messages.
    on
        Booleans.
    what
        The name of the entries, such as "rows".

    Raises
    ------
    ValueError
        If an entry is on after one that is off.
    """
    lengths: NDArray[np.int64] = on.sum(axis=-1)
    wrong = np.argwhere((np.arange(on.shape[-1]) < lengths[..., None]) != on)
    if wrong.size:
        where = tuple(wrong[0, :-1].tolist())
        raise ValueError(
            f"{name}: mask of instance {where[0] if len(where) == 1 else where} leaves out {what} "
            "before others that take part; expected padding at the end. Move it there."
        )
    return lengths


def check_ends(name: str, lengths: NDArray[np.int64], longest: tuple[int, ...]) -> None:
    """Validate that lengths do not exceed their axes.

    Parameters
    ----------
    name
        The layer, for error messages.
    lengths
        (..., axes) the lengths.
    longest
        The lengths of the axes.

    Raises
    ------
    ValueError
        If a length does.
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
    """Return which entries of a last axis are present.

    Parameters
    ----------
    name
        The layer, for error messages.
    shape
        The shape of the entries.
    lengths, mask
        As in `Layer.declare`.

    Raises
    ------
    ValueError
        If a length exceeds the axis.
    """
    there = np.ones(shape, dtype=bool) if mask is None else mask
    if lengths is None:
        return there
    check_ends(name, lengths[..., None], shape[-1:])
    return there & (np.arange(shape[-1]) < lengths[..., None])
