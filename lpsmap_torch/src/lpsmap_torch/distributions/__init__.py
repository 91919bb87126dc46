"""Distributions over structures, in the idiom of `torch.distributions`.

A distribution has the probabilities of whole structures, their marginals, samples and rankings, in
the form of the field: tags, heads, spans.
"""

from lpsmap_torch.distributions.chain import Chain
from lpsmap_torch.distributions.dependency_trees import LabelledTree, ProjectiveTree, Tree
from lpsmap_torch.distributions.index_sets import Alignment, BinaryTree, SemiMarkov, Subset
from lpsmap_torch.distributions.structured_distribution import (
    KBest,
    SparseStructures,
    StructuredDistribution,
)

__all__ = [
    "Alignment",
    "BinaryTree",
    "Chain",
    "KBest",
    "LabelledTree",
    "ProjectiveTree",
    "SemiMarkov",
    "SparseStructures",
    "StructuredDistribution",
    "Subset",
    "Tree",
]
