"""After a build, every link within the site leads to a place that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from links import broken


def check(app: Sphinx, exception: Exception | None) -> None:
    """Fail a build that has broken links."""
    if exception is None and app.builder.format == "html":
        wrong = broken(Path(app.outdir).resolve())
        if wrong:
            raise ExtensionError("links that lead nowhere:\n" + "\n".join(wrong))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
