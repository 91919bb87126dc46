"""With the wheel of compiled kernels, an empty environment compiles nothing.

Without it, the first compilation that takes seconds is announced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from environments import ROOT, borrow, build_wheel, install, run, venv
from lpsmap_jit.baselines import baselines

pytestmark = [pytest.mark.slow, pytest.mark.compiled]

BORROWED = "torch", "matplotlib", "networkx", "clarabel", "quadprog", "highspy", "rich"
"""What pages and the sweep use beside our packages."""

NOT_WRITABLE = {
    "NUMBA_CACHE_DIR": os.path.join(os.devnull, "cache"),
    "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",  # nor beside the sources
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of kernels, compiled for the fastest baseline of this processor."""
    from numba.core.registry import cpu_target

    features = cpu_target.target_context.codegen().magic_tuple()[2]
    has = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    fastest = next((b.name for b in baselines() if b.features <= has), None)
    if fastest is None:
        pytest.skip("the processor has the features of no baseline")
    run(sys.executable, ROOT / "kernels" / "compile_kernels.py", fastest)
    folder = tmp_path_factory.mktemp("wheel")
    build_wheel(ROOT / "kernels", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(kernels: Path, distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with all wheels, and what pages and the sweep use."""
    for library in BORROWED:
        pytest.importorskip(library)
    folder = tmp_path_factory.mktemp("environment")
    python = venv(folder / "env")
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (folder / "borrowed").mkdir()
    for library in BORROWED:
        borrow(folder / "borrowed", library)
    (site / "borrowed.pth").write_text(f"{folder / 'borrowed'}\n", encoding="utf-8")
    install(python, distributions, "lpsmap[all]", kernels)
    return python


def said_by(python: Path, *command: object, **environment: str) -> str:
    """Return what a command prints away from the checkout, where nothing can be cached."""
    return run(python, *map(str, command), **NOT_WRITABLE, LPSMAP_COMPILE_AFTER="0", **environment)


def test_the_wheel_is_of_this_python_numba_and_platform(kernels: Path) -> None:
    import numba

    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert kernels.name.startswith(f"lpsmap_kernels-0.1.0-{version}-{version}")
    assert not kernels.name.endswith("-any.whl")
    with zipfile.ZipFile(kernels) as wheel:
        names = wheel.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(info).decode())
    assert f"numba=={numba.__version__}" in metadata.get_all("Requires-Dist")
    assert {Path(name).suffix for name in names if name.startswith("lpsmap_kernels/")} == {
        ".nbc",
        ".py",
    }


def test_no_type_compiles_anything(python: Path) -> None:
    table = said_by(python.parent / "lpsmap", "compile", "--all", "--jobs", "1")
    rows = [line.split() for line in table.splitlines()[1:] if line.count(" ") > 2]
    assert len(rows) > 25
    assert {row[1] for row in rows[:-1]} == {"0"}


def test_no_verb_compiles_anything(python: Path) -> None:
    lines = said_by(python, ROOT / "tests" / "type_kernels.py").splitlines()
    assert len(lines) > 25 * 10
    compiled = [line for line in lines if json.loads(line)["compiled"]]
    assert not compiled


def test_no_page_compiles_anything(python: Path) -> None:
    lines = said_by(python, ROOT / "tests" / "page_kernels.py").splitlines()
    assert len(lines) > 20
    assert not [line for line in lines if not line.startswith("0 ")]


def test_the_command_solves_a_file(python: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    model.write_text('{"variables": {"u": [1.0, -1.0]}, "factors": []}', encoding="utf-8")
    command = [python.parent / "lpsmap", "solve", model]
    environment = {**os.environ, **NOT_WRITABLE, "LPSMAP_COMPILE_AFTER": "0", "LPSMAP_QUIET": "0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert '"u": [1.0, 0.0]' in ended.stdout
    assert ended.stderr == ""  # or it would warn that it cannot cache what it compiles


def test_without_the_wheel_what_takes_seconds_is_announced_once(tmp_path: Path) -> None:
    """Over all types and verbs, of which only the first ones of each kernel compile it."""
    command = [sys.executable, ROOT / "tests" / "type_kernels.py"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "LPSMAP_NATIVE": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert sum(line["compiled"] for line in lines) > 500
    (announced,) = (i for i, line in enumerate(lines) if line["announced"])
    assert announced <= next(i for i, line in enumerate(lines) if line["stalls"])
