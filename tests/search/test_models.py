"""Count models: their structures, counts and sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brute_force import all_counts
from lpsmap_search import (
    BinaryGrammar,
    Corpus,
    CountModel,
    DependencyModelWithValence,
    HiddenMarkovModel,
    expected_counts,
    sampled_counts,
    viterbi,
)

SYMBOLS = "abc"
MODELS = [
    DependencyModelWithValence(SYMBOLS),
    HiddenMarkovModel(2, SYMBOLS),
    BinaryGrammar(2, SYMBOLS),
]
SENTENCES = ["ab", "a", "cab", "ab", "bca"]


@pytest.fixture(params=MODELS, ids=lambda model: type(model).__name__)
def model(request: pytest.FixtureRequest) -> CountModel:
    found: CountModel = request.param
    return found


@pytest.mark.parametrize(("n", "trees"), list(enumerate([1, 2, 7, 30, 143, 728], start=1)))
def test_projective_trees_of_one_root_are_counted(n: int, trees: int) -> None:
    hypergraph = Corpus(DependencyModelWithValence("a"), ["a" * n]).hypergraphs[0]
    assert hypergraph.n_structures == trees
    assert hypergraph.n_edges == 2 * n * (n * n - 1) // 3 + n * n + 2 * n
    assert hypergraph.n_items == 3 * n * n - n + 1


def test_sizes_of_the_dependency_model() -> None:
    for n, n_parameters, n_blocks in ((3, 45, 19), (13, 455, 79)):
        model = DependencyModelWithValence([str(tag) for tag in range(n)])
        assert (model.n_parameters, len(model.first) - 1) == (n_parameters, n_blocks)


def test_decisions_of_a_head_depend_on_its_valence() -> None:
    """Of the chain a -> b -> b on the right, and of a -> b, a -> b."""
    model = DependencyModelWithValence("ab")
    corpus = Corpus(model, ["abb"])
    number = {name: m for m, name in enumerate(model.names)}
    scores = np.zeros(model.n_parameters)
    scores[number["root a"]] = scores[number["a right b"]] = 10.0
    _, counts = viterbi(corpus, scores)
    used = {model.names[m]: int(counts[m]) for m in np.flatnonzero(counts)}
    assert used == {
        "root a": 1,
        "a right b": 2,
        "a left no child stop": 1,
        "a right no child continue": 1,
        "a right child continue": 1,
        "a right child stop": 1,
        "b left no child stop": 2,
        "b right no child stop": 2,
    }


def test_best_structures_are_those_of_enumeration(model: CountModel) -> None:
    rng = np.random.default_rng(0)
    corpus = Corpus(model, SENTENCES)
    for _ in range(5):
        scores = rng.standard_normal(model.n_parameters)
        value, counts = viterbi(corpus, scores)
        best = [
            times * max(float(np.dot(scores, f)) for f in all_counts(corpus, s))
            for s, times in enumerate(corpus.multiplicity)
        ]
        assert value == pytest.approx(sum(best), rel=1e-13)
        assert value == pytest.approx(float(scores @ counts), rel=1e-13)


def test_expected_counts_are_the_gradient_of_the_log_likelihood(model: CountModel) -> None:
    rng = np.random.default_rng(1)
    corpus = Corpus(model, SENTENCES)
    scores = rng.standard_normal(model.n_parameters)
    _, counts = expected_counts(corpus, scores)
    for m in range(model.n_parameters):
        step = np.zeros_like(scores)
        step[m] = 1e-5
        above, below = (expected_counts(corpus, scores + s * step)[0] for s in (1.0, -1.0))
        # central differences of step 1e-5 are good to about 1e-10
        assert counts[m] == pytest.approx((above - below) / 2e-5, abs=1e-8)


def test_without_scores_the_log_likelihood_counts_structures(model: CountModel) -> None:
    corpus = Corpus(model, SENTENCES)
    total = sum(
        times * math.log(hypergraph.n_structures)
        for times, hypergraph in zip(corpus.multiplicity, corpus.hypergraphs, strict=True)
    )
    assert expected_counts(corpus, np.zeros(model.n_parameters))[0] == pytest.approx(total)


def test_means_of_samples_are_expected_counts(model: CountModel) -> None:
    rng = np.random.default_rng(2)
    corpus = Corpus(model, SENTENCES)
    scores = rng.standard_normal(model.n_parameters)
    _, counts = expected_counts(corpus, scores)
    drawn = np.array([sampled_counts(corpus, scores, rng) for _ in range(2000)])
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    # five standard errors, for tens of counts: one failure in 10^5 seeds
    assert (abs(drawn.mean(axis=0) - counts) <= 5.0 * error + 1e-12).all()


def test_parameters_that_no_structure_has_are_impossible(model: CountModel) -> None:
    corpus = Corpus(model, ["ab"])
    nothing = np.full(model.n_parameters, -np.inf)
    assert viterbi(corpus, nothing)[0] == -math.inf
    assert expected_counts(corpus, nothing)[0] == -math.inf
    with pytest.raises(ValueError, match="no structure of finite score"):
        sampled_counts(corpus, nothing, np.random.default_rng(0))


def test_repeated_sentences_are_merged(model: CountModel) -> None:
    corpus = Corpus(model, SENTENCES)
    assert len(corpus.sentences) == 4
    assert corpus.n_sentences == 5
    scores = np.random.default_rng(3).standard_normal(model.n_parameters)
    apart = [viterbi(Corpus(model, [sentence]), scores)[0] for sentence in SENTENCES]
    assert viterbi(corpus, scores)[0] == pytest.approx(sum(apart), rel=1e-13)


def test_likelihood_of_counts_is_that_of_normalised_parameters(model: CountModel) -> None:
    rng = np.random.default_rng(4)
    counts = rng.integers(0, 4, model.n_parameters).astype(np.float64)
    parameters = model.normalised(counts)
    assert model.sums(parameters) == pytest.approx(np.ones(len(model.first) - 1), rel=1e-14)
    used = counts > 0.0
    expected = float(counts[used] @ np.log(parameters[used]))
    assert model.log_likelihood(counts) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([], "sentences: got none"),
        ([""], "sentence: got no symbols"),
        (["ax"], "unknown symbol 'x'"),
    ],
)
def test_bad_corpora_are_refused(model: CountModel, sentences: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus(model, sentences)


def test_bad_scores_are_refused(model: CountModel) -> None:
    corpus = Corpus(model, ["a"])
    with pytest.raises(ValueError, match="got shape"):
        viterbi(corpus, np.zeros(1))
    with pytest.raises(ValueError, match="NaN or infinity"):
        viterbi(corpus, np.full(model.n_parameters, np.nan))


@pytest.mark.parametrize(
    ("make", "name"), [(BinaryGrammar, "n_labels"), (HiddenMarkovModel, "n_states")]
)
def test_numbers_of_states_are_validated(make: type[CountModel], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: got 0; expected an integer of at least 1"):
        make(0, SYMBOLS)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=f"{name}: got 1.5; expected an integer"):
        make(1.5, SYMBOLS)  # type: ignore[call-arg]
