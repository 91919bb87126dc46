"""Random structures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor
from lpsmap_core.api import FloatArray, IntArray, slot_values
from lpsmap_torch.estimators.estimator import Estimate, Estimator, SolvedEstimate, has_gradients
from lpsmap_torch.estimators.gibbs_estimate import GibbsEstimate
from lpsmap_torch.estimators.gibbs_marginals import marginals_of
from lpsmap_torch.estimators.map_vertex import MAP, checked_gradient
from lpsmap_torch.estimators.sparse_marginals import SparseMarginals
from lpsmap_torch.gibbs import TorchGibbs
from lpsmap_torch.gibbs_function import tensor
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.graph_gibbs import TorchGraphGibbs
from lpsmap_torch.items import Items

__all__ = ["PerturbAndMAP", "Sample", "samples_of"]


class Sample(Estimator):
    """A sample from the Gibbs distribution: structures have probability ``exp(score) / Z``.

    Exact samples, for factor types with `Factor.inference`. By the name ``"sample"``.

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
            If two factors share a variable.
        """
        if not graph.factors:  # a batch of padding
            return SparseMarginals().estimate(graph, {})
        values, additionals = _one_sample(graph, self.generator)
        gibbs = graph.gibbs()
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


def _draw(
    gibbs: TorchGibbs, n: int, generator: torch.Generator | None
) -> tuple[FloatArray, FloatArray]:
    """Return samples of a declaration's factors.

    Factors without a structure have zeros, and those with scores that are not finite NaN.

    Parameters
    ----------
    gibbs
        The distributions.
    n
        The number of samples.
    generator
        The random number generator; None for that of torch.

    Returns
    -------
    ndarray
        (n, n_slots) the slots of all factors.
    ndarray
        (n, n_factors * n_additionals) their additionals.
    """
    device = "cpu" if generator is None else generator.device
    seed = torch.randint(2**63 - 1, (), generator=generator, device=device).item()
    found, factor = gibbs.sample(n, seed), gibbs.factor
    sizes, owner = np.diff(factor.offsets), found.vertices.owner
    rank = np.arange(len(owner)) - found.starts[owner]
    slots = np.zeros((n, int(factor.offsets[-1])))
    structure, entry, value = found.vertices.of_variables(sizes)
    slots[rank[structure], factor.offsets[owner[structure]] + entry] = value
    extra = np.zeros((n, factor.n_factors * factor.n_additionals))
    structure, entry, value = found.vertices.of_additionals(sizes)
    extra[rank[structure], owner[structure] * factor.n_additionals + entry] = value
    slots[:, np.repeat(gibbs._wrong, sizes)] = np.nan
    extra[:, np.repeat(gibbs._wrong, factor.n_additionals)] = np.nan
    return slots, extra


def samples_of(
    graph: TorchFactorGraph, items: Items, n: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return samples of all factors of a graph, and their log-probabilities.

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
    values = torch.zeros(n, graph.n_variables, dtype=torch.float64)
    log_p = torch.zeros(n, items.n_items, dtype=torch.float64)
    for gibbs in _distributions(graph):
        factor, (slots, extra) = gibbs.factor, _draw(gibbs, n, generator)
        values += _on_variables(factor, slots, graph.n_variables)
        own = gibbs._log_probabilities(slots, extra).to(log_p).T
        item = items.of_factors(factor)
        counted = torch.from_numpy(item >= 0)
        log_p = log_p.index_add(1, torch.from_numpy(item)[counted], own[:, counted])
    device = graph._scores[0].device
    return values.to(device), log_p.to(device)


def _one_sample(
    graph: TorchFactorGraph, generator: torch.Generator | None
) -> tuple[Tensor, list[Tensor | None]]:
    """Return a sample as values of all variables, and of the additionals of all declarations."""
    values = torch.zeros(graph.n_variables, dtype=torch.float64)
    additionals: list[Tensor | None] = []
    for gibbs, given in zip(_distributions(graph), graph._additionals, strict=True):
        factor, (slots, extra) = gibbs.factor, _draw(gibbs, 1, generator)
        values += _on_variables(factor, slots[0], graph.n_variables)
        rows = tensor(extra).reshape(factor.n_factors, factor.n_additionals)
        additionals.append(None if given is None else rows.to(given.device))
    return values.to(graph._scores[0].device), additionals


def _distributions(graph: TorchFactorGraph) -> list[TorchGibbs]:
    """Return the Gibbs distributions of every declaration of a graph.

    Raises
    ------
    ValueError
        If two factors share a variable.
    """
    used = [np.unique(_indices(factor)) for factor in graph.factors]
    if used and np.bincount(np.concatenate(used)).max(initial=0) > 1:
        raise ValueError(
            "sample: factors share variables, and samples of several factors together are not "
            'available; expected factors without shared variables. Use the estimator "perturb".'
        )
    return [graph.gibbs(factor) for factor in graph.factors]


def _on_variables(factor: Factor, slots: FloatArray, n_variables: int) -> Tensor:
    """Return (..., n_variables) values of the variables, given those of a declaration's slots."""
    negated = slot_values(factor, factor.variables.negated)
    values = np.zeros((*slots.shape[:-1], n_variables))
    values[..., _indices(factor)] = np.where(negated, 1.0 - slots, slots)
    return tensor(values)


def _indices(factor: Factor) -> IntArray:
    index: IntArray = slot_values(factor, factor.variables.index)
    return index


def _moved(values: Tensor, like: Tensor) -> Tensor:
    """Return values with the gradients of another tensor of the same number of entries."""
    like = like.reshape(values.shape)
    change = torch.where(like.isfinite(), like - like.detach(), 0.0)
    return values + change
