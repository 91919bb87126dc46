"""The form in which structures are shown: tags, heads, spans.

A form converts between values in that form, padded with -100, and the zeros and ones of variables.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import torch
from torch import Tensor

from lpsmap_core.api import kind_of

PADDING = -100
"""Entries beyond the lengths; losses of torch ignore this number."""


class Form(abc.ABC):
    """The form of the structures over variables of an event shape.

    Parameters
    ----------
    sizes
        The event shape of the variables.
    shape
        The event shape of values.
    """

    ignores_padding: ClassVar[bool] = True
    """Whether values at padding have no meaning."""

    convention: ClassVar[str] = ""
    """How values are written, for error messages."""

    def __init__(self, sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.sizes, self.shape = tuple(sizes), tuple(shape)

    @abc.abstractmethod
    def read(self, variables: Tensor) -> Tensor:
        """Return ``(..., *shape)`` values, given ``(..., *sizes)`` zeros and ones."""

    @abc.abstractmethod
    def write(self, value: Tensor) -> Tensor:
        """Return ``(..., *sizes)`` flags of the variables that are on, given values.

        Raises
        ------
        TypeError
            If the values are not integers.
        ValueError
            If they cannot be written as variables.
        """


class Indicators(Form):
    """Zeros and ones, as the variables are."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes, sizes)

    def read(self, variables: Tensor) -> Tensor:
        """Return the variables."""
        return variables

    def write(self, value: Tensor) -> Tensor:
        """Return the values as flags."""
        wrong = value[(value != 0) & (value != 1)]
        if wrong.numel():
            raise ValueError(f"value holds {wrong[0].item():g}; expected zeros and ones.")
        return value == 1


class Tags(Form):
    """The number of the variable that is on in every row."""

    convention = ", counted from 0, without gaps"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes, sizes[:-1])

    def read(self, variables: Tensor) -> Tensor:
        """Return the tags."""
        on = variables > 0.5
        tags = on.int().argmax(-1) if self.sizes[-1] else on.sum(-1)  # no argmax of no tags
        return tags.where(on.any(-1), PADDING)

    def write(self, value: Tensor) -> Tensor:
        """Return the variables of tags; other numbers than those of tags switch none on."""
        return checked_integers(value)[..., None] == _numbers(value, self.sizes[-1])


class Heads(Form):
    """The head of every word, counted from 0, with -1 for the root."""

    convention = ": heads counted from 0, with -1 for the root, without gaps"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes, sizes[:1])

    def read(self, variables: Tensor) -> Tensor:
        """Return the heads."""
        heads = Tags(self.sizes).read(variables)
        return heads.where(heads != _numbers(heads, *self.shape), -1)

    def write(self, value: Tensor) -> Tensor:
        """Return the arcs; a root's is on the diagonal."""
        value = checked_integers(value)
        words = _numbers(value, *self.shape)
        columns = words.where(value == -1, value.where(value != words, PADDING))
        return Tags(self.sizes).write(columns)


class LabelledHeads(Form):
    """Pairs of a head and a label."""

    convention = f"{Heads.convention}, and labels counted from 0"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes, (sizes[0], 2))

    def read(self, variables: Tensor) -> Tensor:
        """Return the heads and labels."""
        on = variables > 0.5
        heads = Heads(self.sizes[:2]).read(on.any(-1).float())
        labels = Tags((self.sizes[0], self.sizes[2])).read(on.any(-2).float())
        return torch.stack([heads, labels], -1)

    def write(self, value: Tensor) -> Tensor:
        """Return the labelled arcs."""
        heads, labels = value.unbind(-1)
        of_labels = Tags((self.sizes[0], self.sizes[2])).write(labels)
        return Heads(self.sizes[:2]).write(heads)[..., None] & of_labels[..., None, :]


class Cells(Form):
    """The indices of the variables that are on, in order.

    Parameters
    ----------
    sizes
        The event shape of the variables.
    most
        The maximum number of variables that are on.
    """

    ignores_padding = False

    def __init__(self, sizes: tuple[int, ...], most: int) -> None:
        self.most = min(most, math.prod(sizes))
        # a single number for every index on a single axis
        super().__init__(sizes, (self.most, len(sizes))[: 2 if len(sizes) > 1 else 1])

    def read(self, variables: Tensor) -> Tensor:
        """Return the indices."""
        on = (variables > 0.5).flatten(variables.ndim - len(self.sizes))
        order = (~on).byte().argsort(dim=-1, stable=True)[..., : self.most]
        index = self.shown(torch.stack(torch.unravel_index(order, self.sizes), -1))
        index = index.where(on.gather(-1, order)[..., None], PADDING)
        return index if len(self.sizes) > 1 else index[..., 0]

    def write(self, value: Tensor) -> Tensor:
        """Return the variables at the indices."""
        value = checked_integers(value)
        given = value if len(self.sizes) > 1 else value[..., None]
        index = self.hidden(given)
        inside = ((index >= 0) & (index < index.new_tensor(self.sizes))).all(-1)
        wrong = given[~inside & (given != PADDING).any(-1)]
        if wrong.numel():
            raise ValueError(
                f"value holds {wrong[0].tolist()}, which is no variable of shape {self.sizes}; "
                f"expected indices within it, or {PADDING} for padding."
            )
        flat, size = torch.zeros_like(index[..., 0]), math.prod(self.sizes)
        for axis, n in enumerate(self.sizes):
            flat = flat * n + index[..., axis]
        flat = flat.where(inside, size)  # padding is written behind the variables
        on = torch.zeros(*flat.shape[:-1], size + 1, dtype=torch.int64, device=value.device)
        on = on.scatter_add(-1, flat, torch.ones_like(flat))[..., :size]
        if (on > 1).any():
            raise ValueError("value holds an index twice; expected every one once.")
        return on.bool().reshape(*on.shape[:-1], *self.sizes)

    def shown(self, index: Tensor) -> Tensor:
        """Return indices as values show them."""
        return index

    def hidden(self, value: Tensor) -> Tensor:
        """Return the indices of the variables that values name."""
        return value


class Segments(Cells):
    """Segments of a sequence: the first position, the one after the last, and the state."""

    def shown(self, index: Tensor) -> Tensor:
        """Return the ends of segments for their lengths."""
        begin, more, state = index.unbind(-1)
        return torch.stack([begin, begin + more + 1, state], -1)

    def hidden(self, value: Tensor) -> Tensor:
        """Return the lengths of segments for their ends."""
        begin, end, state = value.unbind(-1)
        return torch.stack([begin, end - begin - 1, state], -1)


class TreeSpans(Cells):
    """Spans of a tree, the first and the last word, each before its parts; and any label."""

    def read(self, variables: Tensor) -> Tensor:
        """Return the spans, the longer first among those with one beginning."""
        return super().read(variables.flip(variables.ndim - len(self.sizes) + 1))

    def shown(self, index: Tensor) -> Tensor:
        """Return the last words, counted from the first."""
        first, last, *label = index.unbind(-1)
        return torch.stack([first, self.sizes[1] - 1 - last, *label], -1)


def checked_integers(value: Tensor) -> Tensor:
    """Validate that values are integers."""
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool:
        raise TypeError(f"value is {kind_of(value)} of dtype {value.dtype}; expected integers.")
    return value.long()


def _numbers(like: Tensor, n: int) -> Tensor:
    return torch.arange(n, device=like.device)
