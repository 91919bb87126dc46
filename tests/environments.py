"""Distributions and empty environments to install them into."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["ALONE", "PLUGINS", "ROOT", "WHEELS"]
__all__ += ["borrow", "build", "build_wheel", "install", "lend", "run", "venv"]

ROOT = Path(__file__).resolve().parent.parent

WHEELS = {
    "lpsmap_jit": "lpsmap_jit",
    "lpsmap_core": "lpsmap_core",
    "lpsmap_dynamic": "lpsmap_dynamic",
    "lpsmap_decode": "lpsmap_decode",
    "lpsmap_face": "lpsmap",
    "lpsmap_factors_logic": "lpsmap_factors_logic",
    "lpsmap_factors_struct": "lpsmap_factors_struct",
    "lpsmap_jax": "lpsmap_jax",
    "lpsmap_search": "lpsmap_search",
    "lpsmap_torch": "lpsmap_torch",
}
"""Folders of our distributions, and the package of each, whose name its wheel begins with."""

ALONE = {
    folder: ROOT / "tests" / tests / "alone"
    for folder, tests in {
        "lpsmap_jit": "jit",
        "lpsmap_core": "core",
        "lpsmap_dynamic": "dynamic",
        "lpsmap_decode": "decode",
        "lpsmap_face": "face",
        "lpsmap_factors_logic": "logic",
        "lpsmap_factors_struct": "struct",
        "lpsmap_jax": "jax_adapter",
        "lpsmap_search": "search",
        "lpsmap_torch": "adapter",
    }.items()
}
"""For each of these folders, tests that need the distribution, what it depends on, and pytest."""

PLUGINS = sorted(path.name for path in (ROOT / "examples" / "plugins").iterdir() if path.is_dir())
"""Folders of the example plugins."""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a command away from the checkout; return what it printed."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd or Path(sys.prefix),
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def build(source: Path, folder: Path) -> None:
    """Build a distribution's sdist, and from the sdist its wheel."""
    run(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source
    )  # fmt: skip


def build_wheel(source: Path, folder: Path) -> None:
    """Build the wheel of a distribution that has no sdist."""
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, source)


def venv(folder: Path) -> Path:
    """Make an empty environment; return its Python."""
    run(sys.executable, "-m", "venv", folder)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def install(python: Path, links: Path, *names: str | Path) -> None:
    """Install distributions: ours from a folder of wheels, the rest as usual."""
    run(python, "-m", "pip", "install", "--quiet", "--find-links", links, *names)


def lend(python: Path, library: str) -> None:
    """Lend an environment, given by its Python, a library of this one, and nothing else of ours."""
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    folder = site.parent / "borrowed"
    folder.mkdir()
    borrow(folder, library)
    (site / "borrowed.pth").write_text(f"{folder}\n", encoding="utf-8")


def borrow(folder: Path, library: str) -> None:
    """Fill a folder with links to a library of this environment and what it requires.

    For libraries that are too large to install again.
    """
    todo, met = [library], set()
    while todo:
        name = todo.pop()
        if name in met:
            continue
        met.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other platforms only
        for file in {file.parts[0] for file in distribution.files or ()} - {".."}:
            target = folder / file
            if not target.exists():
                target.symlink_to(Path(str(distribution.locate_file(file))))
        todo += [
            re.split(r"[^\w.-]", r)[0] for r in distribution.requires or () if "extra" not in r
        ]
