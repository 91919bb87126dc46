"""The example plugins: their own tests, beside ours and in environments that have nothing else."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from environments import PLUGINS, ROOT, install, run, venv
from lpsmap_core import Factor, registered
from lpsmap_core.command import cli
from lpsmap_core.local.solvers import override_level
from lpsmap_core.testing import check_factor
from pages import execute

FOLDER = ROOT / "examples" / "plugins"

NEEDED = {"lpsmap-dag-path": "networkx", "lpsmap-cpsat": "ortools"}
"""Libraries that a plugin's module imports."""

OF_FACTORS = [name for name in PLUGINS if list((FOLDER / name / "src").glob("*/factor.py"))]
"""The others bring no factor types."""


@pytest.fixture
def plugin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin's module, imported from its source."""
    if request.param in NEEDED:
        pytest.importorskip(NEEDED[request.param])
    monkeypatch.syspath_prepend(str(FOLDER / request.param / "src"))
    return importlib.import_module(f"{request.param.replace('-', '_')}.plugin")


@pytest.mark.parametrize("plugin", OF_FACTORS, indirect=True)
def test_it_keeps_the_protocol(plugin: Any) -> None:
    for factor_type in plugin.lpsmap_factors():
        examples = factor_type.examples()
        assert examples
        for factor in examples:
            check_factor(factor, draws=6)


@pytest.mark.parametrize("plugin", PLUGINS, indirect=True)
def test_its_readme_runs(plugin: Any) -> None:
    name = plugin.__name__.partition(".")[0].replace("_", "-")
    with registered(plugin):
        execute(FOLDER / name / "README.md")


@pytest.mark.parametrize("plugin", OF_FACTORS, indirect=True)
def test_it_is_in_the_docs_table_and_the_list(plugin: Any) -> None:
    table = (ROOT / "docs" / "reference" / "factors.md").read_text(encoding="utf-8")
    with registered(plugin):
        lines = CliRunner().invoke(cli.main, ["factors"]).output.splitlines()
    for factor_type in plugin.lpsmap_factors():
        name, level = factor_type.__name__, override_level(factor_type)
        row = next(line for line in table.splitlines() if line.startswith(f"| `{name}` |"))
        assert f"| {level} |" in row
        assert any(line.startswith(f"{name} ") and f" {level} " in line for line in lines)


def test_there_is_one_for_each_faster_level(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("networkx")
    types: list[type[Factor]] = []
    for name in OF_FACTORS:
        monkeypatch.syspath_prepend(str(FOLDER / name / "src"))
        types += importlib.import_module(f"{name.replace('-', '_')}.plugin").lpsmap_factors()
    assert sorted(map(override_level, types)) == [2, 2, 2, 3]


def test_there_is_one_for_each_part_that_is_hard_to_guess() -> None:
    sources = "".join(path.read_text("utf-8") for path in FOLDER.glob("*/src/*/plugin.py"))
    for kind in ("factors", "engines", "formats", "commands", "solvers"):
        assert f"def lpsmap_{kind}()" in sources
    engine = FOLDER / "lpsmap-rows" / "src" / "lpsmap_rows" / "engine.py"
    assert len(engine.read_text("utf-8").splitlines()) < 150


@pytest.mark.slow
@pytest.mark.parametrize("name", PLUGINS)
def test_it_passes_its_tests_in_an_environment_of_its_own(
    distributions: Path, tmp_path: Path, name: str
) -> None:
    python = venv(tmp_path / "env")
    install(python, distributions, f"{name}[test]")
    shutil.copytree(FOLDER / name / "tests", tmp_path / "tests")
    # the kernels of compiled plugins are the point; for the others core's own need no compiling
    plain = {"LPSMAP_DISABLE_JIT": "1"} if name == "lpsmap-equal" else {}
    assert " passed" in run(python, "-m", "pytest", "-q", tmp_path / "tests", cwd=tmp_path, **plain)
