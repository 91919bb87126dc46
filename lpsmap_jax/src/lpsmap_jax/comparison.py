"""The difference between the maximum of a graph and the maximum given labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Status
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    check_marginals,
    complete_assignment,
    warn_of_negative,
)
from lpsmap_jax.instances import Instances
from lpsmap_jax.labels import Labels

__all__ = ["Difference", "compare_maxima"]


class Point(NamedTuple):
    """Marginals of all variables, and of the additionals of every declaration."""

    mu: FloatArray
    nu: Sequence[FloatArray]


class Difference(NamedTuple):
    """The difference of two maxima, and of the points where they are attained."""

    values: FloatArray
    """(n_instances,)"""
    mu: FloatArray
    nu: list[FloatArray]


def compare_maxima(solved: Instances, labels: Labels) -> Difference:
    """Return the difference between the maximum and the maximum given labels.

    Parameters
    ----------
    solved
        The graph and its solution.
    labels
        The labels, or marginals.

    Raises
    ------
    ValueError
        If no structure agrees with the labels, one of them is forbidden, or marginals are no
        mixture of structures.
    """
    solution = solved.solution
    forbidden = solved.inside & (labels.known > 0.0) & np.isneginf(solution.scores)
    _check(
        solved,
        forbidden,
        "has a variable on whose score is -inf; expected 0 there, or a finite score",
    )
    found = Point(np.where(solved.inside, solution.values, 0.0), solution.additionals)
    known = np.where(solved.inside, labels.known, 0.0)
    if labels.are_marginals:
        given = _mixture(solved, known, labels.additionals)
    else:
        given = _completed(solved, known) if np.isnan(known).any() else _structure(solved, known)
    total, size = _objective_difference(solved, found, given)
    # marginals outside the convex hull are not always detected, and show as negative losses
    if not labels.are_marginals and (total < 0.0).any():
        warn_of_negative(total, size, _gaps(solved), "instance")
        total = np.maximum(total, 0.0)
    return Difference(
        total,
        found.mu - given.mu,
        [a - b for a, b in zip(found.nu, given.nu, strict=True)],
    )


def _mixture(solved: Instances, known: FloatArray, additionals: list[FloatArray] | None) -> Point:
    """Return the point given by marginals."""
    factors = solved.graph.factors
    owners = [np.full(f.n_factors, i) for f, i in zip(factors, solved.instance, strict=True)]
    return Point(known, check_marginals(factors, known, additionals, owners, "instance"))


def _gaps(solved: Instances) -> FloatArray:
    """Return the sums of the gaps of the components of every instance."""
    component = solved.solution.layout.component
    instance = np.arange(len(component)) // solved.variables.shape[1]
    owner = np.zeros(len(solved.solution.gap), dtype=np.int64)
    owner[component[component >= 0]] = instance[component >= 0]
    gaps = np.bincount(owner, solved.solution.gap, len(solved.variables))
    return gaps.astype(np.float64)


def _structure(solved: Instances, known: FloatArray) -> Point:
    """Return the structure given by complete labels."""
    solution = solved.solution
    eta_v = [np.where(scores < np.inf, scores, 0.0) for scores in solution.additional_scores]
    completed = complete_assignment(solution.layout, solution.factors, eta_v, known > 0.5)
    for i, factor, allowed in zip(
        solved.instance, solution.factors, completed.allowed, strict=True
    ):
        wrong = np.flatnonzero(~allowed & (np.diff(factor.offsets) > 0))
        if wrong.size:
            raise ValueError(
                f"target: instance {i} is not a structure that {type(factor).__name__} "
                f"{wrong[0]} allows; expected zeros and ones that all factors allow together, or "
                "NaN for unlabelled variables."
            )
    return Point(known, completed.additionals)


def _completed(solved: Instances, known: FloatArray) -> Point:
    """Return the maximum given the labels."""
    u = solved.variables
    conditioned = solved.graph.condition([(u, known.reshape(u.shape))])
    inner, view = conditioned.graph, conditioned.of(u)
    found = inner.solve(**solved.call.options)
    wrong = np.append(found.status == Status.INFEASIBLE, False)[found.layout.component]
    _check(
        solved,
        wrong[view.index].reshape(-1),
        "has no structure that agrees with its labels; expected zeros and ones that all factors "
        "allow together, or NaN for unlabelled variables",
    )
    additionals = [inner.additionals_of(conditioned.of(f)) for f in solved.graph.factors]
    return Point(
        np.where(solved.inside, view.value.reshape(-1), 0.0),
        [x.reshape(own.shape) for x, own in zip(additionals, found.additionals, strict=True)],
    )


def _check(solved: Instances, wrong: BoolArray, message: str) -> None:
    """Validate that no variable is flagged.

    Raises
    ------
    ValueError
        If one is.
    """
    at = np.flatnonzero(wrong)
    if at.size:
        raise ValueError(f"target: instance {at[0] // solved.variables.shape[1]} {message}.")


def _objective_difference(solved: Instances, a: Point, b: Point) -> tuple[FloatArray, FloatArray]:
    """Return for every instance the objective of point `a` minus that of `b`, and its size.

    The size is the sum of the absolute values of its terms.

    ``<eta, a - b> - 1/2 (||a||^2 - ||b||^2)`` is ``<eta - a, a - b> + 1/2 ||a - b||^2``. Its terms
    are exactly zero where the points are equal, and nonnegative if a is the maximum.
    """
    solution = solved.solution
    quadratic = solution.solved.quadratic
    d = a.mu - b.mu
    gains = _products(solution.scores - quadratic * a.mu, d) + 0.5 * quadratic * d * d
    gains = gains.reshape(solved.variables.shape)
    total, size = gains.sum(axis=1), np.abs(gains).sum(axis=1)
    for i, eta_v, nu, other in zip(
        solved.instance, solution.additional_scores, a.nu, b.nu, strict=True
    ):
        terms = _products(eta_v, nu - other)
        total[i] += terms.sum()
        size[i] += np.abs(terms).sum()
    return total, size


def _products(scores: FloatArray, values: FloatArray) -> FloatArray:
    """Return products of scores and values, with zero where values are zero and scores -inf."""
    return np.where(values != 0.0, scores, 0.0) * values
