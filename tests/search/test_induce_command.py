"""The command `lpsmap induce`."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from brute_force import best_likelihood
from forks import Server, without
from lpsmap_core.command.cli import main
from lpsmap_search import Corpus, DependencyModelWithValence, read_conllu
from lpsmap_search import command as command_module
from lpsmap_search.constraints import RULES
from lpsmap_search.global_search import Certified
from lpsmap_search.induction import Induced
from lpsmap_search.reports import certificate

MAIN = "from lpsmap_core.command.cli import main; main()"

TREES = [
    ["the DET 2", "dog NOUN 3", "barks VERB 0", ". PUNCT 3"],
    ["dogs NOUN 2", "bark VERB 0"],
    ["see VERB 0", "the DET 3", "dog NOUN 1", "bark VERB 1"],
]

UNPROVED = 3


def text(trees: list[list[str]]) -> str:
    """Return trees in CoNLL-U."""
    blocks = []
    for tree in trees:
        words = [word.split() for word in tree]
        blocks.append(
            "".join(
                f"{i}\t{word}\t_\t{tag}\t_\t_\t{head}\t_\t_\t_\n"
                for i, (word, tag, head) in enumerate(words, start=1)
            )
        )
    return "\n".join([*blocks, ""])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.conllu"
    path.write_text(text(TREES))
    return path


def induce(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["induce", *map(str, arguments)])


def test_a_search_proves_the_optimum(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "grammar.json"
    result = induce(corpus, "--gap", "1e-6", "--out", out, "--parses", "2")
    assert result.exit_code == 0
    assert not result.stderr
    found, grammar = json.loads(result.stdout), json.loads(out.read_text())
    tags = [sentence.tags for sentence in read_conllu(corpus)]
    model = DependencyModelWithValence(["DET", "NOUN", "VERB"])
    best = best_likelihood(Corpus(model, tags))
    assert found["status"] == "PROVED"
    assert found["objective"] == found["likelihood"] == pytest.approx(best, rel=1e-9)
    assert best - 1e-9 <= found["bound"] <= best + 1e-6 * abs(best) + 1e-8
    assert found["gap"] <= 1e-6 + 1e-8
    assert found["nodes"] > 0
    assert found["seconds"] > 0.0
    assert found["void"] is found["interrupted"] is False
    assert [len(heads) for heads in found["parses"]] == [3, 2]
    assert (found["sentences"], found["words"]) == (3, 9)

    assert grammar["tags"] == list(model.tags)
    assert list(grammar["parameters"]) == list(grammar["counts"]) == model.names
    probabilities, counts = (
        np.array(list(grammar[name].values())) for name in ("parameters", "counts")
    )
    np.testing.assert_allclose(model.sums(probabilities), 1.0, rtol=1e-12)
    assert model.log_likelihood(counts) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("method", ["em", "soft-em", "sparsemap-em"])
def test_expectation_maximisation_claims_no_bound(corpus: Path, method: str) -> None:
    result = induce(corpus, "--method", method, "--restarts", 3)
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["status"] == "FOUND"
    assert found["bound"] is found["gap"] is found["nodes"] is found["void"] is None
    tags = [sentence.tags for sentence in read_conllu(corpus)]
    model = DependencyModelWithValence(found["tags"])
    assert found["likelihood"] <= best_likelihood(Corpus(model, tags)) + 1e-9
    if method == "em":
        assert found["likelihood"] == pytest.approx(found["objective"])


def test_a_table_is_for_people(corpus: Path) -> None:
    result = induce(corpus, "--output", "table", "--parses", 3, "--gap", "1e-3")
    assert result.exit_code == 0
    summary, grammar, *parses = result.stdout.split("\n\n")
    assert "3 sentences, 3 of them different; 9 words, 3 tags" in summary
    assert "proved: nothing is more likely than" in summary
    assert "% of the heads in the file" in summary
    head, root, *_ = grammar.splitlines()
    assert head.split() == ["HEAD", "SIDE", "CHILDREN", "FIRST", "FURTHER", "TAGS"]
    assert root.split()[:2] == ["root", "3"]
    assert len(parses) == 3
    assert parses[2].count("▶") == 3


def test_constraints_hold_of_the_counts(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "grammar.json"
    arguments = corpus, "--method", "em", "--smoothing", 0, "--out", out
    model = DependencyModelWithValence(["DET", "NOUN", "VERB"])
    rules = [model.names[m] for m in model.arcs(RULES)]
    n_arcs = []
    for more in ((), ("--constraints", "universal", "--share", 1.0)):
        assert induce(*arguments, *more).exit_code == 0
        counts = json.loads(out.read_text())["counts"]
        n_arcs.append(sum(counts[name] for name in rules))
    assert n_arcs[0] < n_arcs[1] == 9.0


def test_compressed_files_are_read(corpus: Path) -> None:
    packed = corpus.with_name("corpus.conllu.gz")
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    one, two = (json.loads(induce(path, "--seed", 1).stdout) for path in (corpus, packed))
    del one["seconds"], two["seconds"]
    assert one == two


def test_sentences_are_chosen(corpus: Path) -> None:
    found = json.loads(induce(corpus, "--min-words", 3, "--max-words", 3).stdout)
    assert (found["sentences"], found["words"]) == (1, 3)
    found = json.loads(induce(corpus, "--sentences", 2, "--punctuation", "--method", "em").stdout)
    assert (found["sentences"], found["words"]) == (2, 6)
    assert found["tags"] == ["DET", "NOUN", "PUNCT", "VERB"]


def test_a_corpus_of_one_word(corpus: Path) -> None:
    corpus.write_text(text([["yes INTJ 0"]]))
    for method in ("search", "em", "soft-em", "sparsemap-em"):
        result = induce(corpus, "--method", method, "--output", "table", "--parses", 1)
        assert result.exit_code == 0, result.output
        assert "accuracy     100.0 %" in result.stdout
    assert json.loads(induce(corpus).stdout)["status"] == "PROVED"


def test_a_file_without_heads_has_no_accuracy(corpus: Path) -> None:
    corpus.write_text(text([["yes INTJ _"]]))
    assert json.loads(induce(corpus).stdout)["accuracy"] is None


def test_a_search_without_a_proof_has_an_exit_code_of_its_own(corpus: Path) -> None:
    rng = np.random.default_rng(0)
    tags = ["NOUN", "VERB", "DET", "ADJ", "ADV"]
    drawn = [[f"w {rng.choice(tags)} _" for _ in range(8)] for _ in range(10)]
    corpus.write_text(text(drawn))
    result = induce(corpus, "--max-time", "0.05", "--restarts", 1)
    found = json.loads(result.stdout)
    assert result.exit_code == UNPROVED
    assert found["status"] == "FOUND"
    assert found["bound"] > found["objective"]
    table = induce(corpus, "--max-time", "0.05", "--restarts", 1, "--output", "table")
    assert "certificate  open: " in table.stdout or "certificate  void: " in table.stdout


def test_a_void_certificate_is_said_to_be_void() -> None:
    nothing = np.empty(0)
    for bound, word in ((0.0, "void"), (-1.0, "open"), (-99.5, "proved")):
        proved = word == "proved"
        certified = Certified(nothing, nothing, -100.0, bound, 7, 1.0, proved, False)
        found = Induced("search", nothing, nothing, -100.0, -100.0, 1.0, False, [], certified)
        assert certificate(found).startswith(f"{word}: ")
    found = Induced("em", nothing, nothing, -100.0, -100.0, 1.0, False, [])
    assert certificate(found).startswith("none: ")


def test_a_checkpoint_is_written_and_gone_on_with(corpus: Path, tmp_path: Path) -> None:
    kept = tmp_path / "search.checkpoint"
    first, again = (json.loads(induce(corpus, "--checkpoint", kept).stdout) for _ in range(2))
    assert first["status"] == again["status"] == "PROVED"
    assert first["nodes"] == again["nodes"]
    kept.write_bytes(b"damaged")
    result = induce(corpus, "--checkpoint", kept)
    assert result.exit_code == 1
    assert "is damaged, or not a checkpoint" in result.stderr
    assert not result.stdout


def test_workers_prove_the_same(corpus: Path) -> None:
    alone, together = (
        json.loads(induce(corpus, "--gap", "1e-6", "--workers", n).stdout) for n in (1, 2)
    )
    assert alone["status"] == together["status"] == "PROVED"
    assert alone["objective"] == together["objective"]


def test_pictures_are_drawn(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trace, drawing = tmp_path / "trace.png", tmp_path / "trees.svg"
    assert induce(corpus, "--trace", trace, "--draw", drawing).exit_code == 0
    assert trace.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in drawing.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-time", "0"], "0.0 is not in the range x>0"),
        (["--max-time", "nan"], "nan is not a finite number"),
        (["--gap", "-1"], "is not in the range x>=0"),
        (["--method", "annealing"], "'annealing' is not one of 'search'"),
        (["--method", "em", "--gap", "0.1"], "--gap requires --method search; got --method em"),
        (["--method", "em", "--relaxation", "chord"], "--relaxation requires --method search"),
        (["--relaxation", "none"], "'none' is not one of 'chord', 'lagrangian'"),
        (["--method", "em", "--workers", "2"], "--workers requires --method search"),
        (["--workers", "0"], "0 is not in the range x>=1"),
        (["--method", "em", "--checkpoint", "x"], "--checkpoint requires --method search"),
        (["--temperature", "1"], "--temperature requires --method sparsemap-em; got --method"),
        (["--share", "0.5"], "--share requires --constraints universal; got --constraints none"),
        (["--min-words", "9", "--max-words", "3"], "--min-words: got 9; expected at most"),
        (["--out", "/no/such/folder/x.json"], "the folder does not exist"),
        (["--trace", "x.nothing"], "got the suffix '.nothing'; expected one of"),
    ],
)
def test_wrong_commands_are_told_before_the_training(
    corpus: Path, arguments: list[str], words: str
) -> None:
    result = induce(corpus, *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ("", [], "got no sentences of 1 to 10 words; expected at least one"),
        (text([[". PUNCT 0"]]), [], "got no sentences of 1 to 10 words"),
        ("# text = nothing\n\n", [], "got no sentences"),
        ("1\tword\n", [], "line 1: got 2 columns; expected the 10"),
        (text([["a _ 0"]]), [], "got no universal tag of 'a'"),
        (text([["a X 1"]]), [], "got a cycle of heads; expected a tree"),
        (text([["a X 7"]]), [], "got head 7; expected 0 to 1"),
        (b"\xff\xfe", [], "got bytes that are not UTF-8"),
        (
            text([["a NN 0"]]),
            ["--constraints", "universal"],
            "got the tag 'NN'; expected the universal tags",
        ),
        (
            text([["a X 0", "b VERB 1"]]),
            ["--constraints", "universal"],
            "--share: got 0.75; expected at most 0.5, the maximum for trees",
        ),
    ],
)
def test_files_that_cannot_be_trained_on_are_told_in_a_line(
    corpus: Path, content: str | bytes, arguments: list[str], words: str
) -> None:
    corpus.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = induce(corpus, *arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("Error: ")
    assert words in result.stderr
    assert not result.stdout


def test_damaged_gzip_is_told_in_a_line(corpus: Path) -> None:
    packed = corpus.with_name("corpus.conllu.gz")
    packed.write_bytes(gzip.compress(corpus.read_bytes())[:-9])
    result = induce(packed)
    assert result.exit_code == 1
    assert "got damaged gzip data" in result.stderr


def test_what_may_not_be_written_is_told_before_the_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    for option in ("--out", "--draw", "--trace", "--checkpoint"):
        result = induce(corpus, option, tmp_path / "x.png")
        assert result.exit_code == 2
        assert "x.png: no permission to write." in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has /dev/full")
def test_a_full_disk_below_the_grammar_keeps_the_answer(corpus: Path) -> None:
    result = induce(corpus, "--method", "em", "--out", "/dev/full")
    assert result.exit_code == 1
    assert "--out /dev/full: [Errno 28] No space left on device" in result.stderr
    assert json.loads(result.stdout)["status"] == "FOUND"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has /dev/full")
def test_full_disks_and_closed_streams(corpus: Path, warm_server: Server) -> None:
    arguments = "induce", corpus, "--method", "em"
    with open("/dev/full", "w") as full:
        done = warm_server.run(MAIN, *arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr.strip() == "Error: [Errno 28] No space left on device"
    for closed in ("stdout", "stderr"):
        done = warm_server.run(without(closed) + MAIN, *arguments)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        assert bool(done.stdout) == (closed == "stderr")


def test_a_terminal_is_told_of_the_progress(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "is_terminal", lambda stream: True)
    monkeypatch.setattr(command_module, "PAUSE", 0.0)
    result = induce(corpus)
    assert "3 sentences, 3 of them different; 45 parameters" in result.stderr
    lines = result.stderr.splitlines()
    assert any(re.fullmatch(r"best -\d+\.\d+, bound .* boxes, .* s", line) for line in lines)
    assert result.stdout.startswith("corpus ")
    assert not induce(corpus, "--quiet").stderr
