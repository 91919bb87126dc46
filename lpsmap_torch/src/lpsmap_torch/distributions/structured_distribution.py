"""Gibbs distributions over structures, with the interface of `torch.distributions`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, register_kl

from lpsmap_core import Factor, Variables
from lpsmap_core.api import BoolArray, FloatArray, cached_property, checked_count, slot_values
from lpsmap_dynamic import complete_assignment
from lpsmap_torch.built_graph import Factors, built_by
from lpsmap_torch.estimators import SparseMarginals
from lpsmap_torch.estimators.gibbs_marginals import gibbs_marginals
from lpsmap_torch.estimators.samples import seed_of
from lpsmap_torch.forms import Form, Indicators
from lpsmap_torch.gibbs import TorchGraphGibbs
from lpsmap_torch.graph import values_of
from lpsmap_torch.layers.checks import check_scores
from lpsmap_torch.ranking import ranking_of, write_structures

FORBIDDEN = -1e300
"""A score for additionals of -inf, so that a value that needs them has the log-probability -inf."""


class KBest(NamedTuple):
    """The most probable structures, the best first."""

    values: Tensor
    """``(k, *batch_shape, *event_shape)``"""
    log_probs: Tensor
    """``(k, *batch_shape)`` with gradients; -inf where there are fewer structures."""


class SparseStructures(NamedTuple):
    """The sparse distribution of SparseMAP."""

    support: Tensor
    """``(K, *batch_shape, *event_shape)`` the structures, the most probable first."""
    probs: Tensor
    """``(K, *batch_shape)`` with gradients; zeros where there are fewer structures."""


class StructuredDistribution(Distribution):
    """Structures with probability ``exp(score) / Z``, for any factors whose sums are known.

    The score of a structure is the sum of the scores of its variables that are on, and of its
    additionals, such as transitions. Scores of -inf forbid.

    Parameters
    ----------
    build
        Called with the variables, in the shape of the scores, and the arguments; returns a factor
        or several, which must not connect instances of the batch. Every factor type is such a
        function. The types must have sums, see `Factor.inference`.
    scores
        Scores of the variables, the batch first.
    event_ndim
        The number of axes of the scores of an instance; None for all but the first. If given,
        `build` takes any number of batch axes.
    form
        Makes the form of values from the event shape of the scores. The values of this class are
        zeros and ones like the scores.
    validate_args
        As in `torch.distributions`: whether `log_prob` raises an error for values that are no
        structures. Their log-probability is -inf otherwise.
    arguments
        Arguments of `build`. Those with one entry for every instance broadcast to the batch.

    Raises
    ------
    TypeError
        If the scores are not a floating-point tensor, or a type has no sums.
    ValueError
        If a shape does not match, or factors connect instances.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import AtMostOne, Xor
    >>> from lpsmap_torch.distributions import StructuredDistribution
    >>> def one_of_each_row(u):
    ...     return [Xor(u[:, 0]), AtMostOne(u[:, 1])]
    >>> pairs = StructuredDistribution(one_of_each_row, torch.zeros(1, 2, 2))
    >>> pairs.log_partition.exp()
    tensor([6.])
    """

    arg_constraints = {}  # noqa: RUF012 - as in torch; factor types validate their arguments

    def __init__(
        self,
        build: Factors,
        scores: Tensor,
        *,
        event_ndim: int | None = None,
        form: Callable[[tuple[int, ...]], Form] = Indicators,
        validate_args: bool | None = None,
        **arguments: Any,
    ) -> None:
        check_scores(type(self).__name__, scores, 1 if event_ndim is None else event_ndim)
        n_batch = 1 if event_ndim is None else scores.ndim - event_ndim
        batch, event = scores.shape[:n_batch], scores.shape[n_batch:]
        self.build, self.scores, self.arguments = build, scores, arguments
        self._event_ndim = event_ndim
        self._form_of, self.form = form, form(event)
        # sums may overflow half precision
        in_full = scores.to(torch.promote_types(scores.dtype, torch.float32))
        self._built = built = built_by(build, in_full, arguments, tuple(batch))
        self._items = built.items()
        if built.graph.n_variables != scores.numel():
            raise ValueError(
                f"{type(self).__name__}: build creates variables; expected factors over those of "
                "the scores only."
            )
        super().__init__(batch, torch.Size(self.form.shape), validate_args=validate_args)

    # ---------------------------------------------------------------- sums over all structures

    @property
    def log_partition(self) -> Tensor:
        """``(*batch_shape,)`` the log-partition functions; -inf without a structure."""
        return self._built.by_item(self._gibbs.log_partition)

    @property
    def marginals(self) -> Tensor:
        """Probabilities that the variables are on, like the scores; zeros in the padding."""
        estimate = gibbs_marginals(self._gibbs, self._built.graph)
        return self._built.shown(estimate).to(self.scores.dtype)

    def entropy(self) -> Tensor:
        """Return the ``(*batch_shape,)`` entropies, in nats."""
        return self._built.by_item(self._gibbs.entropy)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the ``(*sample_shape, *batch_shape)`` log-probabilities of structures.

        Parameters
        ----------
        value
            Broadcasts to ``(*sample_shape, *batch_shape, *event_shape)``.

        Raises
        ------
        TypeError
            If the values are not of the type that `sample` returns.
        ValueError
            If the shape does not match, or a value is no structure.
        """
        shape = (*self.batch_shape, *self.event_shape)
        samples = tuple(value.shape[: max(value.ndim - len(shape), 0)])
        try:
            value = value.expand(*samples, *shape)
        except RuntimeError as error:
            raise ValueError(
                f"log_prob: value has shape {tuple(value.shape)}; expected {shape}, after any axes "
                "of samples."
            ) from error
        log_p, allowed = self._log_probs(self._written(value.reshape(math.prod(samples), *shape)))
        if self._validate_args and not allowed.all():
            instance = np.argwhere(~allowed)[0, 1]
            raise ValueError(
                f"log_prob: a value of instance {instance} is no structure of {self}; expected one "
                f"that its factors allow{self.form.convention}. validate_args=False gives -inf "
                "instead."
            )
        forbidden = torch.from_numpy(~allowed).reshape(log_p.shape)
        log_p = log_p.masked_fill(forbidden.to(log_p.device), -torch.inf)
        return log_p.reshape((*samples, *self.batch_shape))

    def kl(self, other: StructuredDistribution) -> Tensor:
        """Return the Kullback-Leibler divergence to another distribution of the same structures.

        Also found by `torch.distributions.kl_divergence`.

        Parameters
        ----------
        other
            A distribution of the same type, shape, lengths and parameters.

        Raises
        ------
        ValueError
            If the structures differ.
        """
        batch = torch.broadcast_shapes(self.batch_shape, other.batch_shape)  # type: ignore[no-untyped-call]
        if (self.batch_shape, other.batch_shape) != (batch, batch):
            return self.expand(batch).kl(other.expand(batch))
        if not _same_structures(self, other):
            raise ValueError(
                f"kl: got {self} and {other}, whose structures differ; expected the same factors, "
                "lengths and parameters."
            )
        return self._built.by_item(self._gibbs.kl(other._gibbs))

    # ---------------------------------------------------------------- some structures

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - as in torch
        """Return independent exact samples, without gradients.

        Parameters
        ----------
        sample_shape
            The shape of the samples.

        Returns
        -------
        Tensor
            ``(*sample_shape, *batch_shape, *event_shape)``
        """
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            drawn = self._gibbs.sample(max(shape.numel(), 1), seed_of(None))
            value = self.form.read(self._built.shown_samples(drawn.values))[: shape.numel()]
        return value.reshape(self._extended_shape(shape))

    @property
    def argmax(self) -> Tensor:
        """``(*batch_shape, *event_shape)`` the most probable structures."""
        n_factors = sum(factor.n_factors for factor in self._built.graph.factors)
        exact = self._built.graph._laid_out().n_components < n_factors
        return self.form.read(self._built.decode({"exact": exact}))

    @property
    def mode(self) -> Tensor:
        """The name of `argmax` in `torch.distributions`."""
        return self.argmax

    def k_best(self, k: int) -> KBest:
        """Return the `k` most probable structures, the best first.

        Parameters
        ----------
        k
            The number of structures. Values beyond their number are -100, or zeros.
        """
        graph = self._built.graph
        ranked, there = ranking_of(graph, self._items, checked_count("k_best: k", k))
        values = torch.from_numpy(ranked).to(self.scores.device)
        log_p, _ = self._log_probs(ranked)
        missing = torch.from_numpy(~there).reshape(log_p.shape)
        log_p = log_p.masked_fill(missing.to(log_p.device), -torch.inf)
        shown = self.form.read(self._built.shown_samples(values))
        return KBest(shown, log_p)

    # ---------------------------------------------------------------- the sparse sister

    @property
    def sparse_marginals(self) -> Tensor:
        """The marginals of SparseMAP, or LP-SparseMAP, like the scores."""
        estimate = SparseMarginals().estimate(self._built.graph, {})
        return self._built.shown(estimate).to(self.scores.dtype)

    def sparse(self, **options: Any) -> SparseStructures:
        """Return the structures of SparseMAP, whose mean is `sparse_marginals`.

        Parameters
        ----------
        options
            Options of `FactorGraph.solve`, such as ``temperature``.

        Raises
        ------
        ValueError
            If an instance has several factors.
        """
        graph = self._built.graph
        if [factor.n_factors for factor in graph.factors] != [self._built.n_items]:
            raise ValueError(
                f"sparse: {self} has several factors for an instance; expected one. Their solution "
                "has sparse_marginals, and a distribution for each factor, graph.structures."
            )
        graph.solve(**options)
        distributions = graph.structures(graph.factors[0])
        values = np.zeros((distributions.most, graph.n_variables))
        write_structures(distributions, values)
        probs = distributions.probabilities.reshape(self._built.n_items, distributions.most).mT
        support = values_of(torch.from_numpy(values).to(probs.device), self._built.variables)
        return SparseStructures(
            self.form.read(support), probs.reshape(distributions.most, *self.batch_shape)
        )

    # ---------------------------------------------------------------- copies

    def expand(self, batch_shape: Any, _instance: Any = None) -> StructuredDistribution:
        """Return the distribution with the batch expanded, as in `torch.distributions`.

        Parameters
        ----------
        batch_shape
            The shape of the new batch.
        _instance
            As in `torch.distributions`, which passes None.
        """
        event = self.scores.shape[len(self.batch_shape) :]
        build = self.build
        if self._event_ndim is None:  # it takes the batch as one axis
            build = functools.partial(_each_copy, build, self.scores.shape)
        scores = self.scores.expand(*batch_shape, *event)
        return self._with(scores, self.arguments, build, len(event))

    def to(self, *args: Any, **kwargs: Any) -> StructuredDistribution:
        """Return the distribution with floating-point tensors of another dtype or device.

        Parameters
        ----------
        args, kwargs
            As in `torch.Tensor.to`.
        """

        def moved(x: Any) -> Any:
            floating = isinstance(x, Tensor) and x.is_floating_point()
            return x.to(*args, **kwargs) if floating else x

        arguments = {k: moved(x) for k, x in self.arguments.items()}
        return self._with(moved(self.scores), arguments, self.build, self._event_ndim)

    def __repr__(self) -> str:
        shapes = f"batch_shape={tuple(self.batch_shape)}, event_shape={tuple(self.event_shape)}"
        return f"{type(self).__name__}({shapes})"

    # ---------------------------------------------------------------- internals

    @cached_property
    def _gibbs(self) -> TorchGraphGibbs:
        gibbs: TorchGraphGibbs = self._built.graph.gibbs()
        return gibbs

    def _written(self, value: Tensor) -> FloatArray:
        """Return (n, n_variables) zeros and ones for n values."""
        on = self.form.write(value).cpu().numpy()
        if not self.form.ignores_padding and (on & self._built.padding).any():
            raise ValueError(
                f"log_prob: value is beyond the lengths of {self}; expected -100 there."
            )
        written: FloatArray = on.reshape(len(on), -1).astype(np.float64)
        return written

    def _log_probs(self, values: FloatArray) -> tuple[Tensor, BoolArray]:
        """Return (n, *batch) log-probabilities of n assignments, and flags of those allowed."""
        graph, n = self._built.graph, len(values)
        factors = graph.factors
        eta_v = [np.nan_to_num(graph.additional_scores(f), neginf=FORBIDDEN) for f in factors]
        completed = complete_assignment(graph._laid_out(), factors, eta_v, values > 0.5)
        allowed = np.ones((n, self._built.n_items), dtype=bool)
        for factor, of_factors in zip(factors, completed.allowed, strict=True):
            item = self._items.of_factors(factor)
            sample, row = np.nonzero(~of_factors & (item >= 0))
            allowed[sample, item[row]] = False
        log_p = self._gibbs.log_probability(values, completed.additionals)
        return self._built.by_item(log_p), allowed

    def _with(
        self,
        scores: Tensor,
        arguments: dict[str, Any],
        build: Factors,
        event_ndim: int | None,
    ) -> StructuredDistribution:
        new: StructuredDistribution = object.__new__(type(self))
        StructuredDistribution.__init__(
            new,
            build,
            scores,
            event_ndim=event_ndim,
            form=self._form_of,
            validate_args=self._validate_args,
            **arguments,
        )
        return new


