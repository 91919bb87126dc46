"""Random structures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lpsmap_dynamic import Items
from lpsmap_torch.estimators.estimator import Estimate, Estimator, SolvedEstimate, has_gradients
from lpsmap_torch.estimators.gibbs_marginals import GibbsEstimate, marginals_of
from lpsmap_torch.estimators.map_vertex import MAP, checked_gradient
from lpsmap_torch.estimators.sparse_marginals import SparseMarginals
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.graph_gibbs import TorchGraphGibbs

__all__ = ["PerturbAndMAP", "Sample", "samples_of"]


class Sample(Estimator):
    """A sample from the Gibbs distribution: structures have probability ``exp(score) / Z``.

    Exact samples, for factor types with `Factor.inference`; the factors of an instance must form a
    tree. By the name ``"sample"``.

    Parameters
    ----------
    gradient
        The gradient of a surrogate: ``"straight-through"`` is that of the Gibbs marginals,
        ``"identity"`` the gradient with respect to the sample itself. For unbiased gradients, use
        `Layer.sample` and `score_function_loss`.
    generator
        The random number generator; None for that of torch.

    Raises
    ------
    ValueError
        If `gradient` is unknown.
    """

    def __init__(
        self, gradient: str = "straight-through", *, generator: torch.Generator | None = None
    ) -> None:
        known = "straight-through", "identity"
        self.gradient = checked_gradient("Sample: gradient", gradient, known)
        self.generator = generator

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> Estimate:
        """Return a sample; see `Estimator.estimate`.

        Raises
        ------
        TypeError
            If a type has no inference.
        ValueError
            If the sums over factors that form a cycle take too much memory.
        """
        if not graph.factors:  # a batch of padding
            return SparseMarginals().estimate(graph, {})
        gibbs = graph.gibbs()
        drawn = gibbs.sample(1, _seed(self.generator))
        values = drawn.values[0].double()
        pairs = zip(drawn.additionals, graph._additionals, strict=True)
        additionals = [None if y is None else x[0].double() for x, y in pairs]
        if has_gradients(graph):
            surrogate = self._surrogate(graph, gibbs)
            values = _moved(values, surrogate[0])
            pairs = zip(additionals, surrogate[1], strict=True)
            additionals = [None if x is None or y is None else _moved(x, y) for x, y in pairs]
        return GibbsEstimate(values, additionals, gibbs)

    def _surrogate(
        self, graph: TorchFactorGraph, gibbs: TorchGraphGibbs
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return values and additionals whose gradients are those of the sample."""
        if self.gradient == "straight-through":
            return marginals_of(gibbs, graph)
        scores = torch.cat([block.reshape(-1).double() for block in graph._scores])
        return scores, [None if x is None else x.double() for x in graph._additionals]

    def __repr__(self) -> str:
        return f"Sample({self.gradient!r})"


class PerturbAndMAP(MAP):
    """The best structure for scores with Gumbel noise, with the gradients of `MAP`.

    Independent standard Gumbel noise is added to the score of every variable (Papandreou & Yuille
    2011). A sample of a softmax for `Xor`, an approximate one of the Gibbs distribution for other
    types; any type will do. The straight-through gradient is that of the SparseMAP marginals for
    the same noise (Paulus et al. 2020). By the name ``"perturb"``.

    Parameters
    ----------
    gradient, step, exact
        As in `MAP`.
    generator
        The random number generator; None for that of torch.
    """

    def __init__(
        self,
        gradient: str = "straight-through",
        *,
        step: float = 1.0,
        exact: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(gradient, step=step, exact=exact)
        self.generator = generator

    def estimate(self, graph: TorchFactorGraph, options: Mapping[str, Any]) -> SolvedEstimate:
        """Return the best structure for perturbed scores; see `Estimator.estimate`."""
        graph._scores = [x + self._noise(x) for x in graph._scores]
        graph._scores_changed()
        return super().estimate(graph, options)

    def _noise(self, scores: Tensor) -> Tensor:
        device = scores.device if self.generator is None else self.generator.device
        noise = torch.empty(scores.shape, dtype=torch.float64, device=device)
        noise = noise.exponential_(generator=self.generator).log_().neg_()
        return noise.to(scores.device)

    def __repr__(self) -> str:
        return f"PerturbAnd{super().__repr__()}"


def samples_of(
    graph: TorchFactorGraph, items: Items, n: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return samples of a graph, and their log-probabilities.

    Parameters
    ----------
    graph
        The graph.
    items
        Its items.
    n
        The number of samples.
    generator
        The random number generator; None for that of torch.

    Returns
    -------
    Tensor
        (n, n_variables) the samples, without gradients.
    Tensor
        (n, n_items) their log-probabilities, with gradients.
    """
    device = graph._scores[0].device
    log_p = torch.zeros(n, items.n_items, dtype=torch.float64, device=device)
    if not graph.factors:  # a batch of padding
        return torch.zeros(n, graph.n_variables, dtype=torch.float64, device=device), log_p
    drawn = graph.gibbs().sample(n, _seed(generator))
    item = torch.from_numpy(items.of_component).to(device)
    of_items = drawn.log_probabilities[:, item >= 0].to(log_p)
    return drawn.values, log_p.index_add(1, item[item >= 0], of_items)


def _seed(generator: torch.Generator | None) -> int:
    """Return a seed drawn from a generator; None for that of torch."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device).item())


def _moved(values: Tensor, like: Tensor) -> Tensor:
    """Return values with the gradients of another tensor of the same number of entries."""
    like = like.reshape(values.shape)
    change = torch.where(like.isfinite(), like - like.detach(), 0.0)
    return values + change
