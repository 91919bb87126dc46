"""Tables of measurements as Markdown, with the machine and the commit that they come from."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["DOCS", "markdown", "origin"]

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "measured"
"""The folder of the tables that pages include."""


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of named cells as a table, with all columns but the first at the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, ["---", *["---:"] * (len(names) - 1)]]
    lines += [[row.get(name, "") for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def origin(*packages: str) -> str:
    """Return a sentence about the machine, the commit, the date, and the versions of packages."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    versions = ", ".join(f"{name} {_version(name)}" for name in ("numpy", *packages))
    return (
        f"Measured on {datetime.now(timezone.utc):%Y-%m-%d} at commit `{commit}`, {_processor()}, "
        f"Python {platform.python_version()}, {versions}.\n"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.processor() or "unknown"
