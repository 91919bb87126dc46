"""Validation of the inputs of layers: scores, lengths and masks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core.api import check_readable, kind_of
from lpsmap_torch.tensors import broadcasts


class Instances(NamedTuple):
    """What a call says of its instances, as tensors or as arrays; None for what it does not say."""

    lengths: Any = None
    """(*batch,) or (*batch, n) integers."""
    mask: Any = None
    """Booleans in the full shape of the mask."""
    limits: Any = None
    """(*batch,) integers, such as budgets."""

    def on_host(self) -> Instances:
        """Return them as arrays."""
        return Instances(*[None if x is None else x.detach().cpu().numpy() for x in self])

    @property
    def are_whole(self) -> bool:
        """Whether neither lengths nor a mask leave out any entry, since none are given."""
        return self.lengths is None and self.mask is None

    @property
    def key(self) -> tuple[Any, ...]:
        """The contents of arrays, as a key of dictionaries."""
        return tuple(None if x is None else (x.shape, x.tobytes()) for x in self)


def check_scores(name: str, scores: Any, ndim: int) -> None:
    """Validate that scores are a dense floating-point tensor with enough axes."""
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"{name}: scores is {kind_of(scores)}; expected a torch.Tensor. Use torch.as_tensor."
        )
    only_shapes = scores.is_meta and scores.layout is torch.strided
    if not (only_shapes or torch.compiler.is_compiling()):
        check_readable(f"{name}: scores", scores)
    if not scores.is_floating_point():
        raise TypeError(
            f"{name}: scores has dtype {scores.dtype}; expected floating-point scores, which can "
            "have gradients. Use scores.float()."
        )
    if scores.ndim < ndim:
        raise ValueError(
            f"{name}: scores has shape {tuple(scores.shape)}; expected {ndim} "
            f"{'axes' if ndim > 1 else 'axis'} or more, the batch first."
        )


def check_parameters(name: str, parameters: Tensor, scores: Tensor) -> None:
    """Validate that parameters are on the device of the scores."""
    if parameters.device != scores.device:
        raise ValueError(
            f"{name}: parameters on {parameters.device}, but scores on {scores.device}; expected "
            "the same device. Move the layer or the tensors with to()."
        )


def checked_parameters(
    name: str, parameters: Any, scores: Tensor, batch: tuple[int, ...]
) -> Tensor | None:
    """Validate the scores of additionals, flat on the last axis, and expand them to a batch."""
    if parameters is None:
        return None
    if not isinstance(parameters, Tensor) or not parameters.is_floating_point():
        got = parameters.dtype if isinstance(parameters, Tensor) else kind_of(parameters)
        raise TypeError(
            f"{name}: additionals is {got}; expected a floating-point tensor. Use torch.as_tensor, "
            "or the method float()."
        )
    shape = tuple(parameters.shape)
    if not shape or not broadcasts(shape[:-1], batch):
        raise ValueError(
            f"{name}: additionals has shape {shape}; expected (n,), the flat scores of an "
            f"instance, or ({', '.join([*map(str, batch), 'n'])}) for every instance. Scores in "
            "another form, such as transitions of shape (S, S), are arguments of functions: "
            f"{name}(lambda u, transitions: Sequence(u, transitions))(scores, "
            "transitions=transitions)."
        )
    check_parameters(name, parameters, scores)
    return parameters.expand(*batch, shape[-1])


def checked_lengths(
    name: str,
    lengths: Any,
    batch: tuple[int, ...],
    n_lengths: int = 1,
    allows_one: bool = True,
    one_first: bool = False,
) -> Tensor | None:
    """Validate lengths and expand them to all instances, on any device.

    Lengths have the first axes of the batch, each with the same size or 1. So lengths of shape
    ``(B,)`` or ``(B, 1)`` apply to all heads of a batch of shape ``(B, H)``. On an additional last
    axis, an instance can have several, `n_lengths`, or a single one, where that is allowed. Those
    that can be single ones are if single lengths come first.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor) or lengths.dtype not in _INTEGERS:
        is_tensor = isinstance(lengths, Tensor)
        got = lengths.dtype if is_tensor else kind_of(lengths)
        fix = "lengths.long()" if is_tensor else "torch.tensor(lengths)"
        raise TypeError(f"{name}: lengths is {got}; expected a tensor of integers. Use {fix}.")
    shape = tuple(lengths.shape)
    one_per_entry = len(shape) == 1 and len(batch) > 0  # one row of lengths for the whole batch
    is_single = _leads(shape, batch)
    is_multiple = n_lengths > 1 and shape[-1:] == (n_lengths,) and _leads(shape[:-1], batch)
    is_multiple = (
        is_multiple and not (one_per_entry and allows_one) and not (is_single and one_first)
    )
    if is_multiple and (is_single or one_per_entry):
        full_shape = (*shape[:-1], *(1,) * (len(batch) - len(shape) + 1), n_lengths)
        raise ValueError(
            f"{name}: lengths has shape {shape}, which is ambiguous for a batch of shape {batch}: "
            f"{n_lengths} lengths for every entry of its first {len(shape) - 1} axes, or one "
            f"length for every entry. Use lengths.reshape{full_shape} for the first, and "
            "torch.stack([lengths, lengths], -1) for the second."
        )
    if is_multiple:
        return _expanded(lengths, batch, (n_lengths,))
    if is_single and (n_lengths == 1 or allows_one):
        return _expanded(lengths, batch, ())
    expected = [f"{batch}, one for every instance of the batch"] if allows_one else []
    if n_lengths > 1:
        axes = "rows and columns" if n_lengths == 2 else f"{n_lengths} axes"
        expected.append(f"{(*batch, n_lengths)} for {axes}")
    raise ValueError(
        f"{name}: lengths has shape {shape}; expected {', or '.join(expected)}; axes of the batch "
        "may be 1, and its last axes may be omitted."
    )


