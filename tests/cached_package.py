"""A package with a kernel, whose compiled files tests damage, share and move."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

from forks import Program, Server

__all__ = ["LEAVES", "TOTAL", "Package"]

LEAVES = """
from lpsmap_jit import leaf

@leaf
def scaled(x):
    return 2.0 * x
"""

TOTAL = """
import numpy as np
from lpsmap_jit import kernel
from lpsmap_jit.compile import general_position
from tiny.leaves.scale import scaled

@kernel
def total(x):
    result = 0.0 * general_position(3, 4)
    for i in range(len(x)):
        result += scaled(x[i])
    return result

print(total(np.ones(3)), *total.stats.cache_misses.values())
"""
"""Prints the total, and a 1 if it was compiled rather than loaded."""

FILES = {
    "tiny/__init__.py": "",
    "tiny/leaves/__init__.py": "",
    "tiny/leaves/scale.py": LEAVES,
    "tiny/loops/__init__.py": "",
    "tiny/loops/total.py": TOTAL,
}


class Package:
    """A package with a kernel, in a folder of its own; so are its compiled files."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        """Write a file of it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy_of(self, module: ModuleType) -> Path:
        """Let the package import a copy of another one; return its folder."""
        source, copy = Path(str(module.__file__)).parent, self.folder / module.__name__
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        return copy

    def begin(
        self, first: str = "", module: str = "tiny.loops.total"
    ) -> Program | subprocess.Popen[str]:
        """Start a process that runs some code and then imports a module."""
        return self.server.begin(f"{first}\nimport {module}", self.folder, self.environment)

    def run(self, first: str = "", module: str = "tiny.loops.total") -> tuple[str, str]:
        """Return what such a process prints, and its notices."""
        process = self.begin(first, module)
        printed, notices = process.communicate()
        assert process.returncode == 0, notices
        return printed.strip(), notices

    def kept(self, kernel: str = "*") -> list[Path]:
        """The files of its compiled kernels, or of one of them."""
        return sorted(self.folder.glob(f"tiny/**/__pycache__/{kernel}.nb?"))
