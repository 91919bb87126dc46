"""Fixtures of the tests of plugins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from core.plugins.distributions import write_info
from lpsmap_core.plugins import registry


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A folder whose distributions are the only installed ones that are plugins, but for core."""
    write_info(tmp_path, "lpsmap-core", "[lpsmap]\ncore = lpsmap_core.plugin\n")
    others = [p for p in sys.path if not any(Path(p).glob("lpsmap*.dist-info"))]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    monkeypatch.delenv(registry.DISABLE, raising=False)
    modules = set(sys.modules)
    registry.installed.cache_clear()
    yield tmp_path
    registry.installed.cache_clear()
    for name in set(sys.modules) - modules:
        del sys.modules[name]
