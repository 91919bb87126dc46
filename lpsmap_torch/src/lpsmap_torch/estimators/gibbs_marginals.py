"""Marginals of Gibbs distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from lpsmap_core.api import BoolArray, FloatArray, warn_unsolved
from lpsmap_dynamic import Items
from lpsmap_torch.estimators.estimator import Estimate, Estimator, has_gradients
from lpsmap_torch.gibbs import TorchGraphGibbs
from lpsmap_torch.graph import TorchFactorGraph


class GibbsMarginals(Estimator):
    """The marginals of the Gibbs distribution: structures have probability ``exp(score) / Z``.

    These are the gradient of ``log Z``, the marginals of conditional random fields (Lafferty et al.
    2001) and of structured attention (Kim et al. 2017): all positive, where SparseMAP's are sparse.
    The factor types must have a log-partition function, see `Factor.log_partition`, and the factors
    of an instance must form a tree. By the name ``"marginals"``.
    """

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> Estimate:
        """Return the marginals; see `Estimator.estimate`.

        Raises
        ------
        TypeError
            If a type has no log-partition function.
        ValueError
            If the sums over factors that form a cycle take too much memory.
        """
        return gibbs_marginals(graph.gibbs(), graph)

    def __repr__(self) -> str:
        return "GibbsMarginals()"


def gibbs_marginals(gibbs: TorchGraphGibbs, graph: TorchFactorGraph) -> GibbsEstimate:
    """Return the marginals of a graph as an estimate."""
    return GibbsEstimate(*marginals_of(gibbs, graph), gibbs)


def marginals_of(
    gibbs: TorchGraphGibbs, graph: TorchFactorGraph
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the marginals of a graph's variables, and the additionals of its declarations."""
    m, n = gibbs._tensors[2:]
    device = graph._scores[0].device
    additionals: list[Tensor | None] = []
    for factor, scores in zip(graph.factors, graph._additionals, strict=True):
        counts = n[gibbs._additionals(factor)].reshape(factor.n_factors, factor.n_additionals)
        additionals.append(None if scores is None else counts.to(device))
    return m.to(device), additionals


class GibbsEstimate(Estimate):
    """An estimate from the Gibbs distribution of a graph; warns of components without structure."""

    def __init__(
        self, values: Tensor, additionals: list[Tensor | None], gibbs: TorchGraphGibbs
    ) -> None:
        super().__init__(values, additionals)
        self._gibbs = gibbs
        wrong = np.isneginf(self._log_partition[:-1])
        if wrong.any():
            warn_unsolved(
                ["Components have constraints that allow no structure."],
                [f"Components without a structure: {int(wrong.sum())} of {len(wrong)}."],
            )

    def slopes(self, graph: TorchFactorGraph) -> tuple[Tensor, list[Tensor | None]]:
        """Return the marginals, also of a sample; see `Estimate.slopes`."""
        if has_gradients(graph):
            return marginals_of(self._gibbs, graph)
        return super().slopes(graph)

    @property
    def infeasible(self) -> BoolArray:
        """(n_variables,) flags of variables of components without a structure."""
        wrong = np.append(np.isneginf(self._log_partition[:-1]), False)
        flags: BoolArray = wrong[self._gibbs._owner]
        return flags

    def objective(self, items: Items) -> FloatArray:
        """Return the log-partition functions of the items."""
        return items.sums(items.of_component, self._log_partition[:-1])

    def solved(self, items: Items) -> BoolArray:
        """Return flags of the items with a structure: their sums are exact."""
        return np.isfinite(self.objective(items))

    @property
    def _log_partition(self) -> FloatArray:
        return np.asarray(np.add(*self._gibbs._log_partition))
