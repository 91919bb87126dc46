"""Distributions of names of ``lpsmap``, commands and file formats, installed or not."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

from lpsmap_core.plugins.disabled_plugins import DISABLE, is_disabled
from lpsmap_core.plugins.install_command import install_command

__all__ = ["FACE", "PACKS", "PACK_OF", "missing_name_advice", "missing_pack_advice", "moved_names"]

FACE = (
    *("ALGORITHM_1", "ConvergenceWarning", "Factor", "FactorGraph", "Solution", "Status"),
    *("Variables", "stack"),
)
"""Names that ``lpsmap`` takes from core, which plugins cannot register."""

PACKS = {
    "lpsmap-decode": "convert decode explain info solve",
    "lpsmap-dynamic": "",
    "lpsmap-factors-logic": (
        "Xor Or AtMostOne Budget Knapsack Imply Nand XorOut OrOut AndOut Pair Dense Potts"
    ),
    "lpsmap-factors-struct": (
        "Alignment BinaryTree Bits DepTree HeadAutomaton Matching ModifierBudget Permutation "
        "SemiMarkov Sequence SequenceBudget SequenceDistance SequenceSpans TopK"
    ),
    "lpsmap-jax": "",
    "lpsmap-search": "DMVTree induce",
    "lpsmap-torch": "TorchFactorGraph",
}
"""Distributions with the factor types, graphs and commands that they add."""

PACK_OF = {name: pack for pack, names in PACKS.items() for name in names.split()}

MOVED = {
    "lpsmap_decode": (
        "Assignment SearchProgress read_evidence read_graph score_assignment write_graph"
    ),
    "lpsmap_dynamic": "Beliefs Found Inference LogPartition",
}
"""Packages with names of theirs that ``lpsmap_core`` and ``lpsmap_core.api`` have, too."""


def missing_pack_advice(distribution: str) -> str:
    """Return advice about a distribution without active plugins.

    Parameters
    ----------
    distribution
        Name of the distribution.
    """
    if is_disabled(distribution):
        return f"{distribution}, which has it, is disabled by {DISABLE}={os.environ[DISABLE]}"
    return f"install it with: {install_command(distribution)}"


def missing_name_advice(name: str, installed: Collection[str]) -> str:
    """Return advice about a name that is not installed.

    Parameters
    ----------
    name
        The name as the user wrote it.
    installed
        The installed names.
    """
    packed = {known: pack for known, pack in PACK_OF.items() if known[0].isupper()}
    if name in packed:
        return missing_pack_advice(packed[name])
    known = {other.lower(): other for other in {*installed, *packed}}
    near = [known[x] for x in difflib.get_close_matches(name.lower(), known, 3)]
    listed = ", ".join(sorted(installed)) or "none"
    if not near:
        return f"installed factor types: {listed}"
    named = (x if x in installed else f"{x} ({install_command(packed[x])})" for x in near)
    return f"did you mean {' or '.join(named)}? Installed factor types: {listed}"


def moved_names(module: str) -> Callable[[str], Any]:
    """Return the function ``__getattr__`` of a module, for the names in `MOVED`.

    It raises an ImportError if their package is not installed: ``from module import name`` would
    hide the message of an AttributeError.

    Parameters
    ----------
    module
        The module's name.
    """

    def __getattr__(name: str) -> Any:
        for package in (package for package, names in MOVED.items() if name in names.split()):
            try:
                return getattr(import_module(package), name)
            except ModuleNotFoundError as error:
                if error.name != package:
                    raise
                advice = missing_pack_advice(package.replace("_", "-"))
                raise ImportError(f"{name} is in {package}; {advice}", name=package) from error
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=None)

    return __getattr__
