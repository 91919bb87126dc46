"""Labels of the variables of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    kind_of,
    root_variables,
    row_labels,
    target_additionals,
    warn_of_padding,
)
from lpsmap_jax.call import Call
from lpsmap_jax.host import Arrays
from lpsmap_jax.instances import Instances

__all__ = ["Labels", "labels_of", "read_additionals", "read_target"]


def read_target(name: str, call: Call, target: Any) -> Arrays:
    """Return the labels of every block.

    Raises
    ------
    TypeError
        If they are not arrays.
    ValueError
        If their structure or shapes are not those of the scores.
    """
    labels, tree = jax.tree.flatten(target)
    if tree != call.blocks:
        raise ValueError(
            f"{name}: target has the structure {tree}; expected that of the scores, {call.blocks}."
        )
    for given, scores in zip(labels, call.scores, strict=True):
        if not isinstance(given, (jax.Array, np.ndarray)):
            raise TypeError(f"{name}: target is {kind_of(given)}; expected an array.")
        if given.shape == scores.shape:
            continue
        if given.shape != scores.shape[:-1] or given.dtype.kind not in "iu":
            raise ValueError(
                f"{name}: target has shape {given.shape} and dtype {given.dtype}; expected "
                f"{scores.shape}, that of the scores, with 0 to 1 or NaN for every variable; or "
                f"integers of shape {scores.shape[:-1]}, positions on the last axis."
            )
    return tuple(map(jax.numpy.asarray, labels))


class Labels(NamedTuple):
    """The labels of the variables of a graph."""

    known: FloatArray
    """(n_variables,) 0 to 1, or NaN; anything for variables in no factor."""
    additionals: list[FloatArray] | None
    """For every declaration, the (n_factors, n_additionals) additionals; None if not given."""
    are_marginals: bool
    """Whether they are a mixture of structures, which the labels alone do not determine."""


def read_additionals(name: str, given: Any) -> Arrays:
    """Return the additionals of a target, by declaration of an instance; empty if not given.

    Raises
    ------
    TypeError
        If they are not arrays.
    """
    arrays = jax.tree.leaves(given)
    for array in arrays:
        if not isinstance(array, (jax.Array, np.ndarray)):
            raise TypeError(
                f"{name}: target_additionals is {kind_of(array)}; expected an array, or a list."
            )
    return tuple(map(jax.numpy.asarray, arrays))


def labels_of(
    solved: Instances,
    labels: Sequence[NDArray[Any]],
    additionals: Sequence[NDArray[Any]],
    root: int | str,
) -> Labels:
    """Return the labels of all variables and additionals.

    Parameters
    ----------
    solved
        The graph.
    labels
        The labels of every block, the axis of the instances first.
    additionals
        Those of the target, the axis of the instances first; empty if not given.
    root
        The head of a root: -1, or "self" for the word itself.

    Raises
    ------
    ValueError
        If a label is invalid, or marginals do not cover all variables in factors.
    """
    graph = solved.graph
    index = solved.blocks(np.arange(graph.n_variables))
    inside = solved.blocks(solved.inside)
    roots = solved.blocks(root_variables(graph.factors, graph.n_variables))
    parts = []
    for given, own, there, arcs in zip(labels, index, inside, roots, strict=True):
        if given.shape == there.shape:
            parts.append(_numbers(given, there))
        else:
            parts.append(row_labels(given, there, arcs, root, "instance"))
            warn_of_padding(graph.factors, given, own, graph.n_variables)
    known = solved.flat(parts)
    inner = known[solved.inside]
    nu = None
    if additionals:
        in_order = [x[i] for i in range(len(solved.variables)) for x in additionals]
        nu = target_additionals(graph.factors, in_order)
    are_marginals = nu is not None or bool(((inner > 0.0) & (inner < 1.0)).any())
    if are_marginals and np.isnan(inner).any():
        raise ValueError(
            "target: marginals are given for some variables only; expected marginals of all "
            "variables in factors, or labels 0, 1 and NaN."
        )
    return Labels(known, nu, are_marginals)


def _numbers(labels: NDArray[Any], inside: BoolArray) -> FloatArray:
    """Return labels of single variables."""
    known = labels.astype(np.float64)
    wrong = np.argwhere(inside & ((known < 0.0) | (known > 1.0)))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"target holds {known[at]:g} at {_place(at)}; expected 0, 1, "
            "marginals between them, or NaN for unlabelled variables."
        )
    return known


def _place(at: tuple[Any, ...]) -> str:
    """Return the instance and the index of an entry."""
    return f"{[int(i) for i in at[1:]]} of instance {int(at[0])}"
