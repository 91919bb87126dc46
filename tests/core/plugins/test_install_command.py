"""Commands that install what is missing: from an index, or from the checkout in use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from core.plugins.distributions import install, write_info
from environments import ROOT
from lpsmap_core.command import cli
from lpsmap_core.plugins import install_command
from lpsmap_core.plugins.packs import PACKS


def comes_from(alone: Path, url: str) -> None:
    """Record where core was installed from, as pip does."""
    (alone / "lpsmap_core-4.5.dist-info" / "direct_url.json").write_text(json.dumps({"url": url}))


def a_checkout(folder: Path) -> Path:
    for name in ("lpsmap_core", "lpsmap_dynamic", "lpsmap_decode", "lpsmap_search"):
        (folder / name).mkdir(parents=True)
        (folder / name / "pyproject.toml").touch()
    return folder


def test_from_an_index(alone: Path) -> None:
    assert install_command.install_command("lpsmap-search") == "pip install lpsmap-search"


def test_from_a_checkout_with_what_is_missing_too(alone: Path, tmp_path: Path) -> None:
    checkout = a_checkout(tmp_path / "a copy")
    comes_from(alone, (checkout / "lpsmap_core").as_uri())
    quoted = [f"'{checkout}/lpsmap_{name}'" for name in ("dynamic", "decode", "search")]
    assert install_command.install_command("lpsmap-search") == f"pip install {' '.join(quoted)}"
    write_info(alone, "lpsmap-dynamic", "")
    assert install_command.install_command("lpsmap-search") == f"pip install {' '.join(quoted[1:])}"
    install(alone, "lpsmap-search", "")
    write_info(alone, "lpsmap-decode", "")
    assert install_command.install_command("lpsmap-search") == f"pip install {quoted[2]}"


@pytest.mark.parametrize(
    "url", ["https://example.org/lpsmap.git", "file:///wheels/lpsmap_core-4.5-py3-none-any.whl"]
)
def test_from_elsewhere(alone: Path, url: str) -> None:
    comes_from(alone, url)
    assert install_command.install_command("lpsmap-jax") == "pip install lpsmap-jax"


def test_dependencies_are_those_of_the_packages() -> None:
    for name in PACKS:
        text = (ROOT / name.replace("-", "_") / "pyproject.toml").read_text(encoding="utf-8")
        declared = set(re.findall(r'^    "(lpsmap-[a-z-]+)', text, flags=re.MULTILINE))
        needed = install_command.NEEDED.get(name, [])
        assert declared - {"lpsmap-core", name} == set(needed), name


def test_plugins_lists_what_is_missing(alone: Path) -> None:
    write_info(alone, "lpsmap-decode", "[lpsmap]\ndecode = lpsmap_decode.plugin\n")
    result = CliRunner().invoke(cli.main, ["plugins"])
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if " is not installed" in line]
    assert [line.split()[0] for line in lines] == sorted(set(PACKS) - {"lpsmap-decode"})
    assert "lpsmap-search is not installed (DMVTree, induce): pip install lpsmap-search" in lines
    assert "lpsmap-jax is not installed: pip install lpsmap-jax" in lines
