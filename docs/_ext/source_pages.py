"""Pages of source code link back only to names that the reference documents there."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

BACK = re.compile(r'<a class="viewcode-back" href="[^"]*#([^"]*)">\[docs\]</a>')


def drop_broken_links(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Remove links to names that are documented as they are exported, or only with their class."""
    if page.startswith("_modules/"):
        known = app.env.domains.python_domain.objects
        context["body"] = BACK.sub(lambda m: m[0] if m[1] in known else "", context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", drop_broken_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
