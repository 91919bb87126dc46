"""Training to a proved optimum, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from brute_force import best_likelihood, corpus_counts, shares_of
from corpora import EIGHT, FIVE, KINDS, OPTIMUM, OPTIMUM_OF_EIGHT, drawn_corpus
from lpsmap_search import (
    Corpus,
    DependencyModelWithValence,
    expectation_maximisation,
    global_search,
    restarts,
)
from lpsmap_search.lagrangian import Bounds, ConstraintRow, bound_boxes
from lpsmap_search.shares import first_box, fraction_above, fraction_below, tighten, totals
from lpsmap_search.viterbi import new_workspace


@pytest.mark.compiled
def test_the_corpus_of_five_is_proved() -> None:
    found = global_search(Corpus(DependencyModelWithValence("VNA"), FIVE), gap=0.01)
    assert found.proved
    assert found.objective == pytest.approx(OPTIMUM, rel=1e-13)
    assert OPTIMUM <= found.bound <= OPTIMUM + 0.01 * abs(OPTIMUM) + 1e-9
    assert found.n_nodes < 5_000


@pytest.mark.compiled
def test_a_corpus_of_eight_is_proved() -> None:
    found = global_search(Corpus(DependencyModelWithValence("VNA"), EIGHT), gap=0.01)
    assert found.proved
    assert found.objective == pytest.approx(OPTIMUM_OF_EIGHT, abs=1e-9)
    assert found.bound <= OPTIMUM_OF_EIGHT + 0.01 * abs(OPTIMUM_OF_EIGHT) + 1e-9
    assert found.n_nodes < 40_000


@pytest.mark.usefixtures("poor_start")
@pytest.mark.parametrize("kind", KINDS)
def test_small_corpora_against_enumeration(kind: str) -> None:
    check_against_enumeration(kind, range(8))


@pytest.mark.slow
@pytest.mark.usefixtures("poor_start")
@pytest.mark.parametrize("kind", KINDS)
def test_many_small_corpora_against_enumeration(kind: str) -> None:
    check_against_enumeration(kind, range(100, 270))


def check_against_enumeration(kind: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        corpus = drawn_corpus(kind, rng)
        best, gap = best_likelihood(corpus), 10.0 ** -rng.integers(1, 4)
        found = global_search(corpus, gap=gap, n_restarts=2, max_nodes=20_000)
        assert found.proved, seed
        assert found.objective <= best + 1e-9, seed
        assert found.bound >= best - 1e-9, seed
        assert found.objective >= best - gap * max(1.0, abs(best)) - 1e-9, seed
        assert corpus.model.log_likelihood(found.counts) == pytest.approx(found.objective), seed


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_in_every_box_for_any_multipliers(kind: str) -> None:
    """Structures whose shares lie in a box are no more likely than its bound."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        corpus = drawn_corpus(kind, rng)
        model, counts = corpus.model, corpus_counts(corpus)
        n = model.n_parameters
        values = np.array([model.log_likelihood(f) for f in counts])
        shares = np.array([shares_of(model, f) for f in counts])
        for width in (0.05, 0.3, 1.0):
            own = shares[rng.integers(len(shares))]
            low = np.maximum(own - width * rng.random(n), 0.0)
            high = np.minimum(own + width * rng.random(n), 1.0)
            inside = ((shares >= low) & (shares <= high)).all(axis=1)
            assert inside.any()
            for steps in (1, 3, 40):
                bound = bounded(corpus, low, high, rng.standard_normal(n + 1), steps)
                assert bound >= values[inside].max() - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_no_shares_are_lost_where_boxes_are_tightened_or_divided(kind: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        corpus = drawn_corpus(kind, rng)
        model, counts, ranges = corpus.model, corpus_counts(corpus), totals(corpus)
        shares = np.array([shares_of(model, f) for f in counts])
        n, whole = model.n_parameters, first_box(corpus, ranges)
        assert ((shares >= whole[:n] - 1e-12) & (shares <= whole[n:] + 1e-12)).all()
        sums = np.array([model.sums(f) for f in counts])
        assert (sums.min(axis=0) == ranges.least).all()
        assert (sums.max(axis=0) == ranges.most).all()
        own = shares[rng.integers(len(shares))]
        low = np.maximum(own - 0.4 * rng.random(n), 0.0)
        high = np.minimum(own + 0.4 * rng.random(n), 1.0)
        inside = ((shares >= low) & (shares <= high)).all(axis=1)
        assert tighten(model.first, ranges, low, high)
        assert (shares[inside] >= low - 1e-12).all() and (shares[inside] <= high + 1e-12).all()
        for m, at in zip(range(n), rng.random(n), strict=True):
            least, most = ranges.least[model.block[m]], ranges.most[model.block[m]]
            below, above = (f(at, least, most) for f in (fraction_below, fraction_above))
            assert below <= at + 1e-9 and (below < above or most == 0)
            assert ((shares[:, m] <= below + 1e-12) | (shares[:, m] >= above - 1e-12)).all()


def test_the_divided_halves_leave_out_fractions_that_no_counts_have() -> None:
    assert fraction_below(0.49, 5, 5) == 0.4
    assert fraction_above(0.49, 5, 5) == 0.6
    assert fraction_below(0.49, 1, 5) == 0.4
    assert fraction_above(0.49, 1, 5) == 0.5
    # a value that rounding left just under a fraction is that fraction
    assert fraction_below(0.4 - 1e-15, 5, 5) == 0.4
    assert fraction_below(0.123, 0, 10_000) == fraction_above(0.123, 0, 10_000) == 0.123


def bounded(
    corpus: Corpus,
    low: np.ndarray,
    high: np.ndarray,
    multipliers: np.ndarray,
    steps: int,
    asked: ConstraintRow | None = None,
) -> float:
    n = corpus.model.n_parameters
    results = Bounds(
        np.empty(1),
        np.empty(1, dtype=np.int64),
        np.empty(1),
        np.empty(1),
        np.empty((1, n)),
        np.empty(1),
    )
    bound_boxes(
        corpus.derivations,
        corpus.model.first,
        totals(corpus),
        asked or ConstraintRow(np.zeros(n), 0.0),
        np.concatenate([low, high])[None],
        multipliers[None].copy(),
        -100.0,
        1.0,
        steps,
        new_workspace(corpus.derivations),
        results,
    )
    return float(results.bound[0])


def test_a_box_without_parameters_has_no_bound() -> None:
    corpus = Corpus(DependencyModelWithValence("ab"), ["ab"])
    n = corpus.model.n_parameters
    assert bounded(corpus, np.full(n, 0.9), np.ones(n), np.zeros(n + 1), 1) == -np.inf


def test_a_limit_leaves_a_valid_bound() -> None:
    corpus = Corpus(DependencyModelWithValence("VNA"), FIVE)
    for found in (global_search(corpus, max_nodes=50), global_search(corpus, max_time=0.0)):
        assert not found.proved
        assert found.objective <= OPTIMUM + 1e-9
        assert found.bound >= OPTIMUM - 1e-9
        assert found.gap == found.bound - found.objective


def test_a_corpus_of_one_word_has_likelihood_one() -> None:
    found = global_search(Corpus(DependencyModelWithValence("a"), ["a"]))
    assert (found.proved, found.objective) == (True, 0.0)


@pytest.mark.parametrize("method", ["viterbi", "soft", "sparsemap"])
def test_expectation_maximisation_never_loses(method: str) -> None:
    """Without smoothing every step raises the objective, so that the last step is the best."""
    corpus = Corpus(DependencyModelWithValence("VNA"), FIVE)
    start = np.random.default_rng(6).exponential(size=corpus.model.n_parameters)
    values = [
        expectation_maximisation(corpus, start, method, smoothing=0.0, max_steps=steps).objective
        for steps in range(1, 8)
    ]
    assert values == sorted(values)
    assert values[-1] > values[0]


@pytest.mark.parametrize("start", ["uniform", "random"])
def test_restarts_do_not_depend_on_threads(start: str) -> None:
    corpus = Corpus(DependencyModelWithValence("VNA"), FIVE)
    one, two = (restarts(corpus, start=start, threads=n, smoothing=0.1) for n in (1, 2))
    assert one.objective == two.objective
    assert (one.parameters == two.parameters).all()
    assert one.objective <= OPTIMUM + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": -1.0}, "gap: got -1.0"),
        ({"max_time": float("nan")}, "max_time: got nan"),
        ({"max_nodes": 0}, "max_nodes: got 0"),
        ({"n_restarts": 0}, "n_restarts: got 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        global_search(Corpus(DependencyModelWithValence("a"), ["a"]), **options)
