"""``lpsmap compile``: kernels before anybody waits for them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from lpsmap_core.command import cli, compile_types
from lpsmap_core.command.compile_types import CORE, SEARCHES
from lpsmap_core.plugins.registry import installed
from lpsmap_jit import ahead
from lpsmap_jit.ahead import Job

pytestmark = pytest.mark.compiled


def lines_of(printed: str) -> dict[str, int]:
    """How many functions were compiled, by the names in the table."""
    return {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+) +[\d.]+$", printed, re.M)}


@pytest.mark.slow
def test_what_is_compiled_once_is_loaded_ever_after(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first = CliRunner().invoke(cli.main, ["compile", "Xor"])
    assert first.exit_code == 0, first.output
    compiled = lines_of(first.stdout)
    assert compiled[CORE] > 50
    assert 0 < compiled["Xor"] < compiled[CORE]
    again = CliRunner().invoke(cli.main, ["compile", "Xor"])
    assert lines_of(again.stdout) == {CORE: 0, "Xor": 0, SEARCHES: 0}


ORACLE = """
from lpsmap_core.plugins.registry import installed
from lpsmap_core.model.slots import row_view
from lpsmap_jit.cache import KernelCache
import numpy as np

factor = row_view(installed().factors["Alignment"].value.examples()[0], 0)
factor.solve_map(np.zeros(factor.event_shape), np.zeros(factor.n_additionals))
print(KernelCache.n_compiled)
"""


@pytest.mark.slow
def test_kernels_that_an_oracle_calls_in_python_are_compiled(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LPSMAP_COMPILE_AFTER", "0")
    command = [sys.executable, "-c", ORACLE]
    before = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(before.stdout) > 0, "the oracle calls no kernel, so that the test shows nothing"
    shutil.rmtree(tmp_path)
    assert CliRunner().invoke(cli.main, ["compile", "Alignment"]).exit_code == 0
    after = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(after.stdout) == 0, after.stderr


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Names for which a process was to be started; that of Or fails."""
    names = []

    def compile_one(worker: ahead._Worker, name: str) -> Job:
        assert worker._command[-1] == compile_types.__name__
        assert worker._environment["LPSMAP_COMPILE_AFTER"] == "0"
        names.append(name + worker._environment.get("LPSMAP_NATIVE", ""))
        return Job(name, 1.0, 3, "it rains" if name == "Or" else "")

    monkeypatch.delenv("LPSMAP_NATIVE", raising=False)
    monkeypatch.setattr(ahead._Worker, "run", compile_one)
    return names


def test_core_comes_first_and_types_once(asked: list[str]) -> None:
    result = CliRunner().invoke(cli.main, ["compile", "Xor", "lpsmap-factors-logic", "--jobs", "1"])
    assert asked[0] == CORE
    logic = [r for r in installed().factors.values() if "logic" in r.plugin.distribution]
    assert sorted(asked[1:]) == sorted([*(r.name for r in logic), SEARCHES])
    assert f"{len(asked)}.0 s if run sequentially" in result.stdout


def test_all_is_every_installed_type(asked: list[str]) -> None:
    CliRunner().invoke(cli.main, ["compile", "--all"])
    assert sorted(asked) == sorted([CORE, *installed().factors, SEARCHES])


def test_without_types_only_core_is_compiled(asked: list[str]) -> None:
    CliRunner().invoke(cli.main, ["compile"])
    assert asked == [CORE]


def test_a_type_that_fails_is_named_and_fails_the_command(asked: list[str]) -> None:
    result = CliRunner().invoke(cli.main, ["compile", "Xor", "Or"])
    assert result.exit_code == 1
    assert "\nOr\nit rains\n" in result.stdout
    assert "\nXor\n" not in result.stdout


def test_without_a_terminal_there_is_a_line_for_each_type(asked: list[str]) -> None:
    result = CliRunner().invoke(cli.main, ["compile", "Xor", "Or", "--jobs", "1"])
    assert result.stderr.splitlines() == [
        "core: 3 functions, 1.0 s (1 of 4)",
        "Or: failed, 1.0 s (2 of 4)",
        "Xor: 3 functions, 1.0 s (3 of 4)",
        "searches: 3 functions, 1.0 s (4 of 4)",
    ]


def test_native_code_is_compiled_whatever_is_installed(asked: list[str]) -> None:
    CliRunner().invoke(cli.main, ["compile", "Xor", "--native"])
    assert asked == [f"{CORE}1", "Xor1", f"{SEARCHES}1"]


def test_unknown_names_are_errors_of_the_command(asked: list[str]) -> None:
    assert CliRunner().invoke(cli.main, ["compile", "Xoor"]).exit_code == 2
    assert not asked


def test_every_type_can_be_exercised() -> None:
    for name in (CORE, "Xor", SEARCHES):
        compile_types._run(name)
