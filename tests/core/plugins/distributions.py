"""Distributions of plugins, written into a folder of the import path."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PACK", "install", "write_info"]


def install(
    folder: Path, name: str, source: str, entry_point: str = "plugin", group: str = "lpsmap"
) -> None:
    """Write a distribution of one module into a folder of the import path."""
    module = name.lower().replace("-", "_")
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    write_info(folder, name, f"[{group}]\n{entry_point} = {module}\n")


def write_info(folder: Path, name: str, entry_points: str) -> None:
    """Write the metadata of a distribution into a folder of the import path."""
    info = folder / f"{name.lower().replace('-', '_')}-4.5.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.5\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")


PACK = """
import lpsmap_core

class {name}(lpsmap_core.Factor):
    def solve_map(self, eta_u, eta_v): return 0
    def vertex(self, y): return [], []

lpsmap_api_version = 3

@lpsmap_core.hookimpl
def lpsmap_factors():
    return [{name}]
"""
