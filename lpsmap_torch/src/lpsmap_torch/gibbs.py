"""Gibbs distributions of factors as differentiable functions of the scores."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Scores, Variables
from lpsmap_core.api import FloatArray, IntArray, cached_property, flipped_slots
from lpsmap_dynamic import Found, Gibbs, GraphGibbs
from lpsmap_torch.function import given, with_backward, with_slopes
from lpsmap_torch.tensors import common_dtype, is_batched, numbers, on_host, over_batch

Result = TypeVar("Result")


def _with_gradients(compute: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Compute a cached result with gradients, whatever the mode of its first use.

    That may be a sample under ``torch.no_grad`` or ``torch.inference_mode``. Scores that were made
    in inference mode have no gradients, and torch saves them for none.
    """

    @functools.wraps(compute)
    def computed(gibbs: Any) -> Result:
        in_inference = any(x.is_inference() for x in gibbs._inputs)
        with torch.enable_grad() if in_inference else torch.inference_mode(False):
            return compute(gibbs)

    return computed


class _OnTensors:
    """What both kinds of distributions share: results like the scores of blocks of variables."""

    _blocks: list[Tensor]
    _inputs: list[Tensor]
    """The scores of variables, then those of additionals."""

    def _cast(self, tensor: Tensor) -> Tensor:
        """Return a copy in the common dtype of all scores, on their device."""
        return tensor.to(dtype=self._dtype, device=self._blocks[0].device, copy=True)

    def _cast_sums(self, tensor: Tensor) -> Tensor:
        """Return a copy in at least single precision, since sums may overflow."""
        dtype = torch.promote_types(self._dtype, torch.float32)
        return tensor.to(dtype=dtype, device=self._blocks[0].device, copy=True)

    @property
    def _dtype(self) -> torch.dtype:
        return common_dtype(self._inputs)


