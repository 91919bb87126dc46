"""Every public name says what it is, what it takes and what it raises."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

MODULES = [
    "lpsmap",
    "lpsmap.earlier",
    "lpsmap_core",
    "lpsmap_core.api",
    "lpsmap_core.plugins.hookspecs",
    "lpsmap_core.command.new_plugin",
    "lpsmap.plot",
    "lpsmap_core.testing",
    "lpsmap_dynamic",
    "lpsmap_jit",
    "lpsmap_decode",
    "lpsmap_factors_logic",
    "lpsmap_factors_struct",
    "lpsmap_search",
    "lpsmap_search.figures",
]

if importlib.util.find_spec("torch"):
    TORCH = ["layers", "losses", "estimators", "distributions"]
    MODULES += ["lpsmap_torch", *(f"lpsmap_torch.{module}" for module in TORCH)]
if importlib.util.find_spec("jax"):
    MODULES += ["lpsmap_jax"]

INHERITED = {
    *("solve_map", "vertex", "decode", "examples", "hypergraph"),
    *("vertex_sizes", "map_kernel", "solve_sparsemap", "jvp", "projection_kernel", "jvp_kernel"),
    *("read", "devices", "asarray", "to_numpy", "declare", "solve"),
    *("describe", "complete_faces", "copy_from", "forget", "structures", "write_additionals"),
    "estimate",
}
"""What `Factor` and its kin, `FileFormat`, `Backend`, `Layer`, `Engine`, `LocalSolver` and
`Estimator` document for what derives."""


def public() -> dict[str, tuple[Any, str]]:
    """Return all public functions, classes and methods, with the docstring of each one's class."""
    found = {}
    for module in MODULES:
        imported = importlib.import_module(module)
        for name in imported.__all__:
            value = getattr(imported, name)
            if not callable(value) or not getattr(value, "__module__", "").startswith("lpsmap"):
                continue  # numbers, and marks of other libraries
            found[f"{value.__module__}.{name}"] = (value, "")
            if isinstance(value, type):
                for method, function in methods(value):
                    found[f"{value.__module__}.{name}.{method}"] = (function, value.__doc__ or "")
    return found


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a class's own public methods; the constructor is documented by the class."""
    generated = "__dataclass_fields__" in vars(cls) or getattr(cls, "_is_protocol", False)
    for name, value in vars(cls).items():
        function = getattr(value, "__func__", value)
        if not inspect.isfunction(function) or (name.startswith("_") and name != "__init__"):
            continue
        if name in INHERITED and any(name in vars(base) for base in cls.__mro__[1:]):
            continue
        if name != "__init__" or not generated:
            yield name, function


PUBLIC = public()


def source_of(function: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def test_everything_says_what_it_is() -> None:
    assert not [
        name
        for name, (value, of_class) in PUBLIC.items()
        if not value.__doc__ and not (name.endswith("__init__") and of_class)
    ]


def missing_of(function: Any, of_class: str) -> Iterator[str]:
    """Yield what a function's docstring, and that of its class, leave out."""
    text = f"{function.__doc__ or ''}\n{of_class}"
    for p in inspect.signature(function).parameters.values():
        counts = p.name not in ("self", "cls") and p.kind is not p.VAR_KEYWORD
        if counts and not re.search(rf"\b{p.name}\b", text):
            yield p.name
    raises = any(
        isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for node in ast.walk(source_of(function))
    )
    if raises and not re.search(r"\bRaises?\b|\braises\b", text):
        yield "what it raises"


def test_functions_say_what_they_take_and_raise() -> None:
    missing = {
        name: list(missing_of(value, of_class))
        for name, (value, of_class) in PUBLIC.items()
        if inspect.isfunction(value)
    }
    assert not {name: words for name, words in missing.items() if words}
