"""Constraints on the counts of structures, and E-steps that respect them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpsmap_search.arrays import FloatArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.viterbi import viterbi

__all__ = [
    "CountConstraint",
    "ExpectationStep",
    "UNIVERSAL_TAGS",
    "checked_constraint",
    "constrained",
    "universal_rules",
]

ExpectationStep = Callable[[FloatArray], tuple[float, FloatArray]]
"""What an E-step is: of scores, a value and counts, which are its gradient."""

ROUNDING = 1e-9
"""By how much of their size sums of counts may miss a constraint."""

SLACK = 1e-4
"""Share by which expected counts may exceed what a constraint asks for, where they need not."""

MOST_CUTS = 100
"""Steps of the search for a multiplier; the interval halves in each, or better."""

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
    """A lower bound of a linear function of the counts, ``<weights, counts> >= least``.

    For structures of a corpus it limits their counts, for distributions over structures their
    expected counts (Gormley & Eisner 2013, section 4.4; Ganchev et al. 2010).
    """

    weights: FloatArray
    """(M,) nonnegative weights of the parameters."""
    least: float
    """What the weighted counts of all sentences have to reach."""

    def excess(self, counts: FloatArray) -> float:
        """Return ``<weights, counts> - least``."""
        return float(self.weights @ counts) - self.least

    def holds(self, counts: FloatArray) -> bool:
        """Return whether counts satisfy the constraint, up to rounding."""
        return self.excess(counts) >= -ROUNDING * max(1.0, self.least)


def universal_rules(corpus: Corpus, share: float = 0.75) -> CountConstraint:
    """Return that a share of all arcs is among the universal rules of Naseem et al. (2010).

    The arcs of the root count. The rules (Table 1), over universal tags: the root takes AUX or
    VERB; a VERB takes NOUN, PROPN, PRON, ADV or VERB; AUX takes VERB; NOUN and PROPN take ADJ, DET,
    NOUN, PROPN or NUM; ADP takes NOUN or PROPN; ADJ takes ADV. Their nouns are here NOUN and PROPN,
    their articles DET, their prepositions ADP. In Universal Dependencies, auxiliaries and
    adpositions are dependents instead, so that its trees break two of the rules.

    Parameters
    ----------
    corpus
        Sentences under a `DependencyModelWithValence` over universal tags.
    share
        How many of the arcs at least, 0 to 1.

    Raises
    ------
    TypeError
        If the model is another one.
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
    """Return a constraint that structures of a corpus can satisfy.

    Raises
    ------
    ValueError
        If its weights are not of shape (M,), one is negative, NaN or infinite, or no structures
        reach what it asks for.
    """
    n = corpus.model.n_parameters
    weights: npt.NDArray[np.float64] = np.asarray(constraint.weights, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"constraint: weights has shape {weights.shape}; expected ({n},), a weight for each "
            "parameter."
        )
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError("constraint: weights has a negative number or none; expected 0 or more.")
    checked = CountConstraint(weights, float(constraint.least))
    most, counts = viterbi(corpus, weights)
    if not checked.holds(counts):
        raise ValueError(
            f"constraint: least is {checked.least}; expected at most {most}, which is what the "
            "structures of the corpus reach."
        )
    return checked


def constrained(e_step: ExpectationStep, constraint: CountConstraint) -> ExpectationStep:
    """Return an E-step whose counts satisfy a constraint.

    An E-step maximises ``<scores, counts> + R`` over structures or distributions, where R depends
    on its method. With the constraint, the dual function of its multiplier is::

        D(x) = max { <scores + x weights, counts> + R } - x least,   x >= 0

    which is convex; its slope is the constraint's excess. Tangents of D on both sides of its
    minimum meet at the next multiplier to try, until the smallest multiplier is found at which the
    constraint holds. For a linear D between two structures, as of Viterbi EM, this is exact after
    finitely many steps; where D is smooth, the interval halves or better, and the end is an excess
    of at most ``SLACK * least``. The value returned is that of the counts returned, without the
    multiplier. Expected counts are optimal then. The structures of Viterbi EM are the most likely
    ones that satisfy the constraint if they satisfy it with equality or without the multiplier, and
    otherwise fall short of them by no more than ``x * excess``.

    Parameters
    ----------
    e_step
        Of scores, the maximum and the counts that attain it.
    constraint
        What counts have to satisfy.
    """
    return _Constrained(e_step, constraint)


class _Constrained:
    """A constrained E-step, which begins near the multiplier that it ended at last."""

    def __init__(self, e_step: ExpectationStep, constraint: CountConstraint) -> None:
        self._e_step, self._constraint, self._last = e_step, constraint, 1.0

    def __call__(self, scores: FloatArray) -> tuple[float, FloatArray]:
        below = self._tangent(scores, 0.0)
        if below.value == -math.inf:
            return below.value, below.counts
        if self._constraint.holds(below.counts):
            return below.value, below.counts
        bracket = self._bracket(scores, below)
        if bracket is None:
            return -math.inf, np.zeros_like(scores)
        above = self._narrow(scores, *bracket)
        self._last = above.x
        return above.value - above.x * float(self._constraint.weights @ above.counts), above.counts

    def _tangent(self, scores: FloatArray, x: float) -> _Tangent:
        value, counts = self._e_step(scores + x * self._constraint.weights)
        return _Tangent(x, value, counts, self._constraint.excess(counts), self._constraint.least)

    def _bracket(self, scores: FloatArray, below: _Tangent) -> tuple[_Tangent, _Tangent] | None:
        """Return multipliers that are too small and large enough; None if none is large enough."""
        x = self._last
        largest = 1e6 * max(1.0, float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)))
        while True:
            above = self._tangent(scores, x)
            if self._constraint.holds(above.counts):
                return below, above
            if x > largest:
                return None
            below, x = above, 4.0 * x

    def _narrow(self, scores: FloatArray, below: _Tangent, above: _Tangent) -> _Tangent:
        """Return the smallest multiplier found at which the constraint holds."""
        for _ in range(MOST_CUTS):
            if above.excess <= SLACK * self._constraint.least:
                break
            x = below.meets(above)
            if not below.x < x < above.x:
                break
            between, on_both = self._tangent(scores, x), below.at(x)
            if self._constraint.holds(between.counts):
                above = between
            else:
                below = between
            if between.dual <= on_both + ROUNDING * abs(on_both):
                break
        return above


@dataclass(frozen=True)
class _Tangent:
    """Of the dual function at a multiplier x."""

    x: float
    value: float
    counts: FloatArray
    excess: float
    least: float

    @property
    def dual(self) -> float:
        """The dual function's value."""
        return self.value - self.x * self.least

    def at(self, x: float) -> float:
        """Return the tangent's value at another multiplier."""
        return self.dual + (x - self.x) * self.excess

    def meets(self, other: _Tangent) -> float:
        """Return where two tangents meet."""
        return (self.at(0.0) - other.at(0.0)) / (other.excess - self.excess)