def _each_copy(
    build: Factors, shape: tuple[int, ...], u: Variables, /, **arguments: Any
) -> list[Factor]:
    """Return the factors of each copy of a batch in an expanded one.

    `build` returns the factors of the batch, whose variables have a `shape`; `u` are the variables
    of all copies.
    """
    copies = u.reshape(-1, *shape)
    declared = [build(copies[i], **arguments) for i in range(len(copies))]
    return [f for x in declared for f in ([x] if isinstance(x, Factor) else x)]


def _same_structures(p: StructuredDistribution, q: StructuredDistribution) -> bool:
    ours, theirs = p._built.graph.factors, q._built.graph.factors
    if type(p) is not type(q) or list(map(type, ours)) != list(map(type, theirs)):
        return False
    for f, g in zip(ours, theirs, strict=True):
        names = f._parameters.names
        pairs = [(f.offsets, g.offsets), *((getattr(f, n), getattr(g, n)) for n in names)]
        pairs += [
            (slot_values(f, getattr(f.variables, n)), slot_values(g, getattr(g.variables, n)))
            for n in ("index", "negated")
        ]
        if names != g._parameters.names or not all(itertools.starmap(np.array_equal, pairs)):
            return False
    return True


@register_kl(StructuredDistribution, StructuredDistribution)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl(p: StructuredDistribution, q: StructuredDistribution) -> Tensor:
    return p.kl(q)
