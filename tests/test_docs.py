"""The READMEs' and docstrings' Python runs as printed."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).parents[1]
SESSIONS = [ROOT / "docs" / "structures.md"]
READMES = sorted([ROOT / "README.md", *ROOT.glob("lpsmap_*/README.md")])


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_readme_code_runs(readme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"```python\n(.*?)```", readme.read_text(), flags=re.DOTALL):
        exec(compile(block, str(readme), "exec"), {"__name__": "readme"})
        printed = capsys.readouterr().out.splitlines()
        for line in re.findall(r"print\(.*\)  # (True|Solution\(.*\))", block):
            assert line in printed


def test_readme_names_existing_files() -> None:
    for path in re.findall(r"\]\(((?!http)[^)]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", SESSIONS, ids=lambda path: path.name)
def test_sessions_run_as_printed(page: Path) -> None:
    """A page's interactive sessions, and its other Python after them, in one namespace."""
    text, names = page.read_text(), {"__name__": "page"}
    sessions = "".join(re.findall(r"```pycon\n(.*?)```", text, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(sessions, names, page.name, str(page), 0)
    runner = doctest.DocTestRunner()
    runner.run(test, clear_globs=False)
    assert runner.tries > 0
    assert runner.failures == 0
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), test.globs)
    plt.close("all")
    for path in re.findall(r"\]\(((?!http)[^)]+)\)", text):
        assert (page.parent / path).exists(), path


@pytest.mark.parametrize(
    "module", ["lpsmap_core.conditional_gradient", "lpsmap_core.graph", "lpsmap_torch.graph"]
)
def test_docstring_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
