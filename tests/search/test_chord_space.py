"""Bounds by chords, and training to a proved optimum with them, against enumeration."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from brute_force import all_counts, best_likelihood, corpus_counts, shares_of
from corpora import EIGHT, FIVE, KINDS, OPTIMUM, OPTIMUM_OF_EIGHT, drawn_corpus
from lpsmap_decode import Search, SearchResult
from lpsmap_search import Corpus, CountConstraint, DependencyModelWithValence, restarts, viterbi
from lpsmap_search.branching import Branch, halves
from lpsmap_search.chord_program import ChordProgram, chords_of
from lpsmap_search.chord_space import ChordSpace
from lpsmap_search.lagrangian import Bounds, ConstraintRow, bound_boxes
from lpsmap_search.linear_programs import LinearSolution
from lpsmap_search.shares import first_box, tighten, totals
from lpsmap_search.viterbi import new_workspace

pytest.importorskip("highspy")


def searched(
    corpus: Corpus,
    gap: float,
    *,
    max_nodes: int | None = None,
    constraint: CountConstraint | None = None,
) -> SearchResult[np.ndarray]:
    begin = restarts(corpus, n_restarts=2, smoothing=0.1, constraint=constraint)
    space = ChordSpace(corpus, gap, constraint=constraint)
    search = Search(space.root(), gap, (begin.objective, begin.counts), bound=0.0)
    return search.run(space, max_nodes=max_nodes)


def bounded(corpus: Corpus, low: np.ndarray, high: np.ndarray) -> LinearSolution:
    program = ChordProgram(corpus, totals(corpus))
    solver = program.solver()
    program.set_box(solver, low, high)
    return solver.solve()


def drawn_box(shares: np.ndarray, width: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a box around one of the rows of shares."""
    own, n = shares[rng.integers(len(shares))], shares.shape[1]
    low = np.maximum(own - width * rng.random(n), 0.0)
    return np.stack([low, np.minimum(own + width * rng.random(n), 1.0)])


# -------------------------------------------------------------------- bounds


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_in_every_box(kind: str) -> None:
    """Structures whose shares lie in a box are no more likely than its bound."""
    rng = np.random.default_rng(0)
    for _ in range(8):
        corpus = drawn_corpus(kind, rng)
        model, counts = corpus.model, corpus_counts(corpus)
        values = np.array([model.log_likelihood(f) for f in counts])
        shares = np.array([shares_of(model, f) for f in counts])
        for width in (0.0, 0.05, 0.3, 1.0):
            low, high = drawn_box(shares, width, rng)
            inside = ((shares >= low) & (shares <= high)).all(axis=1)
            assert inside.any()
            assert bounded(corpus, low, high).bound >= values[inside].max() - 1e-12
            if width == 0.0:  # the chords of a point are exact
                best = values[inside].max()
                assert bounded(corpus, low, high).bound == pytest.approx(best, abs=1e-9)


