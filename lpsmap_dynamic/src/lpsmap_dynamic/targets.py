"""Targets of losses: the labels of variables, and the structures or mixtures that they give.

The adapters read tensors and arrays of their libraries, and share what is here, on the host.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, LinearConstraints, Variables
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Layout,
    PartlyConstrained,
    constraints_of,
    slot_values,
    stacklevel,
)
from lpsmap_dynamic.complete_assignment import complete_assignment

IGNORED, ROOT = -100, -1
"""The label of an unlabelled row, like PyTorch's ``ignore_index``; and the head of a root, which in
rows without heads means that nothing is on, such as no partner."""

HEADS = (
    "Heads of words are counted from 0, and the root is -1; subtract 1 from heads counted from 1 "
    'with 0 for the root, as in CoNLL-U, or give root="self" if a root is its own head.'
)
"""The convention of targets of trees, for error messages."""

SLACK = 0.01
"""The relative amount by which marginals may violate a constraint: rounding of half precision."""

ANY_STRUCTURE = "expected zeros and ones that all factors allow together, or NaN for unlabelled"


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of the variables of a graph."""

    known: FloatArray
    """(n_variables,) 0 to 1, or NaN."""
    item: IntArray
    """(n_variables,) the item of the batch that each variable of the target belongs to; -1 for
    others."""
    n_items: int
    """The number of items."""
    axes: int = 1
    """The number of axes of the target that are the items'."""
    additionals: list[FloatArray] | None = None
    """For every declaration, the (n_factors, n_additionals) additionals; None if not given."""
    kind: str = "item"
    """What an item is called in messages."""

    @property
    def are_marginals(self) -> bool:
        """Whether they are a mixture of structures, which the labels alone do not determine."""
        fractions = (self.known > 0.0) & (self.known < 1.0)
        return self.additionals is not None or bool(fractions.any())

    def are_complete(self, layout: Layout) -> bool:
        """Return whether all variables in factors are labelled.

        Parameters
        ----------
        layout
            The layout of the graph.

        Raises
        ------
        ValueError
            If they are not, but marginals are given.
        """
        if not np.isnan(self.known[layout.component >= 0]).any():
            return True
        if self.are_marginals:
            raise ValueError(
                "target: marginals are given for some variables only; expected marginals of all "
                "variables in factors, or labels 0, 1 and NaN."
            )
        return False


