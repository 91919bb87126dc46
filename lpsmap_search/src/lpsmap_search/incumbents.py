"""Incumbents of a search, by local search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import FloatArray
from lpsmap_decode import SearchResult
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.inside_outside import sampled_counts
from lpsmap_search.lagrangian_space import LagrangianSpace
from lpsmap_search.local_search import Trained, expectation_step, improved, restarts

MAX_STEPS = 100
"""Maximum number of steps of one run."""

SMOOTHING = 0.01
"""Smoothing in runs from counts near an optimum."""

RUNS_PER_SUCCESS = 10
"""Perturbation continues until this many times the number of runs that found the best."""

SHARE = 0.5
"""Maximum share of the time for the first incumbent."""


class Incumbent:
    """The best structures so far, and methods to improve them.

    Parameters
    ----------
    corpus
        The sentences.
    seed
        The seed of random numbers.
    constraint
        A constraint on the structures, or None.
    deadline
        The deadline of the search; at most `SHARE` of the time is used here.
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
        self._step = expectation_step(corpus, "viterbi", constraint=constraint)
        self._best: SearchResult[FloatArray] = SearchResult(bound=0.0)

    def found(self, n_restarts: int) -> tuple[float, FloatArray]:
        """Run local search, and return the likelihood and counts of the best structures.

        Parameters
        ----------
        n_restarts
            Number of restarts of Viterbi EM, and of soft EM. At least ten times as many restarts
            from perturbed counts follow, up to ten times the number that found the best.
        """
        trained = restarts(
            self._corpus,
            n_restarts=n_restarts,
            seed=self._seed,
            constraint=self._constraint,
            deadline=self._deadline,
            report=self._take_step,
        )
        self._take_step(trained)
        self._relax()
        self._soften(n_restarts)
        self._perturb(n_restarts)
        assert self._best.answer is not None
        return self._best.score, self._best.answer

    def _take(self, score: float, counts: FloatArray) -> bool:
        """Record structures if they are better; return whether there is time left."""
        if score > self._best.score:
            self._best.score, self._best.answer = score, counts
            self._report(replace(self._best))
        return not self._deadline.passed

    def _take_step(self, trained: Trained) -> bool:
        return self._take(trained.objective, trained.counts)

    def _relax(self) -> None:
        """Evaluate the structures found by the Lagrangian relaxation of the root box.

        These differ from the optima of Viterbi EM, and are often better.
        """
        if not self._deadline.passed:
            space = LagrangianSpace(self._corpus, 0.0, constraint=self._constraint)
            [evaluation] = space.evaluate([space.root()], self._best.score)
            if evaluation.answer is not None:
                self._take(evaluation.score, evaluation.answer)

    def _soften(self, n_restarts: int) -> None:
        """Run Viterbi EM from the results of soft EM, which beats most uniform starts."""
        step = expectation_step(self._corpus, "soft", constraint=self._constraint)
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
                MAX_STEPS,
                lambda trained: not self._deadline.passed,
            )
            self._improve(trained.counts)

    def _perturb(self, n_restarts: int) -> None:
        """Run Viterbi EM from perturbations of the best counts (Lourenço et al. 2003)."""
        last, number = 0, 0
        while number < RUNS_PER_SUCCESS * max(n_restarts, last) and not self._deadline.passed:
            number += 1
            rng, best = np.random.default_rng([self._seed, 1, number]), self._best
            assert best.answer is not None
            score, weight = best.score, rng.uniform()
            self._improve((1.0 - weight) * best.answer + weight * _drawn(self._corpus, rng))
            if best.score > score:
                last = number

    def _improve(self, counts: FloatArray) -> None:
        """Run Viterbi EM from counts."""
        start = counts + SMOOTHING
        improved(self._corpus, start, self._step, SMOOTHING, MAX_STEPS, self._take_step)


def _drawn(corpus: Corpus, rng: np.random.Generator) -> FloatArray:
    """Return the counts of uniformly sampled structures."""
    return sampled_counts(corpus, np.zeros(corpus.model.n_parameters), rng)
