"""Targets that are marginals of a graph with additionals."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lpsmap_core.api import FloatArray, real_numbers, target_additionals
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.tensors import numbers

__all__ = ["read_additionals"]


def read_additionals(graph: TorchFactorGraph, target: Any) -> list[FloatArray] | None:
    """Return the (n_factors, n_additionals) additionals of a target by declaration; None without.

    Parameters
    ----------
    graph
        The graph.
    target
        For the only declaration with additionals, a tensor in the shape of their scores; for
        several, a list of such tensors in the order of the declarations; or None.

    Raises
    ------
    ValueError
        If their number or a shape does not match, or a value is not finite.
    """
    if target is None:
        return None
    parts = list(target) if isinstance(target, (list, tuple)) else [target]
    arrays = [
        numbers(x) if isinstance(x, Tensor) else real_numbers("target_additionals", x)
        for x in parts
    ]
    return target_additionals(graph.factors, arrays)
