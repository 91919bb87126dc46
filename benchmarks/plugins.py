"""Measure the cost of installed plugins at import.

``python benchmarks/plugins.py`` creates distributions of plugins in a temporary folder, each of
which takes a second to import, and times ``import lpsmap`` in fresh processes with and without that
folder on the path, in turns; then, with modules that import at once, the first use of a name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

MODULE = """
import time
import lpsmap_core
lpsmap_api_version = 3
time.sleep({delay})

@lpsmap_core.hookimpl
def lpsmap_factors():
    return []
"""

IMPORT = """
import sys, time
start = time.perf_counter()
import lpsmap
took = time.perf_counter() - start
print(took, sum(name.startswith("fake_plugin") for name in sys.modules))
"""

FIRST_USE = """
import sys, time
import lpsmap
start = time.perf_counter()
dir(lpsmap)
took = time.perf_counter() - start
print(took, sum(name.startswith("fake_plugin") for name in sys.modules))
"""


def install(folder: Path, count: int, delay: float) -> None:
    """Write distributions with an entry point each."""
    for i in range(count):
        module = f"fake_plugin_{i}"
        (folder / f"{module}.py").write_text(MODULE.format(delay=delay), encoding="utf-8")
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        metadata = f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n"
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[lpsmap]\n{i} = {module}\n", encoding="utf-8")


def run(code: str, folder: Path | None) -> tuple[float, int]:
    """Run code in a fresh process; return the seconds and the count of modules that it prints."""
    path = [str(folder)] if folder else []
    path += filter(None, [os.environ.get("PYTHONPATH")])
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    seconds, modules = printed.split()
    return float(seconds), int(modules)


@click.command(context_settings={"show_default": True})
@click.option("--plugins", type=int, default=50)
@click.option("--runs", type=int, default=10)
def main(plugins: int, runs: int) -> None:
    """Print the cost of plugins."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for code, what, delay in (
            (IMPORT, "import lpsmap", 1.0),
            (FIRST_USE, "the first use of a name", 0.0),
        ):
            install(folder, plugins, delay)
            pairs = [(run(code, None), run(code, folder)) for _ in range(runs)]
            without = 1e3 * np.median([a[0] for a, _ in pairs])
            extra = 1e3 * np.median([b[0] - a[0] for a, b in pairs])
            click.echo(
                f"{what}: {without:.0f} ms; with {plugins} plugins more: {extra:+.1f} ms, "
                f"{pairs[0][1][1]} of their modules imported"
            )


if __name__ == "__main__":
    main()
