"""Run pages and count the kernels of ours that each compiles.

``python tests/page_kernels.py [PAGE...]``, by default README, the tutorials, the how-to guides on
kernels of other packages, and the gallery. Kernels that a page defines, and what they compile of
numba, are not counted. The tutorial on writing a factor type is replayed in `test_tutorial`.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import warnings
from pathlib import Path

os.environ["LPSMAP_COMPILE_AFTER"] = "0"

import matplotlib
from numba.core.event import install_recorder

from environments import ROOT
from pages import execute

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

TUTORIALS = "first-graph", "starting-points", "trees-and-losses"
GUIDES = "decoding", "dynamic-programs", "global-search", "many-graphs", "models", "random-fields"
GUIDES += "samples", "solve-command", "solving-again", "structures", "when-not-solved"
PAGES = [ROOT / "README.md"]
PAGES += [ROOT / "docs" / "tutorial" / f"{name}.md" for name in TUTORIALS]
PAGES += [ROOT / "docs" / "how-to" / f"{name}.md" for name in GUIDES]
PAGES += sorted((ROOT / "examples" / "gallery").glob("*.py"))


def compiled_by(page: Path) -> list[str]:
    """Run a page; return the names of our functions that it compiles."""
    os.chdir(page.parent)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        install_recorder("numba:compile") as recorder,
    ):
        warnings.simplefilter("ignore")
        execute(page) if page.suffix == ".md" else runpy.run_path(str(page))
    plt.close("all")
    functions = [event.data["dispatcher"].py_func for _, event in recorder.buffer if event.is_start]
    names = [f"{function.__module__}.{function.__qualname__}" for function in functions]
    return [name for name in names if name.startswith("lpsmap")]


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    for page in chosen or PAGES:
        found = compiled_by(page)
        print(len(found), page.relative_to(ROOT), *found[:5], flush=True)
