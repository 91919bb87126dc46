"""``lpsmap compile``: kernels before anybody waits for them."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from lpsmap_core.command import cli, compile_types
from lpsmap_core.command.compile_types import CORE, CompiledType
from lpsmap_core.plugins.registry import installed

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
    assert lines_of(again.stdout) == {CORE: 0, "Xor": 0}


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Names for which a process was to be started; that of Or fails."""
    names = []

    def compile_one(name: str) -> CompiledType:
        names.append(name)
        return CompiledType(name, 1.0, 0, "it rains" if name == "Or" else "")

    monkeypatch.setattr(compile_types, "_compile", compile_one)
    return names


def test_core_comes_first_and_types_once(asked: list[str]) -> None:
    result = CliRunner().invoke(cli.main, ["compile", "Xor", "lpsmap-factors-logic", "--jobs", "1"])
    assert asked[0] == CORE
    logic = [r for r in installed().factors.values() if "logic" in r.plugin.distribution]
    assert sorted(asked[1:]) == sorted(r.name for r in logic)
    assert f"{len(asked)}.0 s if run sequentially" in result.stdout


def test_all_is_every_installed_type(asked: list[str]) -> None:
    CliRunner().invoke(cli.main, ["compile", "--all"])
    assert sorted(asked) == sorted([CORE, *installed().factors])


def test_a_type_that_fails_is_named_and_fails_the_command(asked: list[str]) -> None:
    result = CliRunner().invoke(cli.main, ["compile", "Xor", "Or"])
    assert result.exit_code == 1
    assert "\nOr\nit rains\n" in result.stdout
    assert "\nXor\n" not in result.stdout


def test_unknown_names_are_errors_of_the_command(asked: list[str]) -> None:
    assert CliRunner().invoke(cli.main, ["compile", "Xoor"]).exit_code == 2
    assert not asked


def test_every_type_can_solve_its_examples_alone_and_coupled(capsys) -> None:
    for name in (CORE, "Xor"):
        compile_types.main(name)
        assert json.loads(capsys.readouterr().out) >= 0
