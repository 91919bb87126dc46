"""Sentences read from CoNLL-U files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from lpsmap_search import TaggedSentence, directed_accuracy, padded_heads, read_conllu
from lpsmap_search.conllu import LONGEST_LINE
from lpsmap_search.tagged_sentence import GAP, ROOT


def row(number: object, word: str, tag: str, head: object, relation: str = "_") -> str:
    return f"{number}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"


TREE = (
    "# text = They'd (slowly) leave .\n"
    + row("1-2", "They'd", "_", "_")
    + row(1, "They", "PRON", 6)
    + row(2, "'d", "AUX", 6)
    + row(3, "(", "PUNCT", 4)
    + row(4, "slowly", "ADV", 6)
    + row(5, ")", "PUNCT", 4)
    + row("5.1", "then", "ADV", "_")
    + row(6, "leave", "VERB", 0)
    + row(7, ".", "PUNCT", 6)
    + "\n"
)


def read(path: Path, text: str | bytes, **options: object) -> list[TaggedSentence]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_conllu(path, **options))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "corpus.conllu"


def test_words_tags_and_heads_are_read(path: Path) -> None:
    (sentence,) = read(path, TREE)
    assert sentence.words == ("They", "'d", "slowly", "leave")
    assert sentence.tags == ("PRON", "AUX", "ADV", "VERB")
    assert sentence.heads == (3, 3, 3, ROOT)
    (whole,) = read(path, TREE, punctuation=True)
    assert whole.heads == (5, 5, 3, 5, 3, ROOT, 5)


def test_compressed_files_other_line_ends_and_a_mark_of_order_are_read(path: Path) -> None:
    expected = read(path, TREE)
    assert read(path, "\ufeff" + TREE.replace("\n", "\r\n").rstrip()) == expected
    assert read(path.with_suffix(".gz"), gzip.compress(TREE.encode())) == expected


def test_long_sentences_and_punctuation_alone_are_left_out(path: Path) -> None:
    dots = row(1, ".", "PUNCT", 0) + "\n"
    assert len(read(path, TREE + dots + TREE)) == 2
    assert len(read(path, TREE + dots, max_words=4)) == 1
    assert read(path, TREE, max_words=3) == []
    assert read(path, "") == []


def test_dependents_of_removed_words_go_to_the_nearest_that_stays(path: Path) -> None:
    chain = row(1, "a", "X", 2) + row(2, ",", "PUNCT", 3) + row(3, ";", "PUNCT", 4)
    (sentence,) = read(path, chain + row(4, "b", "X", 0))
    assert sentence.heads == (1, ROOT)


def test_the_first_dependent_takes_the_place_of_a_removed_root(path: Path) -> None:
    words = row(1, "a", "X", 2) + row(2, ":", "PUNCT", 0) + row(3, "b", "X", 2)
    (sentence,) = read(path, words + row(4, "c", "X", 3))
    assert sentence.heads == (ROOT, 0, 1)


def test_a_sentence_without_heads_has_none(path: Path) -> None:
    (sentence,) = read(path, row(1, "a", "X", "_") + row(2, "b", "X", "_"))
    assert (sentence.heads, sentence.tags) == (None, ("X", "X"))
    assert sentence.relations == ("_", "_")
    assert padded_heads([sentence])[0].tolist() == [[GAP, GAP]]


def test_a_gap_is_neither_a_root_nor_the_end_of_a_cycle(path: Path) -> None:
    text = row(1, "a", "X", 2) + row(2, "b", "X", "_") + row(3, "c", "X", 0)
    (sentence,) = read(path, text)
    assert sentence.heads == (1, GAP, ROOT)
    dependent = row(1, "a", "X", 2) + row(2, ",", "PUNCT", "_") + row(3, "c", "X", 0)
    (sentence,) = read(path, dependent)
    assert sentence.heads == (GAP, ROOT)


def test_relations_are_those_of_the_words_that_stay(path: Path) -> None:
    words = [("a", "X", 0, "root"), (",", "PUNCT", 1, "punct"), ("b", "X", 1, "conj:and")]
    text = "".join(row(i, *word) for i, word in enumerate(words, start=1))
    (sentence,) = read(path, text)
    assert sentence.relations == ("root", "conj:and")
    (whole,) = read(path, text, punctuation=True)
    assert whole.relations == ("root", "punct", "conj:and")


def test_heads_of_a_batch_tell_gaps_from_padding_by_the_lengths() -> None:
    batch = [
        TaggedSentence(("a", "b"), ("X", "X"), (1, GAP)),
        TaggedSentence(("c", "d", "e"), ("X",) * 3, (ROOT, 0, 1)),
        TaggedSentence(("f",), ("X",), None),
    ]
    heads, lengths = padded_heads(batch)
    assert heads.tolist() == [[1, -100, -100], [-1, 0, 1], [-100] * 3]
    assert lengths.tolist() == [2, 3, 1]
    heads, lengths = padded_heads([])
    assert (heads.shape, lengths.shape, heads.dtype) == ((0, 0), (0,), np.int64)


def test_gaps_do_not_count_in_the_accuracy() -> None:
    assert directed_accuracy([(ROOT, 0, 0)], [(ROOT, GAP, 1)]) == 0.5
    with pytest.raises(ValueError, match="expected: got no words with a head"):
        directed_accuracy([(ROOT,)], [(GAP,)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b c\n", "line 1: got 1 columns; expected the 10"),
        (TREE + row("x", "a", "X", 0), "line 12: got the number 'x'"),
        *(
            (row(number, "a", "X", 0), f"line 1: got the number '{number}'")  # type: ignore[arg-type]
            for number in ("-1", "1-", ".5", "5.", "1-2-3", "-", "")
        ),
        (TREE + row(2, "a", "X", 0), "line 12: got word 2; expected word 1"),
        (row(1, "a", "_", 0), "line 1: got no universal tag of 'a'"),
        (row(1, "a", "X", "one"), "line 1: got the head 'one'"),
        (row(1, "a", "X", "²"), "line 1: got the head '²'"),
        (row(1, "a", "X", 2), "line 1: got head 2; expected 0 to 1"),
        (row(1, "a", "X", 2) + row(2, "b", "X", 1), "line 1: got a cycle"),
        (row(1, "a", "X", 1), "line 1: got a cycle"),
        (b"# \xff\n", "line 1: got bytes that are not UTF-8"),
        ("#" * (LONGEST_LINE + 1), "line 1: got more than 1048576 bytes"),
        ("".join(row(n, "a", "X", 0) for n in range(1, 10_002)), "line 10001: got a sentence"),
    ],
)
def test_other_files_are_refused_with_the_line(path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(path, text)


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(TREE.encode())[:-9]])
def test_damaged_compressed_files_are_refused(path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match="got damaged gzip data"):
        read(path.with_suffix(".gz"), data)


def test_missing_files_are_refused(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_conllu(path))
