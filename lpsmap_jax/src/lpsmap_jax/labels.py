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

HEADS = (
    "Heads of words are counted from 0, and the root is -1, or on the diagonal the word itself; "
    "subtract 1 from heads counted from 1 with 0 for the root, as in CoNLL-U."
)
"""The convention of targets of trees, for error messages."""


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
    on, marked = chosen[..., None] == np.arange(n), chosen == ROOT
    unknown = (chosen == IGNORED) | ~inside.any(axis=-1)
    _check_one_root(chosen, marked & ~unknown, (on & root).any(axis=-1) & ~unknown)
    on |= marked[..., None] & root
    wrong = np.argwhere(~unknown & (on.sum(axis=-1) != 1))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"target holds {chosen[at]} at {_place(at)}; expected positions on the last axis of "
            f"the scores, 0 to {n - 1}, or {IGNORED} for unlabelled rows. "
            f"{HEADS if root.any() else f'{ROOT} means the root only in rows of dependency trees.'}"
        )
    known: FloatArray = on.astype(np.float64)
    known[unknown] = np.nan
    return known


def _check_one_root(chosen: NDArray[Any], marked: BoolArray, by_position: BoolArray) -> None:
    """Validate that a target writes the root in one way: both occur if heads are counted from 1.

    Raises
    ------
    ValueError
        If some rows hold -1, and others the position of the arc from the root.
    """
    if marked.any() and by_position.any():
        first, other = tuple(np.argwhere(by_position)[0]), tuple(np.argwhere(marked)[0])
        raise ValueError(
            f"target holds {chosen[first]} at {_place(first)}, the arc from the root, and {ROOT} "
            f"at {_place(other)}; expected one way to write the root. {HEADS}"
        )


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
