"""Tensors that own solutions.

Autograd saves tensors, but a derivative needs a solution. A ticket is a tensor of one number whose
memory owns a solution: the solution lives as long as the tensor or a view of it. The number is
always zero, so that operators are functions of their inputs; tickets are identified by address.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["solution_of", "ticket_for"]


class _Owner(np.ndarray[Any, np.dtype[np.int64]]):
    """The memory of a ticket."""

    solution: Any


_OWNERS: dict[int, weakref.ref[_Owner]] = {}
"""The live owners, by address."""


def ticket_for(solution: object) -> Tensor:
    """Return a tensor that owns a solution."""
    owner = np.zeros(1, dtype=np.int64).view(_Owner)
    owner.solution = solution
    ticket = torch.from_numpy(owner)
    address = ticket.data_ptr()
    # not Python code, in which the error of a signal handler would be lost
    forget: Any = partial(_OWNERS.pop, address)
    _OWNERS[address] = weakref.ref(owner, forget)
    return ticket


def solution_of(ticket: Tensor) -> Any:
    """Return the solution that a tensor owns; None if it is a copy of a ticket."""
    owner = _OWNERS.get(ticket.untyped_storage().data_ptr())
    return None if owner is None else getattr(owner(), "solution", None)
