"""Constraints on counts, against enumeration of all structures."""

from __future__ import annotations

import functools
import itertools
import math
import re

import numpy as np
import pytest

from brute_force import all_counts, best_likelihood
from lpsmap_search import (
    BinaryGrammar,
    Corpus,
    CountConstraint,
    CountModel,
    DependencyModelWithValence,
    HiddenMarkovModel,
    expectation_maximisation,
    expected_counts,
    global_search,
    restarts,
    sampled_sentences,
    universal_rules,
    verb_noun_adjective,
    viterbi,
)
from lpsmap_search.constraints import ExpectationStep, constrained
from lpsmap_search.local_search import expectation_step
from lpsmap_search.sparse_counts import SparseCounts

SYMBOLS = "abc"
MODELS = [
    DependencyModelWithValence(SYMBOLS),
    HiddenMarkovModel(2, SYMBOLS),
    BinaryGrammar(2, SYMBOLS),
]
SENTENCES = ["abc", "a", "cab", "ba", "abc"]
METHODS = ["viterbi", "soft", "sparsemap"]


@pytest.fixture(params=MODELS, ids=lambda model: type(model).__name__)
def model(request: pytest.FixtureRequest) -> CountModel:
    found: CountModel = request.param
    return found


def e_step(corpus: Corpus, method: str) -> ExpectationStep:
    if method == "sparsemap":
        return SparseCounts(corpus)
    return functools.partial(viterbi if method == "viterbi" else expected_counts, corpus)


def totals(corpus: Corpus) -> np.ndarray:
    """Return the counts of all choices of structures; equal sentences have equal ones."""
    found = {(0,) * corpus.model.n_parameters}
    for s, times in enumerate(corpus.multiplicity):
        own = [times * np.array(f) for f in all_counts(corpus, s)]
        found = {tuple(a + b) for a, b in itertools.product(map(np.array, found), own)}
    return np.array(sorted(found), dtype=np.float64)


def drawn_constraint(corpus: Corpus, rng: np.random.Generator, share: float) -> CountConstraint:
    """Draw weights, and ask for so much of what lies between the least and the most."""
    weights = np.where(rng.random(corpus.model.n_parameters) < 0.4, rng.random(), 0.0)
    least, most = -viterbi(corpus, -weights)[0], viterbi(corpus, weights)[0]
    return CountConstraint(weights, least + share * (most - least))


def asks_for(corpus: Corpus, name: str, least: float) -> CountConstraint:
    return CountConstraint(np.array(corpus.model.names) == name, least)


@pytest.mark.parametrize("share", [0.3, 0.8, 1.0])
def test_constrained_structures(model: CountModel, share: float) -> None:
    """They satisfy the constraint, and are nearly the best that do: exactly, with equality."""
    rng, corpus = np.random.default_rng(0), Corpus(model, SENTENCES)
    everything, active = totals(corpus), 0
    for _ in range(10):
        scores = rng.standard_normal(model.n_parameters)
        constraint = drawn_constraint(corpus, rng, share)
        value, counts = constrained(corpus, e_step(corpus, "viterbi"), constraint)(scores)
        allowed = [f for f in everything if constraint.holds(f)]
        best = max(float(f @ scores) for f in allowed)
        assert constraint.holds(counts)
        assert value == pytest.approx(float(counts @ scores))
        assert value <= best + 1e-9
        grid = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 200)])
        dual = [
            viterbi(corpus, scores + x * constraint.weights)[0] - x * constraint.least for x in grid
        ]
        assert min(dual) >= best - 1e-9
        if constraint.excess(counts) < 1e-9:
            active += 1
            assert value == pytest.approx(best)
    assert active or share < 1.0


@pytest.mark.parametrize("method", ["soft", "sparsemap"])
def test_constrained_distributions(model: CountModel, method: str) -> None:
    """The value is the dual function's minimum, which no distribution exceeds."""
    rng, corpus = np.random.default_rng(1), Corpus(model, SENTENCES)
    for _ in range(3):
        scores, step = rng.standard_normal(model.n_parameters), e_step(corpus, method)
        constraint = drawn_constraint(corpus, rng, 0.7)
        value, counts = constrained(corpus, step, constraint)(scores)
        assert constraint.holds(counts)
        dual = [
            step(scores + x * constraint.weights)[0] - x * constraint.least
            for x in np.linspace(0.0, 20.0, 401)
        ]
        assert value <= min(dual) + 1e-9
        assert value >= min(dual) - 0.02
        if value < step(scores)[0] - 1e-9:
            assert constraint.excess(counts) <= 2e-4 * constraint.least


