"""Natural language inference at toy size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.nli import EXPERIMENT
from experiments.nli.data import Batch, Corpus, Pair, Vocabulary, batches, make_batch, tokens
from experiments.nli.model import (
    Alignment,
    Architecture,
    Classifier,
    Regime,
    Sizes,
    make_classifier,
    within,
)
from experiments.nli.report import report
from experiments.nli.rows import SNLI_ONLY, VARIANTS, Settings, measure
from experiments.nli.verdicts import first_and_others, overlaid
from experiments.records import Record, read_records
from experiments.runs import Row, Runner

pytestmark = pytest.mark.filterwarnings(  # limits are part of the experiment
    "ignore::lpsmap.ConvergenceWarning", "ignore:lpsmap. the gradients of some components are"
)

SMALL = Sizes(word=8, deviation=1.0, hidden=8, dropout=0.0)

PAIRS = [
    Pair(tuple("abcde"), tuple("bcd"), 0),
    Pair(tuple("ab"), tuple("bacd"), 1),
    Pair(("a",), ("b",), 2),
]

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(v))


def classifier(variant: tuple[Architecture, Alignment, Regime]) -> tuple[Classifier, Vocabulary]:
    torch.manual_seed(0)
    vocabulary = Vocabulary([*PAIRS, *PAIRS])
    return make_classifier(len(vocabulary), *variant, SMALL).eval(), vocabulary


def test_sentences_become_numbers() -> None:
    assert tokens("The dog's owner isn't here.") == (
        "the", "dog", "'s", "owner", "isn", "'t", "here", ".",
    )  # fmt: skip
    assert tokens("the dog 's owner") == tokens("The dog's owner")
    assert tokens("") == ("",)
    assert len(tokens("a " * 60)) == 50
    vocabulary = Vocabulary(PAIRS)  # only words that are there twice
    assert vocabulary.words.keys() == set("abcd")
    batch = make_batch(PAIRS, vocabulary)
    assert batch.premise.tolist() == [[2, 3, 4, 5, 1], [2, 3, 0, 0, 0], [2, 0, 0, 0, 0]]
    assert batch.lengths.tolist() == [[5, 3], [2, 4], [1, 1]]
    assert batch.labels.tolist() == [0, 1, 2]


def test_an_epoch_has_all_pairs_once(data: Path) -> None:
    corpus = Corpus.read(data, "mnli")
    vocabulary = Vocabulary(corpus.train)

    def epoch(seed: int) -> list[list[list[int]]]:
        found = batches(corpus.train, vocabulary, 5, np.random.default_rng(seed))
        return [batch.premise.tolist() for batch in found]

    assert sum(map(len, epoch(0))) == len(corpus.train)
    assert epoch(0) == epoch(0) != epoch(1)
    part = corpus.part(6, 3, None)
    assert [len(part.train), len(part.dev), len(part.test)] == [6, 3, 12]
    assert part == corpus.part(6, 3, None)


@pytest.mark.parametrize(
    ("name", "sizes"), [("snli", (17_188, 984, 9_824)), ("mnli", (20_000, 2_500, 2_500))]
)
def test_real_data_are_read(name: str, sizes: tuple[int, int, int]) -> None:
    beside_the_repository = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LPSMAP_DATA", beside_the_repository))
    if not (folder / "nli" / "snli_dev.tsv.gz").is_file():
        pytest.skip(f"no nli/snli_dev.tsv.gz in {folder}; LPSMAP_DATA names the folder above it")
    corpus = Corpus.read(folder, name)
    assert tuple(map(len, (corpus.train, corpus.dev, corpus.test))) == sizes
    premises = [{pair.premise for pair in part} for part in (corpus.train, corpus.dev)]
    assert len(premises[0] & premises[1]) <= len(premises[1]) / 100


@every_variant
def test_alignments_are_what_they_should_be(
    variant: tuple[Architecture, Alignment, Regime],
) -> None:
    model, vocabulary = classifier(variant)
    batch = make_batch(PAIRS, vocabulary)
    with torch.no_grad():
        _, rows, columns = model(batch)
    rows_inside, columns_inside = (
        within(batch.lengths[:, i], n, rows.device) for i, n in enumerate((5, 4))
    )
    inside = rows_inside[:, :, None] & columns_inside[:, None]
    assert not rows[~inside].any()
    assert not columns[~inside].any()
    both_ways = variant[1] in (Alignment.SOFTMAX, Alignment.SEQUENCE)
    for i, (m, n) in enumerate(batch.lengths.tolist()):
        one = torch.ones(1)
        if both_ways or m <= n:
            torch.testing.assert_close(rows[i, :m].sum(1), one.expand(m))
        if both_ways or n <= m:
            torch.testing.assert_close(columns[i, :, :n].sum(0), one.expand(n))
    if not both_ways:
        assert torch.equal(rows, columns)
        solved = variant[2] is Regime.SOLVED or variant[1] is Alignment.MATCHING
        assert rows.sum(2).max() < (1.0001 if solved else 1.5)


@every_variant
def test_padding_does_not_change_a_pair(variant: tuple[Architecture, Alignment, Regime]) -> None:
    model, vocabulary = classifier(variant)
    with torch.no_grad():
        padded = model(make_batch(PAIRS, vocabulary)).classes
        alone = torch.cat([model(make_batch([pair], vocabulary)).classes for pair in PAIRS])
    torch.testing.assert_close(padded, alone)


@pytest.mark.parametrize("network", Architecture)
def test_lengths_may_stay_on_the_cpu(network: Architecture) -> None:
    model, vocabulary = classifier((network, Alignment.SOFTMAX, Regime.SOLVED))
    batch = make_batch(PAIRS, vocabulary)
    elsewhere = batch._replace(
        premise=batch.premise.to("meta"), hypothesis=batch.hypothesis.to("meta")
    )
    output = model.to("meta")(elsewhere)
    assert {one.device.type for one in output} == {"meta"}
    assert output.classes.shape == (3, 3)


@pytest.mark.compiled
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, id="-".join(variant), marks=[pytest.mark.slow] if i % 3 else [])
        for i, variant in enumerate(VARIANTS)
    ],
)
def test_classes_are_learned(data: Path, variant: tuple[Architecture, Alignment, Regime]) -> None:
    torch.manual_seed(0)
    corpus = Corpus.read(data, "snli")
    vocabulary = Vocabulary(corpus.train)
    model = make_classifier(len(vocabulary), *variant, SMALL)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        cross_entropy(model(batch).classes, batch.labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    for _ in range(40):
        for batch in batches(corpus.train, vocabulary, 12, np.random.default_rng(0)):
            step(batch)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    measured = measure(model.eval(), corpus.test, vocabulary)
    assert measured["accuracy"] > 80.0
    assert (measured["nonzero"] == 100.0) == (variant[1] is Alignment.SOFTMAX)


def rows() -> list[Any]:
    """Return the rows of toy size; one of the second corpus is enough for a quick run."""
    found, seen = [], set[str]()
    for row in EXPERIMENT.rows("toy", None):
        quick = row.settings.corpus == "snli" or row.settings.corpus not in seen
        seen.add(row.settings.corpus)
        marks = () if quick else pytest.mark.slow
        found.append(pytest.param(row, id=row.name, marks=marks))
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("row", rows())
def test_rows_run(runner: Runner, row: Row) -> None:
    result = runner.result_of(row)
    settings: Settings = row.settings
    assert 0 <= result["test"]["accuracy"] <= 100
    if settings.alignment is Alignment.SOFTMAX:
        assert result["test"]["nonzero"] == 100
    assert ("solved" in result) == (settings.regime is Regime.PAPER)
    assert ("transition" in result["test"]) == (settings.alignment is Alignment.LP_SEQUENCE)
    assert len(result["curve"]) == settings.epochs + 1
    for drawn in result["alignments"]:
        for name, some in zip(("rows", "columns"), drawn.get("structures", []), strict=False):
            shown = np.array([line.split() for line in drawn[name]], dtype=float)
            mean = np.zeros_like(shown)
            for one in some:
                mean[tuple(np.transpose(one["pairs"]))] += 100 * one["p"]
            np.testing.assert_allclose(mean, shown, atol=0.51)  # the mixture is the alignment
    page = report(list(read_records(runner.out)), runner.out)
    assert f"| {settings.network.value} | {settings.alignment.value} |" in page
    for name in ("", "-alignments") if settings.patience is None else ():
        assert (runner.out / f"nli-{settings.corpus}{name}.png").stat().st_size > 1000


def record(alignment: str, seed: int, accuracy: float) -> Record:
    """Return a complete record."""
    settings = {"corpus": "snli", "network": "decomposable", "alignment": alignment, "seed": seed}
    settings["regime"] = "paper"
    curve = [{"epoch": 1, "seconds": 60.0, "dev": accuracy, "nonzero": 10.0}]
    result = {
        "test": {"accuracy": accuracy, "nonzero": 10.0}, "steps_per_second": 2.0, "curve": curve,
        "dev": accuracy + 1,
    }  # fmt: skip
    return Record("nli", f"{alignment}-{seed}", "toy", settings, True, result)


def test_alignments_are_compared_seed_by_seed(tmp_path: Path) -> None:
    some = [record("softmax", seed, 80.0 + seed) for seed in range(3)]
    some += [record("LP-matching", seed, 82.0 + seed) for seed in range(2)]
    page = report(some, tmp_path)
    assert "| SNLI | decomposable | LP-matching | paper | 2 | 2.00 | +0.42 |" in page
    assert "| 3 | 81.00 ± 2.48 | 80.00 to 82.00 | 84.62 | 82.00 ± 2.48 | 84.44 |" in page


def test_the_box_names_no_order_of_the_others() -> None:
    assert (
        first_and_others({"a": 1.0, "b": 3.0, "c": 2.0}) == "b has 3.00 and the others 1.00 to 2.00"
    )


def test_the_box_names_the_corpora_with_structures() -> None:
    def drawn(corpus: str, *alignments: dict[str, Any]) -> Record:
        result = {"alignments": list(alignments)}
        return Record("nli", corpus, "full", {"corpus": corpus}, True, result, {})

    some = [drawn("mnli", {"rows": []}), drawn("snli", {"rows": []}, {"structures": []})]
    assert overlaid(some) == "Their structures are drawn over those of SNLI."
    assert overlaid(some[:1]) == "The records have no structures to draw over them."


def test_without_short_pairs_no_alignments_are_drawn(tmp_path: Path) -> None:
    one = record("softmax", 0, 80.0)
    one.result["alignments"] = []
    report([one], tmp_path)
    assert not (tmp_path / "nli-snli-alignments.png").exists()


def test_the_full_size_has_all_variants() -> None:
    settings = [row.settings for row in EXPERIMENT.rows("full", None)]
    for network, alignment, regime in VARIANTS:
        seeds = [
            (one.corpus, one.seed)
            for one in settings
            if (one.network, one.alignment, one.regime) == (network, alignment, regime)
            and one.patience is None
        ]
        is_slow = network is Architecture.ESIM or alignment is Alignment.LP_SEQUENCE
        on_snli = [("snli", seed) for seed in range(2 if is_slow else 5)]
        on_mnli = [("mnli", seed) for seed in range(1 if network is Architecture.ESIM else 3)]
        on_mnli = [] if (network, alignment, regime) == SNLI_ONLY else on_mnli
        assert sorted(seeds) == [*on_mnli, *on_snli]
