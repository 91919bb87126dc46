"""Plugins: found, listed, and kept from harming each other."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib.metadata import Distribution, EntryPoint
from typing import Any

import pytest
from click.testing import CliRunner

import lpsmap
import lpsmap_core
from lpsmap_core import Factor, FactorGraph, cli, registry
from lpsmap_core.registry import DuplicateNameError, PluginWarning, Registry


def factor_type(name: str) -> type[Factor]:
    """Make a factor type of this name."""
    methods = {"solve_map": lambda self, u, v: 0, "vertex": lambda self, y: ([], [])}
    return type(name, (Factor,), {**methods, "__module__": f"{name.lower()}_pack"})


def plugin(factors: Any = None, graphs: Any = None) -> Any:
    """Make a module whose hooks return (or raise) what is given."""
    module = types.ModuleType("plugin")

    def answer(given: Any) -> Any:
        def hook() -> Any:
            if isinstance(given, Exception):
                raise given
            return given

        return hook

    for name, given in (("lpsmap_factors", factors), ("lpsmap_graphs", graphs)):
        if given is not None:
            setattr(module, name, lpsmap_core.hookimpl(answer(given)))
            getattr(module, name).__name__ = name
    return module


A, B = factor_type("A"), factor_type("B")


def test_classes_and_their_origin() -> None:
    found = Registry()
    found.register(plugin([A]), "a", "pack-a", "1.2")
    found.register(plugin([B], [FactorGraph]), "b", "pack-b", "0.3")
    assert set(found.factors) == {"A", "B"}
    assert found.factors["A"].cls is A
    assert (found.factors["A"].distribution, found.factors["A"].version) == ("pack-a", "1.2")
    assert set(found.graphs) == {"FactorGraph"}


def test_plugins_without_hooks_offer_nothing() -> None:
    found = Registry()
    found.register(plugin(), "empty", "pack", "1")
    assert found.factors == {}
    assert found.graphs == {}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (plugin(RuntimeError("no licence server")), "RuntimeError: no licence server"),
        (plugin(["A"]), "TypeError: lpsmap_factors returned 'A'; expected subclasses of Factor"),
        (plugin([A, int]), "returned <class 'int'>; expected subclasses of Factor"),
        (plugin([FactorGraph]), "expected subclasses of Factor"),
        (plugin(7), "TypeError"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_broken_plugin_is_named_and_others_work(broken: Any, words: str, first: bool) -> None:
    found = Registry()
    good = (plugin([B]), "good", "good-pack", "1")
    bad = (broken, "bad", "bad-pack", "6.6")
    for one in (bad, good) if first else (good, bad):
        found.register(*one)
    with pytest.warns(PluginWarning, match="skips the plugin 'bad' of bad-pack 6.6") as caught:
        assert set(found.factors) == {"B"}
    assert len(caught) == 1
    assert words in str(caught[0].message)
    assert "Update or uninstall bad-pack" in str(caught[0].message)


def test_one_name_claimed_twice_names_both_distributions() -> None:
    found = Registry()
    found.register(plugin([A]), "a", "pack-a", "1.2")
    found.register(plugin([factor_type("A")]), "b", "pack-b", "0.3")
    with pytest.raises(DuplicateNameError, match=r"A is claimed by.*pack-a 1\.2.*pack-b 0\.3"):
        _ = found.factors


def test_one_class_offered_twice_is_no_quarrel() -> None:
    found = Registry()
    found.register(plugin([A]), "a", "pack-a", "1.2")
    found.register(plugin([A, B]), "b", "pack-b", "0.3")
    assert set(found.factors) == {"A", "B"}
    assert found.factors["A"].distribution == "pack-a"


class Installed(Distribution):
    """A distribution that was never installed."""

    def __init__(self, name: str, target: str, group: str = "lpsmap") -> None:
        self._entry_points = [EntryPoint(name, target, group)]
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.5\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return path

    @property
    def entry_points(self) -> Any:
        return self._entry_points


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that exactly some distributions are installed."""

    def install(*found: Distribution) -> None:
        monkeypatch.setattr(registry, "distributions", lambda: iter(found))
        registry.installed.cache_clear()

    yield install
    registry.installed.cache_clear()


