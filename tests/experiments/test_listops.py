"""Latent trees on ListOps at toy size."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from experiments import ROOT
from experiments.listops import EXPERIMENT
from experiments.listops.report import (
    PRINTED,
    order,
    table_of,
    table_of_equal_steps,
    table_of_escapes,
)
from experiments.listops.rows import Settings, corpora, row
from experiments.listops.verdicts import after_the_same_steps
from experiments.records import Record, read_records
from experiments.runs import Row, Runner
from valency.batches import Batch
from valency.expressions import argument_counts
from valency.model import ValencyTagger
from valency.training import Scores, objective

ROWS = EXPERIMENT.rows("toy", None)


@pytest.mark.compiled
@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name)
def test_rows_run(runner: Runner, one: Row) -> None:
    result = runner.result_of(one)
    assert 0 <= result["test"]["f1"] <= 100
    assert 0 <= result["test"]["attachment recall"] <= 100
    assert result["curve"][-1]["steps"] == one.settings.steps
    page = EXPERIMENT.report(list(read_records(runner.out)), runner.out)
    assert f"| {one.settings.structure.value} |" in page


def test_the_full_size_has_all_studies() -> None:
    rows = EXPERIMENT.rows("full", None)
    assert sum(one.name.startswith("table-") for one in rows) == 4 * 5
    assert sum(one.name.startswith("escape-") for one in rows) == 2 * 2 * 6
    cold = [one.settings for one in rows if one.name.startswith("cold-")]
    assert [one.structure.value for one in cold] == 3 * ["tree", "tree+budget"]
    assert len({one.steps for one in cold}) == 1  # the same effort for both structures
    assert all(one.learning_rate == 1e-4 and one.inference.max_inner_iter == 10 for one in cold)


def test_a_curriculum_begins_with_the_short_ones(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def watched(model: ValencyTagger, batch: Batch, score_decay: float) -> tuple[Tensor, Tensor]:
        seen.append(int(batch.lengths.max()))
        return objective(model, batch, score_decay)

    monkeypatch.setattr("experiments.listops.rows.objective", watched)
    settings: Settings = replace(ROWS[0].settings, steps=8)
    runner.result_of(row(settings))
    assert len(seen) == 8
    assert max(seen[:4]) <= 8 < max(seen[4:])


def record(structure: str, seed: int, accuracy: float, **settings: object) -> Record:
    """Return a complete record."""
    test = {"accuracy": accuracy, "f1": accuracy + 1, "attachment recall": 30.0}
    test["accuracy with a mean root"] = accuracy
    curve = [{"steps": 1, "seconds": 60.0, "accuracy": accuracy, "dev": accuracy}]
    result = {"test": test, "steps_per_second": 2.0, "curve": curve}
    return Record(
        "listops", f"{structure}-{seed}", "toy",
        {"structure": structure, "seed": seed, **settings}, True, result,
    )  # fmt: skip


def test_the_printed_chain_is_four_arguments_at_the_top_and_two_below() -> None:
    folder = Path(os.environ.get("LPSMAP_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "listops").is_dir():
        pytest.skip(f"no listops in {folder}; LPSMAP_DATA names the folder above it")
    _, _, test = corpora(folder, (10, 10, None), 100)
    confusion = np.zeros((4, 4), dtype=np.int64)
    for expression in test.expressions:
        for place, n in enumerate(argument_counts(expression)):
            if n:
                confusion[n - 2, 2 if place == 0 else 0] += 1
    scores = Scores.from_confusion(confusion)
    assert (round(scores.accuracy, 2), round(scores.f1, 2)) == PRINTED["left-to-right"]


def cold_run(structure: str, seed: int, accuracies: list[float]) -> Record:
    """Return the record of a cold run that did not end, with an accuracy every ten steps."""
    one = record(structure, seed, 0.0, study="cold")
    curve = [{"steps": 10 * k, "accuracy": x} for k, x in enumerate(accuracies)]
    return replace(one, complete=False, result={"curve": curve})


def test_cold_runs_are_compared_after_the_same_steps() -> None:
    """Those that did not end, too; steps that only one of them has are left out."""
    some = [
        cold_run("tree", 0, [20.0, 48.0, 50.0, 51.0]),
        cold_run("tree+budget", 0, [20.0, 28.0, 29.0]),
        cold_run("tree", 1, [20.0, 47.0]),
    ]
    lines = table_of_equal_steps(some).splitlines()[-2:]
    assert lines == ["| 0 | 10 | 48.0 | 28.0 |", "| 0 | 20 | 50.0 | 29.0 |"]
    assert table_of_equal_steps(some[2:]) == ""


def test_the_box_compares_what_all_seeds_have_made() -> None:
    some = [
        cold_run("tree", 0, [20.0, 48.0, 50.0]), cold_run("tree+budget", 0, [20.0, 28.0, 29.0]),
        cold_run("tree", 1, [20.0, 47.0]), cold_run("tree+budget", 1, [20.0, 51.5]),
    ]  # fmt: skip
    words = after_the_same_steps(some)
    assert words.startswith("after 10 steps of both, tree+budget less tree is -20.0, +4.5 on")
    assert words.endswith("in 2 seeds")
    assert after_the_same_steps(some[:1]) == "no run has a record"


def test_structures_are_compared_seed_by_seed() -> None:
    some = [record("tree", seed, 80.0 + seed) for seed in range(3)]
    some += [record("tree+budget", seed, 82.0 + seed) for seed in (2, 1, 0)]
    assert "accuracy 2.00 ± 0.00" in order(some)
    assert "| tree | 3 | 81.00 ± 2.48 |" in table_of(some)
    assert "68.74 / 69.12 | 81.00 ± 2.48 / 81.00 ± 2.48 | 68.23 / 68.74 | 2.00" in table_of(some)
    cold = [record("tree", seed, 33.0 + 30 * seed, regime="cold") for seed in range(2)]
    assert "| cold | tree | 1 of 2 | 33.0, 63.0 |" in table_of_escapes(cold)
    assert "(12.00)" in table_of(
        [replace(one, complete=False) for one in [record("gold", 0, 12.0)]]
    )
