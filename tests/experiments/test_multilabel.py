"""Multilabel classification at toy size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.multilabel import EXPERIMENT
from experiments.multilabel.data import Examples, read_split
from experiments.multilabel.model import Loss, Tagger, at_least_one, example_f1, round_marginals
from experiments.multilabel.rows import DESCRIPTION
from experiments.multilabel.verdicts import verdicts
from experiments.records import Record, read_records
from experiments.runs import Row, Runner

ROWS = EXPERIMENT.rows("toy", None)


def test_example_f1() -> None:
    found = np.array([[1.0, 1, 0], [0, 0, 0], [0, 0, 0]])
    gold = np.array([[1.0, 0, 0], [0, 0, 0], [1, 0, 0]])
    assert example_f1(found, gold) == pytest.approx(100 * (2 / 3 + 1 + 0) / 3)


def test_a_tenth_of_training_is_held_out(data: Path) -> None:
    split = read_split(data, "emotions")
    assert [len(part) for part in (split.train, split.dev, split.test)] == [36, 4, 20]
    assert split.train.features.mean(dim=0).abs().max() < 1e-6
    assert split.train.features.std(dim=0, correction=0).allclose(torch.ones(4), atol=1e-5)
    assert set(split.test.labels.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(read_split(data, "emotions").dev.features, split.dev.features)


@pytest.mark.parametrize("name", ["bibtex", "emotions"])
def test_real_data_are_read(name: str) -> None:
    beside_the_repository = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LPSMAP_DATA", beside_the_repository))
    if not (folder / "multilabel" / f"{name}.npz").is_file():
        pytest.skip(f"no multilabel/{name}.npz in {folder}; LPSMAP_DATA names the folder above it")
    split = read_split(folder, name)
    sizes = {"bibtex": (4880, 2515, 159), "emotions": (391, 202, 6)}[name]
    assert (len(split.train) + len(split.dev), len(split.test), split.test.labels.shape[1]) == sizes


def test_data_sets_are_described(runner: Runner) -> None:
    [row] = [row for row in ROWS if row.name == DESCRIPTION]
    [found] = runner.result_of(row).values()
    assert (found["samples"], found["train"], found["test"], found["labels"]) == (60, 40, 20, 4)
    assert found["density"] * 4 == pytest.approx(found["cardinality"])
    page = EXPERIMENT.report(list(read_records(runner.out)), runner.out)
    assert f"| emotions | 60 | 40 | 20 | 4 | 4 | {found['density']:.3f} |" in page


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name != DESCRIPTION], ids=lambda row: row.name
)
def test_rows_run(runner: Runner, row: Row) -> None:
    result = runner.result_of(row)
    assert 0 <= result["test"]["rounded"] <= 100
    assert len(result["curve"]) == 3
    if row.settings.loss is not Loss.UNSTRUCTURED:
        assert result["test"]["proved"] == 1.0
        assert result["test"]["labels"].keys() == {"gold", "rounded", "best", "regularised"}
    page = EXPERIMENT.report(list(read_records(runner.out)), runner.out)
    name = row.settings.loss.value + (", Glorot" if row.settings.glorot else "")
    assert f"| emotions | {name} |" in page
    assert (runner.out / "multilabel.png").stat().st_size > 1000


@pytest.mark.parametrize("loss", [Loss.HINGE, Loss.SPARSEMAP, Loss.MARGIN_SPARSEMAP])
def test_pairs_are_learned(loss: Loss) -> None:
    """Two labels that go together, and one without both; features show one of them, with noise."""
    torch.manual_seed(0)
    first = torch.arange(40) % 2
    features = first[:, None] + 0.7 * torch.randn(40, 1)
    examples = Examples(features, torch.stack([first, first, 1 - first], dim=1).float())
    tagger = Tagger((1, 4, 3), loss)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        value = tagger.loss(examples)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0]
    together, *apart = tagger.pairs.detach().tolist()
    assert together > 0 > max(apart)
    best, proved = tagger.best(examples, seconds=5.0)
    assert proved == 1.0
    assert (best[:, 0] == best[:, 1]).all()


def test_empty_sets_get_the_label_of_the_highest_score() -> None:
    found = np.array([[True, False, True], [False, False, False]])
    scores = np.array([[0.1, 0.9, 0.2], [-3.0, -1.0, -2.0]])
    assert at_least_one(found, scores).tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert at_least_one(found[:0], scores[:0]).shape == (0, 3)


def test_scores_decide_among_equal_marginals() -> None:
    marginals = np.array([[0.0, 0.0, 0.0], [0.4, 0.4, 0.1], [0.2, 0.6, 0.6]])
    scores = np.array([[-2.0, -1.0, -3.0], [0.1, 0.2, 0.9], [1.0, 0.0, 0.0]])
    assert round_marginals(marginals, scores).tolist() == [[0, 1, 0], [0, 1, 0], [0, 1, 1]]


def test_rounding_finds_the_best_regularised_set_of_separate_labels() -> None:
    torch.manual_seed(0)
    tagger = Tagger((3, 8, 4), Loss.SPARSEMAP)
    with torch.no_grad():
        tagger.state_dict()["labels.4.bias"].add_(0.5)
    features = 20 * torch.randn(50, 3)
    examples = Examples(features, torch.zeros(50, 4))
    rounded, marginals = tagger.rounded(examples)
    scores = tagger.labels(features).detach().double().numpy()
    np.testing.assert_allclose(marginals, scores.clip(0, 1), atol=1e-5)
    regularised, proved = tagger.best(examples, seconds=5.0, regularised=True)
    assert proved == 1.0
    filled = rounded.sum(axis=1) > 1  # no fallback for an empty set
    assert filled.sum() > 5
    np.testing.assert_array_equal(rounded[filled], regularised[filled])
    best, _ = tagger.best(examples, seconds=5.0)
    np.testing.assert_array_equal(best[filled], scores[filled] > 0)
    assert best.sum() > rounded.sum()


def test_verdicts_leave_out_records_of_a_fixed_number_of_epochs() -> None:
    settings = {"data": "bibtex", "loss": "unstructured", "regime": "solved", "glorot": False}
    found = [
        Record("multilabel", f"{loss}-{f1}", "full",
               settings | {"loss": loss, "patience": patience}, True, {"test": {"rounded": f1}}, {})
        for loss, f1, patience in (
            ("unstructured", 42.0, 8), ("sparsemap", 44.0, 8), ("sparsemap", 45.0, None)
        )
    ]  # fmt: skip
    first = verdicts(found)[0]
    assert "44.00 (one seed) against 42.00 (one seed)" in first.why
