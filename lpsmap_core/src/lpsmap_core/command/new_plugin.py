"""The command ``lpsmap new-plugin``: a package with a new plugin, from a template."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import lpsmap_core
from lpsmap_core.plugins.hookspecs import API_VERSION
from lpsmap_core.plugins.registry import installed
from lpsmap_jit.callers import stacklevel

__all__ = ["write"]


class Kind(NamedTuple):
    """A kind of plugin."""

    package: str
    """The distribution that has the base class."""
    base: str
    """The class that its class extends; except for factors, names of classes end in it."""
    hook: str
    description: str


KINDS = {
    "factor": Kind("lpsmap-core", "Factor", "lpsmap_factors", "factor type"),
    "format": Kind("lpsmap-decode", "FileFormat", "lpsmap_formats", "file format"),
    "solver": Kind("lpsmap-decode", "MapSolver", "lpsmap_solvers", "solver"),
    "engine": Kind("lpsmap-core", "Engine", "lpsmap_engines", "engine"),
}
"""The values of ``--kind``."""

TEMPLATE = Path(__file__).parent / "plugin_template"

TAKEN = {
    *("lpsmap", "jax", "pytest", "tests", "torch"),
    *sys.stdlib_module_names,
}
"""Names of modules, installed or not, that conflict with a plugin of the same name."""

OWN_NAMES = {*lpsmap_core.__all__, "Any", "TorchFactorGraph"}
"""Names that have another meaning in lpsmap, or in the files of the template."""


def write(name: str, into: Path, factor: str | None = None, kind: str = "factor") -> Path:
    """Write the package of a new plugin.

    Parameters
    ----------
    name
        Name of the distribution: lower-case letters, digits and single hyphens. ``my_factor``, ``My
        Factor`` and ``MyFactor`` are converted to ``my-factor``.
    into
        The folder in which the package's folder, of the same name, is created.
    factor
        Name of the factor type; None for `name` in CamelCase, without a leading ``lpsmap-``.
    kind
        What it offers: ``"factor"``, ``"format"``, ``"solver"`` or ``"engine"``. The classes of the
        last three are called `name` in CamelCase with the kind behind.

    Returns
    -------
    Path
        The package's folder.

    Raises
    ------
    ValueError
        If a name is invalid.
    FileExistsError
        If the folder exists.
    OSError
        If the folder cannot be written.
    ModuleNotFoundError
        If copier, which renders the template, is not installed.
    """
    name = re.sub(r"[\s_]+|(?<=[a-z0-9])(?=[A-Z])", "-", name.strip()).lower()
    module, cls, folder = _module(name), _class(name, factor, kind), into / name
    if folder.exists():
        raise FileExistsError(
            f"{folder} exists; nothing was written. Choose another name, or move it away."
        )
    try:
        import copier
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "copier, which renders the template of a new plugin, is not installed. "
            "Install it with: pip install 'lpsmap-core[new-plugin]'"
        ) from error
    label = name.removeprefix("lpsmap-")
    named = {"distribution": name, "module": module, "cls": cls, "label": label}
    versions = {"core": _compatible(lpsmap_core.__version__), "api_version": API_VERSION}
    answers = {"kind": kind, **named, **KINDS[kind]._asdict(), **versions}
    try:
        folder.mkdir()
        for part in ("shared", kind):
            data = {"part": part, **answers}
            copier.run_copy(str(TEMPLATE), folder, data=data, defaults=True, quiet=True)
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written ({error.strerror or error}). Choose another folder with "
            "--into."
        ) from error
    return folder


def _module(name: str) -> str:
    """Return the validated name of the module."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise ValueError(
            f"name: got {name!r}; expected lower-case letters, digits and single hyphens, a letter "
            "first, and not a Python keyword, such as lpsmap-shortest-path."
        )
    is_taken = module in TAKEN or module in sys.modules
    spec = None if is_taken else importlib.util.find_spec(module)
    if is_taken or (spec is not None and spec.origin is not None):  # not a plain folder
        raise ValueError(
            f"name: got {name!r}, whose module {module} exists; expected a new name. Choose "
            f"another, such as lpsmap-{name.removeprefix('lpsmap-')}-factors."
        )
    return module


def _class(name: str, factor: str | None, kind: str) -> str:
    """Return the name of the class; raise ValueError if it is invalid."""
    if kind not in KINDS:
        raise ValueError(f"kind: got {kind!r}; expected one of {', '.join(KINDS)}.")
    words = name.removeprefix("lpsmap-").split("-")
    camel_case = "".join(word.capitalize() for word in words)
    if kind == "factor":
        factor = camel_case if factor is None else factor
        _validate_factor(factor)
        return factor
    if factor is not None:
        raise ValueError(f"factor: got {factor!r}; expected None for a new {kind}.")
    end = kind.capitalize()
    return camel_case.removesuffix(end) + end


def _validate_factor(factor: str) -> None:
    """Raise ValueError for an invalid name of a factor type; warn if another type has it."""
    if not factor.isidentifier() or keyword.iskeyword(factor) or not factor[0].isupper():
        raise ValueError(
            f"factor: got {factor!r}; expected the name of a Python class, such as ShortestPath. "
            "Choose it with --factor."
        )
    if factor in OWN_NAMES:
        raise ValueError(
            f"factor: got {factor!r}, which has another meaning in lpsmap; expected a new name, "
            "such as ShortestPath. Choose it with --factor."
        )
    if factor in installed().factors:
        other = installed().factors[factor].plugin.distribution
        warnings.warn(
            f"{other} has a factor type {factor} already. If both are installed, neither can be "
            "found by name. Choose another with --factor.",
            stacklevel=stacklevel(),
        )


def _compatible(version: str) -> str:
    """Return the compatible releases for a plugin written for this one: its minor series."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"
