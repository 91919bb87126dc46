"""The loss of conditional random fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_core.api import FloatArray, IntArray, build_layout
from lpsmap_dynamic import Items, Labels, add_exactly, all_variables, sum_exactly
from lpsmap_torch.built_graph import Factors
from lpsmap_torch.envelope import difference_with_slopes
from lpsmap_torch.estimators import GibbsMarginals
from lpsmap_torch.estimators.estimator import Estimate
from lpsmap_torch.gibbs import TorchGraphGibbs
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.losses.margin import MarginLoss
from lpsmap_torch.losses.structured import StructuredLoss
from lpsmap_torch.temperature import Temperature, TemperatureMixin, is_one, of_batch

MIN_TEMPERATURE = 0.1
"""Lowest temperature at which a cost of 1 does not magnify the rounding of probabilities near 1."""


class CRFLoss(TemperatureMixin, StructuredLoss):
    """The negative log-likelihood of a conditional random field (Lafferty et al. 2001).

    Structures have probability ``exp(score) / Z``, and the loss of y is ``log Z - score(y)``. It is
    convex and positive, and tends to zero as the probability of y tends to one. Its gradient is the
    marginals minus y. If only a part of y is labelled, the loss is that of all structures that
    agree with it, ``log Z - log Z_given`` (Tsuboi et al. 2008): unlabelled variables are
    marginalised.

    The factors must have log-partition functions, see `Factor.log_partition`: dynamic programs by
    the inside-outside algorithm, non-projective dependency trees by the matrix-tree theorem, trees
    of such factors by the sum-product algorithm, cycles of dynamic programs by junction trees, see
    `lpsmap_dynamic.GraphGibbs`. Other cycles, and those whose sums take too much memory, raise a
    ValueError; `SparseMAPLoss` and `StructuredHingeLoss` support any graph.

    Parameters
    ----------
    factors, reduction
        As in `SparseMAPLoss`.
    temperature
        The strength T of the regularisation: structures have probability ``exp(score / T) / Z``,
        and the loss is T times that of scores divided by T. A positive number, or a tensor or
        parameter of one element, with a gradient; also an attribute.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import Sequence
    >>> from lpsmap_torch.losses import CRFLoss
    >>> scores = torch.zeros(1, 2, 3)  # two positions, three states
    >>> tags = torch.tensor([[0, 2]])
    >>> CRFLoss(Sequence)(scores, tags, transitions=torch.zeros(3, 3)).exp()
    tensor(9.)
    """

    def __init__(
        self,
        factors: Factors | Layer,
        *,
        temperature: Temperature = 1.0,
        reduction: str = "mean",
        **unknown: NoReturn,
    ) -> None:
        super().__init__(factors, reduction=reduction, **unknown)
        self.temperature = temperature

    def _items_losses(self, u: Variables, labels: Labels) -> Tensor:
        graph: Any = u.graph
        if is_one(self.temperature):
            return _losses(graph, labels)
        dtype = graph._scores[0].dtype
        temperature = of_batch("CRFLoss: temperature", self.temperature, ())
        graph._divide_scores(temperature)
        losses = _losses(graph, labels)
        weight = temperature.to(losses) if isinstance(temperature, Tensor) else temperature
        return (losses * weight).to(dtype)

    def _estimate(self, graph: TorchFactorGraph) -> Estimate:
        graph._divide_scores(of_batch("CRFLoss: temperature", self.temperature, ()))
        return GibbsMarginals().estimate(graph, {})


class MarginCRFLoss(MarginLoss, CRFLoss):
    """The softmax margin (Gimpel & Smith 2010, Eq. 6).

    Like `CRFLoss`, with the cost of mistakes added to the scores of all structures: ``log sum_s
    exp(score(s) + cost(s)) - score(y)``. It is an upper bound of the expected cost, of `CRFLoss`,
    and of `StructuredHingeLoss`, and convex. Its gradient is the marginals of the cost-augmented
    distribution minus y.

    Parameters
    ----------
    factors, temperature, reduction
        As in `CRFLoss`. The cost counts as a part of the scores, which are divided by the
        temperature.
    cost
        The cost of a wrong variable, as in `MarginSparseMAPLoss`; or ``"zero-one"``: every
        structure that does not agree with the labels costs 1. This is no sum over variables, but
        the loss is a function of `CRFLoss`, at temperatures of 0.1 or more.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import Sequence
    >>> from lpsmap_torch.losses import MarginCRFLoss
    >>> loss = MarginCRFLoss(Sequence, cost="positions")  # a wrong tag costs 1
    >>> loss(torch.zeros(1, 2, 3), torch.tensor([[0, 2]]), transitions=torch.zeros(3, 3))
    tensor(3.7240)
    """

    def _items_losses(self, u: Variables, labels: Labels) -> Tensor:
        losses = super()._items_losses(u, labels)
        if not self._is_zero_one:
            return losses
        t = self.temperature
        t = t.reshape(()).to(losses) if isinstance(t, Tensor) else losses.new_tensor(t)
        if t < MIN_TEMPERATURE:
            raise ValueError(
                f"MarginCRFLoss: temperature is {t:g} with the cost 'zero-one'; expected "
                f"{MIN_TEMPERATURE} or more. Scale the scores, or use a cost of wrong variables."
            )
        # log(1 + e^(1 / t) (1 / p - 1)) for the probability p = e^-x of the labels
        x = (losses / t).clamp_min(torch.finfo(losses.dtype).tiny)
        odds = x + torch.log(-torch.expm1(-x))
        return t * torch.logaddexp(1.0 / t + odds, torch.zeros_like(odds))


def _losses(graph: TorchFactorGraph, labels: Labels) -> Tensor:
    layout = build_layout(graph.n_variables, graph.factors)
    items, scores = Items(layout, labels), graph.flat_scores()
    items.check_not_forbidden(scores)
    everything = _sums(graph, graph.factors, all_variables(graph), graph.factors, items)
    if labels.are_complete(layout):
        given = _structure(graph, scores, items, everything)
    else:
        given = _completions(graph, scores, labels, items)
    values = (everything.worth - given.worth) + (everything.rest - given.rest)
    if not labels.are_marginals:
        values = np.maximum(values, 0.0)
    return difference_with_slopes(graph, values, everything.marginals, given.marginals, items)


class Sums(NamedTuple):
    """Partition functions over all structures, or over those that agree with the labels."""

    worth: FloatArray
    """(n_items,) log-partition functions."""
    rest: FloatArray
    """(n_items,) rounding errors of `worth`: large scores in both sums cancel."""
    marginals: tuple[Tensor, list[Tensor]]
    """Those of all variables, and of the additionals of every declaration."""


def _sums(
    graph: TorchFactorGraph,
    factors: Sequence[Factor],
    variables: Variables,
    originals: Sequence[Factor],
    items: Items,
) -> Sums:
    """Return the sums of a graph, with the marginals of its factors and variables.

    `originals` are the factors in the graph without labels.
    """
    gibbs = TorchGraphGibbs(graph)
    high, low = gibbs._log_partition  # before rounding to the dtype of the scores
    item = np.full(len(high), -1)
    of_factors = [items.of_factors(original) for original in originals]
    item[gibbs._forest.component_of_factor] = np.concatenate([*of_factors, item[:0]])
    worth, rest = _sum_exactly(items, item, high)
    additionals = [gibbs.additionals_of(factor) for factor in factors]
    marginals = gibbs.value_of(variables), additionals
    return Sums(worth, rest + items.sums(item, low), marginals)


def _completions(graph: TorchFactorGraph, scores: FloatArray, labels: Labels, items: Items) -> Sums:
    """Return the sums over structures that agree with the labels."""
    everything = all_variables(graph)
    conditioned = graph.condition([(everything, labels.known)])
    factors = [conditioned.of(factor) for factor in graph.factors]
    view = conditioned.of(everything)
    sums = _sums(conditioned.graph, factors, view, graph.factors, items)
    wrong = np.flatnonzero(np.isneginf(sums.worth))
    if wrong.size:
        raise ValueError(
            f"target: no structure of item {wrong[0]} agrees with the target; expected zeros and "
            "ones that its factor allows together, or NaN for unlabelled variables."
        )
    on = np.where(labels.known == 1.0, scores, 0.0)
    worth, rest = _sum_exactly(items, items.of_variable, on)
    worth, lost = add_exactly(sums.worth, worth)
    variables, additionals = sums.marginals
    known = torch.from_numpy(labels.known).to(variables)
    variables = torch.where(known.isnan(), variables, known)
    return Sums(worth, sums.rest + rest + lost, (variables, additionals))


def _structure(graph: TorchFactorGraph, scores: FloatArray, items: Items, like: Sums) -> Sums:
    """Return the structure, or the marginals, given by complete labels, and their score."""
    eta_v = [graph.additional_scores(factor) for factor in graph.factors]
    known, nu = items.point(graph.factors, eta_v)
    on = np.where(known > 0.0, scores, 0.0) * known
    worth, rest = _sum_exactly(items, items.of_variable, on)
    variables, of_factors = like.marginals
    additionals = []
    for factor, eta, n, like_n in zip(graph.factors, eta_v, nu, of_factors, strict=True):
        additionals.append(torch.from_numpy(n).to(like_n).reshape(like_n.shape))
        row, place = np.nonzero(n)
        on = eta[row, place] * n[row, place]
        high, low = _sum_exactly(items, items.of_factors(factor)[row], on)
        worth, lost = add_exactly(worth, high)
        rest = rest + low + lost
    return Sums(worth, rest, (torch.from_numpy(known).to(variables), additionals))


def _sum_exactly(items: Items, item: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of values by item, without item -1, and their rounding errors."""
    counted = item >= 0
    return sum_exactly(item[counted], values[counted], items.n_items)
