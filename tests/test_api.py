"""The public API for plugins: documented, used or meant for authors, and the only one in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lpsmap_core
from lpsmap_core import api

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
OWN = ROOT / "lpsmap_core" / "src" / "lpsmap_core"

FIRST_PARTY = [p for p in sorted(ROOT.glob("*/src/**/*.py")) if OWN not in p.parents]
"""Packs, adapter, search and face."""

PLUGINS = sorted((ROOT / "examples" / "plugins").rglob("*.py"))
PLUGINS += sorted(OWN.glob("command/plugin_template/**/*.jinja"))
PLUGINS += sorted(ROOT.glob("docs/how-to/*.md")) + sorted(ROOT.glob("docs/tutorial/*.md"))

PUBLIC = {"lpsmap_core", "lpsmap_core.api", "lpsmap_core.testing"}


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a file of Python imports from core."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((module, alias.name) for alias in names)
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)


def test_every_name_is_there_once() -> None:
    assert len(set(api.__all__)) == len(api.__all__)
    assert not set(api.__all__) & set(lpsmap_core.__all__)
    assert all(hasattr(api, name) for name in api.__all__)


def test_every_name_is_documented() -> None:
    directives = r"^\.\. (?:auto\w+|py:data):: lpsmap_core\.api\.(\w+)$"
    assert sorted(re.findall(directives, PAGE, flags=re.MULTILINE)) == sorted(api.__all__)


def test_every_name_is_used() -> None:
    used = {
        name
        for path in (*FIRST_PARTY, *(ROOT / "examples").rglob("*.py"))
        for module, name in imported(path)
        if module == "lpsmap_core.api"
    }
    assert set(api.__all__) == used


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_import_the_public_api(path: Path) -> None:
    """Examples, template and pages do, of which import-linter sees none."""
    text = path.read_text(encoding="utf-8")
    modules = re.findall(r"^(?:>>> )?\s*(?:from|import) (lpsmap_core[\w.]*)", text, flags=re.M)
    assert set(modules) <= PUBLIC