@pytest.mark.parametrize("method", METHODS)
def test_slack_constraints_change_nothing(model: CountModel, method: str) -> None:
    corpus = Corpus(model, SENTENCES)
    scores = np.random.default_rng(2).standard_normal(model.n_parameters)
    step = e_step(corpus, method)
    constraint = CountConstraint(np.ones(model.n_parameters), 1.0)
    value, counts = constrained(corpus, step, constraint)(scores)
    assert value == step(scores)[0]
    assert (counts == step(scores)[1]).all()


@pytest.mark.parametrize("method", METHODS)
def test_constrained_expectation_maximisation_never_loses(method: str) -> None:
    corpus = Corpus(MODELS[0], SENTENCES)
    constraint = asks_for(corpus, "root c", 2.5)
    start = np.random.default_rng(3).exponential(size=corpus.model.n_parameters)
    found = [
        expectation_maximisation(
            corpus, start, method, smoothing=0.0, max_steps=steps, constraint=constraint
        )
        for steps in range(1, 8)
    ]
    values = [trained.objective for trained in found]
    assert values == sorted(values)
    assert values[-1] > values[0] or method == "viterbi"  # whose first step is the last here
    assert all(constraint.holds(trained.counts) for trained in found)
    free = expectation_maximisation(corpus, start, method, smoothing=0.0)
    assert not constraint.holds(free.counts)


@pytest.mark.parametrize("method", METHODS)
def test_restarts_under_a_constraint_do_not_depend_on_threads(method: str) -> None:
    corpus = Corpus(MODELS[0], SENTENCES)
    constraint = asks_for(corpus, "root c", 2.5)
    one, two = (
        restarts(corpus, method, threads=n, n_restarts=4, smoothing=0.1, constraint=constraint)
        for n in (1, 2)
    )
    assert one.objective == two.objective
    assert (one.parameters == two.parameters).all()
    assert constraint.holds(one.counts)


def test_what_parameters_make_impossible_is_said() -> None:
    model = DependencyModelWithValence("ab")
    corpus, weights = Corpus(model, ["ab"]), np.zeros(model.n_parameters)
    weights[model.names.index("root a")] = 1.0
    scores = np.log(1.0 - weights, where=weights == 0.0, out=np.full_like(weights, -np.inf))
    constraint = CountConstraint(weights, 1.0)
    assert constrained(corpus, e_step(corpus, "viterbi"), constraint)(scores)[0] == -math.inf
    trained = expectation_maximisation(corpus, 1.0 - weights, smoothing=0.0, constraint=constraint)
    assert trained.objective == -math.inf


# -------------------------------------------------------------------- global search


def check_search(model: CountModel, seeds: range) -> int:
    """Hold bounds and answers against enumeration; return how many searches ended with a proof."""
    proved = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        sentences = ["".join(rng.choice(list(SYMBOLS), rng.integers(1, 4))) for _ in range(3)]
        corpus = Corpus(model, [*sentences, sentences[0]] if seed % 2 else sentences)
        constraint = drawn_constraint(corpus, rng, rng.random())
        best = best_likelihood(corpus, constraint)
        found = global_search(
            corpus, gap=0.05, n_restarts=2, max_nodes=2000, seed=seed, constraint=constraint
        )
        assert constraint.holds(found.counts), seed
        assert found.objective <= best + 1e-9, seed
        assert found.bound >= best - 1e-9, seed
        assert corpus.model.log_likelihood(found.counts) == pytest.approx(found.objective), seed
        if found.proved:
            proved += 1
            assert found.objective >= best - 0.05 * max(1.0, abs(best)) - 1e-9, seed
    return proved


@pytest.mark.usefixtures("poor_start")
def test_constrained_search_against_enumeration(model: CountModel) -> None:
    assert check_search(model, range(4)) >= 1


@pytest.mark.slow
@pytest.mark.usefixtures("poor_start")
def test_many_constrained_searches_against_enumeration(model: CountModel) -> None:
    assert check_search(model, range(100, 150)) >= 20


