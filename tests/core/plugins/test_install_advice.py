"""Commands that install what is missing: from an index, or from the checkout in use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.plugins.distributions import install, write_info
from environments import ROOT
from lpsmap_core.plugins.install_advice import install_command


def comes_from(alone: Path, url: str) -> None:
    """Record where core was installed from, as pip does."""
    (alone / "lpsmap_core-4.5.dist-info" / "direct_url.json").write_text(json.dumps({"url": url}))


def a_checkout(folder: Path) -> Path:
    for name in ("lpsmap_core", "lpsmap_dynamic", "lpsmap_decode", "lpsmap_search"):
        (folder / name).mkdir(parents=True)
        shutil.copy(ROOT / name / "pyproject.toml", folder / name)
    return folder


def test_from_an_index(alone: Path) -> None:
    assert install_command("lpsmap-search") == "pip install lpsmap-search"


def test_from_a_checkout_with_what_is_missing_too(alone: Path, tmp_path: Path) -> None:
    checkout = a_checkout(tmp_path / "a copy")
    comes_from(alone, (checkout / "lpsmap_core").as_uri())
    quoted = [f"'{checkout}/lpsmap_{name}'" for name in ("dynamic", "decode", "search")]
    assert install_command("lpsmap-search") == f"pip install {' '.join(quoted)}"
    write_info(alone, "lpsmap-dynamic", "")
    assert install_command("lpsmap-search") == f"pip install {' '.join(quoted[1:])}"
    install(alone, "lpsmap-search", "")
    write_info(alone, "lpsmap-decode", "")
    assert install_command("lpsmap-search") == f"pip install {quoted[2]}"


@pytest.mark.parametrize(
    "url", ["https://example.org/lpsmap.git", "file:///wheels/lpsmap_core-4.5-py3-none-any.whl"]
)
def test_from_elsewhere(alone: Path, url: str) -> None:
    comes_from(alone, url)
    assert install_command("lpsmap-jax") == "pip install lpsmap-jax"
