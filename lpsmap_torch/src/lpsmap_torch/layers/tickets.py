"""Tensors that own solutions.

Autograd saves tensors, but a derivative needs a solution. A ticket is a tensor of one number whose
memory owns a solution: the solution lives as long as the tensor or a view of it. The number is
always zero, so that operators are functions of their inputs; tickets are identified by address.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["solution_of", "ticket_for"]


class _Owner(np.ndarray[Any, np.dtype[np.int64]]):
    """The memory of a ticket."""

    solution: Any


_OWNERS: weakref.WeakValueDictionary[int, NDArray[Any]] = weakref.WeakValueDictionary()
"""The live owners, by address."""


def ticket_for(solution: object) -> Tensor:
    """Return a tensor that owns a solution."""
    owner = np.zeros(1, dtype=np.int64).view(_Owner)
    owner.solution = solution
    ticket = torch.from_numpy(owner)
    _OWNERS[ticket.data_ptr()] = owner
    return ticket


def solution_of(ticket: Tensor) -> Any:
    """Return the solution that a tensor owns; None if it is a copy of a ticket."""
    owner = _OWNERS.get(ticket.untyped_storage().data_ptr())
    return None if owner is None else getattr(owner, "solution", None)
