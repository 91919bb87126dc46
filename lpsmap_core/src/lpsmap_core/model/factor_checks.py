"""Validation of declarations: the names of their attributes, and their registered parameters."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from types import FunctionType
from typing import Any

import numpy as np

from lpsmap_core.kernels.records import KERNELS
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of
from lpsmap_core.model.variables import Variables

MIN_SIMILARITY = 0.9
"""Minimum similarity of a misspelt name to the correct one; 1 means equal."""

OUTSIDE_FACTOR = ("arguments", "necessary_constraints")
"""Names of the protocol that `Factor` itself does not define."""

PROTOCOL = frozenset(name for name in (*vars(Factor), *OUTSIDE_FACTOR) if not name.startswith("_"))

METHODS = frozenset(name for name, value in vars(Factor).items() if isinstance(value, FunctionType))
"""Methods that an attribute must not hide."""

CLASS_METHODS = ("vertex_sizes", "solve_sparsemap", "jvp", "local_solver")
"""Overrides that serve many factors and are therefore called on the type."""


def check_declaration(factor: object, graph: object) -> None:
    """Reject what is no declaration over variables of a graph; see `FactorGraph.add`."""
    if not isinstance(factor, Factor):
        raise TypeError(f"add: got {kind_of(factor)}; expected a Factor such as Xor(u).")
    if not isinstance(vars(factor).get("variables"), Variables):
        raise TypeError(
            f"add: the {type(factor).__name__} has no variables; expected its __init__ to call "
            "super().__init__(variables)."
        )
    if factor.variables.graph is not graph:
        raise ValueError(
            f"add: {factor!r} is over variables of another graph; make its variables with this "
            "graph's variable_from."
        )
    check_attributes(factor)


def check_attributes(factor: Factor) -> None:
    """Reject attributes that misspell, hide or overwrite a name of the protocol."""
    _check_type(type(factor))
    name = type(factor).__name__
    for hidden in sorted(METHODS & vars(factor).keys()):
        raise TypeError(
            f"{name}: self.{hidden} hides the method Factor.{hidden}, which core calls; expected "
            f"another name for the attribute, such as self.{hidden}_."
        )
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
    for overwritten in (attribute for attribute, is_intact in intact.items() if not is_intact):
        raise TypeError(
            f"{name}: self.{overwritten} is {getattr(factor, overwritten)!r:.60}, which overwrites "
            "an attribute of Factor that core reads; expected another name, such as "
            f"self.{overwritten}_."
        )


@functools.cache
def _check_type(factor_type: type[Factor]) -> None:
    """Reject attributes of a type that core would ignore, or could not call."""
    name, bases = factor_type.__name__, factor_type.__mro__
    bases = bases[: bases.index(Factor)]
    # an abstract class, such as a DynamicProgram, adds names to the protocol
    protocol = PROTOCOL.union(*(vars(base) for base in bases if inspect.isabstract(base)))
    for attribute, value in (item for base in bases for item in vars(base).items()):
        is_method = callable(value) or isinstance(value, (classmethod, staticmethod, property))
        if attribute in METHODS and not is_method:
            raise TypeError(
                f"{name}: the class attribute {attribute} = {value!r:.40} hides the method "
                f"Factor.{attribute}, which core calls; expected another name for it."
            )
        similar = difflib.get_close_matches(attribute, protocol, 1, MIN_SIMILARITY)
        if similar and attribute not in protocol and not attribute.startswith("_"):
            raise TypeError(
                f"{name}: the class attribute {attribute!r} is unknown to core and resembles "
                f"{similar[0]!r}; expected {similar[0]!r}, or a name that differs more. Rename it."
            )
    for kernel in KERNELS:
        function = getattr(factor_type, kernel)
        if function is not None and not callable(function):
            raise TypeError(
                f"{name}.{kernel}: got {function!r}; expected a function compiled by @kernel or "
                "@leaf, as a staticmethod, or None."
            )
    for method in CLASS_METHODS:
        if isinstance(inspect.getattr_static(factor_type, method), FunctionType):
            raise TypeError(
                f"{name}.{method}: got an instance method; expected a class method, since it "
                "serves the factors of many declarations. Put @classmethod above it."
            )


def check_parameters(factor: Factor, other: Factor) -> None:
    """Reject a declaration that cannot share a bucket with another one of its type.

    Each registered attribute must be there, with the kind and shape of the registered value, and
    both must register the same parameters, in the same order.
    """
    parameters = factor._parameters
    expected = {name: (factor.n_factors, *shape) for name, shape in parameters.rows.items()}
    if parameters.link is not None:
        expected[parameters.link] = factor.variables.shape
    for name, shape in expected.items():
        if getattr(getattr(factor, name, None), "shape", None) != shape:
            raise _not_kept(factor, name, f"an array of shape {shape}")
    if parameters.integers is not None:
        value: Any = getattr(factor, parameters.integers, None)
        per_factor = isinstance(value, tuple) and len(value) == factor.n_factors
        arrays: Any = value if per_factor else (value,)
        if not all(isinstance(x, np.ndarray) and x.dtype == np.int64 for x in arrays):
            one_for_each = "an array of int64 for all factors, or a tuple of one for each"
            raise _not_kept(factor, parameters.integers, one_for_each)
    if not parameters.same_as(other._parameters):
        raise TypeError(
            f"{factor!r} registers the parameters {parameters}, but {other!r} registers "
            f"{other._parameters}; expected the same parameters of every {type(factor).__name__}, "
            "in the same order, because kernels find them by column. Register a default for "
            "parameters that are not passed."
        )


def _not_kept(factor: Factor, name: str, expected: str) -> TypeError:
    """Return the error about an attribute that differs from its registered value."""
    value: Any = getattr(factor, name, None)
    helper = factor._parameters.helpers[name]
    if not hasattr(factor, name):
        got = "is missing"
    elif hasattr(value, "shape") and value.dtype != object:
        got = f"is an array of shape {value.shape} and dtype {value.dtype}"
    else:
        got = f"is {value!r:.60}"
    return TypeError(
        f"{type(factor).__name__}: the parameter {name!r} is registered, but self.{name} {got}; "
        f"expected {expected}. Assign the returned value to the attribute of the same name: "
        f"self.{name} = self.{helper}({name!r}, value)."
    )
