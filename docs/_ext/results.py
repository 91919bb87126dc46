"""Writes the pages of the experiments from their committed records, before a build reads pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]


def write(app: Sphinx) -> None:
    """Write the pages and their figures into the folder `results`."""
    sys.path.append(str(ROOT))
    from experiments.reports import write_pages

    write_pages(ROOT / "experiments" / "records", Path(app.srcdir) / "results")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
