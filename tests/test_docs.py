"""Every block of code of every page runs as printed; the reference has every public name."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import itertools
import re
import shutil
import subprocess
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

import lpsmap_core
from environments import ROOT, WHEELS
from packs import types_of
from pages import blocks, execute
from test_docstrings import MODULES

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

DOCS = ROOT / "docs"
GENERATED = DOCS / "gallery", DOCS / "results"
WRITTEN = [p for p in sorted(DOCS.rglob("*.md")) if not any(map(p.is_relative_to, GENERATED))]
PAGES = [*WRITTEN, *sorted(ROOT.glob("*.md")), ROOT / "examples" / "README.md"]
PAGES += [*sorted(ROOT.glob("lpsmap_*/README.md")), ROOT / "kernels" / "README.md"]
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.md"))
REPLAYED = "writing-factors.md", "faster-factors.md"  # by test_tutorial
RECIPES = "ecosystem.md", "trainers.md"  # they run libraries that warn of each other
TRAINED = "cookbook_", "layer_", "loss_"  # pages that train a network, with the slow tests
GALLERY = sorted((ROOT / "examples" / "gallery").glob("*.py"))
LEARNING = [path for path in GALLERY if path.stem.startswith(TRAINED)]
OPTIONAL = "jax", "lightning", "torch", "transformers"
MISSING = [name for name in OPTIONAL if not importlib.util.find_spec(name)]
HAS_TORCH = "torch" not in MISSING


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def skip_without_libraries(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for library in MISSING:
        if f"import {library}" in text or f"from {library} " in text:
            pytest.skip(f"needs {library}")
    if "aoti_compile" in text and shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")


def can_be_imported(name: str) -> bool:
    return not any(library in name for library in MISSING)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """A test that fails leaves no figure to the next one."""
    yield
    plt.close("all")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in REPLAYED and blocks(p)], ids=name_of
)
def test_code_runs_as_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_libraries(page)
    monkeypatch.chdir(page.parent)
    with warnings.catch_warnings():
        if page.name in RECIPES:
            warnings.simplefilter("ignore")
        execute(page)


def stem_of(path: Path) -> str:
    return path.stem


def panels_of(example: Path) -> list[Axes]:
    """Run the blocks of an example one by one; return all panels of its figures.

    The gallery shows the figures of a block as they are at its end, and closes them.
    """
    module: dict[str, Any] = {"__name__": "__main__", "__file__": str(example)}
    text, line, found = example.read_text(encoding="utf-8"), 0, list[Axes]()
    for block in re.split(r"^(?=# %%)", text, flags=re.MULTILINE):
        exec(compile("\n" * line + block, str(example), "exec"), module)
        line += block.count("\n")
        shown = [ax for number in plt.get_fignums() for ax in plt.figure(number).axes]
        empty = [ax for ax in shown if ax.axison and not ax.has_data()]
        assert not empty, f"a panel is empty at line {line}"
        found += shown
        plt.close("all")
    return found


@pytest.mark.parametrize("example", [p for p in GALLERY if p not in LEARNING], ids=stem_of)
def test_gallery_runs(example: Path) -> None:
    skip_without_libraries(example)
    assert panels_of(example), "an example of the gallery shows a figure"


def has_learned(curve: np.ndarray) -> bool:
    """Whether a loss fell by two fifths, or a share of right answers rose far enough."""
    first, last = curve[:5].mean(), curve[-5:].mean()
    return bool(last < 0.6 * first or min(first + 0.15, 0.8) <= last <= 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("example", LEARNING, ids=stem_of)
def test_pages_that_train_a_network(example: Path) -> None:
    """In a minute the curve that is drawn last has learned, and structures are drawn beside it."""
    begin = time.process_time()
    curves, *others = panels_of(example)
    assert time.process_time() - begin < 60.0
    assert has_learned(np.asarray(curves.lines[-1].get_ydata(), dtype=float)), example.stem
    assert any(ax.has_data() for ax in others), "an axes for the structures"


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_every_layer_and_loss_has_a_page() -> None:
    modules = [importlib.import_module(f"lpsmap_torch.{name}") for name in ("layers", "losses")]
    text = "".join(path.read_text(encoding="utf-8") for path in LEARNING)
    kinds = [getattr(module, name) for module in modules for name in module.__all__]
    named = [kind.__name__ for kind in kinds if hasattr(kind, "forward")]
    assert len(named) > 10
    for name in named:
        assert re.search(rf"^from lpsmap_torch.* import .*\b{name}\b", text, flags=re.M), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_code_hides_in_an_indented_block(page: Path) -> None:
    """Nothing executes those; within lists, indentation is the list's."""
    assert not re.search(r"\n\n {4}\S", without_code(page))


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "experiments").rglob("*.md"))], ids=name_of
)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Pages are read as files, too: no link leads to a page that a build makes."""
    for link in re.findall(r"\]\(((?!http)[^)\s]+)\)", without_code(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not any(map(target.is_relative_to, GENERATED)), link
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", without_code(target), flags=re.M)
            assert anchor in map(slug, headings), link


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem.lower() != "changelog"], ids=name_of)
def test_pages_are_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 1800


def test_the_table_of_options_has_the_defaults_of_a_solve() -> None:
    text = (DOCS / "reference" / "solver-options.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", text, flags=re.MULTILINE))
    defaults = inspect.signature(lpsmap_core.FactorGraph.solve).parameters
    assert table == {name: repr(one.default) for name, one in defaults.items() if name != "self"}


def test_the_index_of_the_gallery_lists_every_page_once() -> None:
    text = (ROOT / "examples" / "gallery" / "index.rst").read_text(encoding="utf-8")
    listed = re.findall(r"^   \.\./examples/gallery/(\w+)\.py$", text, flags=re.MULTILINE)
    assert sorted(listed) == [path.stem for path in GALLERY]


def test_files_that_the_architecture_names_are_there() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:lpsmap_|tests/|examples/)[\w./-]+\.py)`", text)
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).is_file()]


def test_broken_links_of_a_site_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    broken = importlib.import_module("links").broken
    (tmp_path / "a.html").write_text('<a href="b.html#there">b</a> <a href="https://x.org">x</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="#here">?</a> <img src="c.png">')
    assert broken(tmp_path) == ["b.html: #here", "b.html: c.png"]


@pytest.mark.parametrize(
    "module",
    [
        "lpsmap_core.graph",
        "lpsmap.earlier",
        "lpsmap_jax.loss",
        "lpsmap_jax.marginals",
        "lpsmap_torch.crf",
        "lpsmap_torch.distributions.chain",
        "lpsmap_torch.distributions.dependency_trees",
        "lpsmap_torch.distributions.structured_distribution",
        "lpsmap_torch.graph",
        "lpsmap_torch.layers.sparse_map",
        "lpsmap_torch.losses.random_field",
        "lpsmap_torch.losses.maxima",
    ],
)
def test_docstring_examples(module: str) -> None:
    if not can_be_imported(module):
        pytest.skip("needs a library that is not installed")
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


# -------------------------------------------------------------------- the reference


def documented() -> Iterator[str]:
    """Yield what the reference documents, by the names under which it is exported."""
    for page in (DOCS / "reference").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        yield from re.findall(r"^\.\. (?:auto\w+|py:data):: (\S+)$", text, flags=re.MULTILINE)


def value_of(name: str) -> Any:
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module: str) -> None:
    """Once: what another module exports too is the same thing."""
    shown = {name: value_of(name) for name in documented() if can_be_imported(name)}
    imported = importlib.import_module(module)
    for name in (name for name in imported.__all__ if not name.startswith("__")):
        value = getattr(imported, name)
        same = [n for n, v in shown.items() if v is value and n.endswith(f".{name}")]
        assert len(same) == 1, f"{module}.{name} is documented as {same}"


def attributes(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a module or class, properties too, and what is said of each."""
    for node, after in itertools.pairwise([*tree.body, ast.Pass()]):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(said))),
            ):
                yield name, said
            case ast.FunctionDef(name=name, decorator_list=[mark]), _:
                if ast.unparse(mark) in ("property", "cached_property"):
                    yield name, ast.get_docstring(node) or ""


