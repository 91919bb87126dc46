"""Layers with a limit, such as a budget, that calls can set for every instance."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_torch.layers.checks import checked_limits
from lpsmap_torch.layers.layer import Layer, Lengths

__all__ = ["LimitedLayer", "limits_and_lengths"]


class _Limited(NamedTuple):
    """Limits and lengths of a call."""

    limits: Any
    lengths: Any


class LimitedLayer(Layer):
    """A layer with a limit.

    A call can set it for every instance, by an argument of the same name: integers in the shape of
    the batch, on any device; axes of the batch may be 1, and its last axes may be omitted. In
    operators, limits are a first entry of the lengths on an additional axis.
    """

    limit: ClassVar[str]
    """The name of the limit."""

    def _inputs(
        self, *, lengths: Any = None, mask: Tensor | None = None, **others: Any
    ) -> tuple[Any, ...]:
        """Return parameters, lengths and mask of a call; lengths have the limits, if any."""
        limit = others.pop(self.limit, None)
        limited = lengths if limit is None else _Limited(limit, lengths)
        return super()._inputs(lengths=limited, mask=mask, **others)

    def _argument_names(self) -> list[str]:
        return [*super()._argument_names(), self.limit]

    def _checked_lengths(self, lengths: Any, batch: tuple[int, ...]) -> Tensor | None:
        if not isinstance(lengths, _Limited):
            return super()._checked_lengths(lengths, batch)
        limits = checked_limits(f"{type(self).__name__}: {self.limit}", lengths.limits, batch)
        checked = super()._checked_lengths(lengths.lengths, batch)
        if checked is None:
            return limits.unsqueeze(-1)
        return torch.stack([limits.long(), checked.to(limits.device).long()], dim=-1)


def limits_and_lengths(default: int | None, lengths: Lengths, n_axes: int) -> tuple[Any, Lengths]:
    """Return the limits of the instances, and their lengths.

    Parameters
    ----------
    default
        The limit if the call sets none.
    lengths
        The lengths, as `LimitedLayer` passes them to `Layer.declare`.
    n_axes
        The number of axes of the batch.
    """
    if lengths is None or lengths.ndim == n_axes:
        return default, lengths
    limits = lengths[..., 0].astype(np.int64)
    return limits, lengths[..., 1] if lengths.shape[-1] > 1 else None
