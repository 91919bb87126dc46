"""Printed scores are those of the printed values: every format, task and output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lpsmap_core.command import cli
from lpsmap_decode.command import decode_files as decode_module

Values = dict[str, list[float]]
Score = Callable[[Values, float], float]


def lpsmap(*arguments: object) -> str:
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def linear(scores: np.ndarray[Any, Any], x: Any, quadratic: float) -> float:
    x = np.asarray(x)
    return float(scores @ x - 0.5 * quadratic * x @ x)


def fg_model(rng: np.random.Generator, path: Path, task: str) -> Score:
    scores = rng.normal(size=6)
    lines = [f"XOR 3 1 2 {rng.choice([-1, 1]) * 3}", f"OR 2 -2 {rng.integers(3, 5)}"]
    weight = rng.normal() if task == "map" else 0.0  # marginals of pairs are not printed
    lines.append(f"PAIR 2 1 3 {weight}")
    path.write_text("\n".join(["6", "3", *map(str, scores), *lines]))
    return lambda u, t: linear(scores, u["u"], t) + weight * u["u"][0] * u["u"][2]


def json_model(rng: np.random.Generator, path: Path, task: str) -> Score:
    scores = rng.normal(size=(2, 3))
    factors = [{"type": "AtMostOne", "over": ["u[0]"]}]
    path.write_text(json.dumps({"variables": {"u": scores.tolist()}, "factors": factors}))
    return lambda u, t: linear(scores.ravel(), np.ravel(u["u"]), t)


def uai_model(rng: np.random.Generator, path: Path, task: str) -> Score:
    unary, table = rng.uniform(0.1, 2.0, (3, 2)), rng.uniform(0.1, 2.0, (2, 2))
    if task != "map":  # marginals of tables are not printed
        table[:] = 1.0
    text = ["MARKOV", "3", "2 2 2", "5", "1 0", "1 1", "1 2", "2 0 1", "0"]
    for entries in (*unary, table.ravel(), [3.0]):
        text += [str(len(entries)), " ".join(map(str, entries))]
    path.write_text("\n".join(text))

    def score(u: Values, t: float) -> float:
        x = np.array([u[f"x{i}"] for i in range(3)])
        pairs = float(x[0] @ np.log(table) @ x[1])
        return linear(np.log(unary).ravel(), x.ravel(), t) + pairs + float(np.log(3.0))

    return score


def wcnf_model(rng: np.random.Generator, path: Path, task: str) -> Score:
    clauses: list[tuple[int, list[int]]] = []
    for size in (0, 1, 1, 1, 1, 2, 2, 3):
        chosen = rng.permutation(4)[:size] + 1
        clauses.append((int(rng.integers(1, 9)), (chosen * rng.choice([-1, 1], size)).tolist()))
    lines = [" ".join(map(str, [weight, *clause, 0])) for weight, clause in clauses]
    path.write_text("\n".join([*lines, "h 1 2 3 0", "1 6 0"]))
    clauses.append((1, [6]))

    def score(u: Values, t: float) -> float:
        truth = [1.0 - u["x"][abs(v) - 1] if v < 0 else u["x"][v - 1] for v in range(-6, 7) if v]
        holds = dict(zip([v for v in range(-6, 7) if v], truth, strict=True))
        cost = sum(w * max(0.0, 1.0 - sum(holds[v] for v in clause)) for w, clause in clauses)
        all_values = np.concatenate([u["x"], u["violated"], u["constant"]])
        return -cost - 0.5 * t * float(all_values @ all_values)

    return score


MODELS = {".fg": fg_model, ".json": json_model, ".uai": uai_model, ".wcnf": wcnf_model}


@pytest.mark.parametrize("task", ["sparsemap", "lp-map", "map"])
@pytest.mark.parametrize("suffix", list(MODELS))
def test_the_score_is_that_of_the_values(
    tmp_path: Path, suffix: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_module, "_executor", lambda *_: nullcontext())
    quadratic = 1.0 if task == "sparsemap" else 0.0
    scores = {}
    for seed in range(5):
        path = tmp_path / f"m{seed}{suffix}"
        scores[path] = score = MODELS[suffix](np.random.default_rng(seed), path, task)
        answer = json.loads(lpsmap("solve", path, "--task", task, "--output", "json"))
        expected = score(answer["variables"], quadratic)
        for key in ("objective",) if task != "map" else ("score", "bound"):
            assert sum(answer[key]) == pytest.approx(expected, abs=1e-6)
            assert len(answer[key]) == len(answer["status"])
        table = lpsmap("solve", path, "--task", task, "--output", "table").splitlines()
        sums = table[[line.startswith("STATUS") for line in table].index(True) + 1 :]
        assert sum(float(line.split()[2]) for line in sums) == pytest.approx(expected, abs=1e-6)
        if suffix == ".wcnf" and task == "map":
            assert answer["cost"] == round(-expected)
            assert sums[0].split()[-1] == str(answer["cost"])
    lines = lpsmap("decode", tmp_path / f"*{suffix}", "--task", task, "--quiet").splitlines()
    for line in map(json.loads, lines):
        expected = scores[Path(line["path"])](line["variables"], quadratic)
        assert sum(line["score"]) == pytest.approx(expected, abs=1e-6)
        if suffix == ".wcnf" and task == "map":
            assert line["cost"] == round(-expected)


@pytest.mark.parametrize("task", ["sparsemap", "lp-map", "map"])
def test_known_variables_count(tmp_path: Path, task: str) -> None:
    path, evidence = tmp_path / "m.fg", tmp_path / "e.json"
    quadratic = 1.0 if task == "sparsemap" else 0.0
    for seed, known in enumerate(['{"u[0]": 1}', '{"u[4]": 1, "u[5]": 0}', '{"u[1]": 0}']):
        score = fg_model(np.random.default_rng(seed), path, task)
        evidence.write_text(known)
        answer = json.loads(lpsmap("solve", path, "--task", task, "--evidence", evidence))
        printed = sum(answer["score" if task == "map" else "objective"])
        assert printed == pytest.approx(score(answer["variables"], quadratic), abs=1e-6)


def test_variables_in_no_factor_are_solved(tmp_path: Path) -> None:
    path = tmp_path / "m.fg"
    path.write_text("3\n1\n2\n1\n.5\nXOR 2 2 3\n")
    answer = json.loads(lpsmap("solve", path, "--task", "map"))
    assert answer["score"] == answer["bound"] == [1.0, 2.0]
    assert answer["status"] == ["PROVED", "PROVED"]
    table = lpsmap("solve", path, "--task", "map", "--output", "table")
    assert re.search(r"^PROVED +2 +3 +3$", table, re.MULTILINE)


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("score", ["NaN", "Infinity"])
@pytest.mark.parametrize(("task", "word"), [("sparsemap", "NON_FINITE"), ("map", "NOT_FOUND")])
def test_variables_in_no_factor_without_finite_scores_are_not_solved(
    tmp_path: Path, score: str, task: str, word: str
) -> None:
    path = tmp_path / "m.json"
    factors = '[{"type": "Xor", "over": ["u[:2]"]}]'
    path.write_text(f'{{"variables": {{"u": [1, 2, {score}]}}, "factors": {factors}}}')
    result = CliRunner().invoke(cli.main, ["solve", str(path), "--task", task])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["status"][1:] == [word]


def test_known_variables_that_are_forbidden_are_infeasible(tmp_path: Path) -> None:
    path, evidence = tmp_path / "m.json", tmp_path / "e.json"
    path.write_text('{"variables": {"u": [-Infinity, 1]}, "factors": []}')
    evidence.write_text('{"u[0]": 1}')
    for task in ("sparsemap", "map"):
        arguments = ["solve", str(path), "--task", task, "--evidence", str(evidence)]
        result = CliRunner().invoke(cli.main, arguments)
        assert result.exit_code == 3
        assert json.loads(result.stdout)["status"] == ["INFEASIBLE"]
