"""Which distribution brings a name of ``lpsmap``, a command or a file format, installed or not."""

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
"""Names that ``lpsmap`` has of core, so that no plugin can have them there."""

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
"""Packages that have names which ``lpsmap_core`` had in version 2 of the API."""

COMMANDS = {
    **dict.fromkeys(("convert", "decode", "info", "solve"), "lpsmap-decode"),
    "induce": "lpsmap-search",
}
"""Commands of ``lpsmap`` that core does not have."""

SUFFIXES = dict.fromkeys((".fg", ".uai", ".wcnf"), "lpsmap-decode")
"""Those of file formats that core does not have."""


def missing_pack_advice(distribution: str) -> str:
    """Return what to do about a distribution none of whose plugins is there.

    Parameters
    ----------
    distribution
        Its name.
    """
    if is_disabled(distribution):
        return f"{distribution}, which has it, is left out by {DISABLE}={os.environ[DISABLE]}"
    return f"install it with: pip install {distribution}"


def missing_name_advice(name: str, installed: Collection[str]) -> str:
    """Return what to do about a name that nothing installed has.

    Parameters
    ----------
    name
        As the user wrote it.
    installed
        Names that there are.
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
    """Refuse a name that `lpsmap_core` does not have, and say which package has it now.

    Parameters
    ----------
    name
        As the user wrote it.

    Raises
    ------
    ImportError
        If it has moved, for ``from lpsmap_core import ...``, which would swallow the words of an
        AttributeError.
    AttributeError
        Otherwise.
    """
    message, package = f"module 'lpsmap_core' has no attribute {name!r}", MOVED.get(name)
    if package is not None:
        message += f"; import it from {package}, which you install with: pip install "
        message += package.replace("_", "-")
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise ImportError(message, name="lpsmap_core")
    raise AttributeError(message, name=name, obj=None)  # else Python adds what is near, too


def _with_pack(name: str, packed: Mapping[str, str], installed: Collection[str]) -> str:
    return name if name in installed else f"{name} (pip install {packed[name]})"
