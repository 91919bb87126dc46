"""Structured factors for lpsmap, from compiled MAP oracles: dependency trees and sequences."""

from lpsmap_factors_struct.binary_tree import BinaryTree
from lpsmap_factors_struct.dep_tree import DepTree
from lpsmap_factors_struct.head_automaton import HeadAutomaton
from lpsmap_factors_struct.semi_markov import SemiMarkov
from lpsmap_factors_struct.sequence import Sequence
from lpsmap_factors_struct.sequence_budget import SequenceBudget
from lpsmap_factors_struct.sequence_distance import SequenceDistance

__all__ = [
    "BinaryTree",
    "DepTree",
    "HeadAutomaton",
    "SemiMarkov",
    "Sequence",
    "SequenceBudget",
    "SequenceDistance",
]
