"""Marginals of Gibbs distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lpsmap_core import Factor
from lpsmap_torch.estimators.estimator import Estimator
from lpsmap_torch.estimators.gibbs_estimate import GibbsEstimate, distributions_of, on_variables
from lpsmap_torch.gibbs import TorchGibbs
from lpsmap_torch.graph import TorchFactorGraph

__all__ = ["GibbsMarginals", "marginals_of"]


class GibbsMarginals(Estimator):
    """The marginals of the Gibbs distribution: structures have probability ``exp(score) / Z``.

    These are the gradient of ``log Z``, the marginals of conditional random fields (Lafferty et al.
    2001) and of structured attention (Kim et al. 2017): all positive, where SparseMAP's are sparse.
    The factor types must have a log-partition function, see `Factor.log_partition`. By the name
    ``"marginals"``.
    """

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> GibbsEstimate:
        """Return the marginals; see `Estimator.estimate`.

        Raises
        ------
        TypeError
            If a type has no log-partition function.
        ValueError
            If two factors share a variable.
        """
        distributions = distributions_of(graph)
        return GibbsEstimate(*marginals_of(graph, distributions), distributions)

    def __repr__(self) -> str:
        return "GibbsMarginals()"


def marginals_of(
    graph: TorchFactorGraph, distributions: list[TorchGibbs]
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the marginals of the variables of a graph, and the additionals of its declarations.

    Parameters
    ----------
    graph
        The graph.
    distributions
        The distributions of every declaration.
    """
    values = graph._scores[0].new_zeros(graph.n_variables).double().cpu()
    additionals: list[Tensor | None] = []
    for gibbs, given in zip(distributions, graph._additionals, strict=True):
        values = values + on_variables(gibbs.factor, gibbs._tensors[2], graph.n_variables)
        additionals.append(None if given is None else _rows(gibbs.factor, gibbs._tensors[3]))
    return values.to(graph._scores[0].device), additionals


def _rows(factor: Factor, additionals: Tensor) -> Tensor:
    return additionals.reshape(factor.n_factors, factor.n_additionals)