def checked_limits(name: str, limits: Any, batch: tuple[int, ...]) -> Tensor | None:
    """Validate limits, and expand them like lengths to all instances of a batch, on any device."""
    if limits is None:
        return None
    if not isinstance(limits, Tensor) or limits.dtype not in _INTEGERS:
        got = limits.dtype if isinstance(limits, Tensor) else kind_of(limits)
        raise TypeError(
            f"{name} is {got}; expected a tensor of integers, one for every instance. Give one "
            "number for all instances to the constructor."
        )
    if not _leads(tuple(limits.shape), batch):
        raise ValueError(
            f"{name} has shape {tuple(limits.shape)}; expected {batch}, one for every instance of "
            "the batch; axes of the batch may be 1, and its last axes may be omitted."
        )
    return _expanded(limits.long(), batch, ())


def _leads(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to the first axes of the batch."""
    return len(shape) <= len(batch) and broadcasts(shape, batch[: len(shape)])


def _expanded(lengths: Tensor, batch: tuple[int, ...], trailing: tuple[int, ...]) -> Tensor:
    leading_axes = lengths.shape[: lengths.ndim - len(trailing)]
    omitted_axes = (1,) * (len(batch) - len(leading_axes))
    return lengths.reshape((*leading_axes, *omitted_axes, *trailing)).expand((*batch, *trailing))


def checked_mask(name: str, mask: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Validate a mask and expand it to a shape, on any device."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else kind_of(mask)
        raise TypeError(
            f"{name}: mask is {got}; expected a tensor of booleans, true for scores that take "
            "part. Use mask != 0 for ones and zeros, and mask == 0 for an additive mask, which has "
            "0 for scores that take part and -inf for others."
        )
    mask_shape = tuple(mask.shape)
    if not broadcasts(mask_shape, shape):
        raise ValueError(
            f"{name}: mask has shape {mask_shape}; expected one that broadcasts to {shape}, true "
            "for scores that take part."
        )
    return mask.expand(shape)


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def prefix_lengths(name: str, on: NDArray[np.bool_], what: str) -> NDArray[np.int64]:
    """Return how many entries of the last axis are on; these must be the first ones.

    Errors call them `what`, such as "rows".
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
    """Validate that (..., axes) lengths are not negative, nor longer than their axes."""
    wrong = np.argwhere(((lengths < 0) | (lengths > np.array(longest))).any(axis=-1))
    if wrong.size:
        where = tuple(wrong[0].tolist())
        which = f" of instance {where[0] if len(where) == 1 else where}" if where else ""
        got = tuple(lengths[where].tolist())
        single = len(got) == 1
        raise ValueError(
            f"{name}: lengths{which} {'is' if single else 'are'} {got[0] if single else got}; "
            f"expected 0 to {longest[0] if single else longest}."
        )


def present(
    name: str, shape: tuple[int, ...], lengths: NDArray[np.int64] | None, mask: Any
) -> NDArray[np.bool_]:
    """Return which entries of a last axis are present, given lengths and mask of `Instances`."""
    entries = np.ones(shape, dtype=bool) if mask is None else mask
    if lengths is None:
        return entries
    check_ends(name, lengths[..., None], shape[-1:])
    return entries & (np.arange(shape[-1]) < lengths[..., None])


def words_of(name: str, shape: tuple[int, ...], instances: Instances) -> NDArray[np.int64] | None:
    """Return the numbers of words of texts, with padding at the end; None if there is none."""
    words = present(name, shape, instances.lengths, instances.mask)
    return None if words.all() else prefix_lengths(name, words, "words")
