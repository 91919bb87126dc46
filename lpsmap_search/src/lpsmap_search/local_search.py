"""Expectation maximisation from many starts."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lpsmap_core import Deadline, ended_by_ctrl_c
from lpsmap_search.arrays import FloatArray
from lpsmap_search.checks import checked_count, checked_number, checked_positive, checked_time
from lpsmap_search.constraints import (
    CountConstraint,
    ExpectationStep,
    checked_constraint,
    constrained,
)
from lpsmap_search.corpus import Corpus
from lpsmap_search.inside_outside import expected_counts, sampled_counts
from lpsmap_search.sparse_counts import SparseCounts
from lpsmap_search.viterbi import viterbi

__all__ = ["Trained", "expectation_maximisation", "restarts"]

Method = Literal["viterbi", "soft", "sparsemap"]
Start = Literal["uniform", "random"]


@dataclass(frozen=True)
class Trained:
    """Parameters that local search ended at."""

    parameters: FloatArray
    """(M,) probabilities, smoothed as asked for."""
    counts: FloatArray
    """(M,) of the best structures under them, or expected counts."""
    objective: float
    """What the method maximises.

    - Viterbi EM: the likelihood of the structures, for the parameters that fit their counts best,
      without smoothing.
    - Soft EM: the likelihood of the sentences, all structures summed, under the parameters.
    - SparseMAP-EM: what `sparse_counts` returns for the logarithms of the parameters.

    With a constraint, soft EM's is the expected log-likelihood of sentences and structures plus the
    entropy, under the distribution over structures that meets it (Ganchev et al. 2010)."""
    n_steps: int
    """Steps taken; of all restarts together."""
    seconds: float = 0.0
    """How long they took."""
    interrupted: bool = False
    """Whether Ctrl-C ended the restarts."""


def expectation_maximisation(
    corpus: Corpus,
    parameters: FloatArray,
    method: Method = "viterbi",
    *,
    smoothing: float = 1.0,
    max_steps: int = 100,
    temperature: float = 1.0,
    constraint: CountConstraint | None = None,
) -> Trained:
    """Improve parameters by expectation maximisation until the objective rises no more.

    Without smoothing no step lowers the objective: both half-steps maximise the same function of
    parameters and distributions over structures. Its regulariser of the distributions is their
    entropy for soft EM, a quadratic function of their marginals for SparseMAP-EM, and none for
    Viterbi EM.

    Parameters
    ----------
    corpus
        The sentences.
    parameters
        (M,) where to start: nonnegative numbers, which are normalised.
    method
        ``"viterbi"`` counts the best structures (Spitkovsky et al. 2010), ``"soft"`` takes expected
        counts (Baker 1979), ``"sparsemap"`` those of a sparse distribution, see `sparse_counts`.
    smoothing
        What the M-step adds to every count, at least 0. It is no part of the objective.
    max_steps
        Limit of the steps, at least 1.
    temperature
        Of ``"sparsemap"``.
    constraint
        What the counts of every E-step satisfy, such as `universal_rules`, or None.

    Returns
    -------
    Trained
        The best step's result.

    Raises
    ------
    ValueError
        If an option is out of range, the parameters are not of shape (M,), or no structures satisfy
        the constraint.
    """
    smoothing = checked_number("smoothing", smoothing)
    max_steps = checked_count("max_steps", max_steps)
    step = unconstrained_step(corpus, method, temperature)
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    step = expectation_step(corpus, method, step, constraint)
    return improved(corpus, parameters, step, smoothing, max_steps, lambda trained: True)


def unconstrained_step(corpus: Corpus, method: Method, temperature: float) -> ExpectationStep:
    """Return the E-step of a method, for one thread at a time.

    Raises
    ------
    ValueError
        If there is no such method, or the temperature is not positive.
    """
    temperature = checked_positive("temperature", temperature)
    if method == "sparsemap":
        return SparseCounts(corpus, temperature)
    steps = {"viterbi": viterbi, "soft": expected_counts}
    if method not in steps:
        raise ValueError(f"method: got {method!r}; expected 'viterbi', 'soft' or 'sparsemap'.")
    return functools.partial(steps[method], corpus)


def expectation_step(
    corpus: Corpus, method: Method, step: ExpectationStep, constraint: CountConstraint | None
) -> ExpectationStep:
    """Return an E-step under a constraint, with the method's objective as its value."""
    if constraint is not None:
        step = constrained(step, constraint)
    if method != "viterbi":
        return step

    def with_best_parameters(scores: FloatArray) -> tuple[float, FloatArray]:
        value, counts = step(scores)
        return value if value == -math.inf else corpus.model.log_likelihood(counts), counts

    return with_best_parameters


