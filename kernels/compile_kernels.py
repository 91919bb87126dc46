"""Compile the kernels of all installed packages for baselines, into the folders of the wheel.

Those of the factor types are compiled by ``lpsmap compile``, those of the other packages by pages.

``python kernels/compile_kernels.py [BASELINE...]``, by default for all of this kind of
machine. The processor must have their features, because the kernels are called.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from numba.core.caching import UserProvidedCacheLocator

from lpsmap_jit.baselines import baselines

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "kernels" / "src" / "lpsmap_kernels"
LPSMAP = "from lpsmap_core.command.entry import main; main()"


def compile_for(baseline: str) -> None:
    """Replace the folder of a baseline."""
    folder = FOLDER / baseline
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tempfile.TemporaryDirectory() as cache:
        target = {"NUMBA_CPU_NAME": baseline, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": cache}
        # that library is not among the dependencies of numba
        environment = {**os.environ, **target, "NUMBA_DISABLE_INTEL_SVML": "1"}
        for command in (["-c", LPSMAP, "compile", "--all"], [ROOT / "tests" / "page_kernels.py"]):
            subprocess.run([sys.executable, *command], env=environment, check=True)
        for path in Path(cache).glob("*/*.nbc"):
            # parts are for kernels that are compiled later, and pages have kernels of their own
            if "-part-" not in path.name and path.parent.name in subfolders():
                shutil.move(path, folder / path.name)


@functools.cache
def subfolders() -> frozenset[str]:
    """Return numba's names for the folders of our sources in its cache."""
    sources = ROOT.glob("lpsmap_*/src/**/*.py")
    name_of = UserProvidedCacheLocator.get_suitable_cache_subpath
    return frozenset(name_of(str(source)) for source in sources)


if __name__ == "__main__":
    for name in sys.argv[1:] or [baseline.name for baseline in baselines()]:
        print(f"compiling for {name}", file=sys.stderr)
        compile_for(name)