def test_the_reference_takes_no_words_for_a_type() -> None:
    """Napoleon does with what stands before a colon in the first line about an attribute."""
    said = {}
    for name in filter(can_be_imported, documented()):
        value, (module, _, own) = value_of(name), name.rpartition(".")
        if isinstance(value, type) and value.__module__.startswith("lpsmap"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
            assert isinstance(tree, ast.ClassDef)
            said |= {f"{name}.{attribute}": words for attribute, words in attributes(tree)}
        else:
            tree = ast.parse(inspect.getsource(importlib.import_module(module)))
            said[name] = dict(attributes(tree)).get(own, "")
    assert len(said) > 50
    prose = {name: re.sub(r"`.*?`", "", words).strip() for name, words in said.items()}
    assert not {name: words for name, words in prose.items() if ": " in words.partition("\n")[0]}


# -------------------------------------------------------------------- what is said elsewhere


@pytest.mark.parametrize("pack", ["lpsmap-factors-logic", "lpsmap-factors-struct"])
def test_readmes_agree_with_the_packs(pack: str) -> None:
    own = (ROOT / pack.replace("-", "_") / "README.md").read_text(encoding="utf-8")
    names = set(types_of(pack))
    assert set(re.findall(r"`([A-Z]\w+)[`(]", own)) == names
    for readme in [ROOT / "README.md", ROOT / "lpsmap_core" / "README.md"]:
        row = re.search(rf"^\| `{pack}` \| (.*) \|$", readme.read_text(encoding="utf-8"), re.M)
        assert row and set(row[1].split(", ")) == names


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z][\w-]*):", makefile, flags=re.MULTILINE)
    said = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.findall(r"^  make (\S+?) {2,}(?=\S)", said.stdout, flags=re.MULTILINE)
    assert sorted(listed) == sorted(targets)
    assert len({line.index(line.split(maxsplit=2)[2]) for line in said.stdout.splitlines()}) == 1


def test_constants_say_what_they_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of tolerances is made of them."""
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    constants = importlib.import_module("constants").constants
    packages = [
        "lpsmap_core",
        "lpsmap_jit",
        "lpsmap_decode",
        "lpsmap_dynamic",
        "lpsmap_factors_logic",
    ]
    packages += ["lpsmap_factors_struct", "lpsmap_search"]
    found = [constant for package in packages for constant in constants(package)]
    assert not [c for c in found if not c.meaning and c.name != "EPSILON"]
    assert len(found) > 40


def test_one_version_everywhere() -> None:
    """Of all distributions, the change log and the citation."""
    packages = {**WHEELS, "kernels": "lpsmap_kernels"}
    said = {
        re.search(r'^__version__ = "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)[1]
        for folder, package in packages.items()
        for path in [ROOT / folder / "src" / package / "__init__.py"]
    }
    assert said == {lpsmap_core.__version__}
    for folder in packages:
        assert "\nversion = " not in (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {lpsmap_core.__version__}\n" in cited
    assert f"\n## {lpsmap_core.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
