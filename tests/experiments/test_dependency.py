"""Dependency parsing at toy size."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.dependency import EXPERIMENT
from experiments.dependency.analysis import (
    Distribution,
    ambiguous_parses,
    attachment,
    best_trees,
    distributions,
    sparsity,
)
from experiments.dependency.data import (
    ROOT,
    UNKNOWN,
    Treebank,
    Vocabulary,
    batches,
    make_batch,
)
from experiments.dependency.losses import Loss, ParserLoss, labelled_target
from experiments.dependency.parser import Parser, Scores, Sizes
from experiments.dependency.rows import ABLATIONS
from experiments.dependency.structures import sibling_tables, tree_factors
from experiments.records import read_records
from experiments.runs import Row, Runner
from lpsmap import FactorGraph
from lpsmap_search import TaggedSentence

SMALL = Sizes(word=8, tag=4, lstm=6, hidden=8, sibling=3)

SENTENCE = TaggedSentence(
    ("The", "dog", "ran", "12.5", "."),
    ("DET", "NOUN", "VERB", "NUM", "PUNCT"),
    (1, 2, -1, 2, 2),
    ("det", "nsubj:pass", "root", "obl", "punct"),
)


@pytest.fixture(scope="session")
def treebank(data: Path) -> Treebank:
    return Treebank.read(data, "vi")


def test_sentences_become_numbers() -> None:
    other = TaggedSentence(("a", "dog"), ("DET", "X"), (1, -1), ("amod", "root"))
    vocabulary = Vocabulary([SENTENCE])
    batch = make_batch([SENTENCE, other], vocabulary)
    assert batch.words[1].tolist() == [ROOT, UNKNOWN, vocabulary.words["dog"], 0, 0, 0]
    assert vocabulary.words.keys() == {"the", "dog", "ran", "<number>", "."}
    assert batch.heads.tolist() == [[1, 2, -1, 2, 2], [1, -1, *[-100] * 3]]
    assert batch.lengths.tolist() == [5, 2]
    assert vocabulary.relations.keys() == {"det", "nsubj", "root", "obl", "punct"}
    assert batch.relations[1].tolist() == [UNKNOWN, vocabulary.relations["root"], 0, 0, 0]
    assert batch.counted.tolist() == [[True] * 4 + [False], [True, True, *[False] * 3]]
    assert vocabulary.counts[vocabulary.words["dog"]] == 1


def test_an_epoch_has_all_sentences_once(treebank: Treebank) -> None:
    vocabulary = Vocabulary(treebank.train)

    def epoch(seed: int) -> list[list[list[int]]]:
        found = batches(treebank.train, vocabulary, 4, np.random.default_rng(seed))
        return [batch.heads.tolist() for batch in found]

    assert sum(map(len, epoch(0))) == len(treebank.train)
    assert epoch(0) == epoch(0) != epoch(1)
    part = treebank.part(5, 3, None)
    assert [len(part.train), len(part.dev), len(part.test)] == [5, 3, 30]
    assert part == treebank.part(5, 3, None)


def test_padding_does_not_change_scores(treebank: Treebank) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(treebank.train)
    parser = Parser(vocabulary, SMALL, siblings=True).eval()
    short, long = min(treebank.dev, key=len), max(treebank.dev, key=len)
    n = len(short)
    alone, padded = (parser(make_batch(some, vocabulary)) for some in ([short], [long, short]))
    torch.testing.assert_close(alone.arcs[0], padded.arcs[1, :n, :n])
    for one, other in zip(alone.siblings, padded.siblings, strict=True):
        torch.testing.assert_close(one[0, :, : n + 1, : n + 1], other[1, : n + 1, : n + 1, : n + 1])


def test_words_are_dropped_in_training_only(treebank: Treebank) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(treebank.train)
    parser = Parser(vocabulary, SMALL, word_dropout=5.0)
    batch = make_batch(treebank.train, vocabulary)
    assert not torch.equal(parser(batch).arcs, parser(batch).arcs)
    parser.eval()
    assert torch.equal(parser(batch).arcs, parser(batch).arcs)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_siblings_are_scored_as_declared(n: int) -> None:
    """The score of every tree under the graph is the sum over its heads' consecutive modifiers."""
    rng = np.random.default_rng(0)
    right, left = torch.from_numpy(rng.standard_normal((2, 1, n + 1, n + 2, n + 2)))
    arcs = rng.standard_normal((1, n, n))
    graph = FactorGraph()
    u = graph.variable_from(arcs)
    tables = sibling_tables(right, left)
    for factor in tree_factors(u, lengths=torch.tensor([n]), siblings=tables):
        graph.add(factor)
    found = graph.solve_map(exact=True)

    def score(heads: tuple[int, ...]) -> float:
        total = sum(arcs[0, m, m if h < 0 else h] for m, h in enumerate(heads))
        for h in range(n):
            for scores, side in (
                (right, [m for m in range(h + 1, n) if heads[m] == h]),
                (left, [m for m in range(h - 1, -1, -1) if heads[m] == h]),
            ):
                if (h == n - 1) if scores is right else (h == 0):
                    continue  # no candidates, and no automaton
                # word w is inner w + 2 and outer w + 1; 0 and n + 1 are none
                path = [0, *(m + 2 for m in side)], [*(m + 1 for m in side), n + 1]
                total += sum(float(scores[0, h + 1, a, b]) for a, b in zip(*path, strict=True))
        return total

    def is_tree(heads: tuple[int, ...]) -> bool:
        def reaches_root(m: int) -> bool:
            seen: set[int] = set()
            while m >= 0 and m not in seen:
                seen.add(m)
                m = heads[m]
            return m < 0

        return all(map(reaches_root, range(n)))

    trees = filter(is_tree, itertools.product(range(-1, n), repeat=n))
    assert found.total == pytest.approx(max(map(score, trees)))


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("labelled", [False, True])
def test_losses_are_small_at_the_gold_tree(loss: Loss, labelled: bool) -> None:
    vocabulary = Vocabulary([SENTENCE])
    batch = make_batch(
        [SENTENCE, TaggedSentence(("ran",), ("VERB",), (-1,), ("root",))], vocabulary
    )
    shape = (2, 5, 5, len(vocabulary.relations) + 2)
    gold = labelled_target(batch, torch.zeros(shape))
    assert gold.sum() == 6
    gold = gold if labelled else gold.sum(-1)
    criterion = ParserLoss(loss, single_root=False, labelled=labelled)
    assert criterion(Scores(20 * gold, None), batch).item() == pytest.approx(0.0, abs=1e-4)
    assert criterion(Scores(torch.zeros_like(gold), None), batch).item() > 0.5
    trees = best_trees(gold, batch.lengths, single_root=False)
    assert trees[0, :, 0].tolist() == [1, 2, 2, 2, 2]
    if labelled:
        assert trees[0, :, 1].tolist() == batch.relations[0].tolist()


