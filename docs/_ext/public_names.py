"""Links by a name's private module lead to the name as it is exported.

Type hints and docstrings name classes where they are defined, such as
`lpsmap_core.model.variables.Variables` and `lpsmap_core.layout.layout.Part`. The reference
documents them as they are imported, `lpsmap_core.Variables` and `lpsmap_core.api.Part`.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def resolve_exported(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Return a link to a name's export, for a name with modules in its middle."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    package, *rest = node["reftarget"].split(".")
    for dropped in range(1, len(rest)):
        for public in ([package], [package, "api"]):
            exported = ".".join([*public, *rest[dropped:]])
            if exported in domain.objects:
                return domain.resolve_xref(
                    env, node["refdoc"], app.builder, "obj", exported, node, content
                )
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("missing-reference", resolve_exported)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
