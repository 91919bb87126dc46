"""Layers: structured attention, latent trees, rationales, subsets.

Each is a `torch.nn.Module` that maps scores to marginals of the same shape, batch first, and can be
used like ``softmax``: with autocast, ``torch.compile``, ``torch.func`` and data-parallel training.
"""

from lpsmap_torch.layers.latent_tree import LatentTree
from lpsmap_torch.layers.layer_solution import LayerSolution, Samples
from lpsmap_torch.layers.matching_attention import LPMatchingAttention, MatchingAttention
from lpsmap_torch.layers.rationale import Rationale
from lpsmap_torch.layers.sequence_attention import LPSequenceAttention, SequenceAttention
from lpsmap_torch.layers.sparse_map import SparseMAP
from lpsmap_torch.layers.top_k import TopK

__all__ = [
    "LPMatchingAttention",
    "LPSequenceAttention",
    "LatentTree",
    "LayerSolution",
    "MatchingAttention",
    "Rationale",
    "Samples",
    "SequenceAttention",
    "SparseMAP",
    "TopK",
]
