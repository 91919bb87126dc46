"""Expectation maximisation from many starts."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lpsmap_core import Deadline
from lpsmap_search.arrays import FloatArray
from lpsmap_search.checks import checked_count, checked_number, checked_time
from lpsmap_search.corpus import Corpus
from lpsmap_search.inside_outside import expected_counts, sampled_counts
from lpsmap_search.viterbi import viterbi

__all__ = ["Trained", "expectation_maximisation", "restarts"]

Method = Literal["viterbi", "soft"]
Start = Literal["uniform", "random"]


@dataclass(frozen=True)
class Trained:
    """Parameters that local search ended at."""

    parameters: FloatArray
    """(M,) probabilities, smoothed as asked for."""
    counts: FloatArray
    """(M,) of the best structures under them, or expected counts."""
    objective: float
    """What the method maximises. For Viterbi EM that is the likelihood of the best structures, for
    the parameters that fit their counts best, without smoothing; for soft EM that of the sentences,
    all structures summed, under the parameters."""
    n_steps: int
    """Steps taken; of all restarts together."""


def expectation_maximisation(
    corpus: Corpus,
    parameters: FloatArray,
    method: Method = "viterbi",
    *,
    smoothing: float = 1.0,
    max_steps: int = 100,
) -> Trained:
    """Improve parameters by expectation maximisation until the objective rises no more.

    Parameters
    ----------
    corpus
        The sentences.
    parameters
        (M,) where to start: nonnegative numbers, which are normalised.
    method
        ``"viterbi"`` counts the best structures (Spitkovsky et al. 2010), ``"soft"`` takes expected
        counts (Baker 1979).
    smoothing
        What the M-step adds to every count, at least 0. It is no part of the objective.
    max_steps
        Limit of the steps, at least 1.

    Returns
    -------
    Trained
        The best step's result.

    Raises
    ------
    ValueError
        If an option is out of range, or the parameters are not of shape (M,).
    """
    checked_method(method)
    smoothing = checked_number("smoothing", smoothing)
    max_steps = checked_count("max_steps", max_steps)
    model = corpus.model
    parameters = model.normalised(np.asarray(parameters, dtype=np.float64))
    best: Trained | None = None
    for step in range(1, max_steps + 1):
        with np.errstate(divide="ignore"):
            scores = np.log(parameters)
        if method == "viterbi":
            value, counts = viterbi(corpus, scores)
            if value > -math.inf:
                value = model.log_likelihood(counts)
        else:
            value, counts = expected_counts(corpus, scores)
        if best is not None and value <= best.objective + 1e-10 * abs(best.objective):
            break
        best = Trained(parameters, counts, value, step)
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
) -> Trained:
    """Run expectation maximisation from many starts, and return the best result.

    Parameters
    ----------
    corpus, method, smoothing, max_steps
        As for `expectation_maximisation`.
    n_restarts
        How many starts, at least 1.
    start
        ``"uniform"`` counts structures drawn uniformly, each restart others: under uniform
        parameters many structures tie, and rounding would choose among them. ``"random"`` draws the
        parameters of every block from the flat Dirichlet distribution.
    max_time
        Limit of the seconds, or None; the first start is always run.
    threads
        How many run at a time. The result does not depend on it, a limit of time aside.
    seed
        Of the random numbers.

    Raises
    ------
    ValueError
        If an option is out of range.
    """
    checked_method(method)
    if start not in ("uniform", "random"):
        raise ValueError(f"start: got {start!r}; expected 'uniform' or 'random'.")
    n_restarts, threads = checked_count("n_restarts", n_restarts), checked_count("threads", threads)
    deadline = Deadline(checked_time(max_time))
    model = corpus.model

    def run(number: int) -> Trained | None:
        if number and deadline.passed:
            return None
        rng = np.random.default_rng([seed, number])
        if start == "uniform":
            counts = sampled_counts(corpus, np.zeros(model.n_parameters), rng) + smoothing
        else:
            counts = rng.exponential(size=model.n_parameters)
        return expectation_maximisation(
            corpus, counts, method, smoothing=smoothing, max_steps=max_steps
        )

    with ThreadPoolExecutor(threads) as pool:
        found = [trained for trained in pool.map(run, range(n_restarts)) if trained is not None]
    best = max(found, key=lambda trained: trained.objective)
    n_steps = sum(trained.n_steps for trained in found)
    return Trained(best.parameters, best.counts, best.objective, n_steps)


def checked_method(method: str) -> None:
    """Raise if there is no such method."""
    if method not in ("viterbi", "soft"):
        raise ValueError(f"method: got {method!r}; expected 'viterbi' or 'soft'.")
