"""The figures of the paper, at small sizes: a picture, a record and a table each."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from environments import ROOT

FOLDER = ROOT / "benchmarks"

SMALL: dict[str, list[str]] = {
    "root_bound": ["--max-share", "0.001"],
    "bounds": ["--max-time", "0.3", "--only", "Max.0k", "--only", "Lagrangian"],
    "tree_size": ["--dives", "2", "--restarts", "5", "--only", "chord", "--only", "Obj.Filter"],
}


@pytest.mark.parametrize("name", SMALL)
def test_a_figure_comes_with_its_record(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "highspy", "rich"):
        pytest.importorskip(module)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    benchmark = importlib.import_module(f"global_search_{name}")
    options = ["--out", str(tmp_path), "--sentences", "2", *SMALL[name]]
    result = CliRunner().invoke(benchmark.main, options, catch_exceptions=False)
    assert result.exit_code == 0
    assert (tmp_path / f"global_search_{name}.png").stat().st_size > 5_000
    record: dict[str, Any] = json.loads((tmp_path / f"global_search_{name}.json").read_text())
    assert record["sentences"] == 2
    check = globals()[f"check_{name}"]
    check(record)


def check_root_bound(record: dict[str, Any]) -> None:
    assert [found["share"] for found in record["shares"]] == [0.0, 0.001]
    bounds = [found["bound"] for found in (*record["shares"], record["objective_filter"])]
    assert all(record["objective"] - 1e-6 <= bound <= 0.0 for bound in bounds)


def check_bounds(record: dict[str, Any]) -> None:
    assert list(record["relaxations"]) == ["Max.0k", "Lagrangian"]
    for found in record["relaxations"].values():
        seconds, scores, bounds, nodes = zip(*found["points"], strict=True)
        assert list(seconds) == sorted(seconds) and nodes[-1] > 0
        assert list(bounds) == sorted(bounds, reverse=True)
        assert scores[-1] <= bounds[-1]


def check_tree_size(record: dict[str, Any]) -> None:
    assert set(record["relaxations"]) == {"chord", "Obj.Filter"}
    for found in record["relaxations"].values():
        assert found["n_dives"] == 2
        assert found["n_nodes"] >= 1.0 and found["seconds_per_node"] > 0.0
