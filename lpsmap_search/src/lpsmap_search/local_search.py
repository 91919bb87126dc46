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
from lpsmap_core.api import FloatArray, checked_count
from lpsmap_search.checks import (
    checked_nonnegative,
    checked_parameters,
    checked_positive,
    checked_time,
)
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

Method = Literal["viterbi", "soft", "sparsemap"]
Start = Literal["uniform", "random"]


@dataclass(frozen=True)
class Trained:
    """The result of local search."""

    parameters: FloatArray
    """(M,) smoothed probabilities."""
    counts: FloatArray
    """(M,) counts of the best structures under them, or expected counts."""
    objective: float
    """The objective of the method.

    - Viterbi EM: the likelihood of the structures under the optimal parameters for their counts,
      without smoothing.
    - Soft EM: the marginal likelihood of the sentences under the parameters.
    - SparseMAP-EM: the value of `sparse_counts` for the logarithms of the parameters.

    With a constraint, the objective of soft EM is the expected joint log-likelihood plus the
    entropy, under the distribution over structures that satisfies it (Ganchev et al. 2010)."""
    n_steps: int
    """Number of steps of all restarts."""
    seconds: float = 0.0
    """Duration of the steps."""
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
    """Improve parameters by expectation maximisation until the objective stops increasing.

    Without smoothing, no step decreases the objective: both half-steps maximise the same function
    of parameters and distributions over structures. Its regulariser is the entropy for soft EM, and
    a quadratic function of the marginals for SparseMAP-EM; Viterbi EM has none.

    Parameters
    ----------
    corpus
        The sentences.
    parameters
        (M,) initial parameters: nonnegative numbers, which are normalised.
    method
        ``"viterbi"`` counts the best structures (Spitkovsky et al. 2010), ``"soft"`` takes expected
        counts (Baker 1979), ``"sparsemap"`` those of a sparse distribution, see `sparse_counts`.
    smoothing
        Constant that the M-step adds to every count, at least 0. The objective does not include it.
    max_steps
        Maximum number of steps, at least 1.
    temperature
        The temperature of ``"sparsemap"``.
    constraint
        A constraint on the counts of every E-step, such as `universal_rules`, or None.

    Returns
    -------
    Trained
        The result of the best step.

    Raises
    ------
    ValueError
        If an option is out of range, the parameters are not of shape (M,), one is negative, NaN or
        infinite, or no structures satisfy the constraint.
    """
    parameters = checked_parameters(corpus.model, parameters)
    smoothing = checked_nonnegative("smoothing", smoothing)
    max_steps = checked_count("max_steps", max_steps)
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    step = expectation_step(corpus, method, temperature, constraint)
    return improved(corpus, parameters, step, smoothing, max_steps, lambda trained: True)


def expectation_step(
    corpus: Corpus,
    method: Method,
    temperature: float = 1.0,
    constraint: CountConstraint | None = None,
) -> ExpectationStep:
    """Return the E-step of a method, with its objective as value; it is not thread-safe.

    Raises
    ------
    ValueError
        If the method is unknown, or the temperature is not positive.
    """
    temperature = checked_positive("temperature", temperature)
    steps: dict[str, ExpectationStep] = {
        "viterbi": functools.partial(viterbi, corpus),
        "soft": functools.partial(expected_counts, corpus),
    }
    if method not in (*steps, "sparsemap"):
        raise ValueError(f"method: got {method!r}; expected 'viterbi', 'soft' or 'sparsemap'.")
    step = steps[method] if method in steps else SparseCounts(corpus, temperature)
    if constraint is not None:
        step = constrained(corpus, step, constraint)
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
    """Return the best step from parameters; `go_on` is called after each improvement."""
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

    After Ctrl-C, as after the time limit, the best result so far is returned.

    Parameters
    ----------
    corpus, method, smoothing, max_steps, temperature, constraint
        As in `expectation_maximisation`.
    n_restarts
        Number of starts, at least 1.
    start
        ``"uniform"`` counts uniformly sampled structures in each restart: under uniform parameters
        many structures tie, and rounding errors would break the ties. ``"random"`` samples the
        parameters of every block from the flat Dirichlet distribution.
    max_time
        Time limit in seconds, or None; at least one step from the first start is made.
    threads
        Number of threads. The result does not depend on it, except through a time limit.
    seed
        The seed of random numbers, at least 0.
    deadline
        A deadline, if the restarts are part of a larger computation; or None.
    report
        Called with the best step so far whenever it improves.

    Raises
    ------
    ValueError
        If an option is out of range, or no structures satisfy the constraint.
    """
    if start not in ("uniform", "random"):
        raise ValueError(f"start: got {start!r}; expected 'uniform' or 'random'.")
    smoothing = checked_nonnegative("smoothing", smoothing)
    max_steps = checked_count("max_steps", max_steps)
    n_restarts, threads = checked_count("n_restarts", n_restarts), checked_count("threads", threads)
    seed = checked_count("seed", seed, least=0)
    deadline = Deadline(checked_time(max_time), within=deadline)
    n_threads = min(threads, n_restarts)
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    steps = [expectation_step(corpus, method, temperature, constraint) for _ in range(n_threads)]
    best = _Best(deadline, report)
    numbers = iter(range(n_restarts))  # shared by the threads

    def run_some(step: ExpectationStep) -> None:
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
    """Return initial counts."""
    n = corpus.model.n_parameters
    if start == "random":
        return rng.exponential(size=n)
    return sampled_counts(corpus, np.zeros(n), rng) + smoothing


class _Best:
    """The best of all runs, thread-safe; reports improvements."""

    def __init__(self, deadline: Deadline, report: Callable[[Trained], object] | None) -> None:
        self._deadline, self._report = deadline, report
        self._lock, self._begin = threading.Lock(), time.monotonic()
        self._reported, self._n_heard, self._n_steps = -math.inf, 0, 0
        self._best: tuple[int, Trained] | None = None

    def hear(self, trained: Trained) -> bool:
        """Record a step; return whether there is time for another one."""
        with self._lock:
            self._n_heard += 1
            if self._report is not None and trained.objective > self._reported:
                self._reported = trained.objective
                seconds = time.monotonic() - self._begin
                self._report(replace(trained, n_steps=self._n_heard, seconds=seconds))
        return not self._deadline.passed

    def add(self, number: int, trained: Trained) -> None:
        """Record the result of a run; of equal results, that with the lowest number wins."""
        with self._lock:
            self._n_steps += trained.n_steps
            rank = trained.objective, -number
            if self._best is None or rank > (self._best[1].objective, -self._best[0]):
                self._best = number, trained

    def result(self) -> Trained:
        """Return the best result, with the total steps and seconds of all runs."""
        assert self._best is not None
        return replace(
            self._best[1],
            n_steps=self._n_steps,
            seconds=time.monotonic() - self._begin,
            interrupted=self._deadline.cut,
        )
