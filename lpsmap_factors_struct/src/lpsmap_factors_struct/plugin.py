"""What this package adds to lpsmap."""

from __future__ import annotations

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_factors_struct import (
    BinaryTree,
    DepTree,
    HeadAutomaton,
    SemiMarkov,
    Sequence,
    SequenceBudget,
    SequenceDistance,
)


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [
        BinaryTree,
        DepTree,
        HeadAutomaton,
        SemiMarkov,
        Sequence,
        SequenceBudget,
        SequenceDistance,
    ]
