"""Logic, counting and pairwise factors, with projections and Jacobians in closed form."""

from lpsmap_factors_logic.counting import AtMostOne, Budget, Or, Xor
from lpsmap_factors_logic.knapsack import Knapsack
from lpsmap_factors_logic.literals import AndOut, Imply, Nand, XorOut
from lpsmap_factors_logic.or_out import OrOut
from lpsmap_factors_logic.pair import Pair

__version__ = "0.1.0"

__all__ = [
    "AndOut",
    "AtMostOne",
    "Budget",
    "Imply",
    "Knapsack",
    "Nand",
    "Or",
    "OrOut",
    "Pair",
    "Xor",
    "XorOut",
]
