"""Polytopes of structures, against the dynamic programs and enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from brute_force import all_counts
from corpora import KINDS, drawn_corpus
from lpsmap_dynamic import HypergraphBuilder
from lpsmap_search import Corpus, CountModel, DependencyModelWithValence, HiddenMarkovModel, viterbi
from lpsmap_search.flow_polytope import flow_polytope
from lpsmap_search.linear_programs import SimplexSolver
from lpsmap_search.polytopes import Polytope, hypergraph_polytope
from programs import dense, program_over

pytest.importorskip("highspy")
optimize = pytest.importorskip("scipy.optimize")

TAGS = DependencyModelWithValence("VNA")
SENTENCES = ["V", "NA", "VNA", "NVAV", "ANVNA", "VNNVAN"]


class Pairs(CountModel):
    """A model whose structures use an item twice: a letter, and the same again."""

    def __init__(self) -> None:
        super().__init__([["one", "two"]])

    def encode(self, sentence: str) -> tuple[int, ...]:
        return tuple(map(int, sentence))

    def hypergraph(self, sentence: tuple[int, ...], build: HypergraphBuilder) -> str:
        for parameter in sentence:
            build.edge("half", additionals=[parameter])
        build.edge("whole", ["half", "half"])
        return "whole"


def drawn_scores(model: CountModel, rng: np.random.Generator) -> np.ndarray:
    """Draw logarithms of parameters, or others, which many arcs are good for."""
    if rng.random() < 0.5:
        return np.log(model.normalised(rng.exponential(size=model.n_parameters)))
    return rng.standard_normal(model.n_parameters)


def maximum(polytope: Polytope, scores: np.ndarray) -> float:
    found = SimplexSolver(program_over(polytope, scores)).solve()
    assert found.status == "optimal"
    return found.bound


def integral_maximum(polytope: Polytope, scores: np.ndarray) -> float:
    """Return the best value of an integral point, by another solver's door."""
    found = optimize.milp(
        -dense(polytope.counts).T @ scores,
        integrality=np.ones(len(polytope.upper)),
        bounds=optimize.Bounds(0.0, polytope.upper),
        constraints=optimize.LinearConstraint(
            dense(polytope.matrix), polytope.row_lower, polytope.row_upper
        ),
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0
    return -float(found.fun)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sizes(sentence: str) -> None:
    n, corpus = len(sentence), Corpus(TAGS, [sentence])
    hull, flow = hypergraph_polytope(corpus), flow_polytope(corpus)
    assert hull.matrix.n_columns == 2 * n * (n * n - 1) // 3 + n * n + 2 * n
    assert hull.matrix.n_rows == 3 * n * n - n + 1
    assert flow.matrix.n_columns == 2 * n * n + 4 * n
    crossed = max(n * (n - 2), 0)
    assert flow.matrix.n_rows == (1 + n + n * n) + crossed + 6 * n + (n + 1)
    for polytope in (hull, flow):
        assert (polytope.counts.n_rows, polytope.counts.n_columns) == (45, len(polytope.upper))


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_over_the_hull_has_the_optimum_of_the_dynamic_program(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        corpus = drawn_corpus(kind, rng)
        scores = rng.standard_normal(corpus.model.n_parameters)
        assert maximum(hypergraph_polytope(corpus), scores) == pytest.approx(
            viterbi(corpus, scores)[0], rel=1e-9, abs=1e-9
        )


def test_items_that_structures_use_twice() -> None:
    corpus = Corpus(Pairs(), ["01", "01", "1"])
    for scores in np.random.default_rng(1).standard_normal((5, 2)):
        assert maximum(hypergraph_polytope(corpus), scores) == pytest.approx(
            viterbi(corpus, scores)[0], rel=1e-9
        )


@pytest.mark.parametrize("sentence", SENTENCES[:5])
def test_integral_flows_are_trees(sentence: str) -> None:
    """With integral columns the flow programs have the optimum of the dynamic program."""
    rng, corpus = np.random.default_rng(len(sentence)), Corpus(TAGS, [sentence])
    polytope = flow_polytope(corpus)
    for _ in range(8):
        scores = drawn_scores(TAGS, rng)
        assert integral_maximum(polytope, scores) == pytest.approx(
            viterbi(corpus, scores)[0], abs=1e-7
        )


def test_flows_bound_the_optimum_loosely() -> None:
    rng, corpus = np.random.default_rng(2), Corpus(TAGS, SENTENCES[1:5])
    polytope, gaps = flow_polytope(corpus), []
    for _ in range(8):
        scores = drawn_scores(TAGS, rng)
        gaps.append(maximum(polytope, scores) - viterbi(corpus, scores)[0])
    assert min(gaps) >= -1e-9
    assert np.mean(gaps) > 1.0


def test_every_tree_counts_what_it_has() -> None:
    """The counts of integral points are those of the structures."""
    corpus = Corpus(TAGS, ["NVAV"])
    trees, rng = all_counts(corpus, 0), np.random.default_rng(3)
    for polytope in (flow_polytope(corpus), hypergraph_polytope(corpus)):
        for _ in range(5):
            found = optimize.milp(
                -dense(polytope.counts).T @ rng.standard_normal(45),
                integrality=np.ones(len(polytope.upper)),
                bounds=optimize.Bounds(0.0, polytope.upper),
                constraints=optimize.LinearConstraint(
                    dense(polytope.matrix), polytope.row_lower, polytope.row_upper
                ),
            )
            assert tuple(np.round(polytope.counts @ found.x).astype(int)) in trees


@pytest.mark.parametrize("polytope", [hypergraph_polytope, flow_polytope])
def test_a_sentence_twice_is_a_sentence_of_multiplicity_two(polytope: object) -> None:
    rng = np.random.default_rng(4)
    one, twice, both = (Corpus(TAGS, words) for words in (["NVA"], ["NVA"] * 2, ["NVA", "VN"] * 2))
    other = Corpus(TAGS, ["VN"])
    for _ in range(5):
        scores = drawn_scores(TAGS, rng)
        a, b, c, d = (maximum(polytope(x), scores) for x in (one, other, twice, both))  # type: ignore[operator]
        assert c == pytest.approx(2.0 * a, abs=1e-9)
        assert d == pytest.approx(2.0 * (a + b), abs=1e-9)
        assert len(polytope(one).upper) == len(polytope(twice).upper)  # type: ignore[operator]


def test_flows_are_of_dependency_trees() -> None:
    corpus = Corpus(HiddenMarkovModel(2, "ab"), ["ab"])
    with pytest.raises(TypeError, match="got a corpus of HiddenMarkovModel"):
        flow_polytope(corpus)
