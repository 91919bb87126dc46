"""The directive `tolerances`: tables of the numbers that the solver's source names."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from constants import constants, written


def _cell(text: str) -> str:
    """Return text as it can stand in a table."""
    return text.replace("|", r"\|")


class Tolerances(SphinxDirective):
    """A table for every module of the packages that are its arguments."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the tables, each under the first line of its module's docstring."""
        lines = []
        for package in self.arguments[0].split():
            for module, found in itertools.groupby(constants(package), key=lambda c: c.module):
                said = [constant for constant in found if constant.meaning]
                if not said:
                    continue
                doc = importlib.import_module(module).__doc__ or ""
                lines += [f"**{doc.splitlines()[0].rstrip('.')}** (`{module.rsplit('.')[-1]}`)", ""]
                lines += ["| name | value | meaning |", "|---|---|---|"]
                lines += [f"| `{c.name}` | {written(c.value)} | {_cell(c.meaning)} |" for c in said]
                lines += [""]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("tolerances", Tolerances)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
