"""The derivatives of Gibbs distributions in autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Scores
from lpsmap_torch.tensors import on_host

__all__ = ["attach_beliefs", "tensor"]


def attach_beliefs(
    gibbs: Any, eta_u: Tensor, eta_v: Tensor, constant: Tensor
) -> tuple[Tensor, ...]:
    """Return log-partition functions, entropies, marginals and expected counts with gradients.

    Parameters
    ----------
    gibbs
        The distributions: a `Gibbs` or a `GraphGibbs` of the same scores.
    eta_u, eta_v
        Flat scores on the host, in float64.
    constant
        For every log-partition function, the scores of negated variables that it contains.
    """
    found: tuple[Tensor, ...] = _GibbsBeliefs.apply(gibbs, eta_u, eta_v, constant)  # type: ignore[no-untyped-call]
    return found


class _GibbsBeliefs(torch.autograd.Function):
    """Log-partition functions, entropies, marginals and expected counts of flat scores.

    With scores s, marginals m and the symmetric Hessian H of the log-partition functions, d log Z =
    m ds, dm = H ds, and the entropy log Z - s m changes by -s H ds.
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
        owner, owner_v = tensor(gibbs._owner), tensor(gibbs._owner_v)
        out_u, out_v = torch.zeros_like(m), torch.zeros_like(n)
        if of_z is not None:
            out_u, out_v = of_z[owner] * m, of_z[owner_v] * n
        if of_m is None and of_n is None and of_entropy is None:
            return None, out_u, out_v, of_z
        d_u = torch.zeros_like(m) if of_m is None else of_m
        d_v = torch.zeros_like(n) if of_n is None else of_n
        if of_entropy is not None:
            d_u = d_u - of_entropy[owner] * finite_or_zero(eta_u)
            d_v = d_v - of_entropy[owner_v] * finite_or_zero(eta_v)
        moved = _HessianProduct.apply(gibbs, eta_u, eta_v, d_u, d_v)  # type: ignore[no-untyped-call]
        return None, out_u + moved[0], out_v + moved[1], of_z


class _HessianProduct(torch.autograd.Function):
    """The product of a vector with the Hessian of log-partition functions."""

    @staticmethod
    def forward(
        ctx: Any, gibbs: Any, eta_u: Tensor, eta_v: Tensor, d_u: Tensor, d_v: Tensor
    ) -> tuple[Tensor, ...]:
        owners = gibbs._owner, gibbs._owner_v
        lost = np.array(gibbs._wrong)  # NaN propagates through all products
        vectors = [np.array(on_host("backward", d)) for d in (d_u, d_v)]
        for owner, d in zip(owners, vectors, strict=True):
            lost[owner[~np.isfinite(d)]] = True
        for owner, d in zip(owners, vectors, strict=True):
            d[lost[owner]] = 0.0
        product = gibbs._hessian_product(Scores(*vectors))
        for owner, d in zip(owners, product, strict=True):
            d[lost[owner]] = np.nan
        return tuple(map(torch.from_numpy, product))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            "gibbs: second derivatives of marginals and entropies are not available; use first "
            "derivatives, or second derivatives of log_partition."
        )


def finite_or_zero(scores: Tensor) -> Tensor:
    """Return scores with zeros in place of infinite ones."""
    return torch.where(scores.isfinite(), scores, 0.0)


def tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor that shares its memory with an array, or with a writable copy."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
