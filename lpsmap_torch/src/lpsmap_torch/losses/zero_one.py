"""The hinge of whole structures: every structure other than the labels costs 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import BoolArray, IntArray
from lpsmap_dynamic import Items, Labels, Point, objective_difference
from lpsmap_torch.envelope import with_slopes
from lpsmap_torch.graph import TorchFactorGraph

__all__ = ["zero_one_losses"]


def zero_one_losses(graph: TorchFactorGraph, labels: Labels, search: dict[str, Any]) -> Tensor:
    """Return ``max(0, 1 + max score(s) - score(y))`` over structures s other than the labels y.

    If y is not the best structure, the maximum is the best one. Otherwise it is the second best,
    which differs from y in the component of the item where this costs least.

    Parameters
    ----------
    graph
        The graph.
    labels
        The labels of its variables, complete.
    search
        Options of `FactorGraph.k_best`.

    Raises
    ------
    ValueError
        If labels are incomplete, or are not a structure.
    """
    ranked = graph.k_best(2, by_component=True, **search)
    best, second = ranked[0], ranked[-1]
    if best.interrupted:  # an interrupted search has no loss
        raise KeyboardInterrupt
    layout, items = best.layout, Items(best.layout, labels)
    inside = items.of_variable >= 0
    if np.isnan(labels.known[inside]).any():
        raise ValueError(
            "target: the cost 'zero-one' compares whole structures; expected 0 or 1 for every "
            "variable of a labelled item. Use a cost of wrong variables for partial labels."
        )
    items.check_not_forbidden(best.scores)
    of_labels = Point(*items.point(best.factors, best.additional_scores))
    known, nu = of_labels.mu, of_labels.nu
    wrong = np.zeros(layout.n_components, dtype=bool)
    wrong[layout.component[inside & (best.values != known)]] = True
    changed = _changed_components(best, second, wrong, items)
    changed &= len(ranked) > 1
    hardest = _select(best, second, changed)
    others = items.sums(items.of_component, (wrong | changed).astype(np.float64)) > 0.0
    margin = objective_difference(best, hardest, of_labels, items) + 1.0
    losses = np.where(others, np.maximum(margin, 0.0), 0.0)
    counted = np.append(losses != 0.0, False)  # item -1
    like = graph._scores[0]
    slopes = np.where(counted[items.of_variable], hardest.mu - known, 0.0)
    differences = [
        np.where(counted[items.of_factors(factor)][:, None], a - b, 0.0)
        for factor, a, b in zip(best.factors, hardest.nu, nu, strict=True)
    ]
    of_additionals = [torch.from_numpy(x).to(like) for x in differences]
    return with_slopes(graph, losses, torch.from_numpy(slopes).to(like), of_additionals, items)


def _changed_components(best: Any, second: Any, wrong: BoolArray, items: Items) -> BoolArray:
    """Return flags of the components whose second best structure replaces the best.

    They are those whose change costs least, one for each item whose best structure is the labels.
    """
    loss = np.where(second.found, best.score - np.where(second.found, second.score, 0.0), np.inf)
    item: IntArray = items.of_component
    wrong_items = items.sums(item, wrong.astype(np.float64)) > 0.0
    order = np.lexsort((loss, item))
    first = np.r_[True, item[order][1:] != item[order][:-1]] if len(order) else order.astype(bool)
    least = order[first]
    least = least[(item[least] >= 0) & (loss[least] < np.inf)]
    changed = np.zeros(len(item), dtype=bool)
    changed[least[~wrong_items[item[least]]]] = True
    return changed


def _select(best: Any, second: Any, changed: BoolArray) -> Point:
    """Return the best structures, and the second best ones of changed components."""
    of_variable = np.append(changed, False)[best.layout.component]
    nu = [
        np.where(Items.first_of_factors(factor, of_variable.astype(np.int64))[:, None] == 1, b, a)
        for factor, a, b in zip(best.factors, best.additionals, second.additionals, strict=True)
    ]
    return Point(np.where(of_variable, second.values, best.values), nu)
