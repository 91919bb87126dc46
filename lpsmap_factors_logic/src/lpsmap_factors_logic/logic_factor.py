"""The base class of logic factors: rows along an axis, and structures that are assignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Variables, as_variables
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    booleans,
    broadcast,
    placed_slots,
    replaced_options,
)

without_negated = replaced_options(negated="negate the variables, as in Or(u ^ negated)")
"""Decorator of factor types that earlier libraries gave an argument `negated`."""


class LogicFactor(Factor):
    """A constraint on every row of an array of variables.

    A structure's label is its assignment: the tuple of the row's values, which are also its vertex.
    Both are in terms of slots, after negation: a negated variable (``~u``) counts as on if it is
    off.

    Parameters
    ----------
    variables
        Variables of at least one axis, or a sequence of views, which are stacked on a last axis.
    axis
        The axis along which the constraint holds. Every entry of the other axes is a factor.
    mask
        Booleans that broadcast to ``variables.shape``: the variables that take part.
    lengths
        For every factor, the number of variables of its row that take part, counted from the first.

    Raises
    ------
    TypeError
        If `variables` are not Variables, `axis` is not an integer, or `mask` is not of booleans.
    ValueError
        If `axis`, `mask` or `lengths` do not fit the variables.
    """

    needs_variables: ClassVar[str] = ""
    """The reason why rows must not be empty; empty if they may be."""

    @without_negated
    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        axis: int = -1,
        *,
        mask: npt.ArrayLike | None = None,
        lengths: npt.ArrayLike | None = None,
    ) -> None:
        name = type(self).__name__
        view = as_variables(variables, f"{name}: variables")
        if isinstance(axis, Variables):
            raise TypeError(
                f"{name}: axis is {axis!r}; expected an integer, an axis of `variables`. Join "
                f"views in a list: {name}([a, b])."
            )
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
            raise TypeError(
                f"{name}: axis is {axis!r}; expected an integer, an axis of `variables`."
            )
        if view.ndim and not -view.ndim <= axis < view.ndim:
            raise ValueError(
                f"{name}: axis is {axis}; expected {-view.ndim} to {view.ndim - 1}, an axis of "
                f"variables of shape {view.shape}."
            )
        self._axis, self._shape = axis, view.shape
        if mask is not None:
            flags = booleans(f"{name}: mask", mask, "a variable takes part")
            mask = self._along_rows("mask", flags)
        super().__init__(view.moveaxis(axis, -1) if view.ndim else view, mask=mask, lengths=lengths)
        if self.needs_variables:
            self._refuse_empty_rows()
        negations = self._negations()
        if negations is not False:
            self.variables = self.variables ^ negations
            self._flipped = np.broadcast_to(negations, self.variables.shape)

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return assignment `y` as an array, and no additionals."""
        return np.array(y, dtype=np.float64), np.empty(0)

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit: rows of many lengths, and a mask."""
        graph, mask = FactorGraph(), np.array([True, False, True, True])
        return [
            cls(graph.variable((4, 5)), lengths=[5, 3, 1, 2]),
            cls(graph.variable((4, 2)), axis=0, mask=mask[:, None]),
        ]

    # ---------------------------------------------------------------- helpers for the types

    def _along_rows(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Broadcast values to the shape of the given variables, and move the axis of rows last."""
        along = broadcast(f"{type(self).__name__}: {name}", values, self._shape)
        return np.moveaxis(along, self._axis, -1)

    def _refuse_empty_rows(self) -> None:
        empty = np.flatnonzero(self.offsets[1:] == self.offsets[:-1])
        if empty.size:
            raise ValueError(
                f"{type(self).__name__}: {self._name_of(empty[0])} covers no variable; expected "
                f"at least one, {self.needs_variables}. Leave the row out, or give it a variable."
            )

    def _name_of(self, i: int) -> str:
        """Return the name of factor `i` in errors: its row."""
        if not self.batch_shape:
            return "the row"
        index = tuple(int(k) for k in np.unravel_index(i, self.batch_shape))
        return f"row {index[0] if len(index) == 1 else index}"

    def _outputs(self) -> BoolArray:
        """Return the mask of the last variable of every row that takes part."""
        last = np.zeros(self.offsets[-1], dtype=bool)
        last[self.offsets[1:] - 1] = True
        return placed_slots(self, last)

    def _negations(self) -> BoolArray | bool:
        """Return the mask of the variables that the type negates before applying its constraint."""
        return False