class Items:
    """The item of the batch that each variable, component and factor belongs to.

    Variables in no factor are padding and belong to no item, -1. The same holds for components
    without labels.

    Parameters
    ----------
    layout, labels
        The layout of the graph, and the labels of its variables.

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
        self.layout, self.labels, self.n_items = layout, labels, labels.n_items
        self.of_variable: IntArray = np.append(self.of_component, -1)[layout.component]

    def of_factors(self, factor: Factor) -> IntArray:
        """Return the items of a declaration's factors; -1 for those without variables."""
        return self.first_of_factors(factor, self.of_variable)

    @staticmethod
    def first_of_factors(factor: Factor, of_variable: IntArray) -> IntArray:
        """Return the number of the first variable of each factor of a declaration; -1 without any.

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

    def sums(self, item: IntArray, values: FloatArray) -> FloatArray:
        """Return the sums of values by item; item -1 is left out."""
        counted = item >= 0
        total = np.bincount(item[counted], values[counted], minlength=self.n_items)
        return total.astype(np.float64)

    def check_not_forbidden(self, scores: FloatArray) -> None:
        """Validate that the labels turn no forbidden variable on.

        Parameters
        ----------
        scores
            (n_variables,) scores; -inf forbids a variable.

        Raises
        ------
        ValueError
            If a variable is on whose score is -inf.
        """
        on = (self.labels.known > 0.0) & (self.of_variable >= 0)
        wrong = np.flatnonzero(on & np.isneginf(scores))
        if wrong.size:
            raise ValueError(
                f"target: {self.labels.kind} {self.of_variable[wrong[0]]} has a variable on whose "
                "score is -inf; expected 0 there, or a finite score."
            )

    def point(
        self, factors: Sequence[Factor], additional_scores: Sequence[FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the marginals and additionals that complete labels give, zeros in padding.

        Parameters
        ----------
        factors, additional_scores
            The declarations of the graph, and the scores of their additionals, which determine
            those of a structure.

        Raises
        ------
        ValueError
            If a factor does not allow the structure, or the marginals are no mixture of structures.
        """
        known = np.where(self.of_variable >= 0, self.labels.known, 0.0)
        if self.labels.are_marginals:
            return known, self._additionals_of_marginals(factors, known)
        return known, self._additionals_of_structure(factors, additional_scores, known)

    def _additionals_of_structure(
        self, factors: Sequence[Factor], additional_scores: Sequence[FloatArray], known: FloatArray
    ) -> list[FloatArray]:
        eta_v = [np.where(scores < np.inf, scores, 0.0) for scores in additional_scores]
        completed = complete_assignment(self.layout, factors, eta_v, known > 0.5)
        for factor, allowed in zip(factors, completed.allowed, strict=True):
            item = self.of_factors(factor)
            wrong = np.flatnonzero(~allowed & (item >= 0))
            if wrong.size:
                convention = f" {HEADS}" if hasattr(factor, "root_arcs") else ""
                raise ValueError(
                    f"target: {self.labels.kind} {item[wrong[0]]} is not a structure that "
                    f"{type(factor).__name__} allows; {ANY_STRUCTURE} variables.{convention}"
                )
        return completed.additionals

    def _additionals_of_marginals(
        self, factors: Sequence[Factor], known: FloatArray
    ) -> list[FloatArray]:
        """Return given additionals, which are none if no factor has any.

        Marginals are validated as far as linear constraints of the factors allow: types without
        such constraints are not checked, and those whose constraints are only necessary are checked
        incompletely.
        """
        additionals = self.labels.additionals
        if additionals is None:
            needed = [type(factor).__name__ for factor in factors if factor.n_additionals]
            if needed:
                raise ValueError(
                    f"target: marginals do not determine the additionals of {needed[0]}; expected "
                    "target_additionals, their marginals in the shape of their scores, as "
                    "graph.additionals_of(factor) returns."
                )
            additionals = [np.empty((factor.n_factors, 0)) for factor in factors]
        for factor, additional in zip(factors, additionals, strict=True):
            constraints = _constraints(factor)
            if constraints is not None:
                values = known[slot_values(factor, factor.variables.index)]
                negated = slot_values(factor, factor.variables.negated)
                slots = np.where(negated, 1.0 - values, values)
                numbers = np.concatenate([slots, additional.reshape(-1)])
                wrong = _first_violated(factor, constraints, numbers)
                if wrong is not None:
                    owner, message = wrong
                    item = self.of_factors(factor)[owner]
                    raise ValueError(f"target: {self.labels.kind} {item} {message}")
        return additionals


def _constraints(factor: Factor) -> LinearConstraints | None:
    """Return constraints that all structures satisfy, whether these suffice or not."""
    constraints = constraints_of(factor)
    if constraints is None and isinstance(factor, PartlyConstrained):
        return constraints_of(factor, "necessary_constraints")
    return constraints


def _first_violated(
    factor: Factor, constraints: LinearConstraints, point: FloatArray
) -> tuple[int, str] | None:
    """Return a factor that violates constraints and how; those with auxiliary numbers aside."""
    row, column = constraints.row, constraints.column
    n = len(constraints.low)
    open_rows = np.zeros(n, dtype=bool)
    open_rows[row[column >= len(point)]] = True
    inside = column < len(point)
    row, column = row[inside], column[inside]
    terms = constraints.coefficient[inside] * point[column]
    sums = np.bincount(row, terms, n)
    slack = SLACK * (1.0 + np.bincount(row, np.abs(terms), n))
    low, high = constraints.low, constraints.high
    wrong = np.flatnonzero(~open_rows & ((sums < low - slack) | (sums > high + slack)))
    if not wrong.size:
        return None
    owner = np.repeat(np.arange(factor.n_factors), np.diff(factor.offsets))
    owner = np.append(owner, np.repeat(np.arange(factor.n_factors), factor.n_additionals))
    first = wrong[0]
    at = owner[column[row == first][0]] if (row == first).any() else 0
    return int(at), (
        f"is no mixture of structures of {type(factor).__name__}: a sum of its marginals is "
        f"{sums[first]:.4g}; expected {low[first]:g} to {high[first]:g}. Use the marginals of a "
        "solve."
    )


# -------------------------------------------------------------------- reading


def in_factors(graph: Any) -> npt.NDArray[np.bool_]:
    """Return (n_variables,) flags of the variables of a `graph` that are in one of its factors."""
    inside = np.zeros(graph.n_variables, dtype=bool)
    for factor in graph.factors:
        inside[slot_values(factor, factor.variables.index)] = True
    return inside


