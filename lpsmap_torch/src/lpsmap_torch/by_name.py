"""Layers and losses by name, as the operator of `lpsmap_torch.traced_calls` finds them.

The name of a layer is its specification, from which any process can build it. Layers without one,
and losses, have names that are valid only in this process and in forked ones.
"""

from __future__ import annotations

import functools
import itertools
import threading
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from torch import Tensor

from lpsmap_torch.specifications import layer_of

__all__ = ["Callee", "callee_named", "local_name", "registered"]

MAX_LOADED = 32
"""Maximum number of cached layers of loaded programs."""


class Callee(Protocol):
    """What the operator calls: a layer or a loss."""

    _maps_batches: bool
    """Whether a further batch axis of all inputs is one of the output, too."""

    @property
    def _evaluate(self) -> Callable[..., Tensor]:
        """Maps scores, and arguments by name, to the output, with gradients to all of them."""

    @property
    def _on_face(self) -> Callable[..., Any]:
        """Maps the same to an `OnFace`; to None if only `_evaluate` can."""


AnyCallee = TypeVar("AnyCallee")

_CALLEES: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_HERE = f" of process {uuid.uuid4().hex}, number "


def local_name(kind: str) -> str:
    """Return a new name that is valid only in this process, for a ``"layer"`` or a ``"loss"``."""
    return f"{kind}{_HERE}{next(_NUMBERS)}"


def registered(name: str, make: Callable[[], AnyCallee]) -> AnyCallee:
    """Return what has a name, or make it; it lives as long as something else refers to it."""
    with _LOCK:
        callee: AnyCallee | None = _CALLEES.get(name)
        if callee is None:
            callee = _CALLEES[name] = make()
        return callee


def callee_named(name: str) -> Callee:
    """Return the layer or the loss with a name.

    Raises
    ------
    RuntimeError
        If it no longer exists, or cannot be built in this process.
    """
    callee: Callee | None = _CALLEES.get(name)
    if callee is not None:
        return callee
    if name.startswith("{"):
        return _loaded(name)
    kind = name.partition(" ")[0]
    if _HERE in name:
        raise RuntimeError(
            f"{name}: the {kind} no longer exists; keep a reference to it, or to its model, until "
            "the backward pass is done."
        )
    raise RuntimeError(
        f"{name}: the {kind} belongs to another process and has no specification, so it cannot be "
        "rebuilt here. Compile or export the model in this process."
    )


@functools.lru_cache(MAX_LOADED)
def _loaded(specification: str) -> Callee:
    """Return the solver of a layer of a loaded program, which has no layers."""
    solver: Callee = layer_of(specification)._solver
    return solver
