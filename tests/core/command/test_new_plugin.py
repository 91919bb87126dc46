"""The template of a plugin; that what it writes installs is for tests/examples/test_plugins.py."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lpsmap_core.command import cli, new_plugin

tomllib = pytest.importorskip("tomllib")
pytest.importorskip("copier")


def test_a_package_is_written(tmp_path: Path) -> None:
    folder = new_plugin.write("lpsmap-two-words", tmp_path)
    assert folder == tmp_path / "lpsmap-two-words"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        ".github/workflows/test.yml",
        ".gitignore",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/lpsmap_two_words/__init__.py",
        "src/lpsmap_two_words/factor.py",
        "src/lpsmap_two_words/plugin.py",
        "src/lpsmap_two_words/py.typed",
        "tests/test_lpsmap_two_words.py",
    }
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "lpsmap-two-words"
    assert project["entry-points"]["lpsmap"] == {"lpsmap_two_words": "lpsmap_two_words.plugin"}
    assert "lpsmap-core>=0.1,<0.2" in project["dependencies"]
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text())
    for name in files:
        text = (folder / name).read_text().replace("${{ matrix.python }}", "")
        assert "{{" not in text and "}}" not in text, name
    assert "class TwoWords(Factor)" in (folder / "src/lpsmap_two_words/factor.py").read_text()


def test_the_factors_name_can_be_chosen(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli.main, ["new-plugin", "spans", "--factor", "OneSpan", "--into", str(tmp_path)]
    )
    assert result.exit_code == 0
    assert "pip install -e '.[test]'" in result.output
    assert "class OneSpan(Factor)" in (tmp_path / "spans/src/spans/factor.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["my--spans"], "expected lower-case letters"),
        (["../spans"], "expected lower-case letters"),
        (["2spans"], "expected lower-case letters"),
        (["class"], "expected lower-case letters"),
        (["json"], "module json exists;"),
        (["lpsmap-core"], "module lpsmap_core exists;"),
        (["click"], "module click exists;"),
        (["lpsmap-torch"], "module lpsmap_torch exists;"),
        (["spans", "--factor", "FactorGraph"], "'FactorGraph', which has another meaning"),
        (
            ["spans", "--factor", "TorchFactorGraph"],
            "'TorchFactorGraph', which has another meaning",
        ),
        (["lpsmap-any"], "got 'Any', which has another meaning"),
        (["spans", "--factor", "a span"], "got 'a span'; expected the name of a Python class"),
        (["spans", "--factor", "span"], "got 'span'; expected the name of a Python class"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli.main, ["new-plugin", *arguments, "--into", str(tmp_path)])
    assert result.exit_code == 1
    assert words in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["my_factor", "My Factor", "MyFactor", "my-factor", " My_factor"])
def test_words_can_be_joined_in_any_way(tmp_path: Path, name: str) -> None:
    folder = new_plugin.write(name, tmp_path)
    assert folder.name == "my-factor"
    assert "class MyFactor(Factor)" in (folder / "src/my_factor/factor.py").read_text()


def test_a_module_that_can_be_imported_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "others" / "only_a_folder").mkdir(parents=True)
    (tmp_path / "others" / "somebodys.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path / "others")
    with pytest.raises(ValueError, match="module somebodys exists;"):
        new_plugin.write("somebodys", tmp_path)
    assert new_plugin.write("only-a-folder", tmp_path).is_dir()


def test_a_factor_of_an_installed_name_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="lpsmap-factors-logic has a factor type Xor already"):
        folder = new_plugin.write("lpsmap-xor", tmp_path)
    assert folder.is_dir()


def test_its_tests_install_from_wheels_that_no_index_has(tmp_path: Path) -> None:
    folder = new_plugin.write("spans", tmp_path)
    command = "pip install --find-links wheels '.[test]'"
    assert command in (folder / ".github/workflows/test.yml").read_text()
    readme = (folder / "README.md").read_text()
    assert command in readme
    assert "pip wheel --no-deps --wheel-dir wheels $FROM/lpsmap_jit $FROM/lpsmap_core\n" in readme
    assert "pip install spans" not in readme


@pytest.mark.parametrize("kind", new_plugin.KINDS)
def test_its_readme_makes_the_wheels_of_all_that_it_needs(tmp_path: Path, kind: str) -> None:
    readme = (new_plugin.write("spans", tmp_path, kind=kind) / "README.md").read_text()
    made = {f"lpsmap-{name}" for name in re.findall(r"\$FROM/lpsmap_(\w+)", readme)}
    assert new_plugin.KINDS[kind].package in made
    for one in made:
        wanted = importlib.metadata.requires(one) or []
        needed = {re.split(r"[^\w-]", line)[0] for line in wanted if "extra ==" not in line}
        assert {name for name in needed if name.startswith("lpsmap")} <= made


def test_what_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "spans").mkdir()
    result = CliRunner().invoke(cli.main, ["new-plugin", "spans", "--into", str(tmp_path)])
    assert result.exit_code == 1
    assert "exists; nothing was written" in result.output
    assert not list((tmp_path / "spans").iterdir())


def test_without_the_templating_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    result = CliRunner().invoke(cli.main, ["new-plugin", "spans", "--into", str(tmp_path)])
    assert result.exit_code == 1
    assert "pip install 'lpsmap-core[new-plugin]'" in result.output
    assert not list(tmp_path.iterdir())
