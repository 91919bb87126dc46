"""Labels of the variables of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    kind_of,
    root_variables,
    row_labels,
    warn_of_padding,
)
from lpsmap_jax.call import Call
from lpsmap_jax.host import Arrays
from lpsmap_jax.instances import Instances

__all__ = ["known_values", "read_target"]


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
                f"{scores.shape}, that of the scores, with 0, 1 or NaN for every variable; or "
                f"integers of shape {scores.shape[:-1]}, positions on the last axis."
            )
    return tuple(map(jax.numpy.asarray, labels))


def known_values(solved: Instances, labels: Sequence[NDArray[Any]], root: int | str) -> FloatArray:
    """Return the label of every variable: 0, 1, or NaN if it is unlabelled.

    Parameters
    ----------
    solved
        The graph.
    labels
        The labels of every block, the axis of the instances first.
    root
        The head of a root: -1, or "self" for the word itself.

    Raises
    ------
    ValueError
        If a label is invalid.
    """
    graph = solved.graph
    index = solved.blocks(np.arange(graph.n_variables))
    inside = solved.blocks(solved.inside)
    roots = solved.blocks(root_variables(graph.factors, graph.n_variables))
    known = []
    for given, own, there, arcs in zip(labels, index, inside, roots, strict=True):
        if given.shape == there.shape:
            known.append(_numbers(given, there))
        else:
            known.append(row_labels(given, there, arcs, root, "instance"))
            warn_of_padding(graph.factors, given, own, graph.n_variables)
    return solved.flat(known)


def _numbers(labels: NDArray[Any], inside: BoolArray) -> FloatArray:
    """Return labels of single variables."""
    known = labels.astype(np.float64)
    wrong = np.argwhere(inside & ~((known == 0.0) | (known == 1.0) | np.isnan(known)))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"target holds {known[at]:g} at {_place(at)}; expected 0, 1, or NaN for unlabelled "
            "variables."
        )
    return known


def _place(at: tuple[Any, ...]) -> str:
    """Return the instance and the index of an entry."""
    return f"{[int(i) for i in at[1:]]} of instance {int(at[0])}"
