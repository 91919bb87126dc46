"""The names of the face, for editors and shells, and advice on those that it lacks."""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
from pathlib import Path

import pytest

import lpsmap
from environments import ROOT
from lpsmap.advice import MOVED, SYNONYMS
from lpsmap_core import installed

SCRIPT = ROOT / "lpsmap_face" / "write_stub.py"
STUB = ROOT / "lpsmap_face" / "src" / "lpsmap" / "__init__.pyi"
KNOWN_NAMES = STUB.parent / "known_names.py"
OPTIONAL = ("lpsmap_jax", "lpsmap_torch")


def written() -> dict[str, str]:
    """The names in the stub with their modules."""
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def can_be_imported(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def test_the_stub_is_up_to_date() -> None:
    assert runpy.run_path(str(SCRIPT))["stub"]() == STUB.read_text(encoding="utf-8")


def test_the_stub_has_the_names_of_the_face() -> None:
    """All except those of plugins of others, which only run time knows."""
    names = {*dir(lpsmap), "TorchFactorGraph"} - {"Any", "__version__"}
    others = {
        name
        for name, found in installed().factors.items()
        if not (ROOT / found.plugin.distribution.replace("-", "_")).is_dir()
    }
    assert set(written()) - {"Any"} == names - others


def test_the_stub_imports_what_the_face_has() -> None:
    for name, module in written().items():
        if name not in ("Any", "plot") and can_be_imported(module):
            assert getattr(importlib.import_module(module), name) is getattr(lpsmap, name)


@pytest.mark.skipif(
    not all(map(can_be_imported, OPTIONAL)), reason="needs torch and JAX, whose names it lists"
)
def test_the_known_names_are_up_to_date() -> None:
    assert runpy.run_path(str(SCRIPT))["known_names"]() == KNOWN_NAMES.read_text(encoding="utf-8")


def test_synonyms_are_no_names_and_lead_to_types() -> None:
    words = [word for names in SYNONYMS.values() for word in names.split()]
    assert len(set(words)) == len(words)
    assert not {*words, *MOVED} & {*dir(lpsmap)}
    assert set(SYNONYMS) <= set(installed().factors)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Chain", "did you mean Sequence?"),
        ("tree", "did you mean DepTree?"),
        ("SparseMAPLoss", "use: from lpsmap_torch.losses import SparseMAPLoss"),
        (
            "SparsemapLoss",
            "did you mean SparseMAPLoss? use: from lpsmap_torch.losses import SparseMAPLoss",
        ),
        ("Assignment", "use: from lpsmap_decode import Assignment"),
        ("PFactorgraph", "did you mean PFactorGraph? use: from lpsmap import PFactorGraph"),
        ("Factorgraph", "did you mean FactorGraph? use: from lpsmap import FactorGraph"),
    ],
)
def test_advice(name: str, advice: str) -> None:
    module = advice.rpartition("from ")[2].partition(" ")[0]
    if "import" in advice and not can_be_imported(module.partition(".")[0]):
        advice += "; install it with: .*"
    with pytest.raises(AttributeError) as caught:
        getattr(lpsmap, name)
    assert str(caught.value) == f"module 'lpsmap' has no attribute {name!r}; {advice}"
    with pytest.raises(ImportError) as caught_too:
        exec(f"from lpsmap import {name}", {})
    assert str(caught_too.value) == str(caught.value)


def test_dir_lists_all_and_star_imports_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert {"FactorGraph", "Xor", "DepTree", "PFactorGraph", "plot"} <= {*dir(lpsmap)}
    if can_be_imported("lpsmap_torch"):
        assert "TorchFactorGraph" in dir(lpsmap)
    assert not {"TorchFactorGraph", "plot"} & {*lpsmap.__all__}
    assert set(lpsmap.__all__) < {*dir(lpsmap)}


def test_the_wheel_has_the_stub() -> None:
    assert (STUB.parent / "py.typed").is_file()
    assert STUB.parent.name == Path(lpsmap.__file__).parent.name
