"""Labels of the variables of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import BoolArray, FloatArray, kind_of
from lpsmap_jax.call import Call
from lpsmap_jax.host import Arrays
from lpsmap_jax.instances import Instances

__all__ = ["known_values", "read_target"]

IGNORED, ROOT = -100, -1
"""The label of an unlabelled row, as in other losses, and of an arc from the root."""


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


def known_values(solved: Instances, labels: Sequence[NDArray[Any]]) -> FloatArray:
    """Return the label of every variable: 0, 1, or NaN if it is unlabelled.

    Parameters
    ----------
    solved
        The graph.
    labels
        The labels of every block, the axis of the instances first.

    Raises
    ------
    ValueError
        If a label is invalid.
    """
    inside, root = solved.blocks(solved.inside), solved.blocks(_from_roots(solved))
    return solved.flat(
        [
            _numbers(given, there) if given.shape == there.shape else _one_hot(given, there, arcs)
            for given, there, arcs in zip(labels, inside, root, strict=True)
        ]
    )


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


def _one_hot(chosen: NDArray[Any], inside: BoolArray, root: BoolArray) -> FloatArray:
    """Return the labels of rows of which one variable is on."""
    n = inside.shape[-1]
    on = (chosen[..., None] == np.arange(n)) | ((chosen == ROOT)[..., None] & root)
    unknown = (chosen == IGNORED) | ~inside.any(axis=-1)
    wrong = np.argwhere(~unknown & (on.sum(axis=-1) != 1))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"target holds {chosen[at]} at {_place(at)}; expected positions on the last axis of "
            f"the scores, 0 to {n - 1}, or {IGNORED} for unlabelled rows; {ROOT} means the root "
            "only in rows of dependency trees."
        )
    known: FloatArray = on.astype(np.float64)
    known[unknown] = np.nan
    return known


def _from_roots(solved: Instances) -> BoolArray:
    """Return (n_variables,) flags of arcs from the root, according to the factors."""
    found = np.zeros(solved.graph.n_variables, dtype=bool)
    for factor in solved.graph.factors:
        arcs = getattr(factor, "root_arcs", None)
        if arcs is not None:
            found[arcs.index[~arcs.negated]] = True
    return found


def _place(at: tuple[Any, ...]) -> str:
    """Return the instance and the index of an entry."""
    return f"{[int(i) for i in at[1:]]} of instance {int(at[0])}"