def test_a_search_that_no_multiplier_can_prove_ends() -> None:
    """The best mixture satisfies the constraint with equality, and is better than any structure."""
    corpus = Corpus(DependencyModelWithValence("ab"), ["ab"])
    constraint = asks_for(corpus, "root a", 0.5)
    found = global_search(corpus, gap=1e-3, max_nodes=20_000, constraint=constraint)
    assert constraint.holds(found.counts)
    assert found.objective == best_likelihood(corpus, constraint) == 0.0
    twice = Corpus(DependencyModelWithValence("ab"), ["ab", "ab"])
    constraint = asks_for(twice, "root a", 1.0)
    found = global_search(twice, gap=1e-3, max_nodes=20_000, constraint=constraint)
    assert found.bound >= best_likelihood(twice, constraint) - 1e-9


def test_a_void_certificate_says_so() -> None:
    tags = "abcdefgh"
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list(tags), 6)) for _ in range(30)]
    corpus = Corpus(HiddenMarkovModel(4, tags), words)
    assert global_search(corpus, max_nodes=3, n_restarts=1).is_void
    small = Corpus(DependencyModelWithValence("ab"), ["ab", "ba"])
    assert not global_search(small, gap=0.01, max_nodes=2000).is_void


# -------------------------------------------------------------------- universal rules


def test_universal_rules() -> None:
    tags = ["VERB", "NOUN", "DET", "ADP", "ADV", "X"]
    model = DependencyModelWithValence(tags)
    corpus = Corpus(model, [["DET", "NOUN", "VERB"], ["NOUN", "VERB", "ADP", "NOUN"]])
    rules = universal_rules(corpus, 0.8)
    assert rules.least == pytest.approx(0.8 * 7)
    assert {model.names[m] for m in np.flatnonzero(rules.weights)} == {
        "root VERB",
        *(f"VERB {side} {tag}" for side in ("left", "right") for tag in ("VERB", "NOUN", "ADV")),
        *(f"NOUN {side} {tag}" for side in ("left", "right") for tag in ("DET", "NOUN")),
        *(f"ADP {side} NOUN" for side in ("left", "right")),
    }
    trained = restarts(corpus, constraint=rules, smoothing=0.1)
    assert float(rules.weights @ trained.counts) >= 0.8 * 7 - 1e-9


def test_rules_that_cannot_be_reached_are_refused() -> None:
    corpus = Corpus(DependencyModelWithValence(["X", "VERB"]), [["X", "VERB", "X"]])
    with pytest.raises(ValueError, match=r"least is 2\.25; expected at most 1\.0"):
        universal_rules(corpus)
    with pytest.raises(ValueError, match=r"share: got 1\.5"):
        universal_rules(corpus, 1.5)
    with pytest.raises(TypeError, match="corpus of HiddenMarkovModel"):
        universal_rules(Corpus(HiddenMarkovModel(2, "a"), ["a"]))


@pytest.mark.parametrize(
    ("weights", "message"),
    [(np.ones(3), "got|shape"), (None, "negative"), (np.nan, "negative")],
)
def test_bad_weights_are_refused(weights: object, message: str) -> None:
    corpus = Corpus(DependencyModelWithValence("a"), ["aa"])
    n = corpus.model.n_parameters
    given = weights if isinstance(weights, np.ndarray) else np.full(n, weights or -1.0)
    with pytest.raises(ValueError, match=message):
        restarts(corpus, constraint=CountConstraint(given, 0.0))


# -------------------------------------------------------------------- units


@pytest.fixture(scope="module")
def asked() -> tuple[Corpus, CountConstraint]:
    """Return a small language, and a constraint with weights of about 1 that is hard to satisfy."""
    model, p = verb_noun_adjective()
    rng = np.random.default_rng(0)
    corpus = Corpus(model, [s.tags for s in sampled_sentences(model, p, 6, rng, max_words=5)])
    weights = rng.random(45) * (rng.random(45) < 0.5)
    return corpus, CountConstraint(weights, 0.97 * viterbi(corpus, weights)[0])


