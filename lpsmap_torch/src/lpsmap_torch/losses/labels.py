"""Targets given as tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lpsmap_core import Variables
from lpsmap_core.api import FloatArray, real_numbers
from lpsmap_dynamic import Labels, check_root, labels_of, read_labels
from lpsmap_torch.tensors import numbers

__all__ = ["labels_given", "read_target"]


def read_target(u: Variables, scores: Tensor, target: Any, root: int | str = -1) -> FloatArray:
    """Return the label of every variable: 0 to 1, or NaN if it is unlabelled.

    Parameters
    ----------
    u
        The variables, of shape ``(batch, ...)``, with all factors in their graph.
    scores
        Their scores; the target must be on the same device.
    target, root
        As for `lpsmap_dynamic.read_labels`.

    Raises
    ------
    TypeError
        If the target is not real numbers, or positions are not integers.
    ValueError
        If its shape, its device or a value is invalid.
    """
    check_root(root)
    if isinstance(target, Tensor):
        if target.device != scores.device:
            raise ValueError(
                f"target is on {target.device}, and scores are on {scores.device}; expected both "
                "on one device. Move the target with target.to(scores.device)."
            )
        target = target.detach().cpu()
        target = target.numpy() if not target.is_floating_point() else numbers(target)
    return read_labels(u.graph, u.index, real_numbers("target", target), root)


def labels_given(
    u: Variables, target: FloatArray, additionals: Any = None, axes: int = 1
) -> Labels:
    """Return the labels of all variables of a graph.

    Parameters
    ----------
    u, target, axes
        As for `lpsmap_dynamic.labels_of`.
    additionals
        For marginals, those of the additionals: of the only declaration with additionals a tensor
        in the shape of their scores; of several, a list in the order of the declarations; or None.
    """
    if additionals is None:
        return labels_of(u, target, None, axes)
    parts = list(additionals) if isinstance(additionals, (list, tuple)) else [additionals]
    arrays = [
        numbers(x) if isinstance(x, Tensor) else real_numbers("target_additionals", x)
        for x in parts
    ]
    return labels_of(u, target, arrays, axes)
