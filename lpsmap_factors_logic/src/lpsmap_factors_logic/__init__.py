"""Logic, counting and pairs in closed form, and tables over multi-valued variables."""

from lpsmap_factors_logic.counting import AtMostOne, Budget, Or, Xor
from lpsmap_factors_logic.dense import Dense, Potts
from lpsmap_factors_logic.knapsack import Knapsack
from lpsmap_factors_logic.literals import AndOut, Imply, Nand, XorOut
from lpsmap_factors_logic.or_out import OrOut
from lpsmap_factors_logic.pair import Pair

__version__ = "0.1.0"

__all__ = [
    "AndOut",
    "AtMostOne",
    "Budget",
    "Dense",
    "Imply",
    "Knapsack",
    "Nand",
    "Or",
    "OrOut",
    "Pair",
    "Potts",
    "Xor",
    "XorOut",
]
