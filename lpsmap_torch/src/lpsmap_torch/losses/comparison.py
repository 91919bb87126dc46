"""The difference between the unconstrained maximum and the maximum given the labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Solution, Status, Variables
from lpsmap_core.api import FloatArray, IntArray, warn_of_negative
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.items import Items, Labels
from lpsmap_torch.losses.complete_labels import (
    are_complete,
    check_not_forbidden,
    given_additionals,
)
from lpsmap_torch.losses.labels import all_variables
from lpsmap_torch.losses.structured import Comparison

__all__ = ["Point", "compare_maxima", "objective_difference"]

SolveResult: TypeAlias = Solution | Any
"""A relaxed solution, or an assignment of a decoder."""


class Point(NamedTuple):
    """Marginals of all variables, and of the additionals of all declarations."""

    mu: FloatArray
    nu: Sequence[FloatArray]


class EvaluatedPoint(NamedTuple):
    """A point as arrays and tensors."""

    point: Point
    variables: Tensor
    additionals: list[Tensor]


def compare_maxima(
    graph: TorchFactorGraph,
    best: SolveResult,
    labels: Labels,
    solve: Callable[[TorchFactorGraph], SolveResult],
) -> Comparison:
    """Return the difference between a maximum and the maximum given the labels.

    Parameters
    ----------
    graph
        The graph.
    best
        Its solution, with or without the quadratic term.
    labels
        The labels of its variables.
    solve
        Solves another graph in the same way.
    """
    items = Items(best.layout, labels)
    check_not_forbidden(best.scores, labels.known > 0.0, items)
    everything = all_variables(graph)
    maximum = EvaluatedPoint(
        Point(best.values, best.additionals),
        graph.value_of(everything),
        [graph.additionals_of(factor) for factor in graph.factors],
    )
    if are_complete(best.layout, labels):
        of_labels = _structure(best, labels, items, maximum)
    else:
        of_labels = _completed(graph, labels, items, solve)
    counted = torch.from_numpy(items.of_variable >= 0).to(maximum.variables.device)
    squares = None
    if isinstance(graph._temperature, Tensor):
        squares = 0.5 * (of_labels.variables**2 - maximum.variables**2)
        squares = torch.where(counted, squares, 0.0)
    # marginals outside the convex hull are not always detected, and show as negative losses
    difference = objective_difference if labels.are_marginals else _nonnegative
    return Comparison(
        difference(best, maximum.point, of_labels.point, items),
        torch.where(counted, maximum.variables - of_labels.variables, 0.0),
        [a - b for a, b in zip(maximum.additionals, of_labels.additionals, strict=True)],
        items,
        squares,
    )


def _structure(
    best: SolveResult, labels: Labels, items: Items, like: EvaluatedPoint
) -> EvaluatedPoint:
    """Return the structure, or the marginals, given by complete labels."""
    known = np.where(items.of_variable >= 0, labels.known, 0.0)
    nu = given_additionals(best.layout, best.factors, best.additional_scores, labels, items)

    def convert(array: FloatArray, tensor: Tensor) -> Tensor:
        return torch.from_numpy(array).to(tensor).reshape(tensor.shape)

    return EvaluatedPoint(
        Point(known, nu),
        convert(known, like.variables),
        [convert(x, tensor) for x, tensor in zip(nu, like.additionals, strict=True)],
    )


def _completed(
    graph: TorchFactorGraph,
    labels: Labels,
    items: Items,
    solve: Callable[[TorchFactorGraph], SolveResult],
) -> EvaluatedPoint:
    """Return the maximum given the labels."""
    everything = all_variables(graph)
    conditioned = graph.condition([(everything, labels.known)])
    inner, view = conditioned.graph, conditioned.of(everything)
    completion = solve(inner)
    _check_feasible(completion, view, items)
    mu = np.where(view.negated, 1.0 - completion.values[view.index], completion.values[view.index])
    return EvaluatedPoint(
        Point(mu, completion.additionals),
        inner.value_of(view),
        [inner.additionals_of(conditioned.of(factor)) for factor in graph.factors],
    )


def _check_feasible(completion: SolveResult, view: Variables, items: Items) -> None:
    """Validate that some structure agrees with the labels.

    Raises
    ------
    ValueError
        If none does.
    """
    if isinstance(completion, Solution):
        wrong = completion.status == Status.INFEASIBLE
    else:
        wrong = np.isneginf(completion.bound)
    if wrong.any():
        component = completion.layout.component[view.index]
        # components of labelled variables only have new variables, which no view covers
        of_item = items.of_variable[np.isin(component, np.flatnonzero(wrong))]
        which = f"item {of_item[0]}" if of_item.size else "an item"
        raise ValueError(
            f"target: no structure of {which} agrees with the target; expected zeros and ones that "
            "all factors allow together, or NaN for unlabelled variables."
        )


def objective_difference(best: SolveResult, a: Point, b: Point, items: Items) -> FloatArray:
    """Return for every item the objective of point `a` minus that of point `b`.

    ``<eta, a - b> - 1/2 (||a||^2 - ||b||^2)`` is ``<eta - a, a - b> + 1/2 ||a - b||^2``. Its terms
    are exactly zero where the points are equal, and nonnegative if a is the maximum.

    Parameters
    ----------
    best
        A result of the solve, which has the scores, and the quadratic term if any.
    a, b
        The points.
    items
        The items.
    """
    terms = _terms(best, a, b, items)
    return sum((items.sums(*term) for term in terms), np.zeros(items.n_items))


def _terms(
    best: SolveResult, a: Point, b: Point, items: Items
) -> list[tuple[IntArray, FloatArray]]:
    """Return the terms of the difference, with the items that they belong to."""
    quadratic = best.solved.quadratic if isinstance(best, Solution) else 0.0
    d = a.mu - b.mu
    gains = _products(best.scores - quadratic * a.mu, d) + 0.5 * quadratic * d * d
    terms = [(items.of_variable, gains)]
    for factor, eta_v, nu, other in zip(
        best.factors, best.additional_scores, a.nu, b.nu, strict=True
    ):
        if factor.n_additionals:
            owner = np.repeat(items.of_factors(factor), factor.n_additionals)
            terms.append((owner, _products(eta_v, nu - other).reshape(-1)))
    return terms


def _nonnegative(best: SolveResult, a: Point, b: Point, items: Items) -> FloatArray:
    """Return the difference of a maximum `a` and a point `b`, at least zero."""
    total = objective_difference(best, a, b, items)
    if (total < 0.0).any():
        terms = _terms(best, a, b, items)
        size = sum((items.sums(item, np.abs(x)) for item, x in terms), np.zeros(items.n_items))
        gap = best.gap if isinstance(best, Solution) else best.bound - best.score
        warn_of_negative(total, size, items.sums(items.of_component, gap), "item")
    return np.maximum(total, 0.0)


def _products(scores: FloatArray, values: FloatArray) -> FloatArray:
    """Return products of scores and values, with zero where values are zero and scores -inf."""
    return np.where(values != 0.0, scores, 0.0) * values
