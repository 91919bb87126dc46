"""Structures of sentences: the k best, trees as heads, sparse distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import judges
from brute_force import all_counts
from lpsmap_core import FactorGraph
from lpsmap_dynamic import HypergraphBuilder
from lpsmap_search import (
    BinaryGrammar,
    Corpus,
    CountModel,
    DependencyModelWithValence,
    DMVTree,
    HiddenMarkovModel,
    directed_accuracy,
    k_best,
    parse,
    sparse_counts,
    viterbi,
)
from lpsmap_search.structures import structures_of


class Mixture(CountModel):
    """Sentences of one of two classes: a model that names no variables."""

    def __init__(self, words: str) -> None:
        self.words = words
        super().__init__([["one", "two"], *([f"{k} {word}" for word in words] for k in "12")])

    def encode(self, sentence: str) -> tuple[int, ...]:
        return tuple(map(self.words.index, sentence))

    def hypergraph(self, sentence: tuple[int, ...], build: HypergraphBuilder) -> str:
        for k in range(2):
            first = 2 + k * len(self.words)
            build.edge("sentence", additionals=[k, *(first + word for word in sentence)])
        return "sentence"


SYMBOLS = "abc"
MODELS = [
    DependencyModelWithValence(SYMBOLS),
    HiddenMarkovModel(2, SYMBOLS),
    BinaryGrammar(2, SYMBOLS),
    Mixture(SYMBOLS),
]
SENTENCES = ["ab", "a", "cab", "ab", "bca"]


@pytest.fixture(params=MODELS, ids=lambda model: type(model).__name__)
def model(request: pytest.FixtureRequest) -> CountModel:
    found: CountModel = request.param
    return found


def structures(corpus: Corpus, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the variables and the counts of all structures of a sentence."""
    graph, factor = structures_of(corpus, np.zeros(corpus.model.n_parameters))
    n = corpus.hypergraphs[s].n_structures
    listed = graph.gibbs(factor).k_best(n)[s]
    assert len(listed) == n
    variables = np.array(listed.variables).reshape(n, -1)[:, : factor.lengths[s, 0]]
    return variables, np.array(listed.additionals).reshape(n, -1)


def test_structures_are_those_of_the_model(model: CountModel) -> None:
    corpus = Corpus(model, SENTENCES)
    for s in range(len(corpus.sentences)):
        variables, counts = structures(corpus, s)
        assert {tuple(row) for row in counts} == all_counts(corpus, s)
        assert len({tuple(row) for row in variables}) == len(variables)
        assert set(np.unique(variables)) <= {0.0, 1.0}


def test_best_structures_in_order(model: CountModel) -> None:
    rng = np.random.default_rng(0)
    for sentence in ("cab", "b"):
        corpus = Corpus(model, [sentence])
        scores = rng.standard_normal(model.n_parameters)
        expected = sorted((structures(corpus, 0)[1] @ scores).tolist(), reverse=True)
        found = k_best(model, sentence, scores, 4)
        assert [one.score for one in found] == pytest.approx(expected[:4])
        assert found[0].score == pytest.approx(viterbi(corpus, scores)[0])
        for one in found:
            assert float(scores @ one.counts) == pytest.approx(one.score)
            shape = model.variables_shape(corpus.sentences[0])
            assert shape is None or one.variables.shape == shape


def test_impossible_structures_are_not_ranked() -> None:
    model = DependencyModelWithValence("ab")
    scores = np.zeros(model.n_parameters)
    assert len(k_best(model, "ab", scores, 10)) == 2
    scores[model.names.index("root a")] = -np.inf
    [only] = k_best(model, "ab", scores, 10)
    assert only.variables.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="k: got 0"):
        k_best(model, "ab", scores, 0)


def test_trees_as_heads() -> None:
    model, rng = DependencyModelWithValence(SYMBOLS), np.random.default_rng(1)
    sentences = ["cab", "a", "bcab", "cab"]
    scores = rng.standard_normal(model.n_parameters)
    trees = parse(model, sentences, scores)
    assert trees[0] == trees[3]
    assert trees[1] == (-1,)
    for sentence, heads in zip(sentences, trees, strict=True):
        decoded = DMVTree.decode(None, k_best(model, sentence, scores, 1)[0].variables, None)
        assert decoded == {"heads": list(heads)}
    with pytest.raises(ValueError, match="no tree of finite score"):
        parse(model, ["a"], np.full(model.n_parameters, -np.inf))


