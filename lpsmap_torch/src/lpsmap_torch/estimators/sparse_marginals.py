"""Marginals of SparseMAP and LP-SparseMAP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpsmap_torch.estimators.estimator import Estimator, SolvedEstimate
from lpsmap_torch.graph import TorchFactorGraph

__all__ = ["SparseMarginals"]


class SparseMarginals(Estimator):
    """The sparse marginals of SparseMAP and LP-SparseMAP, with their exact derivatives.

    ``argmax_mu <scores, mu> - 1/2 ||mu||^2`` (Niculae et al. 2018; Niculae & Martins 2020). The
    default of all layers, by the name ``"sparsemap"``.
    """

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> SolvedEstimate:
        """Return the marginals; see `Estimator.estimate`."""
        solution = graph.solve(**options)
        return SolvedEstimate(graph._values, graph._nu, solution)

    def __repr__(self) -> str:
        return "SparseMarginals()"
