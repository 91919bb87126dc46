"""Autograd inside operators of PyTorch, whose implementations run without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["autograd_inside", "leaf_like"]


@contextlib.contextmanager
def autograd_inside() -> Iterator[None]:
    """Run with autograd, also of views that change in place."""
    with torch.inference_mode(False):  # restores the excluded keys
        torch._C._dispatch_tls_set_dispatch_key_excluded(
            torch._C.DispatchKey.ADInplaceOrView, False
        )
        with torch.enable_grad():
            yield


def leaf_like(tensor: Tensor) -> Tensor:
    """Return a tensor with the same values as a leaf of autograd, if it is floating-point."""
    leaf = tensor.clone() if tensor.is_inference() else tensor.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf
