"""Commands that install a missing distribution, from an index or from the checkout in use."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lpsmap_core.plugins.contributions import OWN

__all__ = ["install_command", "is_installed"]

DYNAMIC = ["lpsmap-dynamic"]
NEEDED = {
    **dict.fromkeys(
        ["lpsmap-decode", "lpsmap-factors-logic", "lpsmap-factors-struct", "lpsmap-torch"], DYNAMIC
    ),
    "lpsmap-search": [*DYNAMIC, "lpsmap-decode"],
}
"""Distributions beside core that others depend on."""


def is_installed(name: str) -> bool:
    """Return whether a distribution is installed."""
    return any(Distribution.discover(name=name))


def install_command(name: str) -> str:
    """Return the command that installs the distribution `name` of this project.

    If core comes from a checkout, it names folders there: an index need not have the release.
    """
    origin = Distribution.from_name(OWN).read_text("direct_url.json") if is_installed(OWN) else None
    checkout = Path(url2pathname(urlsplit(json.loads(origin or '{"url": "/"}')["url"]).path)).parent
    missing = [each for each in [*NEEDED.get(name, []), name] if not is_installed(each)] or [name]
    folders = [checkout / each.replace("-", "_") for each in missing]
    is_checkout = all((folder / "pyproject.toml").is_file() for folder in folders)
    return f"pip install {shlex.join(map(str, folders)) if is_checkout else name}"
