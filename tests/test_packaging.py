"""Each distribution builds, installs alone into an empty environment, and does its job there."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from environments import ALONE, PLUGINS, ROOT, WHEELS, install, lend, run, venv

CORES_DEPENDENCIES = {"array_api_compat", "filelock", "numba", "numpy", "pluggy"}
BROUGHT_BY_NUMBA = {"llvmlite"}
WITHOUT_CLICK = 'The command lpsmap needs click: pip install "lpsmap-core[cli]"\n'


def installed_in(python: Path) -> set[str]:
    """Return the distributions of an environment, pip and its like aside."""
    listed = run(python, "-m", "pip", "list", "--format", "freeze")
    names = {line.partition("==")[0].replace("-", "_") for line in listed.splitlines()}
    return names - {"pip", "setuptools", "wheel"}


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The Python of a new, empty environment."""
    return venv(tmp_path / "env")


@pytest.mark.slow
@pytest.mark.parametrize("name", WHEELS)
def test_distribution_is_complete(distributions: Path, name: str) -> None:
    package = WHEELS[name]
    wheel_path = next(distributions.glob(f"{package}-*.whl"))
    assert wheel_path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel_path) as wheel:
        files = set(wheel.namelist())
        info = next(file for file in files if file.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(info).decode())
    tops = {file.split("/")[0] for file in files} - {info.split("/")[0]}
    assert tops == {package}  # so no file is in two wheels
    assert f"{package}/py.typed" in files
    assert any(file.endswith("/licenses/LICENSE") for file in files)
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert len(metadata.get_payload().strip()) > 200, "no README in the metadata"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    source = {str(p.relative_to(ROOT / name)) for p in (ROOT / name / "src").rglob("*.py")}
    with tarfile.open(next(distributions.glob(f"{package}-*.tar.gz"))) as sdist:
        packed = {member.name.partition("/")[2] for member in sdist.getmembers()}
    assert source | {"pyproject.toml", "README.md", "LICENSE"} <= packed
    assert {file.removeprefix("src/") for file in source} <= files


@pytest.mark.slow
def test_the_template_is_in_cores_wheel(distributions: Path) -> None:
    template = ROOT / "lpsmap_core" / "src" / "lpsmap_core" / "command" / "plugin_template"
    source = {str(p.relative_to(template)) for p in template.rglob("*") if p.is_file()}
    with zipfile.ZipFile(next(distributions.glob("lpsmap_core-*.whl"))) as wheel:
        packed = {file.partition("/command/plugin_template/")[2] for file in wheel.namelist()}
    assert packed - {""} == source


@pytest.mark.slow
def test_indices_would_accept_them(distributions: Path) -> None:
    files = [*distributions.glob("*.whl"), *distributions.glob("*.tar.gz")]
    assert len(files) == 2 * (len(WHEELS) + len(PLUGINS))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)


def test_lower_bounds_are_those_that_are_tested() -> None:
    """Each bound of a numerical or host library is the release in tests/oldest.txt."""
    oldest = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8")
    tested = dict(reversed(re.findall(r"^([\w-]+)==([\d.]+)\.\*", oldest, flags=re.MULTILINE)))
    met = set()
    for folder in [*WHEELS, *(f"examples/plugins/{name}" for name in PLUGINS)]:
        text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
        bounds = dict(re.findall(r'"([\w-]+)>=([\d.]+)[;,"]', text))
        for library, bound in bounds.items():
            if library in tested:
                assert bound == tested[library], f"{folder}: {library}"
                met.add(library)
    assert met == set(tested)


