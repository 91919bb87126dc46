"""Constraints on the counts of structures, and constrained E-steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lpsmap_core.api import FloatArray, checked_number, real_numbers
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.viterbi import viterbi

ExpectationStep = Callable[[FloatArray], tuple[float, FloatArray]]
"""An E-step: a function of scores that returns a value and counts, its gradient."""

CONSTRAINT_TOLERANCE = 1e-9
"""Tolerance on the weighted counts of a constraint whose largest weight is 1, or relative to its
bound, if that is larger; see `checked_constraint`."""

EXCESS_TOLERANCE = 1e-4
"""Relative excess of a constraint at which the search for a multiplier stops."""

MAX_CUTS = 100
"""Maximum steps of the search for a multiplier; each at least halves the interval."""

MAX_GROWTH = 100
"""Maximum number of multipliers, each four times the one before, tried for one that is enough."""

UNIVERSAL_TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
"""The tags of Universal Dependencies."""

RULES = {
    "root": ("AUX", "VERB"),
    "VERB": ("NOUN", "PROPN", "PRON", "ADV", "VERB"),
    "AUX": ("VERB",),
    "NOUN": ("ADJ", "DET", "NOUN", "PROPN", "NUM"),
    "PROPN": ("ADJ", "DET", "NOUN", "PROPN", "NUM"),
    "ADP": ("NOUN", "PROPN"),
    "ADJ": ("ADV",),
}
"""The rules of Naseem et al. (2010, Table 1), each head with its dependents, over the universal
tags: nouns are NOUN and PROPN, articles DET, prepositions ADP."""


@dataclass(frozen=True)
class CountConstraint:
    """A lower bound on a linear function of the counts, ``<weights, counts> >= least``.

    It applies to the counts of structures of a corpus, or to the expected counts of distributions
    over structures (Gormley & Eisner 2013, section 4.4; Ganchev et al. 2010).
    """

    weights: FloatArray
    """(M,) nonnegative weights of the parameters."""
    least: float
    """The lower bound on the weighted counts of all sentences."""

    def excess(self, counts: FloatArray) -> float:
        """Return ``<weights, counts> - least``."""
        return float(self.weights @ counts) - self.least

    def holds(self, counts: FloatArray) -> bool:
        """Return whether counts satisfy the constraint, up to rounding errors."""
        return self.excess(counts) >= -CONSTRAINT_TOLERANCE * max(1.0, self.least)


def universal_rules(corpus: Corpus, share: float = 0.75) -> CountConstraint:
    """Return the constraint that a share of arcs follows the universal rules (Naseem et al. 2010).

    Arcs of the root are included. The rules (Table 1), over universal tags: the root takes AUX or
    VERB; a VERB takes NOUN, PROPN, PRON, ADV or VERB; AUX takes VERB; NOUN and PROPN take ADJ, DET,
    NOUN, PROPN or NUM; ADP takes NOUN or PROPN; ADJ takes ADV. Their nouns are here NOUN and PROPN,
    their articles DET, their prepositions ADP. In Universal Dependencies, auxiliaries and
    adpositions are dependents instead, so that its trees break two of the rules.

    Parameters
    ----------
    corpus
        Sentences under a `DependencyModelWithValence` over universal tags.
    share
        The minimum share of the arcs, 0 to 1.

    Raises
    ------
    TypeError
        If the model is of another type.
    ValueError
        If the share is out of range, or no trees reach it.
    """
    model = corpus.model
    if not isinstance(model, DependencyModelWithValence):
        raise TypeError(
            f"corpus: got a corpus of {type(model).__name__}; expected one of "
            "DependencyModelWithValence, whose parameters are arcs."
        )
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share: got {share}; expected 0 to 1.")
    n_words = sum(
        int(times) * len(sentence)
        for times, sentence in zip(corpus.multiplicity, corpus.sentences, strict=True)
    )
    weights = np.zeros(model.n_parameters)
    weights[model.arcs(RULES)] = 1.0
    return checked_constraint(corpus, CountConstraint(weights, share * n_words))


def checked_constraint(corpus: Corpus, constraint: CountConstraint) -> CountConstraint:
    """Return an equivalent constraint that structures of a corpus can satisfy.

    Its largest weight is 1, so that tolerances do not depend on the scale of the weights; if all
    are zero, they stay. A bound below 0, which all counts satisfy, becomes 0.

    Raises
    ------
    TypeError
        If the weights or the bound are not numbers.
    ValueError
        If the weights are not of shape (M,), one is negative, NaN or infinite, the bound is NaN or
        infinite, or no structures reach it.
    """
    n = corpus.model.n_parameters
    weights = real_numbers("constraint: weights", constraint.weights).astype(np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"constraint: weights has shape {weights.shape}; expected ({n},), a weight for each "
            "parameter."
        )
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError(
            "constraint: weights has a negative, infinite or NaN entry; expected 0 or more."
        )
    least = checked_number("constraint: least", constraint.least, "a finite number", math.isfinite)
    unit = float(weights.max()) or abs(least) or 1.0
    checked = CountConstraint(weights / unit, max(0.0, least / unit))
    most, counts = viterbi(corpus, checked.weights)
    if checked.least == math.inf or not checked.holds(counts):
        raise ValueError(
            f"constraint: least is {least}; expected at most {most * unit}, the maximum over "
            "structures of the corpus."
        )
    return checked


def constrained(
    corpus: Corpus, e_step: ExpectationStep, constraint: CountConstraint
) -> ExpectationStep:
    """Return an E-step whose counts satisfy a constraint.

    An E-step maximises ``<scores, counts> + R`` over structures or distributions, where R depends
    on its method. With the constraint, the dual function of its multiplier is::

        D(x) = max { <scores + x weights, counts> + R } - x least,   x >= 0

    which is convex; its slope is the excess of the constraint. The next multiplier to try is the
    intersection of tangents of D on both sides of its minimum, until the smallest multiplier is
    found at which the constraint holds. If D is piecewise linear, as in Viterbi EM, this is exact
    after finitely many steps; if D is smooth, each step at least halves the interval, and the
    search stops at an excess of at most ``EXCESS_TOLERANCE * least``. The returned value is that of
    the returned counts, without the multiplier. Expected counts are then optimal. The structures of
    Viterbi EM are optimal if they satisfy the constraint with equality or without the multiplier;
    otherwise they are at most ``x * excess`` below the optimum.

    Parameters
    ----------
    corpus
        The sentences.
    e_step
        A function of scores that returns the maximum and the counts that attain it.
    constraint
        The constraint on the counts, whose largest weight is about 1.
    """
    return _Constrained(corpus, e_step, constraint)


class _Constrained:
    """A constrained E-step. It has no state: results do not depend on earlier calls."""

    def __init__(
        self, corpus: Corpus, e_step: ExpectationStep, constraint: CountConstraint
    ) -> None:
        self._corpus, self._e_step, self._constraint = corpus, e_step, constraint

    def __call__(self, scores: FloatArray) -> tuple[float, FloatArray]:
        below = self._tangent(scores, 0.0)
        if below.value == -math.inf:
            return below.value, below.counts
        if self._constraint.holds(below.counts):
            return below.value, below.counts
        bracket = self._bracket(scores, below) if self._is_possible(scores) else None
        if bracket is None:
            return -math.inf, np.zeros_like(scores)
        above = self._narrow(scores, *bracket)
        return above.value - above.x * float(self._constraint.weights @ above.counts), above.counts

    def _tangent(self, scores: FloatArray, x: float) -> _Tangent:
        value, counts = self._e_step(scores + x * self._constraint.weights)
        return _Tangent(x, value, counts, self._constraint.excess(counts), self._constraint.least)

    def _is_possible(self, scores: FloatArray) -> bool:
        """Return whether structures of finite score satisfy the constraint."""
        weights = np.where(scores > -np.inf, self._constraint.weights, -np.inf)
        return self._constraint.holds(viterbi(self._corpus, weights)[1])

    def _bracket(self, scores: FloatArray, below: _Tangent) -> tuple[_Tangent, _Tangent] | None:
        """Return a multiplier that is too small and one that is large enough.

        Some multiplier is large enough if the constraint can be satisfied. None is only returned if
        rounding errors hide it.
        """
        for x in 4.0 ** np.arange(MAX_GROWTH):
            above = self._tangent(scores, float(x))
            if self._constraint.holds(above.counts):
                return below, above
            below = above
        return None

    def _narrow(self, scores: FloatArray, below: _Tangent, above: _Tangent) -> _Tangent:
        """Return the smallest multiplier found at which the constraint holds."""
        for _ in range(MAX_CUTS):
            if above.excess <= EXCESS_TOLERANCE * self._constraint.least:
                break
            x = below.meets(above)
            if not below.x < x < above.x:
                break
            between, on_both = self._tangent(scores, x), below.at(x)
            if self._constraint.holds(between.counts):
                above = between
            else:
                below = between
            if between.dual <= on_both + CONSTRAINT_TOLERANCE * abs(on_both):
                break
        return above


@dataclass(frozen=True)
class _Tangent:
    """The tangent of the dual function at a multiplier x."""

    x: float
    value: float
    counts: FloatArray
    excess: float
    least: float

    @property
    def dual(self) -> float:
        """The value of the dual function."""
        return self.value - self.x * self.least

    def at(self, x: float) -> float:
        """Return the value of the tangent at another multiplier."""
        return self.dual + (x - self.x) * self.excess

    def meets(self, other: _Tangent) -> float:
        """Return the multiplier at which two tangents intersect."""
        return (self.at(0.0) - other.at(0.0)) / (other.excess - self.excess)
