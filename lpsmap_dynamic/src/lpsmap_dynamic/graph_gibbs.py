"""The Gibbs distribution of a graph."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Scores, Variables
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    cached_property,
    checked_count,
    kind_of,
    real_numbers,
    zero_unused_scores,
)
from lpsmap_dynamic.checked_arrays import (
    checked_additionals,
    checked_list,
    checked_tangent,
)
from lpsmap_dynamic.exact_sums import MAX_SUMMABLE, sum_exactly
from lpsmap_dynamic.factor_forest import FactorForest
from lpsmap_dynamic.forest_sums import ForestSums
from lpsmap_dynamic.graph_samples import GraphSamples
from lpsmap_dynamic.inference import Beliefs
from lpsmap_dynamic.machine_memory import check_fits_memory

NUMBER = 40
"""Bytes of a number of a sample, with those of the samples that it is chosen from."""


class GraphGibbs:
    """The Gibbs distribution of a whole graph: assignments that all factors allow.

    The score of an assignment is the sum of the scores of its variables that are on, and of the
    additionals of all factors; its probability is ``exp(score) / Z``. The sums are exact, by
    messages between factors (Pearl 1988; Kschischang et al. 2001, sum-product algorithm) where they
    form trees, in which two factors share one variable. Factors that form cycles are summed over by
    a junction tree (Lauritzen & Spiegelhalter 1988), if its tables fit into memory. Every factor
    must have a log-partition function; as part of a cycle, by a dynamic program whose derivations
    use a hyperedge with additionals at most once. Created by ``graph.gibbs()``.

    Components are independent, and numbered as in a `Solution`, by their first variable. Variables
    in no factor do not take part: they are padding, with marginal 0.

    Parameters
    ----------
    graph
        The graph, which need not be solved. The scores are its current ones.

    Raises
    ------
    TypeError
        If a type has no log-partition function, see `Factor.log_partition`.
    ValueError
        If the junction tree of factors that form a cycle is too large, one of them has no dynamic
        program, a factor contains a variable twice, or a finite score is above 1e300.

    Notes
    -----
    Scores of -inf forbid, as do those below -1e300, whose sums would overflow. If all assignments
    of a component are forbidden, its log-partition function is -inf, and its marginals and entropy
    are zero; if a score is NaN or +inf, all results of the component are NaN. Neither affects other
    components.

    A message is added to the score of a variable, and rounded to its precision.

    Samples also need `Factor.inference` of every type.

    Examples
    --------
    >>> from lpsmap import FactorGraph, Pair, Xor
    >>> graph = FactorGraph()
    >>> u = graph.variable_from([[0.0, 0.0], [0.0, 0.0]])
    >>> _ = graph.add(Xor(u)), graph.add(Pair(u[0, 0], u[1, 0], np.log(3.0)))
    >>> gibbs = graph.gibbs()
    >>> print(np.exp(gibbs.log_partition).round(6))
    [6.]
    >>> print(gibbs.value_of(u).round(6))
    [[0.666667 0.333333]
     [0.666667 0.333333]]
    """

    def __init__(self, graph: FactorGraph) -> None:
        self._graph, factors = weakref.ref(graph), tuple(graph.factors)
        self._forest = forest = FactorForest(factors, graph.n_variables)
        scores = graph.flat_scores()
        additionals = [graph.additional_scores(factor) for factor in factors]
        additionals = zero_unused_scores(factors, scores, additionals)
        extra = np.concatenate([np.empty(0), *(x.reshape(-1) for x in additionals)])
        self._owner, self._owner_v = forest.component, forest.component_of_additional
        self._wrong = np.zeros(forest.n_components + 1, dtype=np.bool_)
        self._wrong[self._owner[~(scores < np.inf)]] = True
        self._wrong[self._owner_v[~(extra < np.inf)]] = True
        if self._wrong.any():
            scores[self._wrong[self._owner]] = 0.0
            extra[self._wrong[self._owner_v]] = 0.0
        self._scores = Scores(*map(_summable, (scores, extra)))
        self._wrong[-1] = False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_graph": self._graph()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        graph = state["_graph"] or FactorGraph()  # gone at once, as the graph was
        vars(self).update(state, _graph=weakref.ref(graph))

    @property
    def log_partition(self) -> Any:
        """``(n_components,)`` the log-partition functions, ``log Z``, of the components."""
        return np.add(*self._log_partition)[:-1]

    @property
    def entropy(self) -> Any:
        """``(n_components,)`` entropies of the components, in nats."""
        return self._beliefs.entropy[:-1]

    def value_of(self, variables: Variables) -> Any:
        """Return the probabilities that the variables of a view are on, in its shape.

        Raises
        ------
        TypeError
            If they are not Variables.
        ValueError
            If they belong to another graph.
        """
        m = self._beliefs.m[self._checked(variables).index]
        return np.where(variables.negated, 1.0 - m, m)

    def additionals_of(self, factor: Factor) -> Any:
        """Return the expected counts of a declaration's additionals, in the shape of their scores.

        Raises
        ------
        ValueError
            If the factor belongs to another graph.
        """
        return self._beliefs.n[self._additionals(factor)].reshape(self._shape(factor))

    def component_of(self, variables: Variables) -> IntArray:
        """Return the component of every entry of a view; -1 for variables in no factor.

        Raises
        ------
        TypeError
            If they are not Variables.
        ValueError
            If they belong to another graph.
        """
        component = self._forest.component[self._checked(variables).index]
        return np.where(component == self._forest.n_components, -1, component)

    def jvp(
        self, d_scores: npt.ArrayLike, d_additionals: list[npt.ArrayLike] | None = None
    ) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        """Return the tangents of log-partition functions, marginals and additionals.

        Parameters
        ----------
        d_scores
            (n_variables,) tangent of the scores of the graph's variables.
        d_additionals
            Tangents of the scores of all declarations' additionals, in their shapes; None for zero.

        Returns
        -------
        tuple
            (n_components,) and (n_variables,) tangents, and those of all declarations' additionals.

        Raises
        ------
        TypeError
            If a tangent does not consist of real numbers.
        ValueError
            If a shape, or the number of tangents of additionals, does not match.
        """
        d_u = checked_tangent("jvp: d_scores", d_scores, len(self._owner))
        d_v = np.zeros(len(self._scores.eta_v))
        if d_additionals is not None:
            [d_v] = self._flat_additionals("jvp: d_additionals", d_additionals, ())
        product = self._hessian_product(Scores(d_u, d_v))
        size = self._forest.n_components + 1
        change: FloatArray = np.add(
            np.bincount(self._owner, self._beliefs.m * d_u, minlength=size),
            np.bincount(self._owner_v, self._beliefs.n * d_v, minlength=size),
            dtype=np.float64,
        )
        if self._wrong.any():
            change[self._wrong] = np.nan
            product.eta_u[self._wrong[self._owner]] = np.nan
            product.eta_v[self._wrong[self._owner_v]] = np.nan
        factors = self._forest.factors
        d_n = [product.eta_v[self._additionals(f)].reshape(self._shape(f)) for f in factors]
        return change[:-1], product.eta_u, d_n

    def sample(self, n: int = 1, seed: Any = None) -> GraphSamples:
        """Sample assignments of all variables, independently, with replacement.

        Exact samples: from the root of every tree of factors down, each factor is drawn given its
        parent variable.

        Parameters
        ----------
        n
            The number of samples.
        seed
            A ``numpy.random.Generator``, or a seed for ``numpy.random.default_rng``.

        Raises
        ------
        TypeError
            If a type has no inference, see `Factor.inference`, or `n` is not an integer.
        ValueError
            If `n` is not positive, or samples exceed the memory.

        Examples
        --------
        >>> from lpsmap import FactorGraph, Xor
        >>> graph = FactorGraph()
        >>> u = graph.variable_from(np.log([[1.0, 3.0]]))
        >>> _ = graph.add(Xor(u))
        >>> samples = graph.gibbs().sample(1000, seed=0)
        >>> print(samples.values[:, u.index].mean(axis=0).round(1))
        [[0.2 0.8]]
        >>> print(np.exp(samples.log_probabilities.max()).round(6))
        0.75
        """
        n = checked_count("sample: n", n)
        check_fits_memory("sample: n", n, NUMBER * (len(self._owner) + len(self._owner_v)))
        _ = self._beliefs  # raises the error about sums that overflow
        values, additionals = self._sums.sample(n, np.random.default_rng(seed))
        values[:, self._wrong[self._owner]] = np.nan
        additionals[:, self._wrong[self._owner_v]] = np.nan
        log_p, convert = self._log_probabilities(values, additionals), self._convert
        factors = self._forest.factors
        each = [additionals[:, self._additionals(f)].reshape(n, *self._shape(f)) for f in factors]
        return GraphSamples(convert(values), [convert(x) for x in each], log_p)

    def log_probability(self, values: Any, additionals: list[Any] | None = None) -> Any:
        """Return the log-probabilities of given assignments, component by component.

        Parameters
        ----------
        values
            ``(n_variables,)`` or ``(n, n_variables)`` zeros and ones. Variables in no factor are
            ignored.
        additionals
            The additionals of all declarations, as in `GraphSamples`; None if there are none.

        Returns
        -------
        array
            ``(n_components,)`` or ``(n, n_components)``; NaN if every assignment is forbidden. The
            arguments are not validated to be assignments that all factors allow.

        Raises
        ------
        TypeError
            If they are not numbers.
        ValueError
            If a shape does not match.
        """
        x = real_numbers("log_probability: values", values).astype(np.float64)
        n_variables = len(self._owner)
        if x.ndim not in (1, 2) or x.shape[-1] != n_variables:
            raise ValueError(
                f"log_probability: values has shape {x.shape}; expected ({n_variables},) or "
                f"(n, {n_variables}), one number for every variable of the graph."
            )
        extra = self._flat_additionals("log_probability: additionals", additionals, x.shape[:-1])
        log_probability = self._log_probabilities(np.atleast_2d(x), extra)
        return log_probability.reshape(*x.shape[:-1], self._forest.n_components)

    def _flat_additionals(
        self, name: str, additionals: list[Any] | None, middle: tuple[int, ...]
    ) -> FloatArray:
        """Return additionals of n assignments, with these leading axes, as (n, n_additionals)."""
        factors, n = self._forest.factors, math.prod(middle)
        given = [np.empty(0) for _ in factors] if additionals is None else additionals
        flat = [np.empty((n, 0))]
        for factor, x in zip(factors, checked_list(name, given, len(factors)), strict=True):
            shape = (*middle, *self._shape(factor))
            numbers = checked_additionals(f"{name} of {factor!r}", x, shape)
            flat.append(numbers.reshape(n, math.prod(self._shape(factor))))
        return np.concatenate(flat, axis=1)

    def _log_probabilities(self, values: FloatArray, additionals: FloatArray) -> Any:
        """Return (n, n_components) log-probabilities."""
        n, size = len(values), self._forest.n_components + 1
        groups, entries = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for x, owner, scores in (
            (values, self._owner, self._scores.eta_u),
            (additionals, self._owner_v, self._scores.eta_v),
        ):
            k, place = np.nonzero(x)
            groups.append(k * size + owner[place])
            entries.append(x[k, place] * scores[place])
        group, entry = np.concatenate(groups), np.concatenate(entries)
        finite = np.isfinite(entry)
        score, rest = sum_exactly(group[finite], entry[finite], n * size)
        high, low = (np.tile(x, n) for x in self._log_partition)
        high[np.isneginf(high)] = np.nan
        log_probability = (score - high) + (rest - low)  # common scores cancel before the rounding
        np.add.at(log_probability, group[~finite], entry[~finite])
        return log_probability.reshape(n, size)[:, :-1]

    def _convert(self, array: FloatArray) -> Any:
        """Return an array of samples in the namespace of the scores."""
        return array

    @property
    def _log_partition(self) -> tuple[FloatArray, FloatArray]:
        """(n_components + 1,) log-partition functions, and their rounding errors."""
        beliefs = self._beliefs
        assert beliefs.remainder is not None
        return beliefs.log_partition, beliefs.remainder

    def _hessian_product(self, direction: Scores) -> Scores:
        return self._sums.hessian_product(direction)

    @cached_property
    def _sums(self) -> ForestSums:
        return ForestSums(self._forest, self._scores)

    @cached_property
    def _beliefs(self) -> Beliefs:
        beliefs = self._sums.beliefs()
        if self._wrong.any():
            beliefs.log_partition[self._wrong] = beliefs.entropy[self._wrong] = np.nan
            beliefs.m[self._wrong[self._owner]] = np.nan
            beliefs.n[self._wrong[self._owner_v]] = np.nan
        return beliefs

    def _checked(self, variables: Variables) -> Variables:
        if not isinstance(variables, Variables):
            raise TypeError(f"gibbs: got {kind_of(variables)}; expected Variables.")
        if variables.graph is not self._graph():
            raise ValueError(
                f"gibbs: {variables!r} belong to another graph; expected those of this one."
            )
        return variables

    def _additionals(self, factor: Factor) -> slice:
        """Return the additionals of a declaration among all of them."""
        for d, other in enumerate(self._forest.factors):
            if factor is other:
                return slice(*self._forest.first_additional[d : d + 2])
        raise ValueError(f"gibbs: {factor!r} is not in this graph; expected one of its factors.")

    @staticmethod
    def _shape(factor: Factor) -> tuple[int, ...]:
        """Return the shape of a declaration's additionals."""
        return (0,) if factor.additionals is None else tuple(factor.additionals.shape)


def _summable(scores: FloatArray) -> FloatArray:
    """Return scores, changed in place, whose sums do not overflow."""
    largest = scores.max(initial=-np.inf)
    if largest > MAX_SUMMABLE:
        raise ValueError(
            f"gibbs: the graph has scores of up to {largest:.3g}, whose sums overflow float64; "
            "expected smaller scores. Use -inf to forbid."
        )
    scores[scores < -MAX_SUMMABLE] = -np.inf
    return scores
