"""The derivatives of Gibbs distributions in autograd."""

from __future__ import annotations

import copy
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
    _ = gibbs._beliefs  # the copy shares them
    # the caller keeps the results, and garbage collection does not see cycles through autograd
    unlinked = copy.copy(gibbs)
    beliefs: tuple[Tensor, ...] = _GibbsBeliefs.apply(unlinked, eta_u, eta_v, constant)  # type: ignore[no-untyped-call]
    return beliefs


class _GibbsBeliefs(torch.autograd.Function):
    """Log-partition functions, entropies, marginals and expected counts of flat scores.

    With scores s, marginals m and the symmetric Hessian H of the log-partition functions, d log Z =
    m ds, dm = H ds, and the entropy log Z - s m changes by -s H ds.
    """

    @staticmethod
    def forward(
        ctx: Any, gibbs: Any, eta_u: Tensor, eta_v: Tensor, constant: Tensor
    ) -> tuple[Tensor, ...]:
        beliefs = [
            torch.from_numpy(np.add(*gibbs._log_partition)),
            *map(tensor, gibbs._beliefs[1:4]),
        ]
        ctx.gibbs = gibbs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(eta_u, eta_v, *beliefs[2:])
        return tuple(beliefs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        gibbs, (eta_u, eta_v, m, n) = ctx.gibbs, ctx.saved_tensors
        of_z, of_entropy, of_m, of_n = gradients
        owner, owner_v = tensor(gibbs._owner), tensor(gibbs._owner_v)
        out = None if of_z is None else (of_z[owner] * m, of_z[owner_v] * n)
        if of_m is None and of_n is None and of_entropy is None:
            return None, *(out or (None, None)), of_z
        d_u = torch.zeros_like(m) if of_m is None else of_m
        d_v = torch.zeros_like(n) if of_n is None else of_n
        if of_entropy is not None:
            own_u, own_v = map(tensor, gibbs._scores)  # those of the entropy: others may change
            d_u = d_u - of_entropy[owner] * finite_or_zero(own_u)
            d_v = d_v - of_entropy[owner_v] * finite_or_zero(own_v)
        moved = _HessianProduct.apply(gibbs, eta_u, eta_v, d_u, d_v)  # type: ignore[no-untyped-call]
        if out is not None:
            moved = out[0] + moved[0], out[1] + moved[1]
        return None, *moved, of_z


class _HessianProduct(torch.autograd.Function):
    """The product of a vector with the Hessian of log-partition functions."""

    @staticmethod
    def forward(
        ctx: Any, gibbs: Any, eta_u: Tensor, eta_v: Tensor, d_u: Tensor, d_v: Tensor
    ) -> tuple[Tensor, ...]:
        owners = gibbs._owner, gibbs._owner_v
        lost = np.array(gibbs._wrong)  # NaN propagates through all products
        vectors = [on_host("backward", d) for d in (d_u, d_v)]
        for owner, d in zip(owners, vectors, strict=True):
            lost[owner[~np.isfinite(d)]] = True
        if not lost.any():
            return tuple(map(torch.from_numpy, gibbs._hessian_product(Scores(*vectors))))
        of_entries = [lost[owner] for owner in owners]
        finite = [np.where(x, 0.0, d) for x, d in zip(of_entries, vectors, strict=True)]
        product = gibbs._hessian_product(Scores(*finite))
        pairs = zip(of_entries, product, strict=True)
        return tuple(torch.from_numpy(np.where(x, np.nan, d)) for x, d in pairs)

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
