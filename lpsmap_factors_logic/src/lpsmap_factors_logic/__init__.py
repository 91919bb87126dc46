"""Factors of logic, counts and pairs in closed form, and tables over multi-valued variables."""

from lpsmap_factors_logic.at_most_one import AtMostOne
from lpsmap_factors_logic.budget import Budget
from lpsmap_factors_logic.dense import Dense
from lpsmap_factors_logic.knapsack import Knapsack
from lpsmap_factors_logic.or_ import Imply, Nand, Or
from lpsmap_factors_logic.or_out import AndOut, OrOut
from lpsmap_factors_logic.pair import Pair
from lpsmap_factors_logic.potts import Potts
from lpsmap_factors_logic.xor import Xor, XorOut

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
