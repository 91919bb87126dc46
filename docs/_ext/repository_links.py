"""Links of pages to sources in the repository lead, on the site, to the pages made from them."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

GENERATED = {
    r"(?:\.\./)+examples/gallery/(\w+)\.(?:py|rst)": r"/gallery/\1.rst",
    r"(?:\.\./)+experiments/README\.md": "/results/papers.md",
    r"(?:\.\./)+experiments/estimators/README\.md": "/results/estimators.md",
    r"(?:\.\./)+experiments/(\w+)/README\.md#(\w+)": r"/results/papers.md#\2-\1",
    r"(?:\.\./)+experiments/\w+/README\.md": "/results/papers.md",
    r"(?:\.\./)+README\.md": "/index.md",
}
"""Files of the repository, and the pages that have their contents.

That of the papers' results has sections of all READMEs, such as *Findings (listops)*.
"""


def rewrite(app: Sphinx, page: str, source: list[str]) -> None:
    """Rewrite the targets of links in a page."""
    for file, generated in GENERATED.items():
        source[0] = re.sub(rf"(?<=\]\(){file}(?=[)#])", generated, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
