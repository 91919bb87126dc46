"""Sections of attributes in docstrings become definition lists, where names can share an entry."""

from __future__ import annotations

import importlib
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer


def as_definitions(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Replace the heading, and mark the names; the layout is that of a definition list already."""
    if "Attributes" not in lines:
        return
    first = lines.index("Attributes")
    lines[first : first + 2] = [".. rubric:: Attributes", ""]
    for i in range(first + 2, len(lines)):
        if re.match(r"-{3,}$", lines[i]):
            lines[i - 2 : i - 2] = [""]
            return  # the next section
        if re.match(r"\w", lines[i]) and lines[i + 1 : i + 2] and lines[i + 1].startswith(" "):
            lines[i] = ", ".join(f"``{name}``" for name in lines[i].split(", "))


def skip_fields(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out the fields of named tuples without docstrings of their own, which the list has."""
    if type(obj).__name__ != "_tuplegetter":
        return None
    page = app.env.current_document
    owner = getattr(importlib.import_module(page.autodoc_module), page.autodoc_class)
    documented = ModuleAnalyzer.for_module(owner.__module__).find_attr_docs()
    return None if (owner.__name__, name) in documented else True


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx, before docstrings are parsed."""
    app.connect("autodoc-process-docstring", as_definitions, priority=400)
    app.connect("autodoc-skip-member", skip_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
