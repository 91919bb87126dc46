"""Lengths and masks of positions, for factors over a batch."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Variables
from lpsmap_core.api import kind_of, stacklevel


class Present(NamedTuple):
    """The positions that take part, as a factor type takes them."""

    variables: Variables
    """The variables, those of positions that take part first."""
    lengths: NDArray[np.int64] | None
    """The numbers of positions of the instances; None for all."""
    holes: bool
    """Whether positions between others are left out."""


def lengths_of(name: str, lengths: Any, shape: tuple[int, ...]) -> NDArray[np.int64] | None:
    """Return lengths that broadcast to a shape, as an array."""
    if lengths is None:
        return None
    array = _broadcast(f"{name}: lengths", lengths, shape)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: lengths are {kind_of(lengths)}; expected integers.")
    return array.astype(np.int64)


def mask_of(name: str, mask: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a mask that broadcasts to a shape, as an array."""
    there = _broadcast(f"{name}: mask", mask, shape)
    if there.dtype != bool:
        raise TypeError(
            f"{name}: mask is {kind_of(mask)} of {there.dtype}; expected booleans, true for "
            "positions that take part. Use mask != 0 for ones and zeros."
        )
    return there


def present(
    name: str, u: Variables, event_ndim: int, lengths: Any, mask: Any, n_axes: int = 1
) -> Present:
    """Return the variables of the positions that a mask allows; the others are skipped.

    An instance has `event_ndim` axes, of which the first `n_axes` are the positions. The mask has
    booleans for these; lengths and mask may be None.
    """
    split = u.ndim - event_ndim
    batch, n = u.shape[:split], u.shape[split]
    ends = lengths_of(name, lengths, batch)
    if mask is None:
        return Present(u, ends, False)
    there = mask_of(name, mask, (*batch, n))
    if ends is not None:
        there = there & (np.arange(n) < ends[..., None])
    ends = np.asarray(there.sum(axis=-1))
    _warn_of_inversion(name, there, ends)
    if (there == (np.arange(n) < ends[..., None])).all():
        return Present(u, ends, False)
    order = np.argsort(~there, axis=-1, kind="stable")
    places = [order] if n_axes == 1 else [order[..., :, None], order[..., None, :]]
    instance = [x.reshape(*x.shape, *(1,) * n_axes) for x in np.indices(batch, sparse=True)]
    return Present(u[(*instance, *places)], ends, True)


def _warn_of_inversion(name: str, there: NDArray[np.bool_], ends: NDArray[np.int64]) -> None:
    """Warn if a mask looks as if true meant padding: all items are at the end, or have nothing.

    A mask may leave out the first token of all items, and no other.
    """
    n = there.shape[-1]
    if not there.size or (ends == n).any() or (n > 1 and (ends == n - 1).all()):
        return
    if (there == (np.arange(n) >= n - ends[..., None])).all():
        warnings.warn(
            f"{name}: mask is false at the first positions of all items, and true only at the "
            "last, if anywhere; positions take part where it is true. If it is true for padding, "
            "give ~mask.",
            stacklevel=stacklevel(),
        )


def _broadcast(name: str, values: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    try:
        return np.broadcast_to(array, shape)
    except ValueError as error:
        raise ValueError(
            f"{name} has shape {array.shape}; expected a shape that broadcasts to {tuple(shape)}."
        ) from error
