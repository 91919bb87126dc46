"""The plugin of this package: its hook implementations."""

from __future__ import annotations

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_factors_struct import (
    Alignment,
    BinaryTree,
    Bits,
    DepTree,
    HeadAutomaton,
    Matching,
    ModifierBudget,
    Permutation,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    TopK,
)

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [
        Alignment,
        BinaryTree,
        Bits,
        DepTree,
        HeadAutomaton,
        Matching,
        ModifierBudget,
        Permutation,
        SemiMarkov,
        Sequence,
        SequenceBudget,
        SequenceDistance,
        TopK,
    ]
