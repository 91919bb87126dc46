"""A package with a kernel, and its compiled files for a baseline processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cached_package import Package
from forks import Server
from lpsmap_jit.baselines import baselines

BASELINE = baselines()[-1].name if baselines() else ""


@pytest.fixture
def package(tmp_path: Path, server: Server) -> Package:
    """The package in a folder of its own."""
    return Package(tmp_path, server)


@pytest.fixture
def wheel(package: Package) -> Path:
    """A folder of files that were compiled for a baseline, as in the platform wheel."""
    if not BASELINE:
        pytest.skip("no baseline is known of this machine")
    built = {"NUMBA_CPU_NAME": BASELINE, "NUMBA_CPU_FEATURES": ""}
    # not by the server, in which numba has chosen a processor
    subprocess.run(
        [sys.executable, "-c", "import tiny.loops.total"],
        cwd=package.folder,
        env={**package.environment, **built, "NUMBA_CACHE_DIR": str(package.folder / "built")},
        check=True,
    )
    folder = package.folder / "lpsmap_kernels" / BASELINE
    package.write("lpsmap_kernels/__init__.py", "")
    folder.mkdir()
    for path in package.folder.glob("built/*/*.nbc"):
        if "-part-" not in path.name:
            path.rename(folder / path.name)
    package.environment["NUMBA_CACHE_DIR"] = str(package.folder / "cache")
    return folder
