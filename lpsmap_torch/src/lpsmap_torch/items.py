"""The items of a batch, and the variables, components and factors that belong to each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import FloatArray, IntArray, Layout, slot_values
from lpsmap_dynamic import sum_exactly

__all__ = ["Items", "Labels", "of_factors"]


class Labels(NamedTuple):
    """The labels of the variables of a graph."""

    known: FloatArray
    """(n_variables,) 0 to 1, or NaN."""
    item: IntArray
    """(n_variables,) the item of each variable of the target; -1 for others."""
    n_items: int
    axes: int = 1
    """The number of axes of the target that are the items'."""
    additionals: list[FloatArray] | None = None
    """For every declaration, the (n_factors, n_additionals) additionals; None if not given."""

    @property
    def are_marginals(self) -> bool:
        """Whether they are a mixture of structures, which the labels alone do not determine."""
        fractions = (self.known > 0.0) & (self.known < 1.0)
        return self.additionals is not None or bool(fractions.any())


def of_factors(factor: Factor, of_variable: IntArray) -> IntArray:
    """Return for each factor of a declaration the number of its first variable; -1 without any.

    Parameters
    ----------
    factor
        The declaration.
    of_variable
        (n_variables,) a number for every variable of the graph.
    """
    index = np.append(slot_values(factor, factor.variables.index), -1)
    first, last = factor.offsets[:-1], factor.offsets[1:]
    number = of_variable[index[first]] if of_variable.size else index[first]
    return np.where(last > first, number, -1)


class Items:
    """The item of the batch that each variable, component and factor belongs to.

    Variables in no factor are padding and belong to no item, -1. The same holds for components
    without labels.

    Raises
    ------
    ValueError
        If factors connect variables of different items.
    """

    def __init__(self, layout: Layout, labels: Labels) -> None:
        inside = np.flatnonzero((layout.component >= 0) & (labels.item >= 0))
        component, item = layout.component[inside], labels.item[inside]
        self.of_component: IntArray = np.full(layout.n_components, -1)
        self.of_component[component] = item
        mixed = np.flatnonzero(self.of_component[component] != item)
        if mixed.size:
            other = self.of_component[component[mixed[0]]]
            if labels.axes > 1:
                raise ValueError(
                    f"weight: factors connect the entries {item[mixed[0]]} and {other} of the "
                    f"first {labels.axes} axes of the scores, which have no losses of their own; "
                    "expected one weight for every item, or separate factors."
                )
            raise ValueError(
                f"factors connect the items {item[mixed[0]]} and {other} of the batch; expected "
                "the first axis of the scores to be the batch, with separate factors for each "
                "item. Pass a single item as scores[None]."
            )
        self.n_items = labels.n_items
        self.of_variable: IntArray = np.append(self.of_component, -1)[layout.component]

    def of_factors(self, factor: Factor) -> IntArray:
        """Return the items of a declaration's factors; -1 for those without variables."""
        return of_factors(factor, self.of_variable)

    def sums(self, item: IntArray, values: FloatArray) -> FloatArray:
        """Return the sums of values by item; item -1 is left out."""
        counted = item >= 0
        total = np.bincount(item[counted], values[counted], minlength=self.n_items)
        return total.astype(np.float64)

    def sum_exactly(self, item: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums and their rounding errors."""
        counted = item >= 0
        return sum_exactly(item[counted], values[counted], self.n_items)
