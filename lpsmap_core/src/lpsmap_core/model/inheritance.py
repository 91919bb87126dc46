"""What a factor type inherits from its bases: nothing that describes other structures."""

from __future__ import annotations

from typing import Any

from lpsmap_core.kernels.records import KERNELS

ORACLE = frozenset({"solve_map", "vertex"})
"""The methods that define the structures of a factor type."""

OPTIONAL = (
    *KERNELS,
    *("_kernel_numbers", "as_tables", "expected_failures", "gibbs", "inference", "jvp"),
    *("linear_constraints", "local_solver", "log_partition", "min_paths", "necessary_constraints"),
    *("projection_iterates", "solve_sparsemap", "tensor_oracle", "unused", "vertex_sizes"),
)
"""The attributes of the protocol that describe the structures of a type."""


def disinherit(factor_type: type, root: type) -> None:
    """Reset the optional attributes that a new factor type inherits from a type it departs from.

    A type that overrides an abstract method of its bases, such as `solve_map`, has other structures
    than the base whose method it overrides. Kernels, closed forms, sums, constraints and solvers of
    that base would silently solve for the base's structures. The new type has those of its abstract
    bases, which derive them from its own methods, or else the defaults, those of the `root`.
    """
    defining = ORACLE.union(*(_abstract(base) for base in factor_type.__mro__))
    for name in OPTIONAL:
        # a type's own local solver may rely on kernels
        relied_on = defining | KERNELS.keys() if name == "local_solver" else defining
        bases = [b for b in factor_type.__mro__ if not _is_other(b, factor_type, root, relied_on)]
        if len(bases) == len(factor_type.__mro__):
            continue
        defining_bases = [
            base for base in bases if name in vars(base) and _is_complete(base, bases)
        ]
        value = vars(defining_bases[0])[name] if defining_bases else vars(root).get(name)
        if value is not _definition(factor_type, name):
            setattr(factor_type, name, value)


def _is_other(base: type, factor_type: type, root: type, names: frozenset[str]) -> bool:
    """Return whether a base class is a factor type with other definitions of some names."""
    if not issubclass(base, root) or _abstract(base):
        return False
    pairs = ((_definition(base, name), _definition(factor_type, name)) for name in names)
    return any(theirs is not None and theirs is not ours for theirs, ours in pairs)


def _is_complete(base: type, bases: list[type]) -> bool:
    """Return whether some classes define the methods that one of them derives attributes from."""
    return all(
        any(name in vars(other) and not _is_abstract(vars(other)[name]) for other in bases)
        for name in _abstract(base) - ORACLE
    )


def _abstract(base: type) -> frozenset[str]:
    return getattr(base, "__abstractmethods__", frozenset())


def _is_abstract(value: Any) -> bool:
    return getattr(value, "__isabstractmethod__", False)


def _definition(factor_type: type, name: str) -> Any:
    return next((vars(base)[name] for base in factor_type.__mro__ if name in vars(base)), None)
