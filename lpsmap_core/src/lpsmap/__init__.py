"""The face of the installed packages: every factor type, and the factor graphs.

``from lpsmap import FactorGraph, Xor, TorchFactorGraph``: factor types come from the installed
packs, ``TorchFactorGraph`` from the adapter where it is installed. Names are resolved on first use,
so that importing this package imports neither packs that are not asked for nor torch.
"""

from __future__ import annotations

from typing import Any

from lpsmap_core import (
    ConvergenceWarning,
    Factor,
    FactorGraph,
    Solution,
    Status,
    Variables,
    WarmStartCache,
    __version__,
    stack,
)
from lpsmap_core.registry import installed as _installed

__all__ = [
    "ConvergenceWarning",
    "Factor",
    "FactorGraph",
    "Solution",
    "Status",
    "Variables",
    "WarmStartCache",
    "__version__",
    "stack",
]

# where a name lives, for the advice in an error
_PACKS = {
    "lpsmap-factors-logic": (
        "Xor Or AtMostOne Budget Knapsack Imply Nand XorOut OrOut AndOut Pair"
    ),
    "lpsmap-factors-struct": (
        "Alignment BinaryTree Bits DepTree HeadAutomaton Matching Permutation SemiMarkov Sequence "
        "SequenceBudget SequenceDistance TopK"
    ),
    "lpsmap-torch": "TorchFactorGraph",
}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'lpsmap' has no attribute {name!r}")
    registry = _installed()
    registration = registry.factors.get(name) or registry.graphs.get(name)
    if registration is None:
        pack = next((pack for pack, names in _PACKS.items() if name in names.split()), None)
        advice = (
            f"install it with: pip install {pack}"
            if pack
            else f"installed factor types: {', '.join(sorted(registry.factors)) or 'none'}"
        )
        raise AttributeError(f"module 'lpsmap' has no attribute {name!r}; {advice}")
    return registration.value


def __dir__() -> list[str]:
    return sorted({*__all__, *_installed().factors})
