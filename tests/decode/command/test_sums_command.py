"""The tasks MAR and PR of ``lpsmap solve``."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpsmap_core.command import cli


def lpsmap(*words: Any) -> Result:
    return CliRunner().invoke(cli.main, ["solve", *map(str, words)])


def drawn(seed: int) -> tuple[list[int], list[list[int]], list[Any]]:
    """Return a random network: numbers of states, scopes, and tables with some zeros."""
    rng = np.random.default_rng(seed)
    n_states = rng.integers(1, 4, 7).tolist()
    scopes: list[list[int]] = [[]]
    for _ in range(8):
        scopes.append(rng.permutation(7)[: rng.integers(1, 4)].tolist())
    shapes = [[n_states[v] for v in scope] for scope in scopes]
    tables = [rng.random(shape) * (rng.random(shape) < 0.9) for shape in shapes]
    tables[0] = np.array(2.5)
    return n_states, scopes, tables


def write(path: Path, n_states: Any, scopes: Any, tables: Any) -> Path:
    lines = ["MARKOV", str(len(n_states)), " ".join(map(str, n_states)), str(len(scopes))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    for table in tables:
        lines += [str(table.size), " ".join(map(repr, table.ravel().tolist()))]
    path.write_text("\n".join(lines))
    return path


def enumerated(n_states: Any, scopes: Any, tables: Any, known: dict[int, int]) -> Any:
    """Return the partition function and the marginals of all variables given some."""
    marginals, z = [np.zeros(k) for k in n_states], 0.0
    for x in itertools.product(*map(range, n_states)):
        if any(x[v] != k for v, k in known.items()):
            continue
        weight = math.prod(
            float(table[tuple(x[v] for v in scope)])
            for scope, table in zip(scopes, tables, strict=True)
        )
        z += weight
        for own, k in zip(marginals, x, strict=True):
            own[k] += weight
    return z, marginals


def read(text: str) -> list[Any]:
    """Return the marginals in a solution."""
    head, words = text.split("\n", 1)[0], text.split()[1:]
    assert head == "MAR"
    found, at = [], 1
    for _ in range(int(words[0])):
        k = int(words[at])
        found.append(np.array(words[at + 1 : at + 1 + k], dtype=float))
        at += 1 + k
    assert at == len(words)
    return found


@pytest.mark.parametrize("known", [{}, {2: 0}, {0: 0, 5: 0}])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_sums_of_uai_files(seed: int, known: dict[int, int], tmp_path: Path) -> None:
    network = drawn(seed)
    path = write(tmp_path / "model.uai", *network)
    evidence = tmp_path / "model.evid"
    evidence.write_text(" ".join(map(str, [len(known), *itertools.chain(*known.items())])))
    options = ["--evidence", evidence, "--output", "uai"]
    z, marginals = enumerated(*network, known)
    assert z > 0.0
    found = lpsmap(path, "--task", "partition", *options)
    assert found.exit_code == 0, found.output
    head, value = found.stdout.split()
    assert head == "PR"
    assert float(value) == pytest.approx(math.log10(z), abs=1e-9)
    found = lpsmap(path, "--task", "marginals", *options)
    assert found.exit_code == 0, found.output
    for own, expected in zip(read(found.stdout), marginals, strict=True):
        np.testing.assert_allclose(own, expected / z, rtol=0, atol=1e-9)


def test_json_and_table(tmp_path: Path) -> None:
    network = drawn(0)
    path = write(tmp_path / "model.uai", *network)
    z, marginals = enumerated(*network, {})
    answer = json.loads(lpsmap(path, "--task", "marginals", "--output", "json").stdout)
    assert answer["log_partition"] == pytest.approx(math.log(z), abs=1e-9)
    np.testing.assert_allclose(answer["variables"]["x3"], marginals[3] / z, atol=1e-9)
    table = lpsmap(path, "--task", "partition", "--output", "table").stdout.split()
    assert table[:4] == ["LOG", "Z", "LOG10", "Z"]
    assert float(table[4]) == pytest.approx(math.log(z), rel=1e-8)


def test_variables_in_no_factor_are_independent(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"variables": {"u": [1.0, -2.0, 0.5]}, "factors": []}))
    answer = json.loads(lpsmap(path, "--task", "marginals").stdout)
    scores = np.array([1.0, -2.0, 0.5])
    assert answer["log_partition"] == pytest.approx(np.log1p(np.exp(scores)).sum(), abs=1e-12)
    np.testing.assert_allclose(answer["variables"]["u"], 1.0 / (1.0 + np.exp(-scores)), atol=1e-12)


def test_impossible_models_end_with_3(tmp_path: Path) -> None:
    path = write(tmp_path / "model.uai", [2, 2], [[0, 1]], [np.zeros((2, 2))])
    found = lpsmap(path, "--task", "partition", "--output", "uai")
    assert (found.exit_code, found.stdout) == (3, "PR\n-inf\n")
    found = lpsmap(path, "--task", "marginals", "--output", "json")
    assert found.exit_code == 3
    assert json.loads(found.stdout)["log_partition"] is None


def test_refusals(tmp_path: Path) -> None:
    path = write(tmp_path / "model.uai", [2, 2], [[0, 1]], [np.ones((2, 2))])
    for option in (["--max-time", 1], ["--tol", 0.1], ["--gap", 0.1]):
        assert lpsmap(path, "--task", "marginals", *option).exit_code == 2
    n = 40
    at = np.arange(n * n).reshape(n, n)
    right = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    scopes = [*right.tolist(), *down.tolist()]
    wide = write(tmp_path / "wide.uai", [2] * n * n, scopes, [np.ones((2, 2))] * len(scopes))
    found = lpsmap(wide, "--task", "marginals")
    assert found.exit_code == 1
    assert "tables over up to 41 multi-state variables" in found.output
