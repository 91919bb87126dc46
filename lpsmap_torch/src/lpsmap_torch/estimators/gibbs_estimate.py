"""Estimates from the Gibbs distribution of a graph."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from lpsmap_core.api import BoolArray, FloatArray, warn_unsolved
from lpsmap_torch.estimators.estimator import Estimate
from lpsmap_torch.graph_gibbs import TorchGraphGibbs
from lpsmap_torch.items import Items

__all__ = ["GibbsEstimate"]


class GibbsEstimate(Estimate):
    """An estimate from the Gibbs distribution of a graph.

    Parameters
    ----------
    values, additionals
        As in `Estimate`.
    gibbs
        The distribution.

    Warns
    -----
    ConvergenceWarning
        If components have no structure.
    """

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
