"""The search of Gormley & Eisner, against enumeration."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from brute_force import best_likelihood
from lpsmap_decode import Search
from lpsmap_search import (
    Corpus,
    CountConstraint,
    DependencyModelWithValence,
    HiddenMarkovModel,
    parse,
    viterbi,
)
from lpsmap_search.branching import halves
from lpsmap_search.paper.branching_variables import most_fractional, most_regretted
from lpsmap_search.paper.mccormick_space import McCormickOptions, McCormickSpace
from lpsmap_search.paper.projections import onto_simplex, parsed_counts, projected

pytest.importorskip("highspy")

OPTIONS = {
    "envelopes": McCormickOptions(),
    "objective": McCormickOptions(products="objective", split="point", projection="euclidean"),
    "random": McCormickOptions(products=200, excess=0.001),
    "flow": McCormickOptions(products="objective", polytope="flow"),
    "parse": McCormickOptions(polytope="flow", projection="parse"),
    "few cuts": McCormickOptions(n_tangents=1, most_cuts=1),
}
MODEL = DependencyModelWithValence("ab")
CORPORA = [["ba", "aa"], ["bb", "a"], ["aab"], ["ab", "ab"]]


@pytest.mark.parametrize("name", OPTIONS)
def test_small_corpora_against_enumeration(name: str) -> None:
    for sentences in CORPORA:
        corpus = Corpus(MODEL, sentences)
        best = best_likelihood(corpus)
        space = McCormickSpace(corpus, 0.05, OPTIONS[name])
        found = Search(space.root(), 0.05, bound=0.0).run(space, max_nodes=1500)
        assert found.finished, sentences
        assert best - 1e-9 <= found.bound <= found.score + 0.05 * max(1.0, -best) + 1e-7
        assert found.score <= best + 1e-9
        assert corpus.model.log_likelihood(found.answer) == pytest.approx(found.score, rel=1e-12)


def test_other_models_are_searched_over_the_hull() -> None:
    corpus = Corpus(HiddenMarkovModel(2, "ab"), ["ab"])
    space = McCormickSpace(corpus, 0.1)
    found = Search(space.root(), 0.1, bound=0.0).run(space, max_nodes=300)
    best = best_likelihood(corpus)
    assert found.bound >= best - 1e-9 and found.score <= best + 1e-9


def test_a_constraint_lowers_bounds_and_holds_for_answers() -> None:
    corpus = Corpus(MODEL, ["ba", "aab"])
    weights = np.zeros(MODEL.n_parameters)
    weights[0] = 1.0  # both roots are of tag a
    constraint = CountConstraint(weights, 2.0)
    best = best_likelihood(corpus, constraint)
    for name in ("objective", "flow"):
        space = McCormickSpace(corpus, 0.05, OPTIONS[name], constraint=constraint)
        found = Search(space.root(), 0.05, bound=0.0).run(space, max_nodes=200)
        assert constraint.holds(found.answer)
        assert found.score <= best + 1e-9 <= found.bound + 2e-9


def test_looks_are_repeatable_also_after_pickling() -> None:
    corpus = Corpus(MODEL, ["aab", "ba"])
    space = McCormickSpace(corpus, 0.01)
    [evaluation] = space.evaluate([space.root()], -10.0)
    again, nodes = pickle.loads(pickle.dumps((space, list(evaluation.children))))
    [unpacked] = space.unpack(space.pack([evaluation.children[1]]))
    assert (unpacked.bounds == evaluation.children[1].bounds).all()
    assert (unpacked.cuts.point == evaluation.children[1].cuts.point).all()
    bounds = [found.bound for found in space.evaluate(evaluation.children, -10.0)]
    assert [found.bound for found in again.evaluate(nodes, -10.0)] == bounds
    assert space.evaluate([unpacked], -10.0)[0].bound == pytest.approx(bounds[1], abs=1e-6)
    mixed = [space.root(), *evaluation.children]
    for one, two in zip(mixed, space.unpack(space.pack(mixed)), strict=True):
        assert one.cuts.block.tolist() == two.cuts.block.tolist()
        assert (one.parse_bounds == two.parse_bounds).all()


def test_nothing_is_lost_between_two_halves() -> None:
    bounds = np.array([0.0, 0.25, 1.0, 0.25])
    theta, regret = np.log([0.9, 0.25]), np.array([0.1, 0.5])
    branch = most_regretted(regret, bounds, theta, "midpoint")
    assert branch is not None and branch == (0, 0.5, 0.5)
    below, above = halves(bounds, branch)
    assert above.tolist() == [0.5, 0.25, 1.0, 0.25] and below.tolist() == [0.0, 0.25, 0.5, 0.25]
    branch = most_regretted(regret, bounds, np.log([0.3, 0.25]), "point")
    assert branch is not None and branch.below == pytest.approx(0.3)
    branch = most_regretted(regret, bounds, np.log([1e-9, 0.25]), "point")
    assert branch is not None and branch.below == pytest.approx(0.1)
    assert most_regretted(regret, np.repeat(bounds[1], 4), theta, "point") is None


def test_the_most_fractional_parse_is_found() -> None:
    whole = np.array([1.0, 2.0, 0.0, 1.0])
    assert most_fractional(np.array([1.0, 1.1, 0.5, 0.7]), whole) == 1
    assert most_fractional(np.array([1.0, 2.0 - 1e-9, 0.5, 0.0]), whole) is None


def test_the_euclidean_projection_is_nearest(rng: np.random.Generator) -> None:
    """The angle with every other feasible point is at least a right one."""
    for _ in range(200):
        p = rng.standard_normal(MODEL.n_parameters)
        found = onto_simplex(MODEL, p)
        assert (found >= 0.0).all()
        assert MODEL.sums(found) == pytest.approx(np.ones(len(MODEL.first) - 1), abs=1e-12)
        other = MODEL.normalised(rng.exponential(size=len(p)) ** 4)
        assert (MODEL.sums((p - found) * (other - found)) <= 1e-12).all()
    assert projected(MODEL, found, "euclidean") == pytest.approx(found, abs=1e-12)
    assert projected(MODEL, 3.0 * found, "normalise") == pytest.approx(found, abs=1e-12)
    with pytest.raises(ValueError, match="projection: got 'nearest'"):
        projected(MODEL, found, "nearest")  # type: ignore[arg-type]


def test_whole_arcs_are_parsed_as_their_tree(rng: np.random.Generator) -> None:
    """Also if every arc loses four tenths of its flow to the arcs of another tree."""
    sentences = ["abba", "ab", "bab", "abba", "a"]
    corpus = Corpus(MODEL, sentences)

    def flows(scores: np.ndarray) -> np.ndarray:
        found = []
        for tags, times in zip(corpus.sentences, corpus.multiplicity, strict=True):
            [heads] = parse(MODEL, ["".join("ab"[tag] for tag in tags)], scores)
            n = len(tags)
            arcs = np.zeros((n + 1, n + 1))
            arcs[np.array(heads) + 1, np.arange(n) + 1] = times
            head, child = np.indices(arcs.shape)
            found += [arcs[(head != child) & (child > 0)], np.zeros(n * n + 4 * n)]
        return np.concatenate(found)

    for _ in range(20):
        scores, other = rng.standard_normal((2, MODEL.n_parameters))
        _, counts = viterbi(corpus, scores)
        np.testing.assert_allclose(parsed_counts(corpus, flows(scores)), counts)
        mixed = 0.6 * flows(scores) + 0.4 * flows(other)
        np.testing.assert_allclose(parsed_counts(corpus, mixed), counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projection": "parse"}, "projection: got 'parse' with polytope 'hypergraph'"),
        ({"polytope": "arcs"}, "polytope: got 'arcs'; expected 'hypergraph' or 'flow'"),
        ({"products": "all"}, "products: got 'all'; expected 'objective'"),
        ({"products": 1.5}, "products: got the share 1.5"),
        ({"products": -1}, "products: got -1"),
        ({"split": "golden"}, "split: got 'golden'"),
        ({"least": 0.0}, "least: got 0.0"),
        ({"n_tangents": 0}, "n_tangents: got 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        McCormickSpace(Corpus(MODEL, ["a"]), 0.01, McCormickOptions(**options))  # type: ignore[arg-type]
