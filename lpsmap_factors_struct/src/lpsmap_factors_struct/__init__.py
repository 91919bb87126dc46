"""Structured factors for lpsmap from compiled MAP oracles: trees, sequences, matchings, subsets."""

from lpsmap_factors_struct.alignment import Alignment
from lpsmap_factors_struct.binary_tree import BinaryTree
from lpsmap_factors_struct.bits import Bits
from lpsmap_factors_struct.dep_tree import DepTree
from lpsmap_factors_struct.head_automaton import HeadAutomaton
from lpsmap_factors_struct.matching import Matching
from lpsmap_factors_struct.modifier_budget import ModifierBudget
from lpsmap_factors_struct.permutation import Permutation
from lpsmap_factors_struct.semi_markov import SemiMarkov
from lpsmap_factors_struct.sequence import Sequence
from lpsmap_factors_struct.sequence_budget import SequenceBudget
from lpsmap_factors_struct.sequence_distance import SequenceDistance
from lpsmap_factors_struct.sequence_spans import SequenceSpans
from lpsmap_factors_struct.top_k import TopK

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "BinaryTree",
    "Bits",
    "DepTree",
    "HeadAutomaton",
    "Matching",
    "ModifierBudget",
    "Permutation",
    "SemiMarkov",
    "Sequence",
    "SequenceBudget",
    "SequenceDistance",
    "SequenceSpans",
    "TopK",
]
