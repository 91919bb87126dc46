"""Gibbs distributions of factors as differentiable functions of the scores."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Scores, Variables
from lpsmap_core.api import FloatArray, cached_property, flipped_slots
from lpsmap_dynamic import Found, Gibbs, GraphGibbs
from lpsmap_torch.function import given
from lpsmap_torch.tensors import numbers, on_host


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
        self._blocks, self._additional_scores = scores, additionals
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
            m = torch.where(tensor(flipped), 1.0 - m, m)
        if factor.keep is None:
            return self._cast(m.reshape(factor.variables.shape))
        placed = torch.zeros(factor.variables.shape, dtype=m.dtype)
        return self._cast(placed.masked_scatter(tensor(factor.keep), m))

    @property
    def additionals(self) -> Tensor:
        """Expected counts of the additionals, in the shape of their scores."""
        return self._cast(self._tensors[3].reshape(self._additional_shape))

    @cached_property
    @torch.enable_grad()  # the first use may be a sample without gradients
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        return attach_beliefs(self, *self._local)

    @cached_property
    @torch.enable_grad()
    def _local(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of slots and additionals, and the total score of negated variables per factor."""
        blocks, eta_v = list(map(_flat, self._blocks)), torch.empty(0, dtype=torch.float64)
        if self._additional_scores is not None:
            eta_v = _flat(self._additional_scores)
        constant = torch.zeros(self.factor.n_factors, dtype=torch.float64)
        span = self.factor.variables.span
        if span is not None and self.factor.keep is None:  # a whole block, not negated
            whole = blocks[0] if len(blocks) == 1 else torch.cat(blocks)[span]
            return whole, eta_v, constant
        of_slots, negated = torch.cat(blocks)[tensor(self._index)], tensor(self._negated)
        shown = negated & (of_slots > -torch.inf)
        constant = constant.index_add(0, tensor(self._owner)[shown], of_slots[shown])
        return torch.where(negated, -of_slots, of_slots), eta_v, constant

    def _log_probabilities(
        self, slots: NDArray[np.float64], additionals: NDArray[np.float64]
    ) -> Tensor:
        exact = tensor(super()._log_probabilities(slots, additionals))
        eta_u, eta_v, constant = self._local
        score = (constant - self._tensors[0])[:, None].repeat(1, len(slots))
        for values, factors, scores in (
            (slots, self._owner, torch.where(eta_u == torch.inf, 0.0, eta_u)),
            (additionals, self._owner_v, eta_v),
        ):
            k, place = np.nonzero(values)
            worth = tensor(values[k, place]) * scores[tensor(place)]
            score = score.index_put((tensor(factors[place]), tensor(k)), worth, accumulate=True)
        moves = score - score.detach()  # zeros that carry the gradient
        return self._cast(exact + torch.where(score.isfinite(), moves, 0.0))

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(dtype=self._like, device=self._device, copy=True)

    def _distributions(self, structures: Found, probability: float | None = None) -> Distributions:
        drawn = super()._distributions(structures, probability)

        def convert(array: NDArray[np.float64]) -> Tensor:
            return self._cast(torch.from_numpy(array))

        return drawn.with_arrays(convert(drawn.probabilities), convert)


# -------------------------------------------------------------------- derivatives


