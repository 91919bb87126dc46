"""The command line with plugins."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_core.command import cli, entry
from lpsmap_core.plugins.registry import registered


def lpsmap(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments)


class Greeter:
    """A plugin with a command and a factor type."""

    lpsmap_api_version = 3

    def __init__(self, command: str, factor: type[Factor]) -> None:
        self._command, self._factor = command, factor
        self._callback = lambda: click.echo("hello")

    @lpsmap_core.hookimpl
    def lpsmap_commands(self) -> list[click.Command]:
        return [click.Command(self._command, callback=self._callback)]

    @lpsmap_core.hookimpl
    def lpsmap_factors(self) -> list[type[Factor]]:
        return [self._factor]


class Own(Factor):
    """A factor type of one structure."""

    def solve_map(self, eta_u, eta_v):
        return 0

    def vertex(self, y):
        return np.zeros(self.event_shape), np.empty(0)


class Another(Own):
    """A type that claims the name of another."""


Another.__name__ = "Own"


def test_a_plugins_command_is_a_command() -> None:
    with registered(Greeter("greet", Own)):
        assert "greet" in lpsmap("-h").output
        assert lpsmap("greet").output == "hello\n"
    assert "No such command 'greet'" in lpsmap("greet").output


def test_lpsmap_plugins_says_what_each_offers() -> None:
    with registered(Greeter("greet", Own)):
        lines = lpsmap("plugins").output.splitlines()
    at = next(i for i, line in enumerate(lines) if "registered-by-hand 0" in line)
    assert lines[at + 1 : at + 3] == ["    factors: Own", "    commands: greet"]
    assert any("lpsmap-factors-logic" in line and "imported in" in line for line in lines)
    decode = next(i for i, line in enumerate(lines) if "(lpsmap-decode " in line)
    assert {
        "    formats: .fg, .json, .uai, .wcnf",
        "    commands: convert, decode, explain, info, solve",
        "    decoders: exact",
        "    solvers: highs, maxsat",
    } <= {*lines[decode + 1 : decode + 7]}
    assert "    backends: numpy" in lines


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "--seed", "-1", "Xor"], 2, "-1 is not in the range x>=0"),
        (["new-plugin", "spans", "--into", "/proc"], 1, "cannot be written"),
        (["slove", "grid.uai"], 2, "No such command 'slove'; did you mean solve?"),
        (["xyz"], 2, "No such command 'xyz'."),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: list[str], code: int, words: str) -> None:
    result = lpsmap(*arguments)
    assert result.exit_code == code
    assert isinstance(result.exception, SystemExit)
    assert result.output.splitlines()[-1].startswith("Error: ")
    assert words in result.output.splitlines()[-1]


@pytest.mark.parametrize("command", ["factors", "plugins"])
def test_lists_end_with_the_names_that_two_claim(command: str) -> None:
    with registered(Greeter("greet", Own), Greeter("salute", Another)):
        result = lpsmap(command)
        assert lpsmap("salute").output == "hello\n"
        asked = lpsmap("check", "Own")
    assert result.exit_code == 1
    assert "Xor" in result.output
    for output in (result.output, asked.output):
        assert "Own is claimed by two installed plugins" in output


def test_a_command_that_two_claim_is_an_error_for_who_asks_for_it() -> None:
    with registered(Greeter("greet", Own), Greeter("greet", Own)):
        asked, other = lpsmap("greet"), lpsmap("factors")
    assert asked.exit_code == 1
    assert "greet is claimed by two installed plugins" in asked.output
    assert other.exit_code == 0


def test_what_a_plugins_command_raises_is_told_in_a_line() -> None:
    def boom() -> None:
        raise KeyError("x")

    greeter = Greeter("boom", Own)
    greeter._callback = boom
    with registered(greeter):
        result = lpsmap("boom")
    assert result.exit_code == 1
    words = (
        r"Error: boom: KeyError: 'x', raised by .* in .*test_cli.py, line \d+. Tell the authors of"
    )
    assert re.fullmatch(f"{words} registered-by-hand.\n", result.output)


def test_cores_own_commands_cannot_be_taken() -> None:
    with registered(Greeter("factors", Own)):
        assert "FACTOR" in lpsmap("factors").output
        result = lpsmap("plugins")
    assert "factors is claimed by" in result.output
    assert "lpsmap-core" in result.output


# -------------------------------------------------------------------- without click

NO_CLICK = "import sys; sys.modules['click'] = None\n"  # what makes an import of it fail


def test_without_click_the_command_says_what_to_install() -> None:
    code = NO_CLICK + "from lpsmap_core.command.entry import main\nmain()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == 'The command lpsmap needs click: pip install "lpsmap-core[cli]"\n'


def test_nothing_but_the_command_needs_click() -> None:
    code = """
import lpsmap_core.testing, lpsmap_core.plugin
from lpsmap import FactorGraph, Xor
graph = FactorGraph()
graph.add(Xor(graph.variable_from([0.6, 0.4])))
assert graph.solve().ok and graph.solve_map(exact=True).ok
print(graph.plan())
"""
    subprocess.run([sys.executable, "-c", NO_CLICK + code], check=True)


def test_the_script_is_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lpsmap", "--version"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 0
