"""Advice on what to install, from an index or from the checkout in use; the installed decoder."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Collection
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lpsmap_core.plugins.registry import DISABLE, OWN, installed, is_disabled


def install_advice(distribution: str) -> str:
    """Return advice about a `distribution` of this project without active plugins."""
    if is_disabled(distribution):
        return f"{distribution}, which has it, is disabled by {DISABLE}={os.environ[DISABLE]}"
    return f"install it with: {install_command(distribution)}"


def missing_type_advice(name: str, installed: Collection[str]) -> str:
    """Return advice about a factor type `name` that is not among the `installed` ones."""
    plain = {other.lower(): other for other in installed}
    near = [plain[other] for other in difflib.get_close_matches(name.lower(), plain, 3)]
    listed = ", ".join(sorted(installed)) or "none"
    if near:
        return f"did you mean {' or '.join(near)}? Installed factor types: {listed}"
    return f"installed factor types: {listed}"


def installed_decoder(verb: str) -> Any:
    """Return the installed decoder: an ``lpsmap_decode.Decoder``.

    Parameters
    ----------
    verb
        What needs it, for errors.

    Raises
    ------
    ImportError
        If no decoder is installed. The message names the package to install.
    RuntimeError
        If several decoders are installed.
    """
    decoders = list(installed().of_kind("decoders").values())
    if not decoders:
        advice = install_advice("lpsmap-decode")
        raise ImportError(f"{verb}: no decoder of best assignments is installed; {advice}")
    if len(decoders) > 1:
        names = " and ".join(f"{each.name!r} of {each.plugin.distribution}" for each in decoders)
        ways = " or ".join(f"{DISABLE}={each.plugin.distribution}" for each in decoders)
        raise RuntimeError(
            f"{verb}: several decoders are installed, {names}; disable all but one: {ways}"
        )
    return decoders[0].value()


def is_installed(name: str) -> bool:
    """Return whether a distribution is installed."""
    return any(Distribution.discover(name=name))


def install_command(name: str) -> str:
    """Return the command that installs the distribution `name` of this project.

    If core comes from a checkout, it names folders there: an index need not have the release.
    """
    origin = Distribution.from_name(OWN).read_text("direct_url.json") if is_installed(OWN) else None
    checkout = Path(url2pathname(urlsplit(json.loads(origin or '{"url": "/"}')["url"]).path)).parent
    try:
        return f"pip install {shlex.join(dict.fromkeys(_folders(checkout, name)))}"
    except OSError:  # no checkout
        return f"pip install {name}"


def _folders(checkout: Path, name: str) -> list[str]:
    """Return the folder of a distribution, after those of what it needs and is not installed."""
    folder = checkout / name.replace("-", "_")
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    needed = re.findall(r'^    "(lpsmap-[a-z-]+)', text, flags=re.MULTILINE)
    missing = (_folders(checkout, each) for each in needed if not is_installed(each))
    return [*(other for folders in missing for other in folders), str(folder)]