def test_directed_accuracy() -> None:
    gold = [(-1, 0, 1), (1, -1)]
    assert directed_accuracy(gold, gold) == 1.0
    assert directed_accuracy([(-1, 0, 0), [-1, 0]], gold) == 0.4
    for wrong, message in (([gold[0]], "got 1 sentences"), ([(0,), (0, 1)], "has 1 heads")):
        with pytest.raises(ValueError, match=message):
            directed_accuracy(wrong, gold)
    with pytest.raises(ValueError, match="no words"):
        directed_accuracy([], [])


def test_arcs_between_tags() -> None:
    model = DependencyModelWithValence("VNA")
    found = model.arcs({"root": ["V", "X"], "V": ["N"], "N": ["A", "N"], "X": ["V"]})
    assert [model.names[m] for m in found] == [
        "root V",
        "V left N",
        "N left N",
        "N left A",
        "V right N",
        "N right N",
        "N right A",
    ]
    assert not model.arcs({}).size


# -------------------------------------------------------------------- sparse distributions


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_sparse_counts_are_the_judges(model: CountModel, temperature: float) -> None:
    """A projection onto the convex hull of all structures."""
    rng, corpus = np.random.default_rng(2), Corpus(model, SENTENCES)
    for _ in range(3):
        scores = rng.standard_normal(model.n_parameters)
        value, total = 0.0, np.zeros(model.n_parameters)
        for s, times in enumerate(corpus.multiplicity):
            variables, counts = structures(corpus, s)
            a = np.zeros(variables.shape[1])
            z, p = judges.project_polytope(
                variables, counts, a, scores / temperature, np.ones_like(a)
            )
            total += times * (p @ counts)
            value += times * (p @ counts @ scores - 0.5 * temperature * float(z @ z))
        found, counts = sparse_counts(corpus, scores, temperature=temperature)
        assert found == pytest.approx(value, abs=1e-7)
        assert counts @ scores == pytest.approx(total @ scores, abs=1e-7)


def test_sparse_counts_of_low_temperature_are_the_best_ones(model: CountModel) -> None:
    corpus = Corpus(model, SENTENCES)
    scores = np.random.default_rng(3).standard_normal(model.n_parameters)
    value, counts = sparse_counts(corpus, scores, temperature=1e-4)
    best, expected = viterbi(corpus, scores)
    assert counts == pytest.approx(expected)
    assert value == pytest.approx(best, abs=0.01)


def test_sparse_counts_with_impossible_parameters() -> None:
    model = DependencyModelWithValence("ab")
    corpus, scores = Corpus(model, ["ab", "ba", "b"]), np.zeros(model.n_parameters)
    scores[model.names.index("root a")] = -np.inf
    value, counts = sparse_counts(corpus, scores)
    best, expected = viterbi(corpus, scores)
    assert counts == pytest.approx(expected)
    assert value == pytest.approx(best - 0.5 * 5)
    scores[:] = -np.inf
    value, counts = sparse_counts(corpus, scores)
    assert value == -math.inf
    assert not counts.any()


def test_sparse_counts_of_trees_are_those_of_the_factor() -> None:
    model, sentences = DependencyModelWithValence(SYMBOLS), ["cab", "a", "bcaab"]
    scores = np.random.default_rng(4).standard_normal(model.n_parameters)
    arcs, decisions, lengths = model.tree_scores(sentences, scores)
    graph = FactorGraph()
    u = graph.variable_from(arcs)
    graph.add(DMVTree(u, decisions, lengths=lengths))
    solution = graph.solve()
    value = float(
        (arcs * u.value).sum()
        + (decisions.reshape(3, -1) * solution.additionals[0]).sum()
        - 0.5 * (u.value**2).sum()
    )
    assert sparse_counts(Corpus(model, sentences), scores)[0] == pytest.approx(value)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_bad_temperatures_are_refused(temperature: float) -> None:
    model = DependencyModelWithValence("a")
    with pytest.raises(ValueError, match="temperature: got"):
        sparse_counts(Corpus(model, ["a"]), np.zeros(model.n_parameters), temperature=temperature)
