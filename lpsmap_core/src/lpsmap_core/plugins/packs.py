"""Distributions of names of ``lpsmap``, commands and file formats, installed or not."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Mapping
from typing import NoReturn

from lpsmap_core.plugins.disabled_plugins import DISABLE, is_disabled

__all__ = [
    *("COMMANDS", "FACE", "SUFFIXES"),
    *("missing_name_advice", "missing_pack_advice", "refuse_moved_name"),
]

FACE = (
    *("ALGORITHM_1", "ConvergenceWarning", "Factor", "FactorGraph", "Solution", "Status"),
    *("Variables", "WarmStartCache", "stack"),
)
"""Names that ``lpsmap`` takes from core, which plugins cannot register."""

PACKS = {
    "lpsmap-factors-logic": (
        "Xor Or AtMostOne Budget Knapsack Imply Nand XorOut OrOut AndOut Pair Dense Potts"
    ),
    "lpsmap-factors-struct": (
        "Alignment BinaryTree Bits DepTree HeadAutomaton Matching ModifierBudget Permutation "
        "SemiMarkov Sequence SequenceBudget SequenceDistance TopK"
    ),
    "lpsmap-search": "DMVTree",
    "lpsmap-torch": "TorchFactorGraph",
}

MOVED = {
    **dict.fromkeys(
        (
            *("CutShort", "Look", "NodeBatch", "Outcome", "Search", "SearchResult", "SearchState"),
            *("Space", "Tables", "solve_many"),
        ),
        "lpsmap_decode",
    ),
    **dict.fromkeys(
        ("DynamicProgram", "Gibbs", "Hypergraph", "HypergraphBuilder", "Row"), "lpsmap_dynamic"
    ),
    "plot": "lpsmap",
}
"""Current packages of names that ``lpsmap_core`` had in version 2 of the API."""

RENAMED = {"CutShort": "Unfinished", "Look": "Evaluation"}
"""Current names of those of them that have another one."""

COMMANDS = {
    **dict.fromkeys(("convert", "decode", "explain", "info", "solve"), "lpsmap-decode"),
    "induce": "lpsmap-search",
}
"""Distributions of the commands of ``lpsmap`` that are not in core."""

SUFFIXES = dict.fromkeys((".fg", ".uai", ".wcnf"), "lpsmap-decode")
"""Distributions of the suffixes of file formats that are not in core."""


def missing_pack_advice(distribution: str) -> str:
    """Return advice about a distribution without active plugins.

    Parameters
    ----------
    distribution
        Name of the distribution.
    """
    if is_disabled(distribution):
        return f"{distribution}, which has it, is disabled by {DISABLE}={os.environ[DISABLE]}"
    return f"install it with: pip install {distribution}"


def missing_name_advice(name: str, installed: Collection[str]) -> str:
    """Return advice about a name that is not installed.

    Parameters
    ----------
    name
        The name as the user wrote it.
    installed
        The installed names.
    """
    for pack, names in PACKS.items():
        if name in names.split():
            return missing_pack_advice(pack)
    packed = {known: pack for pack, names in PACKS.items() for known in names.split()}
    known = {other.lower(): other for other in {*installed, *packed}}
    near = [known[x] for x in difflib.get_close_matches(name.lower(), known, 3)]
    listed = ", ".join(sorted(installed)) or "none"
    if not near:
        return f"installed factor types: {listed}"
    meant = " or ".join(_with_pack(x, packed, installed) for x in near)
    return f"did you mean {meant}? Installed factor types: {listed}"


def refuse_moved_name(name: str) -> NoReturn:
    """Raise an error for a name that `lpsmap_core` does not have, with the package that has it.

    Parameters
    ----------
    name
        The name as the user wrote it.

    Raises
    ------
    ImportError
        If the name has moved, in ``from lpsmap_core import ...``, which would hide the message of
        an AttributeError.
    AttributeError
        Otherwise.
    """
    message, package = f"module 'lpsmap_core' has no attribute {name!r}", MOVED.get(name)
    if package is not None:
        message += f"; import {RENAMED.get(name, 'it')} from {package}, which you install with: "
        message += f"pip install {package.replace('_', '-')}"
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise ImportError(message, name="lpsmap_core")
    raise AttributeError(message, name=name, obj=None)  # otherwise Python adds suggestions


def _with_pack(name: str, packed: Mapping[str, str], installed: Collection[str]) -> str:
    return name if name in installed else f"{name} (pip install {packed[name]})"
