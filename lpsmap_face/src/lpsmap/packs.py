"""Distributions with the names that they add to ``lpsmap``, installed or not."""

from __future__ import annotations

from collections.abc import Collection

from lpsmap_core.api import install_advice, missing_type_advice

__all__ = ["PACK_OF", "missing_name_advice"]

PACKS = {
    "lpsmap-decode": "solve_many",
    "lpsmap-factors-logic": (
        "Xor Or AtMostOne Budget Knapsack Imply Nand XorOut OrOut AndOut Pair Dense Potts"
    ),
    "lpsmap-factors-struct": (
        "Alignment BinaryTree Bits DepTree HeadAutomaton Matching ModifierBudget Permutation "
        "SemiMarkov Sequence SequenceBudget SequenceDistance SequenceSpans TopK"
    ),
    "lpsmap-search": "DMVTree",
    "lpsmap-torch": "TorchFactorGraph",
}

PACK_OF = {name: pack for pack, names in PACKS.items() for name in names.split()}


def missing_name_advice(name: str, installed: Collection[str]) -> str:
    """Return advice about a name that is not installed.

    Parameters
    ----------
    name
        The name as the user wrote it.
    installed
        The installed names.
    """
    if name in PACK_OF:
        return install_advice(PACK_OF[name])
    return missing_type_advice(name, installed)
