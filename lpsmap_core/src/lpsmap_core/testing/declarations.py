"""Checks of declarations with arguments in other forms, and with larger sizes."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lpsmap_core.graph import FactorGraph
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.variables import Variables
from lpsmap_core.testing.best import check_map_is_best
from lpsmap_core.testing.compiled_oracle import check_map_kernel, check_vertex_sizes
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.rules import ConformanceError, broken
from lpsmap_core.testing.solutions import check_certificate
from lpsmap_core.testing.structures import check_parameters, check_shapes

Call = inspect.BoundArguments
"""Arguments with which an example was declared, by name."""

MORE = 3
"""Number of entries by which a larger declaration extends its event axes."""


def check_lengths(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Lengths and masks are kept as given. The short form for several axes means the same."""
    for call in declarations_of(factor):
        lengths, axes = call.arguments.get("lengths"), factor._cut_axes()
        if lengths is not None and factor.keep is None:
            raise _dropped(factor, "lengths")
        by_lengths = lengths is not None and not factor._masked
        if call.arguments.get("mask") is not None and (factor.keep is None or by_lengths):
            raise _dropped(factor, "mask")
        _require_used(factor, call)
        if lengths is None or len(axes) == 1 or factor.lengths is None:
            continue
        shortest = factor.lengths.min(axis=1).reshape(factor.batch_shape)
        short = _declared(factor, call, "lengths in the short form", lengths=shortest)
        assert short.lengths is not None
        full = short.lengths.reshape(*factor.batch_shape, len(axes))
        _compare(
            "lengths with one number per factor mean the same as lengths with one number per axis "
            "if self.lengths is the same, because kernels get parameters that depend on lengths; "
            "use self.lengths, not the argument",
            short,
            _declared(factor, call, "lengths for each axis", lengths=full),
        )


def _require_used(factor: Factor, call: Call) -> None:
    """Require that lengths and masks, if the type accepts them, exclude entries."""
    accepted, changes = call.signature.parameters, dict[str, Any]()
    longest = min((factor.event_shape[axis] for axis in factor._cut_axes()), default=0)
    if "lengths" in accepted and longest > 1 and factor.keep is None:
        changes["lengths"] = {"lengths": np.full(factor.batch_shape, longest - 1)}
    if "mask" in accepted and not factor._masked:
        mask = np.ones(factor.variables.shape, dtype=np.bool_)
        mask[..., -1:] = False
        changes["mask"] = {"mask": mask, **({"lengths": None} if "lengths" in accepted else {})}
    for argument, changed in changes.items():
        try:
            cut = declared_with(factor, call, **changed)
        except Exception:  # other arguments depend on the size, or this one has another meaning
            continue
        if cut.keep is None:
            raise _dropped(cut, argument)


def _dropped(factor: Factor, argument: str) -> ConformanceError:
    what = {"lengths": "within its lengths", "mask": "that its mask selects"}[argument]
    return broken(
        f"a declaration covers only the entries {what}, because users pad batches",
        f"a declaration with {argument} of which {type(factor).__name__} covers all entries",
        f"super().__init__(variables, {argument}={argument}), or no such argument",
        repr(factor),
    )


