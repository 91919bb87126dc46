"""Gibbs distributions of factors as differentiable functions of the scores."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Found, Scores
from lpsmap_core.api import flipped_slots
from lpsmap_dynamic import Gibbs
from lpsmap_torch.tensors import numbers, on_host

__all__ = ["TorchGibbs"]


class TorchGibbs(Gibbs):
    """The Gibbs distributions of a declaration's factors, as tensors.

    ``log_partition``, ``entropy``, ``marginals`` and ``additionals`` carry gradients to all scores.
    Log-partition functions also have second derivatives, since the marginals are their gradients.

    Parameters
    ----------
    factor
        The declaration.
    scores
        The scores of each block of variables, in the order of the graph.
    additionals
        The scores of the factor's additionals, or None.
    """

    def __init__(self, factor: Factor, scores: list[Tensor], additionals: Tensor | None) -> None:
        flat = [numbers(block).reshape(-1) for block in scores]
        shape = factor.n_factors, factor.n_additionals
        extra = np.empty(shape) if additionals is None else numbers(additionals).reshape(shape)
        super().__init__(factor, np.concatenate(flat), extra)
        self._blocks, self._given = scores, additionals
        self._like = functools.reduce(torch.promote_types, [x.dtype for x in scores])
        self._device = scores[0].device

    @property
    def log_partition(self) -> Tensor:
        """``(*batch_shape,)`` the log-partition functions, ``log Z``."""
        return self._cast(self._tensors[0].reshape(self.factor.batch_shape))

    @property
    def entropy(self) -> Tensor:
        """``(*batch_shape,)`` entropies of the distributions, in nats."""
        return self._cast(self._tensors[1].reshape(self.factor.batch_shape))

    @property
    def marginals(self) -> Tensor:
        """Probabilities that the slots are on, in the shape of the factor's view."""
        factor, m = self.factor, self._tensors[2]
        flipped = flipped_slots(factor)
        if flipped is not None:
            m = torch.where(_tensor(flipped), 1.0 - m, m)
        placed = torch.zeros(factor.variables.shape, dtype=m.dtype)
        keep = torch.ones(placed.shape, dtype=torch.bool)
        return self._cast(
            placed.masked_scatter(keep if factor.keep is None else _tensor(factor.keep), m)
        )

    @property
    def additionals(self) -> Tensor:
        """Expected counts of the additionals, in the shape of their scores."""
        return self._cast(self._tensors[3].reshape(self._additional_shape))

    @functools.cached_property
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        eta_u, eta_v, constant = self._local
        found: tuple[Tensor, ...] = _GibbsBeliefs.apply(self, eta_u, eta_v, constant)  # type: ignore[no-untyped-call]
        return found

    @functools.cached_property
    def _local(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of slots and additionals, and the total score of negated variables per factor."""
        blocks = [x.to(device="cpu", dtype=torch.float64).reshape(-1) for x in self._blocks]
        of_slots = torch.cat(blocks)[_tensor(self._index)]
        negated = _tensor(self._negated)
        eta_u, eta_v = torch.where(negated, -of_slots, of_slots), torch.empty(0).double()
        if self._given is not None:
            eta_v = self._given.to(device="cpu", dtype=torch.float64).reshape(-1)
        shown = negated & (of_slots > -torch.inf)
        constant = torch.zeros(self.factor.n_factors, dtype=torch.float64)
        constant = constant.index_add(0, _tensor(self._owner)[shown], of_slots[shown])
        return eta_u, eta_v, constant

    def _log_probabilities(
        self, slots: NDArray[np.float64], additionals: NDArray[np.float64], owner: NDArray[np.int64]
    ) -> Tensor:
        exact = _tensor(super()._log_probabilities(slots, additionals, owner))
        eta_u, eta_v, constant = self._local
        score = (constant - self._tensors[0])[:, None].repeat(1, len(slots))
        for values, factors, own in (
            (slots, self._owner, torch.where(eta_u == torch.inf, 0.0, eta_u)),
            (additionals, owner, eta_v),
        ):
            k, place = np.nonzero(values)
            worth = _tensor(values[k, place]) * own[_tensor(place)]
            score = score.index_put((_tensor(factors[place]), _tensor(k)), worth, accumulate=True)
        moves = score - score.detach()  # zeros that carry the gradient
        return self._cast(exact + torch.where(score.isfinite(), moves, 0.0))

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(dtype=self._like, device=self._device)

    def _distributions(self, found: Found, probability: float | None = None) -> Distributions:
        drawn = super()._distributions(found, probability)

        def convert(array: NDArray[np.float64]) -> Tensor:
            return self._cast(torch.from_numpy(array))

        return drawn.with_arrays(convert(drawn.probabilities), convert)


class _GibbsBeliefs(torch.autograd.Function):
    """Log-partition functions, entropies, marginals and expected counts of slot scores.

    The log-partition functions are those of the variables: they include the constants, whose
    gradient equals theirs. With scores s, marginals m and the symmetric Hessian H of the
    log-partition functions, d log Z = m ds, dm = H ds, and the entropy log Z - s m changes by -s H
    ds.
    """

    @staticmethod
    def forward(
        ctx: Any, gibbs: Any, eta_u: Tensor, eta_v: Tensor, constant: Tensor
    ) -> tuple[Tensor, ...]:
        found = [torch.from_numpy(np.array(x)) for x in gibbs._beliefs[:4]]
        found[0] = torch.from_numpy(np.add(*gibbs._log_partition))
        ctx.gibbs = gibbs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(eta_u, eta_v, *found[2:])
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        gibbs, (eta_u, eta_v, m, n) = ctx.gibbs, ctx.saved_tensors
        of_z, of_entropy, of_m, of_n = gradients
        owner, n_each = _tensor(gibbs._owner), gibbs.factor.n_additionals
        out_u, out_v = torch.zeros_like(m), torch.zeros_like(n)
        if of_z is not None:
            out_u, out_v = of_z[owner] * m, of_z.repeat_interleave(n_each) * n
        if of_m is None and of_n is None and of_entropy is None:
            return None, out_u, out_v, of_z
        d_u = torch.zeros_like(m) if of_m is None else of_m
        d_v = torch.zeros_like(n) if of_n is None else of_n
        if of_entropy is not None:
            d_u = d_u - of_entropy[owner] * _finite(eta_u)
            d_v = d_v - of_entropy.repeat_interleave(n_each) * _finite(eta_v)
        moved = _HessianProduct.apply(gibbs, eta_u, eta_v, d_u, d_v)  # type: ignore[no-untyped-call]
        return None, out_u + moved[0], out_v + moved[1], of_z


class _HessianProduct(torch.autograd.Function):
    """The product of a vector with the Hessian of log-partition functions."""

    @staticmethod
    def forward(
        ctx: Any, gibbs: Any, eta_u: Tensor, eta_v: Tensor, d_u: Tensor, d_v: Tensor
    ) -> tuple[Tensor, ...]:
        n = gibbs.factor.n_factors
        owners = gibbs._owner, np.repeat(np.arange(n), gibbs.factor.n_additionals)
        lost = np.array(gibbs._wrong)  # NaN propagates through all products
        vectors = [np.array(on_host("backward", d)) for d in (d_u, d_v)]
        for owner, d in zip(owners, vectors, strict=True):
            lost[owner[~np.isfinite(d)]] = True
        for owner, d in zip(owners, vectors, strict=True):
            d[lost[owner]] = 0.0
        product = gibbs._sums.hessian_product(gibbs._rows, gibbs._scores, Scores(*vectors))
        for owner, d in zip(owners, product, strict=True):
            d[lost[owner]] = np.nan
        return tuple(map(torch.from_numpy, product))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            "gibbs: second derivatives of marginals and entropies are not available; use first "
            "derivatives, or second derivatives of log_partition."
        )


def _finite(scores: Tensor) -> Tensor:
    """Return scores with zeros in place of infinite ones."""
    return torch.where(scores.isfinite(), scores, 0.0)


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
