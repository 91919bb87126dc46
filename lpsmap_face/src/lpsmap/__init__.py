"""The public names of the installed packages: all factor types, and the factor graphs.

``from lpsmap import FactorGraph, Xor, TorchFactorGraph``: factor types come from the installed
packs, ``TorchFactorGraph`` from the torch adapter if it is installed. Names are resolved on first
use, so that importing this package imports neither unused packs nor torch.
"""

from __future__ import annotations

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from lpsmap_core import (
    ALGORITHM_1,
    ConvergenceWarning,
    Factor,
    FactorGraph,
    Solution,
    Status,
    Variables,
    WarmStartCache,
    stack,
)
from lpsmap_core import installed as _installed
from lpsmap_core.api import missing_name_advice as _advice
from lpsmap_core.api import missing_pack_advice as _pack_advice

if TYPE_CHECKING:
    from lpsmap_decode import solve_many

__version__ = "0.1.0"

__all__ = [
    "ALGORITHM_1",
    "ConvergenceWarning",
    "Factor",
    "FactorGraph",
    "Solution",
    "Status",
    "Variables",
    "WarmStartCache",
    "__version__",
    "solve_many",
    "stack",
]
_MOVED = dict.fromkeys(
    ("ConditionalGradient", "conditional_gradient"),
    "it is an example now, in examples/conditional_gradient.py of the repository",
)
_NAMES = sorted({*__all__} - {"solve_many"})
del __all__  # only for type checkers; `import *` calls `__getattr__`, which adds factor types


def __getattr__(name: str) -> Any:
    if name == "PFactorGraph":
        return _import_module("lpsmap.earlier").PFactorGraph
    if name == "plot":
        return _import_module("lpsmap.plot")
    if name == "__all__":  # without graphs, since `import *` would import torch
        return __dir__()
    if name.startswith("_"):
        raise AttributeError(f"module 'lpsmap' has no attribute {name!r}")
    registry = _installed()
    if name == "solve_many" and _has_decode():
        return _import_module("lpsmap_decode").solve_many
    registration = registry.factors.get(name) or registry.graphs.get(name)
    if registration is None:
        advice = _MOVED.get(name) or _advice(name, registry.factors)
        if name == "solve_many":
            advice = _pack_advice("lpsmap-decode")
        message = f"module 'lpsmap' has no attribute {name!r}; {advice}"
        # `from lpsmap import ...` would discard the message of an AttributeError
        imported = _sys._getframe(1).f_code.co_name == "_handle_fromlist"
        if imported:
            raise ImportError(message)
        # without an object, Python does not add suggestions
        raise AttributeError(message, name=name, obj=None)
    return registration.value


def __dir__() -> list[str]:
    of_decode = ["solve_many"] if _has_decode() else []
    return sorted({*_NAMES, "PFactorGraph", *of_decode, *_installed().factors})


def _has_decode() -> bool:
    """Return whether lpsmap-decode is installed and not disabled."""
    return any(plugin.distribution == "lpsmap-decode" for plugin in _installed().plugins)
