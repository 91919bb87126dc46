"""Arguments and options that users name in a call: whether a function takes them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lpsmap_core import installed
from lpsmap_core.api import AUTO, checked_options

MIN_SIMILARITY = 0.75
"""Similarity from which on an argument is a misspelt one of those that are known."""

OTHER_OPTIONS = (
    *("engine", "verbose", "warm_start"),
    *("exact", "autodetect_acyclic", "progress", "gap", "max_nodes", "solver"),
)
"""Options of a graph's verbs that `checked_options` does not know."""


def refuse_arguments(name: str, arguments: Iterable[str], known: Sequence[str]) -> None:
    """Refuse arguments, if there are any, in words that name the ones that are known.

    Parameters
    ----------
    name
        The public name of what was called.
    arguments
        The names of arguments that it does not take.
    known
        Those of the arguments that it takes.

    Raises
    ------
    TypeError
        If there is an argument.
    """
    for argument in arguments:
        near = difflib.get_close_matches(argument, known, 1, MIN_SIMILARITY)
        words = near[0] if near else " or ".join(filter(None, [", ".join(known[:-1]), *known[-1:]]))
        raise TypeError(f"{name}: unexpected argument {argument!r}; expected {words or 'none'}.")


def check_accepted(factors: Callable[..., Any], arguments: Iterable[str]) -> None:
    """Validate that a function of variables, such as a factor type, takes arguments.

    Parameters
    ----------
    factors
        The function; its first argument are the variables.
    arguments
        The names of the other arguments of the call.

    Raises
    ------
    TypeError
        If it does not take one of them.
    """
    try:
        parameters = list(inspect.signature(factors).parameters.values())[1:]
    except (TypeError, ValueError):  # a function in C
        return
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    known = [one.name for one in parameters if one.kind in by_name]
    unknown = [name for name in arguments if name not in known]
    made = getattr(factors, "func", factors)  # of a functools.partial
    if isinstance(made, type):
        refuse_arguments(made.__name__, unknown, known)
    for name in unknown:
        raise TypeError(
            f"The function of factors has no parameter for {name}, which it was called with; "
            f"expected def build(u, {name}), which passes it on to its factors. Or omit {name}."
        )


def check_solve_options(options: Mapping[str, Any]) -> None:
    """Validate options of `FactorGraph.solve` or `solve_map` by value, without a solve.

    Starts and options of a search are left out.

    Parameters
    ----------
    options
        The options by name.

    Raises
    ------
    TypeError
        If an option has a wrong type.
    ValueError
        If an option is out of range, or the engine is unknown.
    """
    checked_options(
        **{"threads": None, **{k: x for k, x in options.items() if k not in OTHER_OPTIONS}}
    )
    if options.get("engine", AUTO) != AUTO:
        installed().engines.named(options["engine"], "engine", AUTO)
