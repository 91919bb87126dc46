"""One direction of imports: packs and adapter import core; only users import the face."""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from environments import ROOT, WHEELS

OURS = {
    "lpsmap",
    "lpsmap_core",
    "lpsmap_jit",
    "lpsmap_dynamic",
    "lpsmap_decode",
    "lpsmap_factors_logic",
    "lpsmap_factors_struct",
    "lpsmap_jax",
    "lpsmap_search",
    "lpsmap_torch",
    "jax",
    "torch",
}

ALLOWED = {
    "lpsmap_core/src/lpsmap_core": {"lpsmap_core", "lpsmap_jit"},
    "lpsmap_jit/src/lpsmap_jit": {"lpsmap_jit"},
    "kernels/src/lpsmap_kernels": set(),
    "lpsmap_decode/src/lpsmap_decode": {"lpsmap_decode", "lpsmap_core", "lpsmap_dynamic"},
    "lpsmap_dynamic/src/lpsmap_dynamic": {"lpsmap_dynamic", "lpsmap_core"},
    "lpsmap_face/src/lpsmap": {"lpsmap", "lpsmap_core", "lpsmap_decode"},
    "lpsmap_factors_logic/src/lpsmap_factors_logic": {
        *("lpsmap_factors_logic", "lpsmap_core", "lpsmap_dynamic")
    },
    "lpsmap_factors_struct/src/lpsmap_factors_struct": {
        *("lpsmap_factors_struct", "lpsmap_core", "lpsmap_dynamic")
    },
    "lpsmap_jax/src/lpsmap_jax": {"lpsmap_jax", "lpsmap_core", "lpsmap_dynamic", "jax"},
    "lpsmap_search/src/lpsmap_search": {
        *("lpsmap_search", "lpsmap_core", "lpsmap_decode", "lpsmap_dynamic")
    },
    "lpsmap_torch/src/lpsmap_torch": {"lpsmap_torch", "lpsmap_core", "lpsmap_dynamic", "torch"},
}

FOUND_BY_ENTRY_POINTS = {
    "lpsmap_face": {*WHEELS.values()} - {"lpsmap", "lpsmap_core", "lpsmap_jit"}
}
"""What a distribution requires, extras included, and never imports by name."""

BROUGHT_BY_OTHERS = {"llvmlite", "pytest"}
"""numba requires llvmlite in the release that fits; the kit's marks are used in pytest alone."""


IMPORTED_AS = {"python_sat": "pysat"}
"""Names of packages whose distributions have other names."""

OMITTED_BY_OTHERS = {"six"}
"""python-sat imports six, and does not require it."""


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and top-level package of every import, those inside functions included."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name.split(".")[0]
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module.split(".")[0]
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module.split(".")[0]


def test_every_package_is_walked() -> None:
    packages = {str(p.parent.relative_to(ROOT)) for p in ROOT.glob("*/src/*/__init__.py")}
    assert packages == set(ALLOWED)


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_lies_below_them(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if name in OURS - ALLOWED[package]
    ]
    assert not wrong, "\n".join(wrong)


def test_core_lists_no_pack() -> None:
    """Its messages name the package of a missing verb, and none of factors or adapters."""
    for path in (ROOT / "lpsmap_core/src/lpsmap_core").rglob("*.py"):
        named = re.findall(
            r"lpsmap[-_](?:factors[-_]|jax|search)\w*", path.read_text(encoding="utf-8")
        )
        assert not named, path


def test_the_walk_sees_every_form_of_import() -> None:
    source = """
import torch.nn as nn
from torch import Tensor
def late():
    from torch.autograd import Function
    importlib.import_module("torch.linalg")
    import_module("torch")
from . import torch
"""
    assert [line for line, name in imported(ast.parse(source)) if name == "torch"] == [
        2,
        3,
        5,
        6,
        7,
    ]


def project(folder: str) -> dict[str, Any]:
    """Return what a distribution says of itself."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


@pytest.mark.parametrize("folder", sorted(WHEELS))
def test_a_distribution_requires_what_it_imports_and_nothing_else(folder: str) -> None:
    extras = project(folder).get("optional-dependencies", {}).values()
    lines = [*project(folder)["dependencies"], *itertools.chain(*extras)]
    needs_click = any(line.startswith("lpsmap-core[cli]") for line in lines)
    if needs_click and folder not in FOUND_BY_ENTRY_POINTS:
        lines += project("lpsmap_core")["optional-dependencies"]["cli"]
    names = [re.split(r"[>;[]", line)[0].replace("-", "_") for line in lines]
    required = {IMPORTED_AS.get(name, name) for name in names} - OMITTED_BY_OTHERS
    needed = {
        name
        for path in (ROOT / folder / "src").rglob("*.py")
        for _, name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if name not in sys.stdlib_module_names
    }
    own, found = {WHEELS[folder]}, FOUND_BY_ENTRY_POINTS.get(folder, set())
    assert required - own == (needed | found) - own - BROUGHT_BY_OTHERS
