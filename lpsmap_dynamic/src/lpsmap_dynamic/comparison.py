"""The difference between a maximum and the maximum given labels: the value of a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lpsmap_core import Solution, Status, Variables
from lpsmap_core.api import BoolArray, FloatArray, IntArray, warn_unsolved
from lpsmap_dynamic.targets import ANY_STRUCTURE, Items, Labels

APPROXIMATE = 1e-6
"""The relative amount by which a loss may be negative without a warning."""

SolveResult: TypeAlias = Solution | Any
"""A relaxed solution, or an assignment of a decoder."""


@dataclass(frozen=True, eq=False)
class Point:
    """Marginals of all variables, and of the additionals of all declarations."""

    mu: FloatArray
    nu: Sequence[FloatArray]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A maximum compared with the maximum given labels."""

    values: FloatArray
    """(n_items,) the difference of the objectives."""
    items: Items
    """The items of the batch."""
    given: Point
    """The maximum given the labels."""
    conditioned: Any = None
    """The solved graph given the labels; None if the labels are complete."""


def compare_maxima(
    graph: Any, best: SolveResult, labels: Labels, solve: Callable[[Any], SolveResult]
) -> Comparison:
    """Compare a maximum with the maximum given labels.

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

    Raises
    ------
    ValueError
        If no structure agrees with the labels, or they turn a variable on whose score is -inf; if
        marginals are no mixture of structures.

    Warns
    -----
    ConvergenceWarning
        If losses are negative because the maximum is not solved well.
    """
    items, conditioned = Items(best.layout, labels), None
    items.check_not_forbidden(best.scores)
    if labels.are_complete(best.layout):
        given = Point(*items.point(best.factors, best.additional_scores))
    else:
        everything = all_variables(graph)
        conditioned = graph.condition([(everything, labels.known)])
        given = _completed(graph, conditioned, solve(conditioned.graph), items)
    values = objective_difference(best, Point(best.values, best.additionals), given, items)
    # marginals outside the convex hull are not always detected, and show as negative losses
    if not labels.are_marginals and (values < 0.0).any():
        _warn_of_negative(values, best, given, items)
        values = np.maximum(values, 0.0)
    return Comparison(values, items, given, conditioned)


def all_variables(graph: Any) -> Variables:
    """Return a view of all variables of a graph."""
    n = graph.n_variables
    return Variables(graph, np.arange(n), np.zeros(n, dtype=np.bool_), slice(0, n))


def infeasible_variables(result: SolveResult) -> BoolArray:
    """Return (n_variables,) flags of variables of components without a structure.

    Parameters
    ----------
    result
        The solution or assignment of a graph.
    """
    # component -1: variables in no factor
    flags: BoolArray = np.append(_infeasible(result), False)[result.layout.component]
    return flags


def _infeasible(result: SolveResult) -> BoolArray:
    """Return (n_components,) flags of components without a structure."""
    if isinstance(result, Solution):
        return np.array([s is Status.INFEASIBLE for s in result.status.tolist()], dtype=bool)
    wrong: BoolArray = np.isneginf(result.bound)
    return wrong


def _completed(graph: Any, conditioned: Any, completion: SolveResult, items: Items) -> Point:
    """Return the maximum given incomplete labels."""
    view = conditioned.of(all_variables(graph))
    wrong = _infeasible(completion)
    if wrong.any():
        component = completion.layout.component[view.index]
        # components of labelled variables only have new variables, which no view covers
        of_item = items.of_variable[np.isin(component, np.flatnonzero(wrong))]
        kind = items.labels.kind
        which = f"{kind} {of_item[0]}" if of_item.size else f"an {kind}"
        raise ValueError(
            f"target: no structure of {which} agrees with the target; {ANY_STRUCTURE} variables."
        )
    mu = completion.values[view.index]
    number = {id(factor): i for i, factor in enumerate(completion.factors)}
    nu = [completion.additionals[number[id(conditioned.of(f))]] for f in graph.factors]
    return Point(np.where(view.negated, 1.0 - mu, mu), nu)


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


def _products(scores: FloatArray, values: FloatArray) -> FloatArray:
    """Return products of scores and values, with zero where values are zero and scores -inf."""
    return np.where(values != 0.0, scores, 0.0) * values


def _warn_of_negative(values: FloatArray, best: SolveResult, given: Point, items: Items) -> None:
    """Warn of negative losses that the certificate of the maximum does not explain.

    The maximum is at most the gap above the value found. It is compared with a point of the
    polytope, so the exact loss is nonnegative: the loss plus the gap must not be negative.
    """
    terms = _terms(best, Point(best.values, best.additionals), given, items)
    size = sum((items.sums(item, np.abs(x)) for item, x in terms), np.zeros(items.n_items))
    gap = best.gap if isinstance(best, Solution) else best.bound - best.score
    total = values + items.sums(items.of_component, gap)
    wrong = np.flatnonzero(total < -APPROXIMATE * (1.0 + size))
    if wrong.size:
        kind = items.labels.kind
        warn_unsolved(
            [
                f"Losses of {kind}s are negative because of an approximate solve, and count as 0: "
                "increase max_iter, or decrease tol."
            ],
            [f"{wrong.size} {kind}s; that of {kind} {wrong[0]} is {values[wrong[0]]:.1e}."],
        )
