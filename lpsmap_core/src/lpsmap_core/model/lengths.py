"""The entries of its variables that a declaration covers: lengths and masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.inputs import booleans, broadcast, whole_numbers
from lpsmap_jit.arrays import BoolArray, IntArray

Shape = tuple[int, ...]


def checked_lengths(
    name: str,
    lengths: npt.ArrayLike,
    shape: Shape,
    split: int,
    axes: Sequence[int],
    named: tuple[int, ...] | None = None,
) -> IntArray:
    """Return one length for every factor and cut axis.

    Parameters
    ----------
    name
        Name of the factor type in errors.
    lengths
        Lengths from the user.
    shape, split
        Shape of the variables, and the number of its batch axes.
    axes
        Event axes that lengths cut.
    named
        Axes that the type names in `length_axes`, which are cut to one length; or None.

    Raises
    ------
    TypeError
        If they are not numbers.
    ValueError
        If they are not whole, do not fit the shape or an axis, or are ambiguous.
    """
    batch, longest = shape[:split], np.array([shape[split + axis] for axis in axes])
    array = whole_numbers(f"{name}: lengths", lengths)
    if array.dtype != np.int64 and array.size:  # an empty list has no integers
        raise ValueError(
            f"{name}: lengths has dtype {array.dtype}; expected integers. Convert it first."
        )
    if array.shape not in (batch, (*batch, len(axes))):
        raise ValueError(
            f"{name}: lengths has shape {array.shape}; expected {batch}, one for every factor of "
            f"the declaration{f', or {(*batch, len(axes))}' if len(axes) > 1 else ''}."
        )
    if named is None:
        check_unambiguous_lengths(name, array.shape, batch, len(axes))
    if array.shape == batch:
        array = np.stack([array] * len(axes), axis=-1)
    array = array.reshape(-1, len(axes))
    wrong = np.argwhere((array < 0) | (array > longest))
    if wrong.size:
        b, k = wrong[0]
        if named is not None and len(set(longest.tolist())) > 1:
            raise ValueError(
                f"{name}: variables has shape {shape}; expected equal axes of "
                f"{', '.join(map(str, longest))}, which lengths cut to one number."
            )
        raise ValueError(
            f"{name}: lengths[{b}] is {array[b, k]}; expected 0 to {longest[k]}, the length of the "
            "event axes."
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def check_unambiguous_lengths(name: str, shape: Shape, batch: Shape, k: int) -> None:
    """Reject lengths of the batch's shape whose last axis could also be a factor's `k` lengths.

    Parameters
    ----------
    name
        Name of the factor type in errors.
    shape, batch
        The shapes of the lengths and of the batch.
    k
        Maximum number of lengths per factor.

    Raises
    ------
    ValueError
        If the lengths are ambiguous.
    """
    if len(batch) > 1 and shape == batch and batch[-1] == k > 1:
        raise ValueError(
            f"{name}: lengths has shape {shape}, which is ambiguous for a batch of shape "
            f"{batch}: {k} lengths for every entry of its first {len(batch) - 1} axes, or one "
            f"length for every factor. Expected {(*batch, k)}: for the first, broadcast "
            f"lengths[..., None, :] to that; for the second, stack lengths {k} times on a last "
            "axis."
        )


def within_lengths(lengths: IntArray, shape: Shape, split: int, axes: Sequence[int]) -> BoolArray:
    """Return flags of the entries of the variables that lie within the lengths."""
    keep: BoolArray = np.ones((1,) * len(shape), dtype=bool)
    for axis, ends in zip(axes, lengths.T, strict=True):
        along = [1] * len(shape)
        along[split + axis] = -1
        limit = ends.reshape(shape[:split] + (1,) * (len(shape) - split))
        keep = keep & (np.arange(shape[split + axis]).reshape(along) < limit)
    return np.ascontiguousarray(np.broadcast_to(keep, shape))


def checked_mask(name: str, mask: npt.ArrayLike, shape: Shape) -> BoolArray:
    """Return a mask in the shape of the variables."""
    flags = booleans(f"{name}: mask", mask, "a variable takes part")
    return broadcast(f"{name}: mask", flags, shape)
