"""Targets of losses that give one position for every row of variables, such as tags and heads."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpsmap_core.model.factor import Factor
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.callers import stacklevel

__all__ = ["HEADS", "check_root", "row_labels", "root_variables", "warn_of_padding"]

IGNORED, ROOT = -100, -1
"""The label of an unlabelled row, like PyTorch's ``ignore_index``, and the head of a root."""

HEADS = (
    "Heads of words are counted from 0, and the root is -1; subtract 1 from heads counted from 1 "
    'with 0 for the root, as in CoNLL-U, or give root="self" if a root is its own head.'
)
"""The convention of targets of trees, for error messages."""


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


def root_variables(factors: Iterable[Factor], n_variables: int) -> BoolArray:
    """Return (n_variables,) flags of arcs from the root without labels, according to factors."""
    is_root = np.zeros(n_variables, dtype=np.bool_)
    for factor in factors:
        arcs = getattr(factor, "root_arcs", None)
        if arcs is not None and len(factor.event_shape) == 2:
            is_root[arcs.index[~arcs.negated]] = True
    return is_root


def row_labels(
    chosen: NDArray[Any], inside: BoolArray, roots: BoolArray, root: int | str, of: str = ""
) -> FloatArray:
    """Return zeros and ones from the position that is on in every row, NaN in unlabelled rows.

    Parameters
    ----------
    chosen
        (..., n) integers: positions; or heads, in rows with an arc from the root; -100 in
        unlabelled rows.
    inside, roots
        (..., n, k) flags of variables in factors, and of arcs from the root.
    root
        The head of a root: -1, or "self".
    of
        The name of the first axis in error messages; empty if it is an axis like others.

    Raises
    ------
    ValueError
        If a row that is in a factor has an invalid label.
    """
    n = inside.shape[-1]
    is_tree = roots.sum(axis=-1) == 1
    word = np.arange(chosen.shape[-1]) if chosen.ndim else 0
    column = roots.argmax(axis=-1) if n else np.zeros_like(chosen)
    at_root = chosen == (word if root == "self" else ROOT)
    # a row without an entry for the word itself starts with the arc from the root
    heads = np.where((column <= chosen) & (chosen < word), chosen + 1, chosen)
    heads = np.where(at_root, column, np.where(chosen == word, -1, heads))
    on = np.where(is_tree, heads, chosen)[..., None] == np.arange(n)
    unknown = (chosen == IGNORED) | ~inside.any(axis=-1)
    wrong = np.argwhere(~unknown & ~on.any(axis=-1))
    if len(wrong):
        at = tuple(wrong[0])
        place = [int(i) for i in at]
        where = f"{place[1:]} of {of} {place[0]}" if of else f"{place}"
        convention = HEADS if roots.any() else f"{ROOT} means the root only in dependency trees."
        raise ValueError(
            f"target holds {chosen[at]} at {where}; expected positions on the last axis of the "
            f"scores, 0 to {n - 1}, or {IGNORED} for unlabelled rows. {convention}"
        )
    known: FloatArray = on.astype(np.float64)
    known[unknown] = np.nan
    return known


def warn_of_padding(
    factors: Iterable[Factor], chosen: NDArray[Any], index: NDArray[Any], n_variables: int
) -> None:
    """Warn if the last rows of an item are unlabelled, and `lengths` were possible, but not given.

    Such rows are usually padding, over which a loss should not sum. Items without any label are
    left out.

    Parameters
    ----------
    factors
        The declarations.
    chosen
        (..., n) labels of rows.
    index
        (..., n, k) the variables of the rows.
    n_variables
        The number of variables of the graph.
    """
    if not chosen.size:
        return
    ignored = chosen == IGNORED
    suspect = (ignored[..., -1] & ~ignored.all(axis=-1))[..., None] & ignored
    suspect &= np.logical_and.accumulate(ignored[..., ::-1], axis=-1)[..., ::-1]
    if not suspect.any():
        return
    open_ended = np.zeros(n_variables, dtype=np.bool_)
    for factor in factors:
        cut = factor.length_axes
        over_rows = factor.variables_ndim >= 2 and (cut is None or 0 in cut)
        if over_rows and factor.keep is None:
            open_ended[factor.variables.index] = True
    if open_ended[index[suspect]].any():
        warnings.warn(
            "target: the last rows of an item are all -100, which are unlabelled, and count as "
            "words whose labels are unknown. If they are padding, give lengths=; if they are not, "
            "give the full lengths.",
            stacklevel=stacklevel(),
        )
