"""The names of lpsmap with all packs of this project, by lpsmap_face/write_stub.py."""

from typing import Any

from lpsmap import plot as plot
from lpsmap.earlier import PFactorGraph as PFactorGraph
from lpsmap_core import ALGORITHM_1 as ALGORITHM_1
from lpsmap_core import ConvergenceWarning as ConvergenceWarning
from lpsmap_core import Factor as Factor
from lpsmap_core import FactorGraph as FactorGraph
from lpsmap_core import Solution as Solution
from lpsmap_core import Status as Status
from lpsmap_core import Variables as Variables
from lpsmap_core import stack as stack
from lpsmap_decode import solve_many as solve_many
from lpsmap_factors_logic import AndOut as AndOut
from lpsmap_factors_logic import AtMostOne as AtMostOne
from lpsmap_factors_logic import Budget as Budget
from lpsmap_factors_logic import Dense as Dense
from lpsmap_factors_logic import Imply as Imply
from lpsmap_factors_logic import Knapsack as Knapsack
from lpsmap_factors_logic import Nand as Nand
from lpsmap_factors_logic import Or as Or
from lpsmap_factors_logic import OrOut as OrOut
from lpsmap_factors_logic import Pair as Pair
from lpsmap_factors_logic import Potts as Potts
from lpsmap_factors_logic import Xor as Xor
from lpsmap_factors_logic import XorOut as XorOut
from lpsmap_factors_struct import Alignment as Alignment
from lpsmap_factors_struct import BinaryTree as BinaryTree
from lpsmap_factors_struct import Bits as Bits
from lpsmap_factors_struct import DepTree as DepTree
from lpsmap_factors_struct import HeadAutomaton as HeadAutomaton
from lpsmap_factors_struct import Matching as Matching
from lpsmap_factors_struct import ModifierBudget as ModifierBudget
from lpsmap_factors_struct import Permutation as Permutation
from lpsmap_factors_struct import SemiMarkov as SemiMarkov
from lpsmap_factors_struct import Sequence as Sequence
from lpsmap_factors_struct import SequenceBudget as SequenceBudget
from lpsmap_factors_struct import SequenceDistance as SequenceDistance
from lpsmap_factors_struct import SequenceSpans as SequenceSpans
from lpsmap_factors_struct import TopK as TopK
from lpsmap_search import DMVTree as DMVTree
from lpsmap_torch import TorchFactorGraph as TorchFactorGraph

__version__: str

def __getattr__(name: str) -> Any: ...  # of third-party plugins
