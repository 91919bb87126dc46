"""The mixed integer program of Viterbi training, against enumeration and the parser."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from brute_force import all_counts, best_likelihood
from judges.paper_program import MixedIntegerProgram
from lpsmap_search import Corpus, DependencyModelWithValence, HiddenMarkovModel, viterbi
from lpsmap_search.sparse_matrix import SparseMatrix

MISSING = ["one parent", "one root", "flow at least zero", "counts at least zero"]
"""What the paper leaves out."""


def all_heads(n: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to give every word a head, trees or not."""
    for heads in itertools.product(range(-1, n), repeat=n):
        if all(head != word for word, head in enumerate(heads)):
            yield heads


def violated(program: MixedIntegerProgram, x: np.ndarray, omitted: str = "") -> list[str]:
    found = program.violations(uniform(program), x)
    return [name for name, size in found.items() if size > 1e-9 and name != omitted]


def uniform(program: MixedIntegerProgram) -> np.ndarray:
    model = program.model
    return np.log(model.normalised(np.ones(model.n_parameters)))


@pytest.mark.parametrize("sentence", ["a", "ab", "aba", "abab"])
def test_feasible_points_are_the_projective_trees(sentence: str) -> None:
    corpus = Corpus(DependencyModelWithValence("ab"), [sentence])
    program = MixedIntegerProgram(corpus)
    found = []
    for heads in all_heads(len(sentence)):
        x = program.point([heads])
        if not violated(program, x):
            found.append(tuple(x[program.counts].astype(int).tolist()))
    assert len(found) == corpus.hypergraphs[0].n_structures
    assert set(found) == all_counts(corpus, 0)


def test_the_optimum_is_the_greatest_likelihood() -> None:
    corpus = Corpus(DependencyModelWithValence("ab"), ["ab", "bab", "ab", "aab"])
    program, model = MixedIntegerProgram(corpus), corpus.model
    best = -np.inf
    for heads in itertools.product(*(list(all_heads(len(s))) for s in corpus.sentences)):
        x = program.point(heads)
        if all(part.violation(x) <= 1e-9 for part in program.constraints.values()):
            with np.errstate(divide="ignore"):
                theta = np.log(model.normalised(x[program.counts]))
            best = max(best, program.objective(theta, x))
    assert best == pytest.approx(best_likelihood(corpus), rel=1e-13)


def test_parameters_are_checked() -> None:
    program = MixedIntegerProgram(Corpus(DependencyModelWithValence("ab"), ["ab"]))
    x, theta = program.point([(-1, 0)]), uniform(program)
    theta[0] += 0.1
    assert program.violations(theta, x)["(2): sums of probabilities"] > 0.05
    theta[0] = 0.1
    assert program.violations(theta, x)["(4): logarithms"] == pytest.approx(0.1)
    assert program.violations(theta, 0.5 * x)["(4), (8): integers"] == 0.5


def integral_optimum(program: MixedIntegerProgram, scores: np.ndarray, omitted: str) -> float:
    """Return the optimum of the linear program in integers, by HiGHS's branch and bound."""
    highspy = pytest.importorskip("highspy")
    kept = [part for name, part in program.constraints.items() if name != omitted]
    matrix = SparseMatrix.stacked([part.matrix for part in kept])
    objective, n = np.zeros(program.n_columns), program.n_columns
    objective[program.counts] = scores
    highs = highspy.Highs()
    highs.silent()
    highs.passModel(
        n,
        matrix.n_rows,
        len(matrix.value),
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMaximize),
        0.0,
        objective,
        np.full(n, -50.0),
        np.full(n, 50.0),
        np.concatenate([part.lower for part in kept]),
        np.concatenate([part.upper for part in kept]),
        matrix.start.astype(np.int32),
        matrix.column.astype(np.int32),
        matrix.value,
        program.is_integer.astype(np.int32),
    )
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("threads", 1)
    highs.run()
    return float(highs.getObjectiveValue())


@pytest.mark.parametrize("omitted", ["", *MISSING, "(9): projectivity", "(7): flow on arcs"])
def test_integral_optima_are_those_of_the_parser_only_with_all_constraints(omitted: str) -> None:
    model, rng = DependencyModelWithValence("ab"), np.random.default_rng(3)
    wrong = 0
    for sentence in ("ab", "aba", "abba", "bbab", "aabb"):
        corpus = Corpus(model, [sentence])
        program = MixedIntegerProgram(corpus)
        scores = np.log(model.normalised(rng.exponential(size=model.n_parameters) ** 3))
        found, expected = integral_optimum(program, scores, omitted), viterbi(corpus, scores)[0]
        assert found >= expected - 1e-6
        wrong += found > expected + 1e-6
    assert (wrong > 0) == (omitted != "")


def test_another_model_is_refused() -> None:
    with pytest.raises(TypeError, match="corpus: got a corpus of HiddenMarkovModel"):
        MixedIntegerProgram(Corpus(HiddenMarkovModel(2, "ab"), ["ab"]))