@pytest.mark.parametrize("relaxation", ["lagrangian", "chord"])
@pytest.mark.parametrize("unit", [1e-9, 1e9, 1e-310])
def test_searches_do_not_depend_on_the_unit_of_a_constraint(
    asked: tuple[Corpus, CountConstraint], unit: float, relaxation: str
) -> None:
    if relaxation == "chord":
        pytest.importorskip("highspy")
    corpus, constraint = asked
    scaled = CountConstraint(constraint.weights * unit, constraint.least * unit)
    one, other = (
        global_search(corpus, n_restarts=2, max_nodes=20, relaxation=relaxation, constraint=c)
        for c in (constraint, scaled)
    )
    assert constraint.holds(other.counts)
    assert other.objective == pytest.approx(one.objective)
    assert other.bound == pytest.approx(one.bound, abs=0.1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_expectation_maximisation_does_not_depend_on_the_unit_of_a_constraint(
    asked: tuple[Corpus, CountConstraint], unit: float, method: str
) -> None:
    corpus, constraint = asked
    scaled = CountConstraint(constraint.weights * unit, constraint.least * unit)
    start = np.random.default_rng(1).exponential(size=45)
    one, other = (
        expectation_maximisation(corpus, start, method, constraint=c, max_steps=3)
        for c in (constraint, scaled)
    )
    assert one.objective > -math.inf
    assert constraint.holds(other.counts)
    assert other.objective == pytest.approx(one.objective, rel=1e-6)


def test_weights_of_very_different_size_are_satisfied() -> None:
    """One parameter weighs 1, another 1e-6: its multiplier is 1e6 times as large."""
    corpus = Corpus(DependencyModelWithValence("abc"), ["ab", "c"])
    names = np.array(corpus.model.names)
    weights = 1.0 * (names == "root c") + 1e-6 * (names == "root a")
    constraint = CountConstraint(weights, 1.0 + 0.9e-6)
    scores = np.where(names == "root a", -30.0, 0.0)
    value, counts = constrained(corpus, e_step(corpus, "soft"), constraint)(scores)
    assert value > -math.inf
    assert constraint.holds(counts)


@pytest.mark.parametrize("least", [True, np.True_, "1", None])
def test_bounds_that_are_no_numbers_are_refused(least: object) -> None:
    corpus = Corpus(DependencyModelWithValence("a"), ["aa"])
    constraint = CountConstraint(np.ones(corpus.model.n_parameters), least)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="constraint: least: got .*; expected a finite number"):
        global_search(corpus, max_nodes=1, constraint=constraint)


@pytest.mark.parametrize("least", [math.inf, -math.inf, math.nan])
def test_bounds_that_are_not_finite_are_refused(least: float) -> None:
    corpus = Corpus(DependencyModelWithValence("a"), ["aa"])
    constraint = CountConstraint(np.ones(corpus.model.n_parameters), least)
    with pytest.raises(ValueError, match="constraint: least: got .*; expected a finite number"):
        global_search(corpus, max_nodes=1, constraint=constraint)


def test_bounds_are_named_in_the_units_of_the_caller() -> None:
    corpus = Corpus(DependencyModelWithValence("a"), ["aa"])
    weights = np.where(np.array(corpus.model.names) == "root a", 2.0**-60, 0.0)
    for least in (2.0**-59, 1e300):
        constraint = CountConstraint(weights, least)
        message = re.escape(f"least is {least}; expected at most {2.0**-60},")
        with pytest.raises(ValueError, match=message):
            restarts(corpus, constraint=constraint)
    restarts(corpus, constraint=CountConstraint(weights, 2.0**-60), n_restarts=1)
    with pytest.raises(ValueError, match="expected at most 0"):
        restarts(corpus, constraint=CountConstraint(0.0 * weights, 1e-12))
    for least in (0.0, -5.0):  # any counts satisfy these
        restarts(corpus, constraint=CountConstraint(0.0 * weights, least), n_restarts=1)


@pytest.mark.parametrize("method", METHODS)
def test_constrained_steps_do_not_depend_on_earlier_ones(
    asked: tuple[Corpus, CountConstraint], method: str
) -> None:
    corpus, constraint = asked
    rng = np.random.default_rng(2)
    step = expectation_step(corpus, method, constraint=constraint)  # type: ignore[arg-type]
    for scores in rng.standard_normal((4, 45)) * [[1.0], [100.0], [0.01], [1.0]]:
        fresh = expectation_step(corpus, method, constraint=constraint)  # type: ignore[arg-type]
        for found, expected in zip(step(scores), fresh(scores), strict=True):
            assert np.array_equal(found, expected)


def test_temperatures_at_which_scores_overflow_are_refused() -> None:
    corpus = Corpus(MODELS[0], SENTENCES)
    scores = np.full(corpus.model.n_parameters, -1.0)
    with pytest.raises(ValueError, match="temperature: got 1e-310; expected more"):
        SparseCounts(corpus, 1e-310)(scores)
    scores[corpus.model.names.index("a left a")] = -np.inf  # this one may overflow
    assert math.isfinite(SparseCounts(corpus, 1e-3)(scores)[0])
