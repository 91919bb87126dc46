"""Sequences of a part as batches of chains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part
from lpsmap_torch.tensor.batch import Members
from lpsmap_torch.tensor.chain_batch import Bins, ChainBatch
from lpsmap_torch.tensor.served import SEQUENCE, sizes_of_chains

__all__ = ["chains_of"]

MOST_FLOWS_OF_BATCH = 2**24
"""Maximum number of flows of a batch."""


def chains_of(part: Part, selected: BoolArray, precision: torch.dtype) -> Iterator[ChainBatch]:
    """Yield the batches of the selected components, each of which is one sequence, on the host.

    Parameters
    ----------
    part
        The part.
    selected
        (n_components,) flags of the components.
    precision
        The dtype of factorisations.
    """
    for b, bucket in enumerate(part.buckets):
        factors = np.flatnonzero(selected[bucket.component])
        if not factors.size:
            continue
        size = np.stack([*sizes_of_chains(bucket), np.diff(bucket.additional_offsets)])[:, factors]
        if bucket.type.__name__ == SEQUENCE:
            size[2] = 0
        keys = np.concatenate([np.ceil(np.log2(np.maximum(size[:2], 1))), size[2:]])
        _, group = np.unique(keys, axis=1, return_inverse=True)
        group = group.reshape(-1)
        for number in range(group.max(initial=-1) + 1):
            members, sizes = factors[group == number], size[:2, group == number].max(axis=1)
            flows = len(members) * int(sizes[0]) * int(sizes[1]) ** 2
            for of_batch in np.array_split(members, -(-flows // MOST_FLOWS_OF_BATCH)):
                yield _batch(part, b, of_batch, precision)


def _batch(part: Part, b: int, factors: IntArray, precision: torch.dtype) -> ChainBatch:
    """Return the batch of some sequences of a bucket."""
    bucket = part.buckets[b]
    lengths, states = (x[factors] for x in sizes_of_chains(bucket))
    n, length, s = len(factors), max(int(lengths.max()), 2), int(states.max())
    t, i, padding = np.arange(length), np.arange(s), part.n_variables + part.n_additionals + 1
    inside = (t[:, None] < lengths[:, None, None]) & (i < states[:, None, None])
    slot = bucket.offsets[factors][:, None, None] + t[:, None] * states[:, None, None] + i
    columns = [np.where(inside, bucket.variable[np.where(inside, slot, 0)], padding).reshape(n, -1)]
    first = part.n_variables + part.additionals_of(b).start + bucket.additional_offsets[factors]
    size = np.diff(bucket.additional_offsets)[factors]
    bins = None
    if bucket.type.__name__ == SEQUENCE:
        j = np.arange((length - 1) * s * s)
        step = inside[:, :-1, :, None] & inside[:, 1:, None, :]
        square = (states**2)[:, None, None, None]
        at = first[:, None, None, None] + states[:, None, None, None] + t[:-1, None, None] * square
        at = at + i[:, None] * states[:, None, None, None] + i
        there = i < states[:, None]
        final = first + size - states
        columns += [
            np.where(there, first[:, None] + i, padding),
            np.where(step, at, padding).reshape(n, len(j)),
            np.where(there, final[:, None] + i, padding),
        ]
    else:
        columns.append(first[:, None] + np.arange(size[0]))
        bins = _bins(int(size[0] - 1) // 4, states, s)
    rows = np.full((n, (2 * length - 1) * s), -1)
    is_flow = np.arange(length * s + (length - 1) * s * s) >= length * s
    return ChainBatch(
        Members(bucket.component[factors], torch.from_numpy(np.hstack(columns)), rows),
        *_bounds(inside),
        torch.from_numpy(is_flow[None]),
        precision,
        torch.from_numpy((t == lengths[:, None] - 1)[..., None].astype(np.float64)),
        s,
        bins,
    )


def _bounds(inside: BoolArray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bounds of the rows, given (n, length, n_states) flags of the states."""
    n, _, s = inside.shape
    arriving, leaving = inside.copy(), inside[:, 1:].any(axis=2, keepdims=True) & inside[:, :-1]
    arriving[:, 0, 1:] = False
    is_row = np.hstack([arriving.reshape(n, -1), leaving.reshape(n, -1)])
    value = np.zeros(is_row.shape)
    value[:, 0] = 1.0
    low, high = np.where(is_row, value, -np.inf), np.where(is_row, value, np.inf)
    return torch.from_numpy(low), torch.from_numpy(high)


def _bins(reach: int, states: IntArray, most: int) -> Bins:
    """Return the bins of `SequenceDistance`."""
    i = np.arange(most)
    distance = np.clip(i - i[:, None], -reach, reach) + reach
    final = np.maximum(i - states[:, None] + reach, 0).clip(max=reach - 1)
    first = np.broadcast_to(np.minimum(i, reach - 1), (len(states), most))

    def ones(index: IntArray, size: int) -> FloatArray:
        table: FloatArray = (index[..., None] == np.arange(size)).astype(np.float64)
        return table

    step = ones(distance.reshape(1, -1), 2 * reach + 1)
    return Bins(*map(torch.from_numpy, (ones(first, reach), step, ones(final, reach))))
