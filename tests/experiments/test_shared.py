"""What all experiments share: records, resumed runs, rates, intervals, the command line."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from torch import Tensor, nn

from experiments import ROOT, records
from experiments.__main__ import main
from experiments.catalogue import EXPERIMENTS
from experiments.pace import table_of_pace
from experiments.pages import table
from experiments.rates import choose_rate
from experiments.records import Record, read_records
from experiments.reports import write_pages
from experiments.runs import Job, Result, Row, Runner
from experiments.statistics import difference, interval, span
from experiments.training import Task, Training, train


@dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    seed: int = 0


class Killed(Exception):
    """What ends a run in the middle."""


def regression(job: Job, epochs: int = 3, stop_at: int | None = None) -> Result:
    """Fit a line by 5 steps an epoch, and end before step `stop_at` as a kill would."""
    settings: Settings = job.row.settings
    torch.manual_seed(settings.seed)
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5))
    taken = 0

    def epoch(_: int, rng: np.random.Generator) -> Iterator[Tensor]:
        return (torch.from_numpy(rng.standard_normal((4, 3))).float() for _ in range(5))

    def loss(batch: Tensor) -> Tensor:
        nonlocal taken
        if taken == stop_at:
            raise Killed
        taken += 1
        value: Tensor = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        return value

    def evaluate() -> Result:
        probe = torch.eye(3)
        return {"dev": -float((model(probe) - 1).square().mean().detach())}

    how = Training(settings.rate, epochs, decay=0.5, average=0.8)
    curve = train(job, Task(model, epoch, loss, evaluate), how)
    weights = [round(float(w), 6) for w in model[0].weight.detach().flatten()]
    for point in curve:
        del point["seconds"]
    return {"dev": curve[-1]["dev"], "curve": curve, "weights": weights}


def runner_in(folder: Path) -> Runner:
    return Runner(folder, folder, "toy", Console(quiet=True))


def test_a_row_is_run_once(tmp_path: Path) -> None:
    runs = []

    def run(job: Job) -> Result:
        runs.append(job.row.name)
        return {"dev": 1.0}

    runner = runner_in(tmp_path)
    for settings in (Settings(), Settings(), Settings(seed=1), Settings(seed=1)):
        assert runner.result_of(Row("none", "row", settings, run)) == {"dev": 1.0}
    assert len(runs) == 2
    (kept,) = read_records(tmp_path)
    assert kept.settings == {"rate": 0.1, "seed": 1}
    assert kept.complete
    assert set(kept.origin) == {"commit", "date", "machine", "python", "command", "clock"}


def test_pace_is_of_the_processor() -> None:
    points = [(0, 0.0), (10, 2.0), (20, 3.0), (30, 3.5)]
    curve = [{"steps": steps, "seconds": seconds, "dev": 1.0} for steps, seconds in points]
    origin = {"clock": "processor", "commit": "abc"}
    one = Record("none", "row", "toy", {"seed": 0}, True, {"curve": curve}, origin)
    others = [replace(one, settings={"seed": 2}), replace(one, settings={"seed": 1}, origin={})]
    for some in ([one, *others], [*others, one]):
        [_, text, commits] = table_of_pace(some, lambda record: record.row)
        assert "| row | 0 | 3 | 200.0 | 200.0 | 100.0 | 50.0 |" in text
        assert text.count("| row |") == 2  # the heading, and one row
        assert commits == "Commits of these rows: `abc` (1)."
    assert "| row | 2 |" in table_of_pace(others, lambda record: record.row)[1]
    assert table_of_pace([replace(one, origin={})], lambda record: record.row) == []


def test_a_record_is_a_line_whatever_its_words(tmp_path: Path) -> None:
    words = "one\u2028two\x85three\r\n"
    Record("none", "row", "toy", {"seed": 0}, True, {"words": words, "x": 0.1234567891}).write(
        tmp_path
    )
    [kept] = read_records(tmp_path)
    assert kept.result == {"words": words, "x": 0.123457}


def test_processes_that_write_to_one_folder_lose_no_record(tmp_path: Path) -> None:
    rows = [Row("none", f"row-{i}", Settings(seed=i), lambda job: {"dev": 0.1}) for i in range(12)]
    with ThreadPoolExecutor(6) as pool:  # each write has a lock of its own, as in processes
        list(pool.map(lambda row: runner_in(tmp_path).result_of(row), rows))
    kept = list(read_records(tmp_path))
    assert [record.row for record in kept] == sorted(row.name for row in rows)
    assert (tmp_path / "none.jsonl").read_text().count("\n") == len(rows)


@pytest.mark.parametrize("stop_at", [0, 3, 5, 7, 12])
def test_a_killed_run_ends_as_if_it_had_not_been(
    tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.runs.BETWEEN_CHECKPOINTS", -1.0)  # after every step
    whole = runner_in(tmp_path / "whole").result_of(Row("none", "row", Settings(), regression))

    def killed(job: Job) -> Result:
        return regression(job, stop_at=stop_at)

    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        runner_in(folder).result_of(Row("none", "row", Settings(), killed))
    kept = list(read_records(folder))
    assert not any(record.complete for record in kept)
    assert bool(kept) == (stop_at >= 5)  # the curve so far
    assert runner_in(folder).result_of(Row("none", "row", Settings(), regression)) == whole
    assert not list(folder.glob("checkpoints/*"))


def test_a_checkpoint_of_other_settings_does_not_count(tmp_path: Path) -> None:
    row = Row("none", "row", Settings(), lambda job: regression(job, stop_at=7))
    with pytest.raises(Killed):
        runner_in(tmp_path).result_of(row)
    job = Job(runner_in(tmp_path), Row("none", "row", Settings(seed=1), regression), print)
    assert job.load() is None


def test_training_keeps_the_best_and_ends_without_patience(tmp_path: Path) -> None:
    job = Job(runner_in(tmp_path), Row("none", "row", Settings(), regression), lambda *_: None)
    found = regression(job, epochs=10)
    assert found["dev"] <= max(point["dev"] for point in found["curve"])
    assert len(found["curve"]) == 11
    model = nn.Linear(1, 1)
    task: Task[Tensor] = Task(
        model,
        lambda number, rng: [torch.ones(1, 1)] * 50,
        lambda batch: model(batch).sum(),
        lambda: {"dev": 0.0},
    )
    other = Job(
        runner_in(tmp_path), Row("none", "limited", Settings(), regression), lambda *_: None
    )
    curve = train(other, task, Training(0.1, epochs=1000, patience=3))
    assert [point["epoch"] for point in curve] == [0, 1, 2, 3]


def test_training_evaluates_and_keeps_averaged_parameters(tmp_path: Path) -> None:
    job = Job(runner_in(tmp_path), Row("none", "row", Settings(), regression), lambda *_: None)
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    task: Task[Tensor] = Task(
        model,
        lambda number, rng: [torch.ones(1, 1)] * 4,
        lambda batch: -model(batch).sum(),  # Adam takes steps of its learning rate
        lambda: {"dev": model.weight.item()},
    )
    curve = train(job, task, Training(0.1, epochs=1, average=0.5))
    averages = [0.1, 0.15, 0.225, 0.3125]
    assert [point["dev"] for point in curve] == pytest.approx([0.0, averages[-1]], abs=1e-6)
    assert model.weight.item() == pytest.approx(averages[-1], abs=1e-6)


@pytest.mark.parametrize(
    ("best", "tried"), [(2.0, 3), (4.0, 4), (8.0, 5), (0.1, 6)], ids=["in", "end", "far", "never"]
)
def test_the_grid_of_rates_grows_at_its_ends(tmp_path: Path, best: float, tried: int) -> None:
    seen = []

    def trial(rate: float) -> Row:
        def run(job: Job) -> Result:
            seen.append(rate)
            return {"dev": -abs(math.log(rate / best))}

        return Row("none", f"{rate:g}", Settings(rate), run)

    job = Job(runner_in(tmp_path), trial(1.0), lambda *_: None)
    found = choose_rate(job, trial, [1.0, 2.0, 4.0])
    assert len(seen) == tried
    assert found == min(seen, key=lambda rate: abs(math.log(rate / best)))


def test_intervals() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.303 * 1.0 / math.sqrt(3), rel=1e-3)
    assert str(interval([80.123])) == "80.12"
    assert span([3.0, 1.0, 2.0]) == "1.00 to 3.00"
    assert span([3.0]) == ""
    assert str(difference([3.0, 5.0, 4.0], [1.0, 2.0, 3.0])) == "2.00 ± 2.48"
    with pytest.raises(ValueError, match="expected pairs"):
        difference([1.0], [])


def test_tables_are_markdown() -> None:
    assert table(["a", "b"], [["x", 1]]) == "| a | b |\n| --- | --: |\n| x | 1 |"


def test_rows_have_names_of_their_own() -> None:
    for name, experiment in EXPERIMENTS.items():
        for size in ("toy", "small", "full"):
            rows = experiment.rows(size, None)
            assert len({row.name for row in rows}) == len(rows)
            assert {row.experiment for row in rows} == {name}
        assert len(experiment.rows("full", 7)) > len(experiment.rows("full", 1))


def call(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


def test_command_says_what_is_missing(tmp_path: Path) -> None:
    folders = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    nothing = call("report", "--out", str(tmp_path))
    assert nothing.exit_code == 1
    assert "no records there" in nothing.output
    no_data = call("run", "multilabel", "--size", "toy", "--row", "*-unstructured-*", *folders)
    assert no_data.exit_code == 1
    assert "emotions.npz; see --data" in no_data.output
    (tmp_path / "other.jsonl").write_text(json.dumps({"a": 1}) + "\n")
    other = call("report", "--out", str(tmp_path))
    assert other.exit_code == 1
    assert "other.jsonl, line 1: not a record" in other.output


def test_command_runs_rows_and_reports(data: Path, tmp_path: Path) -> None:
    listed = call("rows", "multilabel", "--size", "toy")
    assert "multilabel-emotions-unstructured-0" in listed.output.split()
    options = ["--size", "toy", "--row", "*-unstructured-0", "--out", str(tmp_path)]
    ran = call("run", "multilabel", "--data", str(data), *options)
    assert ran.exit_code == 0, ran.output
    reported = call("report", "--out", str(tmp_path))
    assert reported.exit_code == 0, reported.output
    page = (tmp_path / "papers.md").read_text()
    assert "| emotions | unstructured |" in page
    assert "runs: 1 of size toy, 0 of them not complete" in page
    assert "### Findings" not in page
    (kept,) = read_records(tmp_path)
    replace(kept, size="full").write(tmp_path)
    assert call("report", "--out", str(tmp_path)).exit_code == 0
    full = (tmp_path / "papers.md").read_text()
    assert page.count("## ") + 3 == full.count("## ")
    assert "### Rows to run" in full and "### Findings (multilabel)" in full
    assert "### Differences (multilabel)" in full
    assert "| `*` | `" in full  # pytest has no --row
    assert "records are of earlier settings: `emotions-unstructured-0`." in full
    point = {"dev": 12.34, "epoch": 0, "steps": 7, "seconds": 5400.0}
    begun = replace(kept, complete=False, result={"curve": [point]})
    begun.write(tmp_path)
    assert call("report", "--out", str(tmp_path)).exit_code == 0
    page = (tmp_path / "papers.md").read_text()
    assert "(12.34)" in page
    assert "1.5 hours of processor time" in page
    assert "| processor | 1 | 1.50 |" in page
    of_full = next(
        row for row in EXPERIMENTS["multilabel"].rows("full", None) if row.name == begun.row
    )
    settings = json.loads(json.dumps(asdict(of_full.settings)))
    replace(begun, size="full", settings=settings).write(tmp_path)
    assert call("report", "--out", str(tmp_path)).exit_code == 0
    page = (tmp_path / "papers.md").read_text()
    assert "Rows that have not ended: `emotions-unstructured-0 (at epoch 0)`." in page


def test_committed_commands_name_no_folder_of_a_machine() -> None:
    found = list(read_records(ROOT / "experiments" / "records"))
    assert len(found) > 100
    absolute = re.compile(r"(?:^|[\s=:'\"])[/~]")
    assert not [r.row for r in found if absolute.search(str(r.origin["command"]))]


def test_committed_records_make_the_pages_of_the_documentation(tmp_path: Path) -> None:
    """Every page names the origin of its records beside their tables, and has its figures."""
    folder = ROOT / "experiments" / "records"
    pages = {path.stem: path.read_text() for path in write_pages(folder, tmp_path)}
    records = list(read_records(folder))
    assert pages.keys() == {EXPERIMENTS[record.experiment].page.name for record in records}
    for record in records:
        text = pages[EXPERIMENTS[record.experiment].page.name]
        tables = text[text.index("\n## ") : text.index("\n## Runs")]
        assert f"`{record.origin['commit']}` (" in tables
        assert f"`{record.origin['machine']}`" in text
    for text in pages.values():
        for name in re.findall(r"^!\[.*\]\((.*)\)$", text, flags=re.MULTILINE):
            assert (tmp_path / name).stat().st_size > 1000
    assert "\n## All estimators\n" not in pages.get("papers", "")


@pytest.mark.parametrize("name", ["listops", "dependency", "multilabel", "nli"])
def test_pages_begin_with_what_is_reproduced(name: str, tmp_path: Path) -> None:
    """The outcome of every table and figure stands before all numbers, and in the README."""
    folder = ROOT / "experiments" / "records"
    own = [record for record in read_records(folder) if record.experiment == name]
    found = EXPERIMENTS[name].verdicts(own)
    text = {path.stem: path.read_text() for path in write_pages(folder, tmp_path)}["papers"]
    head = text[: text.index("\n## ")]
    readme = (ROOT / "experiments" / name / "README.md").read_text(encoding="utf-8")
    shown = readme[: readme.index("\n## ")]
    assert found
    for one in found:
        line = f"| {one.item} | **{one.outcome.value}** | {one.why} |"
        assert line in head and line in shown


def test_replaced_records_do_not_make_a_commit_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ROOT", tmp_path)
    assert records._commit() == "unknown"
    record, code = tmp_path / "experiments" / "records" / "row.json", tmp_path / "code.py"
    record.parent.mkdir(parents=True)
    for path in (record, code):
        path.write_text("first")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init"], ["add", "."], [*identity, "commit", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    commit = records._commit()
    assert len(commit) == 10
    record.write_text("second")
    assert records._commit() == commit
    code.write_text("second")
    assert records._commit() == f"{commit}-dirty"