def check_lists(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Every argument takes lists in place of arrays."""
    for call in declarations_of(factor):
        lists = {
            name: value.tolist()
            for name, value in call.arguments.items()
            if isinstance(value, np.ndarray)
        }
        if lists:
            rule = "every argument takes lists in place of arrays, because users pass lists"
            _compare(rule, _declared(factor, call, f"{', '.join(lists)} as lists", **lists), factor)


def check_larger(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A type is also right in sizes above its examples, where its arguments allow them."""
    for call in declarations_of(factor):
        views = [name for name, x in call.arguments.items() if isinstance(x, Variables)]
        if len(views) != 1:
            continue
        shape = list(call.arguments[views[0]].shape)
        for axis in range(len(shape))[-factor.variables_ndim :]:
            shape[axis] += MORE
        changed: dict[str, Any] = {views[0]: FactorGraph().variable(tuple(shape))}
        if "lengths" in call.arguments:
            changed["lengths"] = None
        try:
            larger = declared_with(factor, call, **changed)
        except (TypeError, ValueError):
            continue  # other arguments depend on the size
        _check_larger(larger, seed, min(draws, DRAWS))


def _check_larger(larger: Factor, seed: int, draws: int) -> None:
    """Run the most important checks on a larger declaration, those of memory first."""
    cls = type(larger)
    compiled = [] if cls.map_kernel is None else [check_vertex_sizes, check_map_kernel]
    for check in (check_parameters, check_shapes, *compiled, check_map_is_best, check_certificate):
        if check.__name__ in cls.expected_failures:
            continue
        try:
            check(larger, seed=seed, draws=draws)
        except ConformanceError as error:
            lines = str(error).split("\n")
            lines[0] += f" ({check.__name__}, at a larger size than the examples have)"
            raise ConformanceError("\n".join(lines)) from error
        except Exception as error:
            arity, additionals = math.prod(larger.event_shape), larger.n_additionals
            raise broken(
                "declarations that __init__ accepts work at every size, because users declare "
                "other sizes than the examples have",
                f"{type(error).__name__}: {error} ({check.__name__}), declared with {arity} "
                f"variables and {additionals} additionals",
                "no error; or reject such a declaration in __init__",
                repr(larger),
            ) from error


def declarations_of(factor: Factor) -> list[Call]:
    """Return the calls in the type's examples that declare a factor equal to this one."""
    calls: list[tuple[Factor, Call]] = []
    with _recorded(type(factor), calls):
        type(factor).examples()
    return [call for other, call in calls if _difference(other, factor) is None]


@contextmanager
def _recorded(cls: type[Factor], calls: list[tuple[Factor, Call]]) -> Iterator[None]:
    """Record the arguments with which instances of a type are created."""
    overridden, init = "__init__" in vars(cls), cls.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def recording(self: Factor, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        calls.append((self, signature.bind(self, *arguments, **options)))

    cls.__init__ = recording  # type: ignore[method-assign]
    try:
        yield
    finally:
        if overridden:
            cls.__init__ = init  # type: ignore[method-assign]
        else:
            del cls.__init__


def declared_with(factor: Factor, call: Call, **changed: Any) -> Factor:
    """Declare a factor again with some arguments changed."""
    again = inspect.BoundArguments(call.signature, call.arguments | changed)
    create: Callable[..., Factor] = type(factor)
    return create(*again.args[1:], **again.kwargs)


def _declared(factor: Factor, call: Call, how: str, **changed: Any) -> Factor:
    try:
        return declared_with(factor, call, **changed)
    except Exception as error:
        raise broken(
            "a type accepts every form of an argument that the base class accepts, because its "
            "docs describe these forms",
            f"{type(error).__name__}: {error}",
            f"a declaration with {how}",
            repr(factor),
        ) from error


def _compare(rule: str, one: Factor, other: Factor) -> None:
    wrong = _difference(one, other)
    if wrong is not None:
        got, expected = (np.asarray(getattr(each, wrong)).tolist() for each in (one, other))
        raise broken(rule, f"{wrong} = {got}", f"{wrong} = {expected}", repr(one))


def _difference(one: Factor, other: Factor) -> str | None:
    """Return the first attribute in which two declarations differ, apart from their variables."""
    shapes = ("offsets", "keep", "lengths", "batch_shape", "event_shape", "n_additionals")
    for name in (*one._parameters.names, *shapes):
        if not _equal(getattr(one, name, None), getattr(other, name, None)):
            return name
    return None


def _equal(first: Any, second: Any) -> bool:
    """Return whether two attributes are equal: None, arrays, or tuples of arrays."""
    if first is None or second is None:
        return first is second
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(np.array_equal, first, second))
    return np.array_equal(first, second)