class TorchGibbs(_OnTensors, Gibbs):
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
        self._inputs = scores if additionals is None else [*scores, additionals]

    @property
    def log_partition(self) -> Tensor:
        """``(*batch_shape,)`` the log-partition functions, ``log Z``."""
        return self._cast_sums(self._tensors[0].reshape(self.factor.batch_shape))

    @property
    def entropy(self) -> Tensor:
        """``(*batch_shape,)`` entropies of the distributions, in nats."""
        return self._cast_sums(self._tensors[1].reshape(self.factor.batch_shape))

    @property
    def marginals(self) -> Tensor:
        """Probabilities that the slots are on, in the shape of the factor's view."""
        factor, m = self.factor, self._tensors[2]
        flipped = flipped_slots(factor)
        if flipped is not None:
            m = torch.where(tensor(flipped), 1.0 - m, m)
        if factor.keep is None:
            return self._cast(m.reshape(factor.variables.shape))
        placed = m.new_zeros(factor.variables.shape)
        return self._cast(placed.masked_scatter(tensor(factor.keep), m))

    @property
    def additionals(self) -> Tensor:
        """Expected counts of the additionals, in the shape of their scores."""
        return self._cast(self._tensors[3].reshape(self._additional_shape))

    @cached_property
    @_with_gradients
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        return attach_beliefs(self, *self._local)

    @cached_property
    @_with_gradients
    def _local(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of slots and additionals, and the total score of negated variables per factor."""
        blocks, eta_v = list(map(_flat, self._blocks)), _zeros(0)
        if self._additional_scores is not None:
            eta_v = _flat(self._additional_scores)
        constant = _zeros(self.factor.n_factors)
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
        log_p = tensor(super()._log_probabilities(slots, additionals))
        eta_u, eta_v, constant = self._local
        of_negated = np.ones((len(slots), len(constant))), np.arange(len(constant)), constant
        of_slots = (slots, self._owner, eta_u), (additionals, self._owner_v, eta_v)
        return self._cast_sums(_following(log_p.mT, self._tensors[0], of_negated, *of_slots).mT)

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

    With scores s, marginals m and the symmetric Hessian H of the log-partition functions, d log Z =
    m ds, dm = H ds, and the entropy log Z - s m changes by -s H ds.
    """
    beliefs = gibbs._beliefs  # the copy shares them
    # the caller keeps the results, and garbage collection does not see cycles through autograd
    gibbs = copy.copy(gibbs)
    owners = [tensor(gibbs._owner), tensor(gibbs._owner_v)]

    def backward(of_entropy: Tensor, *gradients: Tensor) -> list[Tensor]:
        own = map(tensor, gibbs._scores)  # those of the entropy: others may change
        d_u, d_v = (
            d - of_entropy[owner] * finite_or_zero(eta)
            for d, owner, eta in zip(gradients, owners, own, strict=True)
        )
        with torch.no_grad():
            products = _hessian_product(gibbs, d_u, d_v)
        if torch.is_grad_enabled():
            products = given(products, _refuse, _refuse, eta_u, eta_v, d_u, d_v)
        return products

    entropy, m, n = with_backward([*map(tensor, beliefs[1:4])], backward, eta_u, eta_v)
    log_z = torch.from_numpy(np.add(*gibbs._log_partition))
    slopes, each = [m, n, torch.ones_like(log_z)], tensor(np.arange(len(log_z)))
    log_z = with_slopes(log_z, [eta_u, eta_v, constant], slopes, [*owners, each])
    return log_z, entropy, m, n


def _hessian_product(gibbs: Any, *vectors: Tensor) -> list[Tensor]:
    """Return the product of a vector with the Hessian of log-partition functions."""
    if any(map(is_batched, vectors)):
        return over_batch(lambda rows: _hessian_product(gibbs, *rows), vectors)
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


def _following(log_p: Tensor, log_z: Tensor, *parts: tuple[FloatArray, IntArray, Tensor]) -> Tensor:
    """Return (n, m) log-probabilities with the gradients of scores less log-partition functions.

    Parts are (n, k) values, the (k,) log-probabilities that they belong to, and their (k,) scores.
    """
    score = -log_z.expand(len(log_p), -1)
    for values, owner, scores in parts:
        sample, place = np.nonzero((values > 0.0) | (values < 0.0))  # neither 0 nor NaN
        worth = tensor(values[sample, place]) * finite_or_zero(scores)[tensor(place)]
        where = tensor(sample), tensor(owner[place])
        score = score.index_put(where, worth, accumulate=True)
    moves = (score - score.detach())[:, : log_p.shape[1]]  # zeros that carry the gradient
    return log_p + torch.where(log_p.isfinite(), moves, 0.0)


def finite_or_zero(scores: Tensor) -> Tensor:
    """Return scores with zeros in place of infinite ones."""
    return torch.where(scores.isfinite(), scores, 0.0)


def tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor that shares its memory with an array, or with a writable copy."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


class TorchGraphGibbs(_OnTensors, GraphGibbs):
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
        self._inputs = [*self._blocks, *(x for x in self._additional_scores if x is not None)]

    @property
    def log_partition(self) -> Tensor:
        """``(n_components,)`` the log-partition functions, ``log Z``, of the components."""
        return self._cast_sums(self._tensors[0][:-1])

    @property
    def entropy(self) -> Tensor:
        """``(n_components,)`` entropies of the components, in nats."""
        return self._cast_sums(self._tensors[1][:-1])

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
        return self._cast_sums(divergence[:-1])

    @cached_property
    @_with_gradients
    def _flat_scores(self) -> tuple[Tensor, Tensor]:
        """Scores of all variables and additionals, flat on the host."""
        blocks = [_flat(block) for block in self._blocks]
        additionals = [_flat(block) for block in self._additional_scores if block is not None]
        return torch.cat(blocks), torch.cat([_zeros(0), *additionals])

    @cached_property
    @_with_gradients
    def _tensors(self) -> tuple[Tensor, ...]:
        """Log-partition functions, entropies, marginals and expected counts, flat on the host."""
        constant = _zeros(self._forest.n_components + 1)
        return attach_beliefs(self, *self._flat_scores, constant)

    def _log_probabilities(self, values: FloatArray, additionals: FloatArray) -> Tensor:
        log_p = tensor(super()._log_probabilities(values, additionals))
        owners = self._owner, self._owner_v
        parts = zip((values, additionals), owners, self._flat_scores, strict=True)
        return self._cast_sums(_following(log_p, self._tensors[0], *parts))

    def _convert(self, numbers: FloatArray) -> Tensor:
        return self._cast(tensor(numbers))


def _flat(block: Tensor) -> Tensor:
    return block.to(device="cpu", dtype=torch.float64).reshape(-1)


def _zeros(n: int) -> Tensor:
    """Return zeros on the host, whatever the default device."""
    return torch.zeros(n, dtype=torch.float64, device="cpu")