def test_chords_are_above_the_function() -> None:
    rng = np.random.default_rng(1)
    low = np.concatenate([[0.0, 0.0, 1.0, 0.3], rng.random(100)])
    high = np.concatenate([[0.0, 1.0, 1.0, 0.3], np.minimum(low[4:] + rng.random(100) ** 9, 1.0)])
    chords = chords_of(low, high)
    for at in np.linspace(0.0, 1.0, 11):
        p = low + at * (high - low)
        value = p * np.log(np.where(p > 0.0, p, 1.0))
        above = chords.slope * p + chords.intercept - value
        assert (above >= 0.0).all()
        assert above[(at in (0.0, 1.0)) | (low == high)] == pytest.approx(0.0, abs=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_children_have_lower_bounds(kind: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(6):
        corpus = drawn_corpus(kind, rng)
        first, ranges, n = corpus.model.first, totals(corpus), corpus.model.n_parameters
        box = first_box(corpus, ranges)
        parent = math.inf
        for _ in range(6):
            low, high = box[:n], box[n:]
            if not tighten(first, ranges, low, high):
                break
            own = bounded(corpus, low, high).bound
            assert own <= parent + 1e-9
            parent = own
            m = int((high - low).argmax())
            at = low[m] + rng.random() * (high - low)[m]
            children = halves(box, Branch(m, at, at))
            if children:
                box = children[rng.integers(2)]


def test_a_box_without_shares_has_no_bound() -> None:
    corpus = Corpus(DependencyModelWithValence("ab"), ["ab", "ba"])
    model, n = corpus.model, corpus.model.n_parameters
    low, high = np.zeros(n), np.ones(n)
    # each sentence has two words, so that some word has a child on a side
    high[[m for m, name in enumerate(model.names) if "no child continue" in name]] = 0.0
    assert bounded(corpus, low, high).bound == -math.inf


# -------------------------------------------------------------------- against the Lagrangian


def separable(corpus: Corpus, low: np.ndarray, high: np.ndarray, h: np.ndarray) -> float:
    """Return the Lagrangian bound where each p is free in its bounds, under the chords."""
    chords = chords_of(low, high)
    each = chords.intercept + np.maximum((chords.slope - h) * low, (chords.slope - h) * high)
    return viterbi(corpus, h + corpus.model.sums(each)[corpus.model.block])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_separable_lagrangian_is_dual_to_the_program(kind: str) -> None:
    """It is no lower, and equal for the best multipliers; that over vertices is no higher."""
    rng = np.random.default_rng(3)
    for _ in range(8):
        corpus = drawn_corpus(kind, rng)
        model, n = corpus.model, corpus.model.n_parameters
        shares = np.array([shares_of(model, f) for f in corpus_counts(corpus)])
        low, high = drawn_box(shares, 0.4, rng)
        assert tighten(model.first, totals(corpus), low, high)
        found = bounded(corpus, low, high)
        for scale in (0.1, 1.0, 3.0):
            h = scale * rng.standard_normal(n)
            assert separable(corpus, low, high, h) >= found.bound - 1e-9
        prices = found.row_duals[-2 * n :]
        best = chords_of(low, high).slope - prices[:n] + prices[n:]
        assert separable(corpus, low, high, best) == pytest.approx(found.bound, abs=1e-6)
        assert lagrangian(corpus, low, high, best) <= found.bound + 1e-6


def lagrangian(corpus: Corpus, low: np.ndarray, high: np.ndarray, h: np.ndarray) -> float:
    n = len(h)
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
        ConstraintRow(np.zeros(n), 0.0),
        np.concatenate([low, high])[None],
        np.append(h, 0.0)[None],
        -100.0,
        1.0,
        1,
        new_workspace(corpus.derivations),
        results,
    )
    return float(results.bound[0])


# -------------------------------------------------------------------- searches


@pytest.mark.compiled
def test_the_corpus_of_five_is_proved() -> None:
    found = searched(Corpus(DependencyModelWithValence("VNA"), FIVE), 0.01)
    assert found.finished
    assert found.score == pytest.approx(OPTIMUM, rel=1e-13)
    assert OPTIMUM <= found.bound <= OPTIMUM + 0.01 * abs(OPTIMUM) + 1e-9
    assert found.n_nodes < 4_000


@pytest.mark.slow
def test_a_corpus_of_eight_is_proved() -> None:
    found = searched(Corpus(DependencyModelWithValence("VNA"), EIGHT), 0.01)
    assert found.finished
    assert found.score == pytest.approx(OPTIMUM_OF_EIGHT, abs=1e-9)
    assert found.bound <= OPTIMUM_OF_EIGHT + 0.01 * abs(OPTIMUM_OF_EIGHT) + 1e-9
    assert found.n_nodes < 50_000


@pytest.mark.slow
def test_bounds_are_above_a_thousand_restarts() -> None:
    corpus = Corpus(DependencyModelWithValence("VNA"), FIVE)
    best = restarts(corpus, n_restarts=1000, smoothing=0.1, start="random").objective
    assert best == pytest.approx(OPTIMUM, rel=1e-13)
    for max_nodes in (1, 30, 300, None):
        assert searched(corpus, 0.01, max_nodes=max_nodes).bound >= best


@pytest.mark.parametrize("kind", KINDS)
def test_small_corpora_against_enumeration(kind: str) -> None:
    check_against_enumeration(kind, range(7))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_small_corpora_against_enumeration(kind: str) -> None:
    check_against_enumeration(kind, range(100, 270))


def check_against_enumeration(kind: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        corpus = drawn_corpus(kind, rng)
        best, gap = best_likelihood(corpus), 10.0 ** -rng.integers(1, 4)
        found = searched(corpus, gap, max_nodes=20_000)
        assert found.finished, seed
        assert found.score <= best + 1e-9, seed
        assert best - 1e-9 <= found.bound <= found.score + gap * max(1.0, abs(best)) + 1e-9, seed
        assert corpus.model.log_likelihood(found.answer) == pytest.approx(found.score), seed


@pytest.mark.parametrize("kind", KINDS)
def test_constrained_searches_against_enumeration(kind: str) -> None:
    proved = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        corpus = drawn_corpus(kind, rng)
        weights = np.where(rng.random(corpus.model.n_parameters) < 0.4, rng.random(), 0.0)
        least, most = -viterbi(corpus, -weights)[0], viterbi(corpus, weights)[0]
        constraint = CountConstraint(weights, least + rng.random() * (most - least))
        best = best_likelihood(corpus, constraint)
        found = searched(corpus, 0.05, max_nodes=1000, constraint=constraint)
        assert constraint.holds(found.answer), seed
        assert found.score <= best + 1e-9, seed
        assert found.bound >= best - 1e-9, seed
        proved += found.bound <= found.score + 0.05 * max(1.0, abs(found.score)) + 1e-9
    assert proved >= 2


def test_a_sentence_twice() -> None:
    """The search takes one structure of multiplicity two; no two structures are better."""
    model = DependencyModelWithValence("ab")
    corpus = Corpus(model, ["aab", "ba", "aab"])
    assert len(corpus.sentences) == 2
    apart = best_likelihood(corpus)
    alike = max(map(model.log_likelihood, corpus_counts(corpus)))
    found = searched(corpus, 1e-6)
    assert found.finished
    assert found.score == pytest.approx(apart, abs=1e-5)
    assert alike == pytest.approx(apart, abs=1e-12)


def test_structures_of_mixed_solutions_are_answers() -> None:
    corpus = Corpus(DependencyModelWithValence("VNA"), FIVE)
    space = ChordSpace(corpus, 0.01)
    [evaluation] = space.evaluate([space.root()], -1e6)
    assert evaluation.answer is not None and len(evaluation.children) == 2
    assert evaluation.score == pytest.approx(corpus.model.log_likelihood(evaluation.answer))
    rows = [np.array(list(all_counts(corpus, s))) for s in range(5)]
    assert corpus.model.sums(evaluation.answer)[0] == len(rows)
    assert evaluation.score <= OPTIMUM + 1e-9


def test_boxes_and_spaces_can_be_sent() -> None:
    corpus = Corpus(DependencyModelWithValence("VNA"), FIVE)
    space = ChordSpace(corpus, 0.01)
    nodes = list(space.evaluate([space.root()], OPTIMUM)[0].children)
    for sent in (space, pickle.loads(pickle.dumps(space))):
        for copies in (pickle.loads(pickle.dumps(nodes)), sent.unpack(sent.pack(nodes))):
            for copy, node in zip(copies, nodes, strict=True):
                assert (copy.bounds == node.bounds).all()
            evaluations, again = space.evaluate(nodes, OPTIMUM), sent.evaluate(copies, OPTIMUM)
            assert [evaluation.bound for evaluation in evaluations] == [
                evaluation.bound for evaluation in again
            ]
            for evaluation, other in zip(evaluations, again, strict=True):
                assert (evaluation.children[0].bounds == other.children[0].bounds).all()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: space.evaluate(nodes, OPTIMUM), range(8)))
    assert all(
        [evaluation.bound for evaluation in evaluations] == [x.bound for x in found]
        for found in both
    )
    arrays = space.pack([space.root()])
    assert {array.dtype.kind for array in arrays.values()} == {"f", "u"}
    [root] = space.unpack(arrays)
    assert (
        space.evaluate([root], OPTIMUM)[0].bound == space.evaluate([space.root()], OPTIMUM)[0].bound
    )
    with pytest.raises(ValueError, match="bounds: got rows"):
        space.unpack(arrays | {"bounds": np.zeros((1, 3))})
    with pytest.raises(KeyError):
        space.unpack({})