def improved(
    corpus: Corpus,
    parameters: FloatArray,
    e_step: ExpectationStep,
    smoothing: float,
    max_steps: int,
    go_on: Callable[[Trained], bool],
) -> Trained:
    """Return the best step from parameters; `go_on` is asked after each that is better."""
    model, begin = corpus.model, time.monotonic()
    parameters = model.normalised(np.asarray(parameters, dtype=np.float64))
    best: Trained | None = None
    for step in range(1, max_steps + 1):
        with np.errstate(divide="ignore"):
            scores = np.log(parameters)
        value, counts = e_step(scores)
        if best is not None and value <= best.objective + 1e-10 * abs(best.objective):
            break
        best = Trained(parameters, counts, value, step, time.monotonic() - begin)
        if not go_on(best) or value == -math.inf:
            break
        parameters = model.normalised(counts + smoothing)
    assert best is not None
    return best


def restarts(
    corpus: Corpus,
    method: Method = "viterbi",
    *,
    n_restarts: int = 10,
    start: Start = "uniform",
    smoothing: float = 1.0,
    max_steps: int = 100,
    max_time: float | None = None,
    threads: int = 1,
    seed: int = 0,
    temperature: float = 1.0,
    constraint: CountConstraint | None = None,
    deadline: Deadline | None = None,
    report: Callable[[Trained], object] | None = None,
) -> Trained:
    """Run expectation maximisation from many starts, and return the best result.

    Ctrl-C is as the end of the time: the best result so far is returned.

    Parameters
    ----------
    corpus, method, smoothing, max_steps, temperature, constraint
        As for `expectation_maximisation`.
    n_restarts
        How many starts, at least 1.
    start
        ``"uniform"`` counts structures drawn uniformly, each restart others: under uniform
        parameters many structures tie, and rounding would choose among them. ``"random"`` draws the
        parameters of every block from the flat Dirichlet distribution.
    max_time
        Limit of the seconds, or None; there always is a step from the first start.
    threads
        How many run at a time. The result does not depend on it, a limit of time aside.
    seed
        Of the random numbers.
    deadline
        When to stop, where the restarts are a part of something else; or None.
    report
        Called with the best step so far whenever there is a better one.

    Raises
    ------
    ValueError
        If an option is out of range, or no structures satisfy the constraint.
    """
    if start not in ("uniform", "random"):
        raise ValueError(f"start: got {start!r}; expected 'uniform' or 'random'.")
    smoothing = checked_number("smoothing", smoothing)
    max_steps = checked_count("max_steps", max_steps)
    n_restarts, threads = checked_count("n_restarts", n_restarts), checked_count("threads", threads)
    deadline = Deadline(checked_time(max_time), within=deadline)
    n_threads = min(threads, n_restarts)
    steps = [unconstrained_step(corpus, method, temperature) for _ in range(n_threads)]
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    best = _Best(deadline, report)
    numbers = iter(range(n_restarts))  # of which every thread takes the next

    def run_some(free: ExpectationStep) -> None:
        step = expectation_step(corpus, method, free, constraint)
        for number in numbers:
            if number and deadline.passed:
                break
            counts = _start(corpus, start, smoothing, np.random.default_rng([seed, number]))
            best.add(number, improved(corpus, counts, step, smoothing, max_steps, best.hear))

    with ended_by_ctrl_c(deadline):
        if n_threads == 1:
            run_some(steps[0])
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(run_some, steps))
    return best.result()


def _start(corpus: Corpus, start: Start, smoothing: float, rng: np.random.Generator) -> FloatArray:
    """Return counts to start at."""
    n = corpus.model.n_parameters
    if start == "random":
        return rng.exponential(size=n)
    return sampled_counts(corpus, np.zeros(n), rng) + smoothing


class _Best:
    """The best of all runs, which several threads may add; better steps are reported."""

    def __init__(self, deadline: Deadline, report: Callable[[Trained], object] | None) -> None:
        self._deadline, self._report = deadline, report
        self._lock, self._begin = threading.Lock(), time.monotonic()
        self._reported, self._n_heard, self._n_steps = -math.inf, 0, 0
        self._found: tuple[int, Trained] | None = None

    def hear(self, trained: Trained) -> bool:
        """Take note of a step, and return whether there is time for another one."""
        with self._lock:
            self._n_heard += 1
            if self._report is not None and trained.objective > self._reported:
                self._reported = trained.objective
                seconds = time.monotonic() - self._begin
                self._report(replace(trained, n_steps=self._n_heard, seconds=seconds))
        return not self._deadline.passed

    def add(self, number: int, trained: Trained) -> None:
        """Take the result of a run; of equal ones the first counts, whichever ends first."""
        with self._lock:
            self._n_steps += trained.n_steps
            rank = trained.objective, -number
            if self._found is None or rank > (self._found[1].objective, -self._found[0]):
                self._found = number, trained

    def result(self) -> Trained:
        """Return the best run's result, with the steps and the seconds of all."""
        assert self._found is not None
        return replace(
            self._found[1],
            n_steps=self._n_steps,
            seconds=time.monotonic() - self._begin,
            interrupted=self._deadline.cut,
        )
