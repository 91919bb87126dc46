"""Calls of the operator of the adapter to torch, with the products of their Jacobians."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lpsmap_torch import traced_calls
from lpsmap_torch.traced_calls import packed

__all__ = ["called", "check_operator"]


def called(
    name: str,
    ndim: int,
    scores: Tensor,
    arguments: dict[str, Any],
    products: list[int] | None = None,
    ticket: Tensor | None = None,
    vectors: list[Tensor] | None = None,
) -> tuple[Any, ...]:
    """Return the arguments of the operator for a call, or for a product with its Jacobian."""
    tensors = [scores]
    text = packed("", arguments, tensors)
    return name, ndim, text, [0, *(products or [])], ticket, [*tensors, *(vectors or [])]


def check_operator(
    name: str,
    ndim: int,
    scores: Tensor,
    arguments: dict[str, Any],
    gradient: Tensor,
    vectors: list[Tensor],
) -> None:
    """Check the operator by torch's own tests: a call, and products from either side."""
    call, operator = (name, ndim, scores, arguments), traced_calls._operator
    torch.library.opcheck(operator, called(*call))
    *_, ticket = operator(*called(*call))
    torch.library.opcheck(operator, called(*call, [1], ticket, [gradient]))
    torch.library.opcheck(operator, called(*call, [-len(vectors)], ticket, vectors))
