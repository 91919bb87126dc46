"""Names of a factor type's attributes: those that look like slips, and those that Factor needs."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from lpsmap_core.model.factor import Factor

__all__ = ["check_names"]

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

PROTOCOL = frozenset(name for name in (*vars(Factor), *ELSEWHERE) if not name.startswith("_"))


def check_names(factor: Factor) -> None:
    """Refuse attributes that a type meant for the protocol and misspelt, or that hide a method.

    Raises
    ------
    TypeError
        If there is one; the message names it.
    """
    name = type(factor).__name__
    if not METHODS.isdisjoint(vars(factor)):
        hidden = min(METHODS & vars(factor).keys())
        raise TypeError(
            f"{name}: self.{hidden} hides the method Factor.{hidden}, which core calls; expected "
            f"another name for the attribute, such as self.{hidden}_."
        )
    for gone in GONE:
        if gone in vars(factor):
            raise TypeError(f"{name}: {_left(gone)}")
    for wrong in _wrong_names(type(factor)):
        raise TypeError(f"{name}: {wrong}")


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
