"""Packages of all kinds that ``lpsmap new-plugin`` writes: their tests pass, and find faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from environments import ROOT
from lpsmap_core.command import cli, new_plugin

pytest.importorskip("copier")

FAULTS = {
    "factor": ("np.argmax(eta_u)", "np.argmin(eta_u)"),
    "format": ("score!r", "score:.0f"),
    "solver": ("score.argmax()", "allowed.argmax()"),
    "engine": ("part, eta, eta_v, skip, options, warm)", "part, 0.5 * eta, eta_v, skip, options)"),
}
"""For each kind a wrong line that its tests have to find."""


def write(into: Path, kind: str, name: str = "new") -> Path:
    """Write a package, and what an installer writes of it beside its module."""
    arguments = ["new-plugin", f"lpsmap-{name}-{kind}", "--kind", kind, "--into", str(into)]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.output
    folder, module = into / f"lpsmap-{name}-{kind}", f"lpsmap_{name}_{kind}"
    installed = folder / "src" / f"{module}-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: lpsmap-{name}-{kind}\nVersion: 0.1.0\n"
    )
    (installed / "entry_points.txt").write_text(f"[lpsmap]\n{module} = {module}.plugin\n")
    return folder


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of packages of all kinds as they are written, and of others with a fault."""
    top, folders = tmp_path_factory.mktemp("packages"), []
    for kind in new_plugin.KINDS:
        folders += [write(top, kind, name) for name in ("new", "wrong")]
        path = folders[-1] / "src" / f"lpsmap_wrong_{kind}" / f"{kind}.py"
        right, wrong = FAULTS[kind]
        text = path.read_text()
        assert right in text
        path.write_text(text.replace(right, wrong))
    sources = [str(folder / "src") for folder in folders]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", top]
        + folders,
        cwd=top,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*sources, *filter(None, sys.path)]),
            "LPSMAP_DISABLE_PLUGINS": "",
            "COLUMNS": "1000",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


@pytest.mark.parametrize("kind", new_plugin.KINDS)
def test_a_package_passes_its_tests(said: str, kind: str) -> None:
    found = re.findall(f"^([A-Z]+) lpsmap-new-{kind}/", said, re.MULTILINE)
    assert set(found) == {"PASSED"}, said


@pytest.mark.parametrize("kind", new_plugin.KINDS)
def test_its_tests_find_a_fault(said: str, kind: str) -> None:
    words = f"^FAILED lpsmap-wrong-{kind}/.*ConformanceError"
    assert re.search(words, said, re.MULTILINE), said


@pytest.mark.parametrize("kind", new_plugin.KINDS)
def test_the_linter_accepts_it(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path, kind)
    for verb in (["check", "--select", "B,E,F,I,UP,W"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *verb, "--isolated", "--line-length", "100", "."]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", new_plugin.KINDS)
def test_its_types_are_right(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path, kind) / "src"
    path = os.pathsep.join([str(p) for p in ROOT.glob("lpsmap_*/src")] + [str(source)])
    command = [sys.executable, "-m", "mypy", "--strict", "-p", f"lpsmap_new_{kind}"]
    command += ["--ignore-missing-imports", "--follow-imports", "silent"]
    environment = {**os.environ, "MYPYPATH": path}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_a_kind_that_is_in_the_name_is_not_there_twice(tmp_path: Path) -> None:
    folder = new_plugin.write("quick-solver", tmp_path, kind="solver")
    assert "class QuickSolver(MapSolver)" in (folder / "src/quick_solver/solver.py").read_text()


def test_kinds_that_there_are_none_of(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kind: got 'solvers'; expected one of factor, format"):
        new_plugin.write("quick", tmp_path, kind="solvers")
    with pytest.raises(ValueError, match="factor: got 'Quick'; expected None for a new engine"):
        new_plugin.write("quick", tmp_path, "Quick", "engine")
    assert not list(tmp_path.iterdir())
