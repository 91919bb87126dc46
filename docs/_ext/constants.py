"""The numbers that the packages' source names, with what it says of each."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Constant(NamedTuple):
    """A named number: the module that defines it, its name, its value, and what it says of it."""

    module: str
    name: str
    value: float
    meaning: str


def constants(package: str) -> Iterator[Constant]:
    """Yield a package's public constants that are floating-point numbers, module by module."""
    for module in modules(package):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            continue
        body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        for statement, following in zip(body, [*body[1:], None], strict=True):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper() and name[0] != "_":
                    value = getattr(importlib.import_module(module), name)
                    if isinstance(value, float):
                        yield Constant(module, name, value, _docstring(following))


def modules(package: str) -> Iterator[str]:
    """Yield the names of a package's modules, but for the conformance kit's and the figures'."""
    folder = importlib.import_module(package).__path__
    for found in pkgutil.walk_packages(folder, f"{package}."):
        if not found.name.startswith("lpsmap_core.testing"):
            yield found.name


def _docstring(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def written(value: float) -> str:
    """Return a number as people write it: powers of two as such."""
    mantissa, _, exponent = f"{value:.3g}".partition("e")
    dash = "\N{NON-BREAKING HYPHEN}"  # so that it stays on one line
    return f"{mantissa}e{int(exponent)}".replace("-", dash) if exponent else mantissa
