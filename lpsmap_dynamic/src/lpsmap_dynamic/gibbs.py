"""The Gibbs distribution of factors: every structure, with probability ``exp(score) / Z``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Distributions, Factor, Scores
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Vertices,
    cached_property,
    checked_count,
    flipped_slots,
    name_of_factor,
    placed_slots,
    real_numbers,
    slot_values,
    zero_unused_scores,
)
from lpsmap_dynamic.checked_arrays import checked_additionals, checked_tangent
from lpsmap_dynamic.exact_sums import MAX_SUMMABLE, add_exactly, sum_exactly
from lpsmap_dynamic.factor_forest import check_distinct
from lpsmap_dynamic.graph_gibbs import GraphGibbs
from lpsmap_dynamic.inference import Beliefs, Found, Inference, LogPartition
from lpsmap_dynamic.machine_memory import check_fits_memory

STRUCTURE = 64
"""Minimum bytes of a structure."""

MANY = 1000
"""Requests for more structures are limited to their exact number."""


class Gibbs:
    """The Gibbs distributions of the factors of a declaration, independent of each other.

    The score of a structure is the sum of the scores of its variables that are on, and of its
    additionals; its probability is ``exp(score) / Z``. For sequences this is a linear-chain
    conditional random field (Lafferty et al. 2001). Other factors of the graph are ignored, and no
    solve is needed. Created by `FactorGraph.gibbs`.

    Parameters
    ----------
    factor
        The declaration.
    scores
        (n_variables,) scores of the variables of the graph.
    additionals
        (n_factors, n_additionals) scores of the factors' additionals.

    Raises
    ------
    TypeError
        If the type has no log-partition function, see `Factor.log_partition`; samples, the k best
        structures and counts need `Factor.inference`.
    ValueError
        If a factor contains a variable twice.

    Notes
    -----
    Scores of -inf forbid. If every structure of a factor is forbidden, its log-partition function
    is -inf, marginals and entropy are zero, and it has no samples. If a score is NaN or +inf, its
    log-partition function, entropy, marginals, additionals, their tangents and log-probabilities
    are NaN, it has no samples and no best structures, and `count` does not tell. Neither affects
    other factors.
    """

    def __init__(self, factor: Factor, scores: FloatArray, additionals: FloatArray) -> None:
        self.factor, self._n_variables = factor, len(scores)
        self._sums: LogPartition = factor.log_partition()
        self._index = slot_values(factor, factor.variables.index)
        self._negated = slot_values(factor, factor.variables.negated)
        numbers = np.arange(factor.n_factors)
        self._owner = np.repeat(numbers, np.diff(factor.offsets))
        self._owner_v = np.repeat(numbers, factor.n_additionals)
        span = factor.variables.span
        if span is None:  # a whole block contains each variable once
            check_distinct(factor, self._owner, self._index)
        scores = scores.copy()  # `zero_unused_scores` writes to it
        (additionals,) = zero_unused_scores([factor], scores, [additionals])
        of_slots = scores[self._index if span is None or factor.keep is not None else span]
        self._wrong: BoolArray = np.asarray((~(additionals < np.inf)).any(axis=1))
        self._wrong[self._owner[~(of_slots < np.inf)]] = True
        self._rows: IntArray = np.flatnonzero(~self._wrong)
        negated = np.flatnonzero(self._negated)
        shown = negated[np.isfinite(of_slots[negated])]  # on while their slots are off
        self._constant = sum_exactly(self._owner[shown], of_slots[shown], factor.n_factors)
        if negated.size:
            of_slots = np.where(self._negated, -of_slots, of_slots)
        self._scores = Scores(of_slots, additionals.reshape(-1))

    of_graph = GraphGibbs
    """Class of the distribution of a whole graph."""

    # ---------------------------------------------------------------- sums over all structures

    @property
    def log_partition(self) -> Any:
        """``(*batch_shape,)`` the log-partition functions, ``log Z``."""
        high, low = self._log_partition
        return (high + low).reshape(self.factor.batch_shape)

    @property
    def entropy(self) -> Any:
        """``(*batch_shape,)`` entropies of the distributions, in nats."""
        return self._beliefs.entropy.reshape(self.factor.batch_shape)

    @property
    def marginals(self) -> Any:
        """Probabilities that the slots are on, in the shape of the factor's view.

        They are zero beyond the `lengths` of a factor and outside its mask.
        """
        return self._placed(self._beliefs.m)

    @property
    def additionals(self) -> Any:
        """Expected counts of the additionals, in the shape of their scores."""
        return self._beliefs.n.reshape(self._additional_shape)

    def jvp(
        self, d_scores: npt.ArrayLike, d_additionals: npt.ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the tangents of log-partition functions, marginals and additionals.

        Parameters
        ----------
        d_scores
            (n_variables,) tangent of the scores of the graph's variables.
        d_additionals
            Tangent of the scores of the factor's additionals, in their shape; None for zero.

        Returns
        -------
        tuple
            Tangents in the shapes of `log_partition`, `marginals` and `additionals`.

        Raises
        ------
        TypeError
            If a tangent does not consist of real numbers.
        ValueError
            If a shape does not match.
        """
        d = checked_tangent("jvp: d_scores", d_scores, self._n_variables)[self._index]
        d_v: FloatArray = np.zeros(self._scores.eta_v.shape)
        if d_additionals is not None:
            shape = self._additional_shape
            d_v = checked_additionals("jvp: d_additionals", d_additionals, shape).reshape(-1)
        direction = Scores(np.where(self._negated, -d, d), d_v)
        product = self._hessian_product(direction)
        on = np.where(self._negated, 1.0 - self._beliefs.m, self._beliefs.m)
        n = self.factor.n_factors
        change: FloatArray = np.bincount(self._owner, on * d, minlength=n).astype(np.float64)
        change += (self._beliefs.n * d_v).reshape(n, self.factor.n_additionals).sum(axis=1)
        if self._wrong.any():
            change[self._wrong] = np.nan
            product.eta_u[self._wrong[self._owner]] = np.nan
            product.eta_v[self._wrong[self._owner_v]] = np.nan
        return (
            change.reshape(self.factor.batch_shape),
            self._placed(product.eta_u, tangent=True),
            product.eta_v.reshape(self._additional_shape),
        )

    # ---------------------------------------------------------------- some structures

    def sample(self, n: int = 1, seed: Any = None) -> Distributions:
        """Sample structures of every factor, independently, with replacement.

        Parameters
        ----------
        n
            The number of samples.
        seed
            A ``numpy.random.Generator``, or a seed for ``numpy.random.default_rng``.

        Returns
        -------
        Distributions
            `n` structures with probability ``1 / n`` each.
        """
        n = checked_count("sample: n", n)
        check_fits_memory("sample: n", n, STRUCTURE * self.factor.n_factors)
        random = np.random.default_rng(seed)
        samples = self.factor.inference().sample(self._rows, self._scores, n, random)
        return self._distributions(samples, 1.0 / n)

    def k_best(self, k: int) -> Distributions:
        """Return the `k` most likely structures of every factor, the most likely first.

        Returns
        -------
        Distributions
            The structures with their probabilities; fewer than `k` if no more exist.
        """
        k = checked_count("k_best: k", k)
        inference: Inference = self.factor.inference()
        if k > MANY:
            everything = Scores(*map(np.zeros_like, self._scores))
            k = min(k, max([1, *inference.count(everything)]))
        check_fits_memory("k_best: k", k, STRUCTURE * self.factor.n_factors)
        ranking = inference.k_best(self._rows, self._scores, k)
        return self._distributions(ranking)

    def log_probability(self, variables: Any, additionals: Any = None) -> Any:
        """Return the log-probabilities of given structures.

        Parameters
        ----------
        variables
            ``(*batch_shape, *event_shape)`` zeros and ones as in ``variables`` of a structure, such
            as observed labels; or ``(*batch_shape, K, *event_shape)``, as returned by `sample` and
            `k_best`.
        additionals
            Their additionals, with the same leading axes; None for a factor without additionals.

        Returns
        -------
        array
            ``(*batch_shape,)`` or ``(*batch_shape, K)``; NaN if every structure is forbidden. The
            arguments are not validated to be structures.

        Raises
        ------
        TypeError
            If they are not numbers.
        ValueError
            If a shape does not match.
        """
        factor = self.factor
        x = real_numbers("log_probability: variables", variables).astype(np.float64)
        batch, shape = len(factor.batch_shape), factor.variables.shape
        middle = x.shape[batch : batch + x.ndim - len(shape)]
        if len(middle) > 1 or x.shape != (*shape[:batch], *middle, *shape[batch:]):
            raise ValueError(
                f"log_probability: variables has shape {x.shape}; expected {shape}, with an "
                "additional axis after the batch for several structures."
            )
        n, k = factor.n_factors, math.prod(middle)
        x = x.reshape(n, k, math.prod(factor.event_shape)).swapaxes(0, 1)
        keep = np.ones(x.shape[1:], dtype=np.bool_) if factor.keep is None else factor.keep
        slots = x[:, keep.reshape(x.shape[1:])]
        flipped = flipped_slots(factor)
        if flipped is not None:
            slots = np.where(flipped, 1.0 - slots, slots)
        extra = self._extra(additionals, middle)
        return self._log_probabilities(slots, extra).reshape((*shape[:batch], *middle))

    def _extra(self, additionals: Any, middle: tuple[int, ...]) -> FloatArray:
        """Return the given additionals of k structures of each of n factors as (k, ...)."""
        factor, n, k = self.factor, self.factor.n_factors, math.prod(middle)
        batch, name = factor.batch_shape, "log_probability: additionals"
        if additionals is None:
            if factor.n_additionals:
                raise ValueError(
                    f"{name} is None; expected those of {n * k} structures, "
                    f"{factor.n_additionals} each."
                )
            additionals = np.empty(0)
        event = self._additional_shape[len(batch) :] if factor.n_additionals else (0,)
        numbers = checked_additionals(name, additionals, (*batch, *middle, *event))
        of_factors = numbers.reshape(n, k, factor.n_additionals)
        return of_factors.swapaxes(0, 1).reshape(k, n * factor.n_additionals)

    def _log_probabilities(self, slots: FloatArray, additionals: FloatArray) -> Any:
        """Return (n_factors, k) log-probabilities."""
        n, k = self.factor.n_factors, len(slots)
        rows, entries = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for values, factors, scores in (
            (slots, self._owner, _unforced(self._scores.eta_u)),
            (additionals, self._owner_v, self._scores.eta_v),
        ):
            row, place = np.nonzero(values)
            rows.append(factors[place] * k + row)
            entries.append(values[row, place] * scores[place])
        row, entry = np.concatenate(rows), np.concatenate(entries)
        finite = np.isfinite(entry)
        score, rest = sum_exactly(row[finite], entry[finite], n * k)
        log_probability = self._less_log_partition(score, rest, np.repeat(np.arange(n), k))
        np.add.at(log_probability, row[~finite], entry[~finite])
        log_probability = log_probability.reshape(n, k)
        row, place = np.nonzero((slots == 0.0) & (self._scores.eta_u == np.inf))
        log_probability[self._owner[place], row] -= np.inf  # a forced slot is off; NaN stays
        return log_probability

    def _less_log_partition(self, score: FloatArray, rest: FloatArray, owner: IntArray) -> Any:
        """Return log-probabilities of structures, whose scores are given as exact pairs.

        Subtracting before rounding lets huge scores common to all structures cancel.
        """
        high, low = self._log_partition_of_slots
        high = np.where(np.isneginf(high), np.nan, high)
        with np.errstate(invalid="ignore"):
            return (score - high[owner]) + (rest - low[owner])

    def count(self) -> npt.NDArray[np.object_]:
        """Return ``(*batch_shape,)`` numbers of allowed structures.

        These are exact Python integers.
        """
        counts = self.factor.inference().count(self._scores)
        return np.array([*counts, None], dtype=object)[:-1].reshape(self.factor.batch_shape)

    # ---------------------------------------------------------------- internals

    def _hessian_product(self, direction: Scores) -> Scores:
        return self._sums.hessian_product(self._rows, self._scores, direction)

    @property
    def _log_partition(self) -> tuple[FloatArray, FloatArray]:
        """(n_factors,) log-partition functions, and their rounding errors."""
        high, low = self._log_partition_of_slots
        total, lost = add_exactly(high, self._constant[0])
        return total, lost + low + self._constant[1]

    @property
    def _log_partition_of_slots(self) -> tuple[FloatArray, FloatArray]:
        """The same without the constants of negated variables."""
        beliefs = self._beliefs
        none = np.zeros(len(beliefs.log_partition))
        return beliefs.log_partition, none if beliefs.remainder is None else beliefs.remainder

    @cached_property
    def _beliefs(self) -> Beliefs:
        beliefs = self._sums.beliefs(self._rows, self._scores)
        self._check_overflow(beliefs.log_partition)
        if self._wrong.any():
            beliefs.log_partition[self._wrong] = beliefs.entropy[self._wrong] = np.nan
            beliefs.m[self._wrong[self._owner]] = np.nan
            beliefs.n.reshape(self.factor.n_factors, -1)[self._wrong] = np.nan
        return beliefs

    def _check_overflow(self, log_partition: FloatArray) -> None:
        """Raise an error if sums of scores overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            doubtful = ~np.isfinite(log_partition + self._constant[0])
        rows = np.flatnonzero(doubtful & ~self._wrong)
        if rows.size:
            largest = self._largest_finite()
            rows = rows[largest[rows] > MAX_SUMMABLE]
            plain = (np.where(np.isfinite(x), 0.0, x) for x in self._scores)
            allowed = self._sums.beliefs(rows, Scores(*plain)).log_partition[rows] > -np.inf
            for r in rows[allowed].tolist():
                name = name_of_factor(self.factor, r)
                raise ValueError(
                    f"gibbs: {name} of {self.factor!r} has scores of up to {largest[r]:.3g}, whose "
                    "sums overflow float64; expected smaller scores. Use -inf to forbid."
                )

    def _largest_finite(self) -> FloatArray:
        """(n_factors,) the maximum absolute finite scores."""
        largest = np.zeros(self.factor.n_factors)
        for scores, owner in zip(self._scores, (self._owner, self._owner_v), strict=True):
            np.maximum.at(largest, owner, np.where(np.isfinite(scores), np.abs(scores), 0.0))
        return largest

    @property
    def _additional_shape(self) -> tuple[int, ...]:
        scores = self.factor.additionals
        return (0,) if scores is None else tuple(scores.shape)

    def _placed(self, values: FloatArray, tangent: bool = False) -> FloatArray:
        """Return values of the slots in the shape of the variables."""
        flipped = flipped_slots(self.factor)
        if flipped is not None:
            values = np.where(flipped, -values if tangent else 1.0 - values, values)
        return placed_slots(self.factor, values)

    def _distributions(self, structures: Found, probability: float | None = None) -> Distributions:
        """Return structures as distributions, with the given probability or their own."""
        start, entry, value, size = structures.structures
        chosen = np.flatnonzero(size >= 0)
        n = len(size) // max(self.factor.n_factors, 1)
        ends = np.cumsum(size[chosen])
        place = np.repeat(start[chosen] - (ends - size[chosen]), size[chosen])
        place += np.arange(len(place))
        owner, number = chosen // max(n, 1), entry[place].astype(np.int64)
        rows = np.repeat(np.arange(len(chosen)), size[chosen])
        score, rest = sum_exactly(
            rows, value[place] * self._scores_of(owner[rows], number), len(chosen)
        )
        if probability is None:
            likely = np.exp(self._less_log_partition(score, rest, owner))
        else:
            likely = np.full(len(chosen), probability)
        vertices = Vertices(owner, likely, np.concatenate([[0], ends]), number, value[place])
        high, low = self._constant
        score, lost = add_exactly(score, high[owner])
        scores = score + (lost + rest + low[owner])
        return _GibbsStructures(self.factor, vertices, scores, self._n_variables)

    def _scores_of(self, owner: IntArray, number: IntArray) -> FloatArray:
        """Return the scores of entries of factors, zeros for forced ones."""
        behind = number - np.diff(self.factor.offsets)[owner]
        eta = np.concatenate([_unforced(self._scores.eta_u), self._scores.eta_v])
        extra = self.factor.offsets[-1] + owner * self.factor.n_additionals + behind
        scores: FloatArray = eta[np.where(behind < 0, self.factor.offsets[owner] + number, extra)]
        return scores


def _unforced(eta_u: FloatArray) -> FloatArray:
    """Return scores of slots, zeros for forced slots, whose variables are forbidden."""
    return np.where(eta_u == np.inf, 0.0, eta_u)


class _GibbsStructures(Distributions):
    """Structures of Gibbs distributions; their probabilities are not functions of the marginals."""

    def pull_back(self, d_probabilities: npt.ArrayLike) -> FloatArray:
        """Raise an error."""
        raise _no_derivative_error()

    def push_forward(self, d_values: npt.ArrayLike) -> FloatArray:
        """Raise an error."""
        raise _no_derivative_error()


def _no_derivative_error() -> TypeError:
    return TypeError(
        "the probabilities of samples and of the k best structures are not functions of the "
        "marginals; expected structures of a solution. Gibbs.log_probability has derivatives."
    )
