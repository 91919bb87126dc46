"""Restarts that report, end early, and the first incumbents of a search."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from brute_force import best_likelihood
from corpora import EIGHT, FIVE, OPTIMUM
from lpsmap_core import Deadline
from lpsmap_search import (
    Corpus,
    CountConstraint,
    DependencyModelWithValence,
    Trained,
    expectation_maximisation,
    restarts,
    sampled_sentences,
    verb_noun_adjective,
    viterbi,
)
from lpsmap_search.incumbents import Incumbent


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(DependencyModelWithValence("VNA"), EIGHT)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("method", ["viterbi", "soft"])
def test_better_steps_are_reported(corpus: Corpus, method: str, threads: int) -> None:
    heard: list[Trained] = []
    best = restarts(
        corpus, method, n_restarts=5, smoothing=0.1, threads=threads, report=heard.append
    )
    objectives = [trained.objective for trained in heard]
    assert objectives == sorted(set(objectives))
    assert objectives[-1] == best.objective
    assert all(0.0 <= trained.seconds <= best.seconds for trained in heard)
    steps = [trained.n_steps for trained in heard]
    assert steps == sorted(steps)
    assert steps[-1] <= best.n_steps
    np.testing.assert_allclose(corpus.model.sums(heard[0].parameters), 1.0)
    assert not best.interrupted


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_restarts_with_the_best_so_far(corpus: Corpus, threads: int) -> None:
    heard: list[Trained] = []

    def press(trained: Trained) -> None:
        heard.append(trained)
        if len(heard) == 1:  # a second one raises
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # as a terminal

    best = restarts(corpus, n_restarts=10**9, threads=threads, report=press)
    assert best.interrupted
    assert best.objective == max(trained.objective for trained in heard)


def test_a_limit_of_time_ends_any_number_of_restarts(corpus: Corpus) -> None:
    begin = time.monotonic()
    best = restarts(corpus, n_restarts=10**9, max_time=0.05)
    assert best.seconds <= time.monotonic() - begin < 5.0
    assert best.n_steps > 1


def first_incumbent(
    corpus: Corpus, constraint: CountConstraint | None = None, seconds: float | None = None
) -> tuple[float, np.ndarray, list[float]]:
    heard: list[float] = []
    incumbent = Incumbent(
        corpus, 0, constraint, Deadline(seconds), lambda found: heard.append(found.score)
    )
    return *incumbent.found(5), heard


def test_the_first_incumbent_is_no_worse_than_restarts(corpus: Corpus) -> None:
    score, counts, heard = first_incumbent(corpus)
    assert score >= restarts(corpus, n_restarts=5, smoothing=0.1).objective
    assert score == heard[-1] == pytest.approx(corpus.model.log_likelihood(counts), abs=1e-12)
    assert heard == sorted(heard)
    assert (score, heard) == (first_incumbent(corpus)[0], first_incumbent(corpus)[2])


def test_the_first_incumbent_is_near_the_optimum() -> None:
    score, _, _ = first_incumbent(Corpus(DependencyModelWithValence("VNA"), FIVE))
    assert 1.05 * OPTIMUM <= score <= OPTIMUM + 1e-9


def test_the_first_incumbent_satisfies_a_constraint() -> None:
    corpus = Corpus(DependencyModelWithValence("VN"), ["VN", "NVN", "VNN"])
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=corpus.model.n_parameters)
    constraint = CountConstraint(weights, 0.95 * viterbi(corpus, weights)[0])
    score, counts, _ = first_incumbent(corpus, constraint)
    assert constraint.holds(counts)
    assert score <= best_likelihood(corpus, constraint) + 1e-9 < best_likelihood(corpus)


def test_the_first_incumbent_takes_no_more_than_its_time(corpus: Corpus) -> None:
    score, counts, _ = first_incumbent(corpus, seconds=0.0)
    assert score == pytest.approx(corpus.model.log_likelihood(counts))


@pytest.mark.parametrize(
    "parameters",
    [np.ones(44), np.ones((1, 45)), np.full(45, np.nan), np.full(45, np.inf), np.full(45, -1.0)],
    ids=["short", "axes", "nan", "inf", "negative"],
)
def test_bad_parameters_are_refused(corpus: Corpus, parameters: np.ndarray) -> None:
    model, _ = verb_noun_adjective()
    with pytest.raises(ValueError, match="^parameters has"):
        expectation_maximisation(corpus, parameters)
    with pytest.raises(ValueError, match="^parameters has"):
        sampled_sentences(model, parameters, 1, np.random.default_rng(0))


def test_a_negative_seed_is_named(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="seed: got -1; expected an integer of at least 0"):
        restarts(corpus, seed=-1)
