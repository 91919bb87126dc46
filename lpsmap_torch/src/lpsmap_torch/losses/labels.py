"""Targets as labels of the variables of a graph."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from torch import Tensor

from lpsmap_core import FactorGraph, Variables
from lpsmap_core.api import (
    FloatArray,
    check_root,
    real_numbers,
    root_variables,
    row_labels,
    target_additionals,
    warn_of_padding,
)
from lpsmap_torch.graph import in_factors
from lpsmap_torch.items import Labels
from lpsmap_torch.tensors import numbers

__all__ = ["all_variables", "labels_of", "read_target"]


def read_target(u: Variables, scores: Tensor, target: Any, root: int | str = -1) -> FloatArray:
    """Return the label of every variable: 0 to 1, or NaN if it is unlabelled.

    Parameters
    ----------
    u
        The variables, of shape ``(batch, ...)``, with all factors in their graph. Rows in no factor
        are ignored.
    scores
        Their scores; the target must be on the same device.
    target
        Either booleans or numbers 0 to 1 and NaN in the same shape; or integers in the shape
        without the last axis, the position on that axis that is on, as in
        `torch.nn.functional.cross_entropy`, or the head in rows of trees; -100 for unlabelled rows.
    root
        The head of a root: -1, or "self" for the word itself.

    Raises
    ------
    TypeError
        If the target is not real numbers, or positions are not integers.
    ValueError
        If its shape, its device or a value is invalid.
    """
    check_root(root)
    shape = tuple(scores.shape)
    if isinstance(target, Tensor):
        if target.device != scores.device:
            raise ValueError(
                f"target is on {target.device}, and scores are on {scores.device}; expected both "
                "on one device. Move the target with target.to(scores.device)."
            )
        target = target.detach().cpu()
        target = target.numpy() if not target.is_floating_point() else numbers(target)
    labels = real_numbers("target", target)
    if labels.shape == shape:
        values = labels.astype(np.float64)
        wrong = np.argwhere((values < 0.0) | (values > 1.0))
        if len(wrong):
            at = tuple(wrong[0])
            raise ValueError(
                f"target holds {float(values[at])!r} at {[int(i) for i in at]}; expected 0, 1, "
                "marginals between them, or NaN for unlabelled variables."
            )
        return values
    if labels.shape != shape[:-1]:
        raise ValueError(
            f"target has shape {labels.shape}; expected {shape}, that of the scores, with 0 or 1 "
            f"for every variable; or {shape[:-1]}, with positions on the last axis."
        )
    return _one_of_each_row(labels, u, root)


def _one_of_each_row(chosen: Any, u: Variables, root: int | str) -> FloatArray:
    """Return zeros and ones from positions on the last axis."""
    shape, graph = u.shape, cast(FactorGraph, u.graph)
    if chosen.dtype.kind not in "iu":
        raise TypeError(
            f"target has dtype {chosen.dtype} and no entry for every variable; expected integers, "
            f"positions on the last axis of the scores, or numbers of shape {shape}."
        )
    roots = root_variables(graph.factors, graph.n_variables)
    known = row_labels(chosen, in_factors(graph)[u.index], roots[u.index], root)
    warn_of_padding(graph.factors, chosen, u.index, graph.n_variables)
    return known


def all_variables(graph: FactorGraph) -> Variables:
    """Return a view of all variables of a graph."""
    n = graph.n_variables
    return Variables(graph, np.arange(n), np.zeros(n, dtype=np.bool_), slice(0, n))


def labels_of(u: Variables, target: FloatArray, additionals: Any = None, axes: int = 1) -> Labels:
    """Return the labels of all variables of a graph.

    Parameters
    ----------
    u
        The variables of the target.
    target
        Their labels.
    additionals
        For marginals, those of the additionals: of the only declaration with additionals a tensor
        in the shape of their scores; of several, a list in the order of the declarations; or None.
    axes
        The number of first axes whose entries are the items.

    Raises
    ------
    ValueError
        If the view has no first axis, or a variable is given both as 0 and as 1; if the number of
        additionals or a shape does not match, or a value is not finite.
    """
    if not u.ndim:
        raise ValueError("scores have no axis; expected the batch as their first, scores[None].")
    known = np.full(u.graph.n_variables, np.nan)
    item = np.full(u.graph.n_variables, -1)
    values = np.where(u.negated, 1.0 - target, target)
    there = ~np.isnan(values)
    known[u.index[there]] = values[there]
    if (known[u.index[there]] != values[there]).any():
        raise ValueError("target: a variable is given both as 0 and as 1; expected one value.")
    shape = u.shape[:axes]
    n_items = math.prod(shape)
    item[u.index] = np.arange(n_items).reshape(*shape, *[1] * (u.ndim - axes))
    return Labels(known, item, n_items, axes, _by_declaration(u, additionals))


def _by_declaration(u: Variables, additionals: Any) -> list[FloatArray] | None:
    """Return the (n_factors, n_additionals) additionals of every declaration; None without."""
    if additionals is None:
        return None
    parts = list(additionals) if isinstance(additionals, (list, tuple)) else [additionals]
    arrays = [
        numbers(x) if isinstance(x, Tensor) else real_numbers("target_additionals", x)
        for x in parts
    ]
    return target_additionals(cast(FactorGraph, u.graph).factors, arrays)
