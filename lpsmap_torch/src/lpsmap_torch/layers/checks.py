"""The input of layers: what is refused, in words, and what padding leaves."""

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


def checked_lengths(
    name: str, lengths: Any, batch: tuple[int, ...], most: int = 1, one_will_do: bool = True
) -> Tensor | None:
    """Return lengths for all instances, if there are any; on whatever device.

    The axes of lengths are the first ones of the batch, each of its size or 1: lengths of shape
    ``(B,)`` or ``(B, 1)`` hold for all heads of a batch of shape ``(B, H)``.

    Parameters
    ----------
    name
        The layer, for messages.
    lengths
        As the user gave them.
    batch
        The shape of the batch.
    most
        How many lengths an instance can have, on a last axis of their own.
    one_will_do
        Whether an instance can have one length instead.

    Returns
    -------
    Tensor
        Of shape `batch`, or of `batch` and an axis more.

    Raises
    ------
    TypeError
        If they are no tensor of integers.
    ValueError
        If their shape does not fit, or fits in two ways.
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
            f"{name}: lengths has shape {shape}, which has two readings for a batch of shape "
            f"{batch}: {most} lengths for every entry of its first {len(shape) - 1} axes, or one "
            f"length for every entry. Use lengths.reshape{whole} for the first, and "
            "torch.stack([lengths, lengths], -1) for the second."
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
        "may be 1, and the last of them left out."
    )


def _leads(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to the first axes of the batch."""
    return len(shape) <= len(batch) and all(a in (1, b) for a, b in zip(shape, batch, strict=False))


def _expanded(lengths: Tensor, batch: tuple[int, ...], own: tuple[int, ...]) -> Tensor:
    """Return lengths for the whole batch, behind which they have axes of their own."""
    given = lengths.shape[: lengths.ndim - len(own)]
    left_out = (1,) * (len(batch) - len(given))
    return lengths.reshape(*given, *left_out, *own).expand(*batch, *own)


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
