"""Labels of the variables of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import kind_of
from lpsmap_dynamic import Labels, labels_of, read_labels
from lpsmap_jax.call import Call
from lpsmap_jax.host import Arrays
from lpsmap_jax.instances import Instances


def read_target(name: str, call: Call, target: Any) -> Arrays:
    """Return the labels of every block."""
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


def read_additionals(name: str, given: Any) -> Arrays:
    """Return the additionals of a target, by declaration of an instance; empty if not given."""
    arrays = jax.tree.leaves(given)
    for array in arrays:
        if not isinstance(array, (jax.Array, np.ndarray)):
            raise TypeError(
                f"{name}: target_additionals is {kind_of(array)}; expected an array, or a list."
            )
    return tuple(map(jax.numpy.asarray, arrays))


def labels_given(
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
    """
    u = solved.variables
    parts = [
        read_labels(solved.graph, index, given, root, "instance")
        for index, given in zip(solved.blocks(u.index), labels, strict=True)
    ]
    known = solved.flat(parts).reshape(u.shape)
    in_order = [x[i] for i in range(len(u)) for x in additionals]
    return labels_of(u, known, in_order or None, kind="instance")
