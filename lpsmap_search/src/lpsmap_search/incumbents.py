"""Incumbents for a search: the best structures that local search finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lpsmap_core import Deadline
from lpsmap_decode import SearchResult
from lpsmap_search.arrays import FloatArray
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.inside_outside import sampled_counts
from lpsmap_search.lagrangian_space import LagrangianSpace
from lpsmap_search.local_search import (
    Trained,
    expectation_step,
    improved,
    restarts,
    unconstrained_step,
)

__all__ = ["Incumbent"]

MOST_STEPS = 100
"""Of one run."""

SMOOTHING = 0.01
"""Of the runs from counts that are near an optimum already."""

PATIENCE = 10
"""How many times the number of the run that found the best are made."""

SHARE = 0.5
"""Of the time, at most, that goes into the first incumbent."""


class Incumbent:
    """The best structures so far, and ways to better ones.

    Parameters
    ----------
    corpus
        The sentences.
    seed
        Of the random numbers.
    constraint
        What the structures satisfy, or None.
    deadline
        Of the search; a share of the time is used here, at most.
    report
        Called with each better incumbent.
    """

    def __init__(
        self,
        corpus: Corpus,
        seed: int,
        constraint: CountConstraint | None,
        deadline: Deadline,
        report: Callable[[SearchResult[FloatArray]], None],
    ) -> None:
        self._corpus, self._seed, self._constraint = corpus, seed, constraint
        left = deadline.left
        self._deadline = Deadline(None if left == math.inf else SHARE * left, within=deadline)
        self._report = report
        free = unconstrained_step(corpus, "viterbi", 1.0)
        self._step = expectation_step(corpus, "viterbi", free, constraint)
        self._best: SearchResult[FloatArray] = SearchResult(bound=0.0)

    def found(self, n_restarts: int) -> tuple[float, FloatArray]:
        """Return the likelihood and the counts of the best structures that local search finds.

        Parameters
        ----------
        n_restarts
            Of Viterbi EM, and of soft EM. Those from perturbed counts are ten times as many at
            least, and go on to ten times the number that it took to find the best.
        """
        self._restart(n_restarts)
        self._relax()
        self._soften(n_restarts)
        self._perturb(n_restarts)
        assert self._best.answer is not None
        return self._best.score, self._best.answer

    def _take(self, score: float, counts: FloatArray) -> bool:
        """Take better structures, and return whether there is time for more."""
        if score > self._best.score:
            self._best.score, self._best.answer = score, counts
            self._report(replace(self._best))
        return not self._deadline.passed

    def _take_step(self, trained: Trained) -> bool:
        return self._take(trained.objective, trained.counts)

    def _restart(self, n_restarts: int) -> None:
        """Run Viterbi EM from uniform starts."""
        trained = restarts(
            self._corpus,
            n_restarts=n_restarts,
            smoothing=0.1,
            seed=self._seed,
            constraint=self._constraint,
            deadline=self._deadline,
            report=self._take_step,
        )
        self._take_step(trained)

    def _relax(self) -> None:
        """Look at the structures that the Lagrangian relaxation of the whole space meets.

        They are of another kind than those of Viterbi EM, and often better.
        """
        if not self._deadline.passed:
            space = LagrangianSpace(self._corpus, 0.0, constraint=self._constraint)
            for look in space.look([space.root()], self._best.score):
                if look.answer is not None:
                    self._take(look.score, look.answer)

    def _soften(self, n_restarts: int) -> None:
        """Run Viterbi EM from where soft EM ends, which is better than most of its local optima."""
        free = unconstrained_step(self._corpus, "soft", 1.0)
        step = expectation_step(self._corpus, "soft", free, self._constraint)
        for number in range(n_restarts):
            if self._deadline.passed:
                return
            rng = np.random.default_rng([self._seed, 2, number])
            counts = _drawn(self._corpus, rng) + SMOOTHING
            trained = improved(
                self._corpus,
                counts,
                step,
                SMOOTHING,
                MOST_STEPS,
                lambda trained: not self._deadline.passed,
            )
            self._improve(trained.counts)

    def _perturb(self, n_restarts: int) -> None:
        """Run Viterbi EM from perturbations of the best counts (Lourenço et al. 2003)."""
        last, number = 0, 0
        while number < PATIENCE * max(n_restarts, last) and not self._deadline.passed:
            number += 1
            rng, best = np.random.default_rng([self._seed, 1, number]), self._best
            assert best.answer is not None
            score, share = best.score, rng.uniform()
            self._improve((1.0 - share) * best.answer + share * _drawn(self._corpus, rng))
            if best.score > score:
                last = number

    def _improve(self, counts: FloatArray) -> None:
        """Run Viterbi EM from counts."""
        start = counts + SMOOTHING
        improved(self._corpus, start, self._step, SMOOTHING, MOST_STEPS, self._take_step)


def _drawn(corpus: Corpus, rng: np.random.Generator) -> FloatArray:
    """Return the counts of structures that are drawn uniformly."""
    return sampled_counts(corpus, np.zeros(corpus.model.n_parameters), rng)
