"""Names of a factor type's attributes: those that look like slips, and those that Factor needs."""

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

SLIP = 0.9
"""From how alike on a name is taken for a slip of the pen; 1 is the same."""

ELSEWHERE = ("arguments", "necessary_constraints")
"""Names of the protocol that `Factor` itself does not have."""

GONE = {
    "chain_states": "a subclass of Sequence, or a class method local_solver",
    "count_bounds": "a method linear_constraints, which returns lpsmap_core.bounded_sums(self, "
    "low, high)",
    "row_parameters": 'self.k = self.per_factor("k", k) in __init__, which registers it by itself',
    "link_parameter": 'self.cost = self.per_link("cost", cost) in __init__, which registers it by '
    "itself",
    "integer_parameter": 'self.edges = self.integers("edges", edges) in __init__, which registers '
    "it by itself",
}
"""Names of earlier versions of the protocol, and what took their place."""

METHODS = frozenset(name for name, value in vars(Factor).items() if isinstance(value, FunctionType))
"""What an attribute of an instance must not hide."""

REFUSED = METHODS.union(GONE)
"""What an attribute of an instance must not be called."""

PROTOCOL = frozenset(name for name in (*vars(Factor), *ELSEWHERE) if not name.startswith("_"))


def check_names(factor: Factor) -> None:
    """Refuse attributes that a type misspelt, or that stand in the place of what core reads.

    Raises
    ------
    TypeError
        If there is one; the message names it.
    """
    name = type(factor).__name__
    if not REFUSED.isdisjoint(vars(factor)):
        hidden = min(REFUSED & vars(factor).keys())
        if hidden in GONE:
            raise TypeError(f"{name}: {_left(hidden)}")
        raise TypeError(
            f"{name}: self.{hidden} hides the method Factor.{hidden}, which core calls; expected "
            f"another name for the attribute, such as self.{hidden}_."
        )
    for wrong in _wrong_names(type(factor)):
        raise TypeError(f"{name}: {wrong}")


def check_own_attributes(factor: Factor) -> None:
    """Refuse a declaration whose type has replaced what `Factor.__init__` set, by another thing.

    Raises
    ------
    TypeError
        If it has; the message names the attribute.
    """
    shape, keep, lengths, n = factor.variables.shape, factor.keep, factor.lengths, factor.n_factors
    split = len(shape) - factor.variables_ndim
    found = {
        "batch_shape": factor.batch_shape == shape[:split],
        "event_shape": factor.event_shape == shape[split:],
        "n_factors": isinstance(n, int) and n == math.prod(shape[:split]),
        "offsets": getattr(factor.offsets, "shape", None) == (n + 1 if isinstance(n, int) else n,),
        "keep": keep is None or getattr(keep, "shape", None) == shape,
        "lengths": lengths is None or getattr(lengths, "shape", (None,))[0] == n,
    }
    for name in (name for name, is_own in found.items() if not is_own):
        raise TypeError(
            f"{type(factor).__name__}: self.{name} is {getattr(factor, name)!r:.60}, but it is "
            "Factor's own attribute, which core reads; expected another name for the type's, such "
            f"as self.{name}_."
        )


@functools.cache
def _wrong_names(cls: type[Factor]) -> tuple[str, ...]:
    return tuple(_find_wrong(cls))


def _find_wrong(cls: type[Factor]) -> Iterator[str]:
    bases = cls.__mro__[: cls.__mro__.index(Factor)]
    # an abstract class, such as a DynamicProgram, adds names to the protocol
    known = PROTOCOL.union(*(vars(base) for base in bases if inspect.isabstract(base)))
    for base in bases:
        for name, value in vars(base).items():
            if name in GONE:
                yield _left(name)
            if name in METHODS and not _is_method(value):
                yield (
                    f"the class attribute {name} = {value!r:.40} hides the method Factor.{name}, "
                    "which core calls; expected another name for it."
                )
            meant = difflib.get_close_matches(name, (*known, *GONE), 1, SLIP)
            if name.startswith("_") or name in known or name in GONE or not meant:
                continue
            if meant[0] in GONE:
                yield _left(meant[0])
            yield (
                f"the class attribute {name!r} means nothing to core; expected {meant[0]!r}, "
                "which it looks like. Rename it."
            )


def _left(name: str) -> str:
    return f"{name} has left the protocol of factor types; expected {GONE[name]}."


def _is_method(value: Any) -> bool:
    return callable(value) or isinstance(value, (classmethod, staticmethod, property))
