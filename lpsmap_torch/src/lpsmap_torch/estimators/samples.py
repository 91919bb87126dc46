"""Random structures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lpsmap_torch.estimators.estimator import (
    Estimate,
    Estimator,
    SolvedEstimate,
    has_gradients,
)
from lpsmap_torch.estimators.gibbs_marginals import GibbsEstimate, marginals_of
from lpsmap_torch.estimators.map_vertex import MAP, checked_gradient
from lpsmap_torch.gibbs import TorchGraphGibbs
from lpsmap_torch.graph import TorchFactorGraph


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
        gibbs = graph.gibbs()
        drawn = gibbs.sample(1, seed_of(self.generator))
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


def seed_of(generator: torch.Generator | None) -> int:
    """Return a seed drawn from a generator; None for that of torch."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device).item())


def _moved(values: Tensor, like: Tensor) -> Tensor:
    """Return values with the gradients of another tensor of the same number of entries."""
    like = like.reshape(values.shape)
    change = torch.where(like.isfinite(), like - like.detach(), 0.0)
    return values + change


LEAVE_ONE_OUT = "leave-one-out"


def score_function_loss(
    costs: Tensor, log_probabilities: Tensor, *, baseline: str | Tensor | None = LEAVE_ONE_OUT
) -> Tensor:
    """Return mean costs of samples whose gradient estimates that of the expected cost.

    The gradient of ``sum_y p(y) c(y)`` is estimated without bias by the mean of ``(c(y) - b) d log
    p(y) + d c(y)`` over samples y (Williams 1992). The samples and their log-probabilities come
    from `Layer.sample`.

    Parameters
    ----------
    costs
        ``(n, ...)`` the costs of n samples; gradients also flow to parameters that they depend on.
    log_probabilities
        ``(n, ...)`` the log-probabilities of the samples, with gradients.
    baseline
        The baseline b. ``"leave-one-out"``: the mean cost of the other samples, at least two
        samples (Kool et al. 2019). Or a tensor that broadcasts to the costs: for self-critical
        training, the costs of the best structures (Rennie et al. 2017). None for zero.

    Returns
    -------
    Tensor
        ``(...)`` the mean costs.

    Raises
    ------
    ValueError
        If the shapes differ, if there is no sample, or a single one with the baseline
        ``"leave-one-out"``; or if the baseline is unknown.
    """
    if costs.shape != log_probabilities.shape or not costs.ndim:
        raise ValueError(
            f"score_function_loss: costs has shape {tuple(costs.shape)} and log_probabilities "
            f"{tuple(log_probabilities.shape)}; expected equal shapes, the samples first."
        )
    n, fixed = len(costs), costs.detach()
    if isinstance(baseline, str):
        if baseline != LEAVE_ONE_OUT:
            raise ValueError(
                f"score_function_loss: baseline is {baseline!r}; expected {LEAVE_ONE_OUT!r}, a "
                "tensor, or None."
            )
        if n < 2:
            raise ValueError(
                f"score_function_loss: baseline {LEAVE_ONE_OUT!r} needs at least 2 samples, got "
                f"{n}. Draw more, or pass another baseline."
            )
        baseline = (fixed.sum(0) - fixed) / (n - 1)
    elif not n:
        raise ValueError("score_function_loss: costs has no sample; expected at least one.")
    advantage = fixed if baseline is None else fixed - baseline.detach()
    surrogate = advantage * (log_probabilities - log_probabilities.detach())
    return (costs + surrogate).mean(0)
