"""Validation of the names of a factor type's attributes: misspelt and reserved names."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from lpsmap_core.model.factor import Factor

__all__ = ["check_names", "check_own_attributes"]

MIN_SIMILARITY = 0.9
"""Minimum similarity of a misspelt name to the correct one; 1 means equal."""

OUTSIDE_FACTOR = ("arguments", "necessary_constraints")
"""Names of the protocol that `Factor` itself does not define."""

METHODS = frozenset(name for name, value in vars(Factor).items() if isinstance(value, FunctionType))
"""Methods that an attribute of an instance must not hide."""

PROTOCOL = frozenset(name for name in (*vars(Factor), *OUTSIDE_FACTOR) if not name.startswith("_"))


def check_names(factor: Factor) -> None:
    """Reject attributes with misspelt names, and attributes that hide a method.

    Raises
    ------
    TypeError
        If there is such an attribute; the message names it.
    """
    name = type(factor).__name__
    if not METHODS.isdisjoint(vars(factor)):
        hidden = min(METHODS & vars(factor).keys())
        raise TypeError(
            f"{name}: self.{hidden} hides the method Factor.{hidden}, which core calls; expected "
            f"another name for the attribute, such as self.{hidden}_."
        )
    for wrong in _wrong_names(type(factor)):
        raise TypeError(f"{name}: {wrong}")


def check_own_attributes(factor: Factor) -> None:
    """Reject a declaration whose type overwrites an attribute that `Factor.__init__` set.

    Raises
    ------
    TypeError
        If there is such an attribute; the message names it.
    """
    shape, keep, lengths, n = factor.variables.shape, factor.keep, factor.lengths, factor.n_factors
    split = len(shape) - factor.variables_ndim
    intact = {
        "batch_shape": factor.batch_shape == shape[:split],
        "event_shape": factor.event_shape == shape[split:],
        "n_factors": isinstance(n, int) and n == math.prod(shape[:split]),
        "offsets": getattr(factor.offsets, "shape", None) == (n + 1 if isinstance(n, int) else n,),
        "keep": keep is None or getattr(keep, "shape", None) == shape,
        "lengths": lengths is None or getattr(lengths, "shape", (None,))[0] == n,
    }
    for name in (name for name, is_intact in intact.items() if not is_intact):
        raise TypeError(
            f"{type(factor).__name__}: self.{name} is {getattr(factor, name)!r:.60}, which "
            "overwrites an attribute of Factor that core reads; expected another name, such as "
            f"self.{name}_."
        )


@functools.cache
def _wrong_names(cls: type[Factor]) -> tuple[str, ...]:
    return tuple(_find_wrong(cls))


def _find_wrong(cls: type[Factor]) -> Iterator[str]:
    bases = cls.__mro__[: cls.__mro__.index(Factor)]
    # an abstract class, such as a DynamicProgram, adds names to the protocol
    protocol = PROTOCOL.union(*(vars(base) for base in bases if inspect.isabstract(base)))
    for base in bases:
        for name, value in vars(base).items():
            if name in METHODS and not _is_method(value):
                yield (
                    f"the class attribute {name} = {value!r:.40} hides the method Factor.{name}, "
                    "which core calls; expected another name for it."
                )
            similar = difflib.get_close_matches(name, protocol, 1, MIN_SIMILARITY)
            if similar and name not in protocol and not name.startswith("_"):
                yield (
                    f"the class attribute {name!r} is unknown to core and resembles "
                    f"{similar[0]!r}; expected {similar[0]!r}, or a name that differs more. "
                    "Rename it."
                )


def _is_method(value: Any) -> bool:
    return callable(value) or isinstance(value, (classmethod, staticmethod, property))