def check_root(root: Any) -> None:
    """Validate how heads write the root: -1, or "self" for the position of the word.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if not (isinstance(root, (int, str)) and root in (ROOT, "self")):
        raise ValueError(
            f'root is {root!r}; expected -1, or "self" if the head of a root is the word itself.'
        )


def read_labels(
    graph: Any,
    index: IntArray,
    target: npt.NDArray[Any],
    root: int | str = ROOT,
    kind: str = "",
) -> FloatArray:
    """Return the label of every variable of a block: 0 to 1, or NaN if it is unlabelled.

    Parameters
    ----------
    graph
        The graph with all factors. Variables in no factor are unlabelled.
    index
        (..., n, k) the variables.
    target
        Either booleans or numbers 0 to 1 and NaN in the same shape; or integers in the shape
        without the last axis, the position on that axis that is on, -1 for none, or the head in
        rows of trees; -100 for unlabelled rows.
    root
        The head of a root: -1, or "self" for the word itself.
    kind
        What an entry of the first axis is called in messages; empty if it is an axis like others.

    Raises
    ------
    TypeError
        If positions are not integers.
    ValueError
        If the shape or a value is invalid.
    """
    inside = in_factors(graph)[index]
    if target.shape == index.shape:
        return _read_numbers(graph, index, target, inside, kind)
    if target.shape != index.shape[:-1]:
        raise ValueError(
            f"target has shape {target.shape}; expected {index.shape}, that of the scores, with 0 "
            f"or 1 for every variable; or {index.shape[:-1]}, with positions on the last axis."
        )
    if target.dtype.kind not in "iu":
        raise TypeError(
            f"target has dtype {target.dtype} and no entry for every variable; expected integers, "
            f"positions on the last axis of the scores, or numbers of shape {index.shape}."
        )
    return _read_positions(graph, index, target, inside, root, kind)


def _read_numbers(
    graph: Any, index: IntArray, target: npt.NDArray[Any], inside: BoolArray, kind: str
) -> FloatArray:
    """Return the labels of a target with a number for every variable."""
    known = np.where(inside, target.astype(np.float64), np.nan)
    wrong = np.argwhere((known < 0.0) | (known > 1.0))
    if len(wrong):
        raise ValueError(
            f"target holds {known[tuple(wrong[0])]:g} at {_place(wrong[0], kind)}; expected 0, "
            "1, marginals between them, or NaN for unlabelled variables."
        )
    if index.ndim > 2:
        _check_in_factors(target > 0, inside, kind)
        _warn_of_padding(graph.factors, np.isnan(known), index)
    return known


def _read_positions(
    graph: Any,
    index: IntArray,
    target: npt.NDArray[Any],
    inside: BoolArray,
    root: int | str,
    kind: str,
) -> FloatArray:
    """Return the labels of a target with a position for every row."""
    roots = _root_variables(graph.factors, graph.n_variables)[index]
    on = _one_of_each_row(target, roots, root)
    unknown = (target == IGNORED) | ~inside.any(axis=-1)
    empty = (target == ROOT) & ~unknown & ~roots.any()
    wrong = np.argwhere(empty & _are_needed(graph, index, empty))
    if len(wrong):
        raise ValueError(
            f"target holds {ROOT} at {_place(wrong[0], kind)}, which means that nothing of the row "
            f"is on, but its factor needs one; expected 0 to {index.shape[-1] - 1}, or {IGNORED} "
            "for unlabelled rows. Give lengths= for padding. Rows without a partner need factors "
            'that allow them, such as AtMostOne, or Matching with full="none".'
        )
    outside = ~unknown & ~empty & ~on.any(axis=-1)
    wrong = np.argwhere(outside)
    if len(wrong):
        may_be_empty = not _are_needed(graph, index, outside).any()
        nothing = f" {ROOT} means that the row has no partner." if may_be_empty else ""
        convention = f" {HEADS}" if roots.any() else nothing
        raise ValueError(
            f"target holds {target[tuple(wrong[0])]} at {_place(wrong[0], kind)}; expected "
            f"positions on the last axis of the scores, 0 to {index.shape[-1] - 1}, or {IGNORED} "
            f"for unlabelled rows.{convention}"
        )
    _check_in_factors(on & ~unknown[..., None], inside, kind)
    _warn_of_missing_roots(target, roots, root)
    known = on.astype(np.float64)
    known[unknown] = np.nan
    _warn_of_padding(graph.factors, np.isnan(known), index)
    return known


def _check_in_factors(on: BoolArray, inside: BoolArray, kind: str) -> None:
    """Require that rows partly in factors are not on in their padding alone, such as a partner.

    The target of other padding is ignored.

    Parameters
    ----------
    on, inside
        (..., k) flags of the variables that are on, and of those in factors.
    kind
        As for `read_labels`.
    """
    if inside.all():
        return
    rows = np.logical_and(inside.any(axis=-1), ~(on & inside).any(axis=-1))
    wrong = np.argwhere(on & rows[..., None])
    if len(wrong):
        *row, column = wrong[0]
        n, k = int(inside[tuple(row)].sum()), inside.shape[-1]
        raise ValueError(
            f"target: position {column} is on at {_place(np.array(row), kind)}, but it is in no "
            f"factor: of this row, {n} of {k} positions are within lengths and masks; expected "
            "one of these."
        )


def _are_needed(graph: Any, index: IntArray, empty: BoolArray) -> BoolArray:
    """Return which rows are in a constraint that cannot hold while nothing is on in `empty` ones.

    Parameters
    ----------
    graph, index
        As for `read_labels`.
    empty
        (..., n) flags of rows.
    """
    needed, off = np.zeros(graph.n_variables, dtype=np.bool_), np.zeros(graph.n_variables)
    if not empty.any():
        return empty
    off[index[empty]] = 1.0
    for factor in graph.factors:
        constraints = _constraints(factor)
        if constraints is None:
            continue
        variable = slot_values(factor, factor.variables.index)
        negated = slot_values(factor, factor.variables.negated)
        column, coefficient = constraints.column, constraints.coefficient
        others = np.arange(column.max(initial=0) + 1)
        low = np.append(np.where(negated, off[variable], 0.0), 0.0 * others)
        high = np.append(np.where(negated, 1.0, 1.0 - off[variable]), 0.0 * others + 1.0)
        terms = np.maximum(coefficient * low[column], coefficient * high[column])
        broken = np.bincount(constraints.row, terms, len(constraints.low)) < constraints.low - SLACK
        inside = broken[constraints.row] & (column < len(variable))
        needed[variable[column[inside]]] = True
    return np.asarray(needed[index].any(axis=-1))


def _place(at: IntArray, kind: str) -> str:
    """Return the index of an entry in words."""
    place: list[int] = at.tolist()
    return f"{place[1:]} of {kind} {place[0]}" if kind else f"{place}"


def _root_variables(factors: Iterable[Factor], n_variables: int) -> BoolArray:
    """Return (n_variables,) flags of arcs from the root without labels, according to factors."""
    is_root = np.zeros(n_variables, dtype=np.bool_)
    for factor in factors:
        arcs = getattr(factor, "root_arcs", None)
        if arcs is not None and len(factor.event_shape) == 2:
            is_root[arcs.index[~arcs.negated]] = True
    return is_root


def _one_of_each_row(chosen: npt.NDArray[Any], roots: BoolArray, root: int | str) -> BoolArray:
    """Return which entry of every row is on; none for a position that is invalid.

    Parameters
    ----------
    chosen
        (..., n) integers: positions; or heads, in rows with an arc from the root.
    roots
        (..., n, k) flags of arcs from the root.
    root
        The head of a root.
    """
    n = roots.shape[-1]
    is_tree = roots.sum(axis=-1) == 1
    word = np.arange(chosen.shape[-1]) if chosen.ndim else 0
    column = roots.argmax(axis=-1) if n else np.zeros_like(chosen)
    at_root = chosen == (word if root == "self" else ROOT)
    # a row without an entry for the word itself starts with the arc from the root
    heads = np.where((column <= chosen) & (chosen < word), chosen + 1, chosen)
    heads = np.where(at_root, column, np.where(chosen == word, -1, heads))
    on: BoolArray = np.where(is_tree, heads, chosen)[..., None] == np.arange(n)
    return on


def _warn_of_padding(factors: Iterable[Factor], unlabelled: BoolArray, index: IntArray) -> None:
    """Warn if the last rows of an item are unlabelled, and `lengths` were possible, but not given.

    Such rows are usually padding, over which a loss should not sum. Items without any label are
    left out. The rows are those of a factor: of labelled trees, the words, not their heads.
    """
    for factor in factors:
        n_axes, cut = factor.variables_ndim, factor.length_axes
        over_rows = 2 <= n_axes <= index.ndim and (cut is None or 0 in cut)
        if not over_rows or factor.keep is not None or not index.size:
            continue
        rows: BoolArray = np.asarray(unlabelled.all(axis=tuple(range(1 - n_axes, 0))))
        padded = rows[..., -1] & ~rows.all(axis=-1)
        if np.isin(index[padded][:, -1], factor.variables.index).any():
            warnings.warn(
                "target: the last rows of an item are all -100 or NaN, which are unlabelled, and "
                "count as words whose labels are unknown. If they are padding, give lengths=; if "
                "they are not, give the full lengths.",
                stacklevel=stacklevel(),
            )
            return


def _warn_of_missing_roots(chosen: npt.NDArray[Any], roots: BoolArray, root: int | str) -> None:
    """Warn if heads with gaps have no root at all: they may count from 1, with 0 for the root.

    Without gaps, such heads have a cycle, and are an error. Two or more last words with the root as
    head, but not all words, are taken for padding. The root of a single tree may be in its gap.
    """
    rows = roots.any(axis=-1)
    if root != ROOT or not rows.any():
        return
    is_root = rows & (chosen == ROOT)
    from_last = np.logical_and.accumulate(is_root[..., ::-1], axis=-1)[..., ::-1]
    several = from_last[..., -2:].all(axis=-1, keepdims=True)
    padded = from_last & several & ~from_last.all(axis=-1, keepdims=True)
    has_gap = (rows & ((chosen == IGNORED) | padded)).any()
    is_suspicious = (rows & (chosen == 0)).any() or len(chosen) > 1
    if has_gap and is_suspicious and not (is_root & ~padded).any():
        warnings.warn(
            f"target: some heads are unknown, and no word has the root, {ROOT}, as its head, "
            f"except for words at the end. {HEADS}",
            stacklevel=stacklevel(),
        )


def labels_of(
    u: Variables,
    target: FloatArray,
    additionals: Sequence[npt.NDArray[Any]] | None = None,
    axes: int = 1,
    kind: str = "item",
) -> Labels:
    """Return the labels of all variables of a graph.

    Parameters
    ----------
    u
        The variables of the target, the items first.
    target
        Their labels.
    additionals
        For marginals, those of the additionals: an array for each declaration with additionals, in
        the shape of their scores; or None.
    axes
        The number of first axes whose entries are the items.
    kind
        What an item is called in messages.

    Raises
    ------
    ValueError
        If the view has no first axis, or a variable is given both as 0 and as 1; if the number of
        additionals or a shape does not match, or a value is not finite.
    """
    if not u.ndim:
        raise ValueError("scores have no axis; expected the batch as their first, scores[None].")
    graph = u.graph
    known, item = np.full(graph.n_variables, np.nan), np.full(graph.n_variables, -1)
    values = np.where(u.negated, 1.0 - target, target)
    there = ~np.isnan(values)
    known[u.index[there]] = values[there]
    if (known[u.index[there]] != values[there]).any():
        raise ValueError("target: a variable is given both as 0 and as 1; expected one value.")
    n_items = math.prod(u.shape[:axes])
    item[u.index] = np.arange(n_items).reshape(*u.shape[:axes], *[1] * (u.ndim - axes))
    numbers = None if additionals is None else _by_declaration(graph.factors, additionals)
    return Labels(known, item, n_items, axes, numbers, kind)


def _by_declaration(
    factors: Sequence[Factor], targets: Sequence[npt.NDArray[Any]]
) -> list[FloatArray]:
    """Return the (n_factors, n_additionals) additionals of a target by declaration."""
    counts = [factor.n_factors * factor.n_additionals for factor in factors]
    shapes = [np.shape(f.additionals) for f, n in zip(factors, counts, strict=True) if n]
    if [x.shape for x in targets] != [tuple(shape) for shape in shapes]:
        raise ValueError(
            f"target_additionals has shape {', '.join(str(x.shape) for x in targets)}; expected "
            f"{', '.join(str(tuple(x)) for x in shapes) or 'no such argument'}, one array for "
            "every declaration with additionals, in the shape of their scores, as "
            "graph.additionals_of(factor) returns."
        )
    if not all(np.isfinite(x).all() for x in targets):
        raise ValueError("target_additionals is not finite; expected marginals.")
    left = iter(targets)
    return [
        (next(left) if n else np.empty(0))
        .astype(np.float64)
        .reshape(factor.n_factors, factor.n_additionals)
        for factor, n in zip(factors, counts, strict=True)
    ]