def attach_beliefs(
    gibbs: Any, eta_u: Tensor, eta_v: Tensor, constant: Tensor
) -> tuple[Tensor, ...]:
    """Return log-partition functions, entropies, marginals and expected counts with gradients.

    `gibbs` is a `Gibbs` or a `GraphGibbs` of the same scores, which are flat on the host, in
    float64. The constant has, for every log-partition function, the scores of negated variables in
    it.
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
        moved = _hessian_product(gibbs, d_u, d_v)
        if torch.is_grad_enabled():
            moved = given(moved, _refuse, _refuse, eta_u, eta_v, d_u, d_v)
        if out is not None:
            moved = [out[0] + moved[0], out[1] + moved[1]]
        return None, *moved, of_z


def _hessian_product(gibbs: Any, *vectors: Tensor) -> list[Tensor]:
    """Return the product of a vector with the Hessian of log-partition functions."""
    arrays = [on_host("backward", d) for d in vectors]
    owners = gibbs._owner, gibbs._owner_v
    lost = np.array(gibbs._wrong)  # NaN propagates through all products
    for owner, d in zip(owners, arrays, strict=True):
        lost[owner[~np.isfinite(d)]] = True
    of_entries = [lost[owner] for owner in owners]
    finite = [np.where(x, 0.0, d) for x, d in zip(of_entries, arrays, strict=True)]
    product = gibbs._hessian_product(Scores(*finite))
    pairs = zip(of_entries, product, strict=True)
    return [torch.from_numpy(np.where(x, np.nan, d)) for x, d in pairs]


def _refuse(*_: Tensor) -> list[Tensor]:
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


class TorchGraphGibbs(GraphGibbs):
    """The Gibbs distribution of a whole graph of trees of factors, as tensors.

    ``log_partition``, ``entropy``, ``value_of`` and ``additionals_of`` carry gradients to all
    scores, as do the log-probabilities of samples and of given assignments. Log-partition functions
    also have second derivatives, since the marginals are their gradients.

    Parameters
    ----------
    graph
        A `TorchFactorGraph`.
    """

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self._blocks, self._additional_scores = list(graph._scores), list(graph._additionals)
        self._like = functools.reduce(torch.promote_types, [x.dtype for x in self._blocks])
        self._device = self._blocks[0].device

    @property
    def log_partition(self) -> Tensor:
        """``(n_components,)`` the log-partition functions, ``log Z``, of the components."""
        return self._cast(self._tensors[0][:-1])

    @property
    def entropy(self) -> Tensor:
        """``(n_components,)`` entropies of the components, in nats."""
        return self._cast(self._tensors[1][:-1])

    def value_of(self, variables: Variables) -> Tensor:
        """Return the probabilities that the variables of a view are on, in its shape."""
        m = self._tensors[2][tensor(self._checked(variables).index)]
        return self._cast(torch.where(tensor(variables.negated), 1.0 - m, m))

    def additionals_of(self, factor: Factor) -> Tensor:
        """Return the expected counts of a declaration's additionals, shaped like their scores."""
        return self._cast(self._tensors[3][self._additionals(factor)].reshape(self._shape(factor)))

    def kl(self, other: TorchGraphGibbs) -> Tensor:
        """Return the ``(n_components,)`` Kullback-Leibler divergences to another distribution.

        Parameters
        ----------
        other
            The distribution of a graph that differs in its scores only.
        """
        divergence = other._tensors[0] - self._tensors[0]
        for m, owner, own, others in zip(
            self._tensors[2:],
            (self._owner, self._owner_v),
            self._flat_scores,
            other._flat_scores,
            strict=True,
        ):
            gain = torch.where(m > 0.0, own - others, 0.0)
            divergence = divergence.index_add(0, tensor(owner), m * gain)
        return self._cast(divergence[:-1])

    @cached_property
    @torch.enable_grad()  # the first use may be a sample without gradients
    def _flat_scores(self) -> tuple[Tensor, Tensor]:
        """Scores of all variables and additionals, flat on the host."""
        blocks = [_flat(block) for block in self._blocks]
        additionals = [_flat(block) for block in self._additional_scores if block is not None]
        return torch.cat(blocks), torch.cat([torch.empty(0, dtype=torch.float64), *additionals])

    @cached_property
    @torch.enable_grad()
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        constant = torch.zeros(self._forest.n_components + 1, dtype=torch.float64)
        return attach_beliefs(self, *self._flat_scores, constant)

    def _log_probabilities(self, values: FloatArray, additionals: FloatArray) -> Tensor:
        exact = tensor(super()._log_probabilities(values, additionals))
        score = -self._tensors[0].expand(len(values), -1)
        owners = self._owner, self._owner_v
        for x, eta, owner in zip((values, additionals), self._flat_scores, owners, strict=True):
            used = tensor(np.where(np.isnan(x), 0.0, x))
            score = score.index_add(1, tensor(owner), used * finite_or_zero(eta))
        moves = (score - score.detach())[:, :-1]  # zeros that carry the gradient
        return self._cast(exact + torch.where(exact.isfinite(), moves, 0.0))

    def _convert(self, numbers: FloatArray) -> Tensor:
        return self._cast(tensor(numbers))

    def _cast(self, numbers: Tensor) -> Tensor:
        return numbers.to(dtype=self._like, device=self._device, copy=True)


def _flat(block: Tensor) -> Tensor:
    return block.to(device="cpu", dtype=torch.float64).reshape(-1)
