"""The treebank example: reading, scores, and that all sentences are solved."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treebank
from lpsmap_core.api import row_values, row_view
from lpsmap_search import TaggedSentence, read_conllu
from parsing.bilinear import Bilinear
from parsing.trees import Constraints, sibling_scores, solve_trees

WORDS = ("a", "dog", "saw", "the", "dog", ".")


def conllu(sentence: TaggedSentence) -> str:
    """The sentence in CoNLL-U, with a comment, a multiword token and an empty node."""
    columns = zip(
        sentence.words, sentence.tags, sentence.heads or (), sentence.relations, strict=True
    )
    rows = [f"{i}\t{word}\t_\t{tag}\t_\t_\t{head + 1}\t{relation}\t_\t_"
            for i, (word, tag, head, relation) in enumerate(columns, start=1)]  # fmt: skip
    others = ["# text = ...", "1-2\tadog" + "\t_" * 8, "1.1\tnothing" + "\t_" * 8]
    return "\n".join([*others, *rows]) + "\n\n"


def random_sentences(count: int, longest: int) -> list[TaggedSentence]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        n = int(rng.integers(1, longest + 1))
        words = tuple(map(str, rng.integers(0, 50, size=n)))
        heads = (-1, *(int(rng.integers(0, i)) for i in range(1, n)))
        tags = tuple(word[-1] for word in words)
        found.append(TaggedSentence(words, tags, heads, ("root", *["dep"] * (n - 1))))
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A compressed file of random sentences."""
    path = tmp_path / "random.conllu.gz"
    text = "".join(map(conllu, random_sentences(40, 12)))
    path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.fixture(scope="session")
def real_sentences() -> list[TaggedSentence]:
    """English EWT, dev; tests that need it are skipped where it is not."""
    folder = os.environ.get("LPSMAP_DATA")
    path = Path(folder, "ud/en_ewt/dev.conllu.gz") if folder else treebank.DATA
    if not path.is_file():
        pytest.skip(f"no {path}; LPSMAP_DATA names the folder that holds ud/en_ewt")
    return list(read_conllu(path, punctuation=True))


def test_sentences_are_read_as_they_were_written(file: Path, tmp_path: Path) -> None:
    assert list(read_conllu(file, punctuation=True)) == random_sentences(40, 12)
    plain = tmp_path / "plain.conllu"
    one = TaggedSentence(("one",), ("NUM",), (-1,), ("root",))
    plain.write_text(conllu(one).rstrip("\n"))
    assert list(read_conllu(plain, punctuation=True)) == [one]


def test_a_broken_file_ends_the_command(tmp_path: Path) -> None:
    path = tmp_path / "broken.conllu"
    path.write_text("1\tword\n")
    result = CliRunner().invoke(treebank.main, ["table", "--data", str(path)])
    assert result.exit_code == 1
    assert "line 1: got 2 columns; expected the 10" in result.output


def test_scores_are_of_the_words_and_of_the_scale_asked_for() -> None:
    scores = Bilinear(0, 3.0).scores(tuple(map(str, range(200))))
    assert abs(scores.mean()) < 0.3
    assert 2.5 < scores.std() < 3.5
    again = Bilinear(0, 3.0).scores(WORDS)
    assert (Bilinear(0, 3.0).scores(WORDS) == again).all()
    assert np.allclose(again[1, [0, 2, 3]], again[4, [0, 2, 3]])  # the two dogs
    assert again[1, 1] == pytest.approx(again[4, 4])
    assert not np.allclose(Bilinear(1, 3.0).scores(WORDS), again)


@pytest.mark.compiled
def test_table_of_a_small_file(file: Path) -> None:
    result = CliRunner().invoke(treebank.main, ["table", "--data", str(file), "--budget", "3"])
    assert result.exit_code == 0, result.output
    assert "40 of 40" in result.output
    lines = CliRunner().invoke(treebank.main, ["table", "--data", str(file), "--markdown"])
    assert lines.output.count("40 of 40") == 8


@pytest.mark.compiled
def test_best_trees_of_a_small_file(file: Path) -> None:
    result = CliRunner().invoke(treebank.main, ["best", "--data", str(file), "--budget", "3"])
    assert result.exit_code == 0, result.output
    assert result.output.count("40 of 40") == 2


def test_pairs_are_the_sentence_s_own() -> None:
    word, head, scores = sibling_scores(TaggedSentence(WORDS, WORDS, None), 1.0)
    assert len(set(zip(word, head, strict=True))) == len(word) == 5 * 4
    assert not ((head == word) | (head == word + 1)).any()
    again = sibling_scores(TaggedSentence(WORDS, WORDS, None), 2.0)[2]
    np.testing.assert_allclose(again, 2.0 * scores)
    assert not len(sibling_scores(TaggedSentence(("one",), ("NUM",), None), 1.0)[2])


def test_no_sentence_ends_the_command(file: Path) -> None:
    missing = CliRunner().invoke(treebank.main, ["table", "--data", str(file) + "x"])
    assert missing.exit_code == 1
    assert "No such file" in missing.output


def test_figure_of_a_sentence(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "figure.png"
    arguments = ["figure", "--data", str(file), "--out", str(out), "--trees"]
    result = CliRunner().invoke(treebank.main, [*arguments, "3"])
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 1000
    none = CliRunner().invoke(treebank.main, [*arguments, "100"])
    assert none.exit_code == 1
    assert "no sentence of 6 to 9 words has 100 likely trees" in none.output


@pytest.mark.compiled
@pytest.mark.parametrize("constraints", treebank.all_constraints(5), ids=str)
def test_real_sentences_are_solved(
    real_sentences: list[TaggedSentence], constraints: Constraints
) -> None:
    """A few of all lengths; the slow test takes all."""
    few = sorted(real_sentences, key=len)[::50]
    assert len(few[-1]) > 40
    model = Bilinear(0, 4.0)
    solution, trees = solve_trees(few, model, constraints)
    assert solution.ok
    for row, (sentence, found) in enumerate(zip(few, solution.structures(trees), strict=True)):
        p = np.array([tree.probability for tree in found])
        arcs = np.array([row_values(trees, row, tree.variables) for tree in found])
        assert p.sum() == pytest.approx(1.0)
        marginals = np.einsum("k,kmh->mh", p, arcs)
        if constraints.single_root:
            assert np.trace(marginals) == pytest.approx(1.0)
        if constraints.budget is not None:
            dependents = marginals.sum(axis=0) - np.diag(marginals)
            assert dependents.max() <= constraints.budget + 1e-4
        else:  # no tree scores more at the optimum than its own
            gradient = model.scores(sentence.words) - marginals
            factor = row_view(trees, row)
            best, _ = factor.vertex(factor.solve_map(gradient, np.empty(0)))
            assert (gradient * (best - marginals)).sum() <= 1e-8


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("constraints", treebank.all_constraints(5), ids=str)
def test_all_real_sentences_are_solved(
    real_sentences: list[TaggedSentence], constraints: Constraints, scale: float
) -> None:
    tally = treebank.survey(
        treebank.batches(real_sentences, 64), Bilinear(0, scale), constraints, 1e-6
    )
    assert tally.unsolved == []
    assert len(tally.trees) == len(real_sentences)
