"""Pages of source code link back to names as the reference documents them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

BACK = re.compile(r'<a class="viewcode-back" href="[^"]*#([^"]*)">\[docs\]</a>')


def link_to_exports(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Correct the names in links, which are all of one module, and drop links without a target."""
    known = app.env.domains.python_domain.objects

    def link(match: re.Match[str]) -> str:
        exported = match[1].replace("lpsmap_core.api.", "lpsmap_core.")
        name = match[1] if match[1] in known else exported
        return match[0].replace(match[1], known[name].node_id) if name in known else ""

    if page.startswith("_modules/"):
        context["body"] = BACK.sub(link, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", link_to_exports)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
