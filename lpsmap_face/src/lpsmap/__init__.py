"""The public names of the installed packages: all factor types, and the factor graphs.

``from lpsmap import FactorGraph, Xor, TorchFactorGraph``: factor types come from the installed
packs, ``TorchFactorGraph`` from the torch adapter if it is installed. Names are resolved on first
use, so that importing this package imports neither unused packs nor torch. The names of this
project's packs are in ``__init__.pyi``, for editors and type checkers.
"""

from lpsmap.names import listed_names as __dir__
from lpsmap.names import resolve as __getattr__
from lpsmap_core import (
    ALGORITHM_1,
    ConvergenceWarning,
    Factor,
    FactorGraph,
    Solution,
    Status,
    Variables,
    stack,
)

__version__ = "0.1.0"