@pytest.mark.slow
def test_core_alone_brings_little_and_its_command_says_so(distributions: Path, empty: Path) -> None:
    install(empty, distributions, "lpsmap-core")
    assert installed_in(empty) == {
        "lpsmap_core",
        "lpsmap_jit",
        *CORES_DEPENDENCIES,
        *BROUGHT_BY_NUMBA,
    }
    ended = subprocess.run([empty.parent / "lpsmap", "factors"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", WITHOUT_CLICK)
    install(empty, distributions, "lpsmap-core[cli]")
    assert "No factor types" in run(empty.parent / "lpsmap", "factors")


@pytest.mark.parametrize("folder", WHEELS)
def test_tests_of_a_distribution_alone_import_what_it_declares(folder: str) -> None:
    text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^dependencies = \[\n(.*?)^\]", text, flags=re.MULTILINE | re.DOTALL)
    libraries = {name.replace("-", "_") for name in re.findall(r'^ *"([\w-]+)', declared, re.M)}
    if "lpsmap-core[cli]" in declared:
        libraries.add("click")
    paths = sorted(ALONE[folder].glob("test_*.py"))
    assert paths
    for path in paths:
        modules = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(str(node.module))
        tops = {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names)
        assert tops <= {"pytest", WHEELS[folder], *libraries}


@pytest.mark.slow
@pytest.mark.parametrize("folder", WHEELS)
def test_a_distribution_passes_its_tests_with_what_it_declares(
    distributions: Path, empty: Path, tmp_path: Path, folder: str
) -> None:
    library = {"lpsmap_jax": "jax", "lpsmap_torch": "torch"}.get(folder)
    if library:
        pytest.importorskip(library)
        lend(empty, library)
    install(empty, distributions, next(distributions.glob(f"{WHEELS[folder]}-*.whl")))
    ours = {name for name in installed_in(empty) if name.startswith("lpsmap")}
    run(empty, "-m", "pip", "install", "--quiet", "pytest")
    shutil.copytree(ALONE[folder], tmp_path / "alone")
    assert " passed" in run(empty, "-m", "pytest", "-q", tmp_path / "alone", cwd=tmp_path)
    assert ours == {name for name in installed_in(empty) if name.startswith("lpsmap")}


@pytest.mark.slow
def test_one_name_brings_what_most_people_need(distributions: Path, empty: Path) -> None:
    install(empty, distributions, next(distributions.glob("lpsmap-*.whl")))
    ours = {name for name in installed_in(empty) if name.startswith("lpsmap")}
    packs = {"lpsmap_dynamic", "lpsmap_factors_logic", "lpsmap_factors_struct"}
    assert ours == {"lpsmap", "lpsmap_core", "lpsmap_jit", *packs}
    run(empty, "-W", "error", "-c", "from lpsmap import DepTree, FactorGraph, PFactorGraph, Xor")
    assert "DepTree" in run(empty.parent / "lpsmap", "factors")
    parts = {"TorchFactorGraph": "lpsmap-torch", "DMVTree": "lpsmap-search"}
    for name, part in {**parts, "solve_many": "lpsmap-decode"}.items():
        advised = f"import lpsmap\ntry: lpsmap.{name}\nexcept AttributeError as e: print(e)"
        assert f"pip install {part}" in run(empty, "-c", advised)


@pytest.mark.slow
def test_files_are_solved_by_their_pack_and_core_alone(
    distributions: Path, empty: Path, tmp_path: Path
) -> None:
    install(empty, distributions, "lpsmap-core[cli]")
    model = tmp_path / "model.json"
    model.write_text('{"variables": {"u": [1.0, -1.0]}, "factors": []}', encoding="utf-8")
    command = [empty.parent / "lpsmap", "solve", model]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "pip install lpsmap-decode" in ended.stderr
    install(empty, distributions, "lpsmap-decode")
    ours = {name for name in installed_in(empty) if name.startswith("lpsmap")}
    assert ours == {"lpsmap_core", "lpsmap_jit", "lpsmap_dynamic", "lpsmap_decode"}
    assert '"u": [1.0, 0.0]' in run(*command)
    solved = "from lpsmap_decode import solve_many\nprint(*(o.ok for o in solve_many(['{}'])))"
    assert run(empty, "-W", "error", "-c", solved.format(model)).strip() == "True"


@pytest.mark.slow
@pytest.mark.parametrize(
    "factors",
    [
        {"lpsmap_factors_logic": "Xor"},
        {"lpsmap_factors_struct": "DepTree"},
        {"lpsmap_factors_logic": "Xor", "lpsmap_factors_struct": "DepTree"},
    ],
    ids=" and ".join,
)
def test_packs_are_found_alone_and_together_without_torch(
    distributions: Path, empty: Path, factors: dict[str, str]
) -> None:
    packs = (name.replace("_", "-") for name in factors)
    install(empty, distributions, "lpsmap-core[cli]", *packs)
    for name, factor in factors.items():
        run(empty, "-W", "error", "-c", f"from {name} import {factor}")
        assert factor in run(empty.parent / "lpsmap", "factors")
    installed = installed_in(empty)
    ours = {"lpsmap_core", "lpsmap_jit", *factors}
    if "lpsmap_factors_struct" in factors:
        ours.add("lpsmap_dynamic")
    assert {name for name in installed if name.startswith("lpsmap")} == ours
    assert "torch" not in installed


@pytest.mark.slow
def test_adapter_alone_is_found(distributions: Path, empty: Path) -> None:
    pytest.importorskip("torch")
    site = run(empty, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    lend(empty, "torch")
    install(empty, distributions, "lpsmap-torch")
    run(
        empty,
        "-c",
        "import lpsmap_core, lpsmap_torch; from lpsmap_torch import TorchFactorGraph\n"
        f"for module in (lpsmap_core, lpsmap_torch):\n"
        f"    assert module.__file__.startswith({site!r}), module.__file__",
    )