def test_a_plugin_that_cannot_be_imported(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "good_plugin", plugin([B]))
    pretend(
        Installed("lost", "no_such_module"),
        Installed("good", "good_plugin"),
        Installed("stranger", "no_such_module", group="console_scripts"),
    )
    with pytest.warns(PluginWarning, match="skips the plugin 'lost' of lost 4.5") as caught:
        found = registry.installed()
    assert len(caught) == 1
    assert set(found.factors) == {"B"}


def test_a_shadowed_distribution_is_not_a_quarrel(
    pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "good_plugin", plugin([B]))
    pretend(Installed("good", "good_plugin"), Installed("Good", "older_plugin"))
    assert set(registry.installed().factors) == {"B"}


def test_two_distributions_with_an_entry_point_of_one_name(
    pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entry points need not be unique between distributions: both packs count."""
    monkeypatch.setitem(sys.modules, "pack_a", plugin([A]))
    monkeypatch.setitem(sys.modules, "pack_b", plugin([B]))
    first, second = Installed("one", "pack_a"), Installed("two", "pack_b")
    first._entry_points = [EntryPoint("factors", "pack_a", "lpsmap")]
    second._entry_points = [EntryPoint("factors", "pack_b", "lpsmap")]
    pretend(first, second)
    assert set(registry.installed().factors) == {"A", "B"}


# -------------------------------------------------------------------- face and command line


def test_the_face_finds_every_installed_type() -> None:
    for name in [
        "Xor",
        "Or",
        "AtMostOne",
        "Budget",
        "Knapsack",
        "Imply",
        "Nand",
        "XorOut",
        "OrOut",
        "AndOut",
        "Pair",
        "DepTree",
    ]:
        cls = getattr(lpsmap, name)
        assert issubclass(cls, Factor)
        assert cls.__name__ == name
        assert name in dir(lpsmap)


def test_the_face_advises_on_unknown_names(pretend: Any) -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Xnor'; installed factor types: .*Xor"):
        _ = lpsmap.Xnor
    with pytest.raises(ImportError, match="Xnor"):
        exec("from lpsmap import Xnor")
    with pytest.raises(AttributeError, match="no attribute '_hidden'"):
        _ = lpsmap._hidden
    pretend()
    for name in ("Xor", "DepTree", "TorchFactorGraph"):
        vars(lpsmap).pop(name, None)
    with pytest.raises(AttributeError, match="pip install lpsmap-factors-logic"):
        _ = lpsmap.Xor
    with pytest.raises(AttributeError, match="pip install lpsmap-factors-struct"):
        _ = lpsmap.DepTree
    with pytest.raises(AttributeError, match="pip install lpsmap-torch"):
        _ = lpsmap.TorchFactorGraph


def test_lpsmap_factors_lists_what_is_installed() -> None:
    result = CliRunner().invoke(cli.main, ["factors"])
    assert result.exit_code == 0
    lines = [line.split(maxsplit=3) for line in result.output.splitlines()]
    assert lines[0] == ["FACTOR", "PACKAGE", "VERSION", "LEVEL"]
    listed = {line[0]: line[1:] for line in lines[1:]}
    assert listed["Xor"][0] == "lpsmap-factors-logic"
    assert listed["Xor"][2] == "3 closed form"
    assert listed["DepTree"][0] == "lpsmap-factors-struct"
    assert listed["DepTree"][2] == "3 closed form"
    assert listed["Sequence"][2] == "2 compiled oracle"


def test_the_command_line_without_packs(pretend: Any) -> None:
    pretend()
    result = CliRunner().invoke(cli.main, ["factors"])
    assert result.exit_code == 0
    assert "pip install lpsmap-factors-logic" in result.output


def test_the_command_line_helps_and_says_its_version() -> None:
    assert lpsmap_core.__version__ in CliRunner().invoke(cli.main, ["--version"]).output
    assert "factors" in CliRunner().invoke(cli.main, ["-h"]).output


def test_importing_the_face_imports_neither_torch_nor_packs() -> None:
    code = (
        "import sys, lpsmap; lpsmap.FactorGraph; lpsmap.Xor; dir(lpsmap); "
        "assert 'torch' not in sys.modules, 'torch'; "
        "lpsmap.TorchFactorGraph; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, lpsmap; print(*(m for m in sys.modules if m.startswith('lpsmap_')))"
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert {name.split(".")[0] for name in printed.split()} == {"lpsmap_core"}
