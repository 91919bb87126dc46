"""Each distribution builds, installs alone into an empty environment, and does its job there."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from environments import PLUGINS, ROOT, WHEELS, borrow_torch, install, run, venv

USERS_FACTOR = """
import numpy as np
from lpsmap_core import Factor, FactorGraph


class ExactlyOne(Factor):
    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))

    def vertex(self, y):
        return np.eye(self.variables.shape[-1])[y], np.zeros(0)


fg = FactorGraph()
u = fg.variable_from(np.array([0.6, 0.4, -3.0]))
fg.add(ExactlyOne(u))
fg.add(ExactlyOne(~u[1:]))
fg.solve(tol=1e-9)
np.testing.assert_allclose(u.value, [0.0, 1.0, 0.0], atol=1e-6)
"""


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The Python of a new, empty environment."""
    return venv(tmp_path / "env")


@pytest.mark.slow
@pytest.mark.parametrize("name", WHEELS)
def test_distribution_is_complete(distributions: Path, name: str) -> None:
    wheel_path = next(distributions.glob(f"{name}-*.whl"))
    assert wheel_path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel_path) as wheel:
        files = set(wheel.namelist())
        info = next(file for file in files if file.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(info).decode())
    tops = {file.split("/")[0] for file in files} - {info.split("/")[0]}
    assert tops == WHEELS[name]
    assert {f"{package}/py.typed" for package in WHEELS[name]} <= files
    assert any(file.endswith("/licenses/LICENSE") for file in files)
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert len(metadata.get_payload().strip()) > 200, "no README in the metadata"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    source = {str(p.relative_to(ROOT / name)) for p in (ROOT / name / "src").rglob("*.py")}
    with tarfile.open(next(distributions.glob(f"{name}-*.tar.gz"))) as sdist:
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
def test_core_alone_solves_a_users_factor(distributions: Path, empty: Path) -> None:
    install(empty, distributions, "lpsmap-core")
    installed = re.findall(r"^(lpsmap\S*|torch)", run(empty, "-m", "pip", "list"), re.MULTILINE)
    assert installed in (["lpsmap-core"], ["lpsmap_core"])
    run(empty, "-c", "import lpsmap; lpsmap.FactorGraph")
    run(empty, "-c", USERS_FACTOR)
    assert "No factor types" in run(empty.parent / "lpsmap", "factors")


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
    install(empty, distributions, *(name.replace("_", "-") for name in factors))
    for name, factor in factors.items():
        run(empty, "-W", "error", "-c", f"from lpsmap import {factor}; from {name} import {factor}")
        assert factor in run(empty.parent / "lpsmap", "factors")
    installed = run(empty, "-m", "pip", "list")
    ours = {name.replace("-", "_") for name in re.findall(r"^lpsmap\S+", installed, re.MULTILINE)}
    assert ours == {"lpsmap_core", *factors}
    assert "torch" not in installed


@pytest.mark.slow
def test_adapter_alone_is_found(distributions: Path, empty: Path) -> None:
    pytest.importorskip("torch")
    site = run(empty, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    borrowed = Path(site).parent / "borrowed"
    borrowed.mkdir()
    borrow_torch(borrowed)
    Path(site, "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    install(empty, distributions, "lpsmap-torch")
    run(
        empty,
        "-c",
        "import lpsmap_core, lpsmap_torch; from lpsmap import TorchFactorGraph\n"
        f"for module in (lpsmap_core, lpsmap_torch):\n"
        f"    assert module.__file__.startswith({site!r}), module.__file__",
    )