def test_ambiguous_parses_and_sparsity() -> None:
    sentence = TaggedSentence(tuple("abcdef"), tuple("abcdef"), (-1, 0, 0, 0, 0, 0))
    gold, other = [-1, 0, 0, 0, 0, 0], [-1, 0, 1, 0, 0, 0]
    found = [
        Distribution(sentence, [other, gold], [0.6, 0.4], [2.0, 1.5]),
        Distribution(sentence, [gold, other], [0.6, 0.4], [2.0, 1.5]),
        Distribution(sentence, [other], [1.0], [2.0]),
    ]
    summary = ambiguous_parses(found)
    drawn = summary.pop("drawn")
    assert summary == {
        "sentences": 3,
        "one tree": 1,
        "gold has weight": 2,
        "gold has weight, and another is the best": 1,
    }
    assert drawn[0]["heads"] == [other, gold]
    assert sparsity(found)["trees"][2] == 2.0
    assert sparsity(found)["parents"][5] == pytest.approx(1.111)


@pytest.mark.compiled
def test_a_parser_learns(treebank: Treebank) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(treebank.train)
    parser = Parser(vocabulary, SMALL)
    criterion = ParserLoss(Loss.SPARSEMAP, single_root=False, labelled=False)
    optimizer = torch.optim.Adam(parser.parameters(), lr=0.02)
    for _ in range(30):
        for batch in batches(treebank.train, vocabulary, 10, np.random.default_rng(0)):
            optimizer.zero_grad()
            criterion(parser(batch), batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert attachment(parser, treebank.test, vocabulary, single_root=False).uas > 95
    found = distributions(parser, treebank.test, vocabulary, single_root=False)
    assert np.mean([len(one.heads) == 1 for one in found]) > 0.8
    for one in found:
        assert sum(one.probabilities) == pytest.approx(1.0)
        assert 1 <= one.parents <= len(one.sentence)


ROWS = [row for row in EXPERIMENT.rows("toy", None) if row.settings.language == "vi"]


@pytest.mark.compiled
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_run(runner: Runner, row: Row) -> None:
    result = runner.result_of(row)
    assert 0 <= result["test"]["uas"] <= 100
    assert (result["test"]["las"] is not None) == (row.settings.structure.value == "relations")
    assert len(result["curve"]) == 3
    records = list(read_records(runner.out))
    rates = [record for record in records if record.settings["trial_rate"]]
    assert result["learning_rate"] in [r.settings["trial_rate"] for r in rates] or not rates
    page = EXPERIMENT.report(records, runner.out)
    assert "| Vietnamese |" in page
    is_ablation = any(f"-{name}-" in row.name for name in ABLATIONS)
    if row.settings.structure.value == "arcs" and not is_ablation:
        assert (runner.out / "dependency-vi.png").stat().st_size > 1000


def test_parses_are_drawn(tmp_path: Path) -> None:
    from experiments.dependency.report import draw_parses

    heads = [[1, 2, -1, 2, 2], [1, 2, -1, 1, 2]]
    parse = {
        "words": list(SENTENCE.words),
        "gold": heads[0],
        "heads": heads,
        "probabilities": [0.4, 0.6],
    }
    draw_parses([parse, parse]).savefig(tmp_path / "parses.png")
    assert (tmp_path / "parses.png").stat().st_size > 5000
