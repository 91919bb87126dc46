"""Plugins: found, listed, and kept from harming each other."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import lpsmap
import lpsmap_core
import lpsmap_decode
from environments import ROOT
from lpsmap_core import Factor, FactorGraph
from lpsmap_core.command import cli
from lpsmap_core.engine.backends import NumpyBackend
from lpsmap_core.plugins import registry
from lpsmap_core.plugins.files import read_graph
from lpsmap_core.plugins.formats import FileFormat, FileFormatError
from lpsmap_core.plugins.json_format import JsonFormat
from lpsmap_core.plugins.packs import COMMANDS, FACE, SUFFIXES
from lpsmap_core.plugins.registry import (
    DuplicateNameError,
    Plugin,
    PluginWarning,
    Registry,
    installed,
    registered,
)


def factor_type(name: str) -> type[Factor]:
    """Make a factor type of this name."""
    methods = {"solve_map": lambda self, u, v: 0, "vertex": lambda self, y: ([], [])}
    return type(name, (Factor,), {**methods, "__module__": f"{name.lower()}_pack"})


def plugin(factors: Any = None, graphs: Any = None, **hooks: Any) -> Any:
    """Make a module whose hooks return (or raise) what is given."""
    module: Any = types.ModuleType("plugin")
    module.lpsmap_api_version = 3

    def answer(given: Any) -> Any:
        def hook() -> Any:
            if isinstance(given, BaseException):
                raise given
            return given

        return hook

    for name, given in {"lpsmap_factors": factors, "lpsmap_graphs": graphs, **hooks}.items():
        if given is not None:
            setattr(module, name, lpsmap_core.hookimpl(answer(given)))
            getattr(module, name).__name__ = name
    return module


A, B = factor_type("A"), factor_type("B")


def test_classes_and_their_origin() -> None:
    found = Registry()
    found.register(plugin([A]), Plugin("a", "pack-a", "1.2"))
    found.register(plugin([B], [FactorGraph]), Plugin("b", "pack-b", "0.3"))
    assert set(found.factors) == {"A", "B"}
    assert len(found.factors) == 2
    assert found.factors["A"].value is A
    assert found.factors["A"].plugin == Plugin("a", "pack-a", "1.2")
    assert set(found.graphs) == {"FactorGraph"}


def test_plugins_without_hooks_offer_nothing() -> None:
    found = Registry()
    found.register(plugin(), Plugin("empty", "pack", "1"))
    for offers in (found.factors, found.graphs, found.formats, found.commands, found.backends):
        assert not offers


class Twin(JsonFormat):
    """A format of two suffixes."""

    suffixes = (".a", ".b")


@pytest.mark.parametrize(
    ("hook", "kind", "given", "names"),
    [
        ("lpsmap_factors", "factors", [A, B], {"A", "B"}),
        ("lpsmap_graphs", "graphs", [FactorGraph], {"FactorGraph"}),
        ("lpsmap_formats", "formats", [Twin], {".a", ".b"}),
        ("lpsmap_commands", "commands", [click.Command("greet")], {"greet"}),
        ("lpsmap_backends", "backends", [NumpyBackend], {"numpy"}),
    ],
)
def test_every_hook(hook: str, kind: str, given: Any, names: set[str]) -> None:
    found = Registry()
    found.register(plugin(**{hook: given}), Plugin("a", "pack-a", "1.2"))
    offers = getattr(found, kind)
    assert set(offers) == names
    assert {offers[name].value for name in names} == set(given)
    found.register(plugin(**{hook: [FileFormat, int]}), Plugin("bad", "bad-pack", "6.6"))
    with pytest.warns(PluginWarning, match=f"'bad' of bad-pack 6.6: TypeError: {hook} returned"):
        assert set(getattr(found, kind)) == names


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (plugin(RuntimeError("no licence server")), "RuntimeError: no licence server"),
        (plugin(["A"]), "TypeError: lpsmap_factors returned 'A'; expected subclasses of Factor"),
        (plugin([A, int]), "returned <class 'int'>; expected subclasses of Factor"),
        (plugin([FactorGraph]), "expected subclasses of Factor"),
        (
            plugin(7),
            "TypeError: lpsmap_factors returned 7; expected a list of subclasses of Factor",
        ),
        (plugin(A), "lpsmap_factors returned <class 'a_pack.A'>; expected a list of subclasses"),
        (plugin(SystemExit(3)), "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_broken_plugin_is_named_and_others_work(broken: Any, words: str, first: bool) -> None:
    found = Registry()
    good = (plugin([B]), Plugin("good", "good-pack", "1"))
    bad = (broken, Plugin("bad", "bad-pack", "6.6"))
    for one in (bad, good) if first else (good, bad):
        found.register(*one)
    with pytest.warns(PluginWarning, match="skips the plugin 'bad' of bad-pack 6.6") as caught:
        assert set(found.factors) == {"B"}
    assert len(caught) == 1
    assert words in str(caught[0].message)
    assert "Update or uninstall bad-pack" in str(caught[0].message)


@pytest.mark.parametrize("suffixes", [".foo", ("foo",), (".Foo",), (".a.foo",), ("",), (3,), None])
def test_suffixes_that_no_file_can_have(suffixes: Any) -> None:
    found = Registry()
    odd = type("Odd", (FileFormat,), {"suffixes": suffixes, "read": lambda self, path: None})
    found.register(plugin(lpsmap_formats=[odd]), Plugin("odd", "odd-pack", "1"))
    with pytest.warns(PluginWarning, match=r"Odd\.suffixes is .*; expected a tuple of suffixes"):
        assert not found.formats


def test_one_name_claimed_twice_names_both_and_no_other_name_suffers() -> None:
    found = Registry()
    found.register(plugin([A, B]), Plugin("a", "pack-a", "1.2"))
    found.register(plugin([factor_type("A")]), Plugin("b", "pack-b", "0.3"))
    words = (
        r"A is claimed by.*pack-a 1\.2.*pack-b 0\.3.*Uninstall pack-a or pack-b, .*"
        "LPSMAP_DISABLE_PLUGINS=pack-a or LPSMAP_DISABLE_PLUGINS=pack-b$"
    )
    for ask in (found.factors.__getitem__, found.factors.get):
        with pytest.raises(DuplicateNameError, match=words):
            ask("A")
    assert "A" in found.factors
    assert list(found.factors) == ["B"]
    assert found.factors["B"].value is B
    with pytest.raises(KeyError):
        found.factors["C"]


def test_one_plugin_that_offers_a_name_twice() -> None:
    found = Registry()
    found.register(plugin([A, factor_type("A")]), Plugin("a", "pack-a", "1.2"))
    words = r"A is registered twice by pack-a 1\.2 .*author to rename one, .*_PLUGINS=pack-a$"
    with pytest.raises(DuplicateNameError, match=words):
        found.factors["A"]


def test_names_of_lpsmap_itself_are_contested() -> None:
    """``from lpsmap import FactorGraph`` could not mean a plugin's type."""
    found = Registry()
    found.register(plugin([factor_type("FactorGraph"), A]), Plugin("a", "pack-a", "1.2"))
    words = r"FactorGraph is claimed .*pack-a 1\.2.* lpsmap-core .*Uninstall pack-a, .*=pack-a$"
    with pytest.raises(DuplicateNameError, match=words):
        found.factors["FactorGraph"]
    assert list(found.factors) == ["A"]
    own = {*FACE, "__version__", "PFactorGraph", "solve_many"}
    assert {*own, *installed().factors} == set(lpsmap.__all__)


def test_one_class_offered_twice_is_no_quarrel() -> None:
    found = Registry()
    found.register(plugin([A]), Plugin("a", "pack-a", "1.2"))
    found.register(plugin([A, B]), Plugin("b", "pack-b", "0.3"))
    assert set(found.factors) == {"A", "B"}
    assert found.factors["A"].plugin.distribution == "pack-a"


def misspelt(name: str, marked: bool = True) -> Any:
    """Make a plugin with a hook that works and a function of another name."""
    module = plugin([B])

    def function() -> list[Any]:
        return []

    setattr(module, name, lpsmap_core.hookimpl(function) if marked else function)
    return module


@pytest.mark.parametrize(
    ("name", "marked", "words"),
    [
        (
            "lpsmap_factor",
            True,
            r"implements .* did you mean lpsmap_factors\? Until",
        ),
        (
            "lpsmap_fromats",
            True,
            r"implements .* did you mean lpsmap_formats\? Until",
        ),
        ("commands", True, r"implements commands, .* did you mean lpsmap_commands\? Until"),
        (
            "lpsmap_factor",
            False,
            r"has a function .* did you mean lpsmap_factors\? Until",
        ),
        ("lpsmap_graphs", False, "has a function lpsmap_graphs without .*@lpsmap_core.hookimpl"),
    ],
)
def test_a_misspelt_hook_is_named(name: str, marked: bool, words: str) -> None:
    found = Registry()
    with pytest.warns(PluginWarning, match=f"'a' of pack-a 1.2 {words}") as caught:
        found.register(misspelt(name, marked), Plugin("a", "pack-a", "1.2"))
    assert len(caught) == 1
    assert set(found.factors) == {"B"}


def test_helpers_beside_the_hooks_are_no_misspelt_hooks() -> None:
    Registry().register(misspelt("lpsmap_helper", marked=False), Plugin("a", "pack-a", "1.2"))
    Registry().register(misspelt("factor_of", marked=False), Plugin("a", "pack-a", "1.2"))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (4, "is written for version 4 .* has version 3. Upgrade lpsmap-core$"),
        (0, "is written for version 0 .* has version 3. Upgrade pack-a; "),
        ("2", "lpsmap_api_version is '2'; expected an integer, such as 3. .*pack-a$"),
        (True, "lpsmap_api_version is True; expected an integer"),
    ],
)
def test_another_api_version(version: Any, words: str) -> None:
    module = plugin([A])
    module.lpsmap_api_version = version
    with pytest.raises(RuntimeError, match=words):
        Registry().register(module, Plugin("a", "pack-a", "1.2"))


def test_a_plugin_of_version_1_learns_what_to_change() -> None:
    """One that names no version is of the first."""
    module = plugin([A])
    del module.lpsmap_api_version
    with pytest.raises(
        RuntimeError, match="does not declare .*counts as 1.*_version = 3$"
    ) as caught:
        Registry().register(module, Plugin("a", "pack-a", "1.2"))
    words = re.search(r"'(.*)' in (\S+),", str(caught.value))
    assert words is not None
    assert f"## {words[1]}\n" in (ROOT / words[2]).read_text(encoding="utf-8")


def test_registered_for_a_while() -> None:
    assert not hasattr(lpsmap, "A")
    with registered(plugin([A]), plugin([B])) as found:
        assert lpsmap.A is A
        assert "B" in dir(lpsmap)
        assert "Xor" in found.factors
    assert not hasattr(lpsmap, "A")
    bad = plugin()
    bad.lpsmap_api_version = 7
    with pytest.raises(RuntimeError, match="version 7"), registered(plugin([A]), bad):
        pass
    assert not hasattr(lpsmap, "A")


# -------------------------------------------------------------------- installed distributions

Install = Callable[..., Path]


def install(
    folder: Path, name: str, source: str, entry_point: str = "plugin", group: str = "lpsmap"
) -> None:
    """Write a distribution of one module into a folder of the import path."""
    module = name.lower().replace("-", "_")
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    write_info(folder, name, f"[{group}]\n{entry_point} = {module}\n")


def write_info(folder: Path, name: str, entry_points: str) -> None:
    """Write the metadata of a distribution into a folder of the import path."""
    info = folder / f"{name.lower().replace('-', '_')}-4.5.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.5\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")


PACK = """
import lpsmap_core

class {name}(lpsmap_core.Factor):
    def solve_map(self, eta_u, eta_v): return 0
    def vertex(self, y): return [], []

lpsmap_api_version = 3

@lpsmap_core.hookimpl
def lpsmap_factors():
    return [{name}]
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A folder whose distributions are the only installed ones that are plugins, but for core."""
    write_info(tmp_path, "lpsmap-core", "[lpsmap]\ncore = lpsmap_core.plugin\n")
    others = [p for p in sys.path if not any(Path(p).glob("lpsmap*.dist-info"))]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    monkeypatch.delenv(registry.DISABLE, raising=False)
    modules = set(sys.modules)
    registry.installed.cache_clear()
    yield tmp_path
    registry.installed.cache_clear()
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_plugin_that_cannot_be_imported(alone: Path) -> None:
    install(alone, "lost", "import no_such_module")
    install(alone, "good", PACK.format(name="Good"))
    install(alone, "stranger", "raise RuntimeError", group="console_scripts")
    with pytest.warns(PluginWarning, match="skips the plugin 'plugin' of lost 4.5") as caught:
        found = registry.installed()
    assert len(caught) == 1
    assert "ModuleNotFoundError: No module named 'no_such_module'" in str(caught[0].message)
    assert set(found.factors) == {"Good"}


def test_a_plugin_that_ends_python_ends_nothing(alone: Path) -> None:
    install(alone, "quitter", "raise SystemExit(3)")
    install(alone, "good", PACK.format(name="Good"))
    with pytest.warns(PluginWarning, match="skips the plugin 'plugin' of quitter 4.5: SystemExit"):
        assert set(registry.installed().factors) == {"Good"}


def test_a_plugin_of_another_api_version_is_skipped(alone: Path) -> None:
    install(alone, "newer", PACK.format(name="Newer") + "lpsmap_api_version = 4")
    install(alone, "good", PACK.format(name="Good"))
    with pytest.warns(PluginWarning, match="of newer 4.5: .* Upgrade lpsmap-core. Other plugins"):
        found = registry.installed()
    assert set(found.factors) == {"Good"}


def test_a_plugin_of_version_2_runs_on(alone: Path) -> None:
    install(alone, "earlier", PACK.format(name="Earlier") + "lpsmap_api_version = 2")
    assert set(registry.installed().factors) == {"Earlier"}


@pytest.mark.parametrize(
    ("imported", "named"),
    [
        ("lpsmap_core.decoding.solvers import MapSolver", "'lpsmap_core.decoding'"),
        ("lpsmap_core import DynamicProgram", "import it from lpsmap_dynamic"),
    ],
)
def test_a_plugin_that_imports_what_has_moved_learns_it(
    alone: Path, imported: str, named: str
) -> None:
    install(alone, "earlier", f"from {imported}\nlpsmap_api_version = 2")
    with pytest.warns(PluginWarning, match=f"of earlier 4.5: .*{named}") as caught:
        registry.installed()
    words = re.search(r"'(From [^']*)' in (\S+)\.", str(caught[0].message))
    assert words is not None
    assert f"## {words[1]}\n" in (ROOT / words[2]).read_text(encoding="utf-8")


def test_a_shadowed_distribution_is_not_a_quarrel(
    alone: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path_factory.mktemp("older")
    install(alone, "good", PACK.format(name="Good"))
    install(older, "Good", PACK.format(name="Older"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(older)])
    assert set(registry.installed().factors) == {"Good"}


def test_two_distributions_with_an_entry_point_of_one_name(alone: Path) -> None:
    """Entry points need not be unique between distributions: both packs count."""
    install(alone, "one", PACK.format(name="One"), entry_point="factors")
    install(alone, "two", PACK.format(name="Two"), entry_point="factors")
    assert set(registry.installed().factors) == {"One", "Two"}


@pytest.mark.parametrize(
    ("disabled", "left"),
    [
        ("", {"One", "Two"}),
        ("all", set()),
        ("pack-one", {"Two"}),
        ("Pack_One, second", set()),
        ("second", {"One"}),
    ],
)
def test_plugins_that_the_environment_switches_off(
    alone: Path, monkeypatch: pytest.MonkeyPatch, disabled: str, left: set[str]
) -> None:
    install(alone, "pack-one", PACK.format(name="One"), entry_point="first")
    install(alone, "pack-two", PACK.format(name="Two"), entry_point="second")
    monkeypatch.setenv("LPSMAP_DISABLE_PLUGINS", disabled)
    found = registry.installed()
    assert set(found.factors) == left
    assert set(found.formats) == {".json"}, "core is no plugin to switch off"


def test_switching_off_what_is_not_there(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(alone, "good", PACK.format(name="Good"))
    monkeypatch.setenv("LPSMAP_DISABLE_PLUGINS", "goood")
    with pytest.warns(PluginWarning, match="names 'goood', which is not an installed plugin"):
        assert set(registry.installed().factors) == {"Good"}


def test_slow_plugins_wait_until_something_is_asked_for(tmp_path: Path) -> None:
    for i in range(50):
        install(tmp_path, f"slow-{i}", "import time\ntime.sleep(60)")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import lpsmap, lpsmap_core.command.cli\n"
        "lpsmap.FactorGraph, lpsmap.Factor\n"
        "assert not [m for m in sys.modules if m.startswith('slow')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


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


def test_the_face_advises_on_unknown_names() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'Xnor'; did you mean .*Xor.* Installed"
    ):
        _ = lpsmap.Xnor
    with pytest.raises(ImportError, match="Xnor"):
        exec("from lpsmap import Xnor")
    with pytest.raises(AttributeError, match="no attribute '_hidden'"):
        _ = lpsmap._hidden
    with pytest.raises(AttributeError, match="example now, in examples/conditional_gradient.py"):
        _ = lpsmap.conditional_gradient


def test_the_face_advises_what_to_install(alone: Path) -> None:
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


def test_the_command_line_without_packs(alone: Path) -> None:
    result = CliRunner().invoke(cli.main, ["factors"])
    assert result.exit_code == 0
    assert "pip install lpsmap-factors-logic" in result.output


def test_the_command_line_helps_and_says_its_version() -> None:
    assert lpsmap_core.__version__ in CliRunner().invoke(cli.main, ["--version"]).output
    assert "factors" in CliRunner().invoke(cli.main, ["-h"]).output


def test_everything_from_the_face_is_factor_types_too() -> None:
    """``import *`` brings no graph of an adapter, for which it would import torch."""
    code = (
        "import sys; from lpsmap import *; FactorGraph, Xor, DepTree; import lpsmap; "
        "assert {'FactorGraph', 'Xor', 'DepTree'} <= {*dir(lpsmap)}; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_face_imports_neither_torch_nor_packs() -> None:
    code = (
        "import sys, lpsmap; lpsmap.FactorGraph; lpsmap.Xor; dir(lpsmap); "
        "assert 'torch' not in sys.modules, 'torch'"
    )
    if importlib.util.find_spec("torch"):
        code += "; lpsmap.TorchFactorGraph; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, lpsmap; print(*(m for m in sys.modules if m.startswith('lpsmap_')))"
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert {name.split(".")[0] for name in printed.split()} == {"lpsmap_core", "lpsmap_jit"}


def test_the_face_says_what_the_environment_leaves_out(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(alone, "lpsmap-factors-logic", PACK.format(name="Xor"), entry_point="logic")
    for disabled in ("all", "logic"):
        registry.installed.cache_clear()
        monkeypatch.setenv("LPSMAP_DISABLE_PLUGINS", disabled)
        with pytest.raises(ImportError, match=f"disabled by LPSMAP_DISABLE_PLUGINS={disabled}$"):
            exec("from lpsmap import Xor", {})


def test_python_adds_no_suggestion_of_its_own() -> None:
    with pytest.raises(AttributeError, match="did you mean DepTree") as caught:
        _ = lpsmap.DepTre
    shown = traceback.format_exception(caught.value)[-1]
    assert shown.count("did you mean") == 1
    assert "Did you mean" not in shown


# -------------------------------------------------------------------- names that are not there


def test_a_name_of_a_pack_that_is_not_installed(alone: Path) -> None:
    install(alone, "good", PACK.format(name="Good"))
    for name, pack in {
        "DepTree": "lpsmap-factors-struct",
        "Xor": "lpsmap-factors-logic",
        "DMVTree": "lpsmap-search",
        "TorchFactorGraph": "lpsmap-torch",
    }.items():
        with pytest.raises(ImportError, match=f"{name!r}; install it with: pip install {pack}$"):
            exec(f"from lpsmap import {name}", {})
        with pytest.raises(AttributeError, match=f"{name!r}; install it with: pip install {pack}$"):
            getattr(lpsmap, name)
        assert not hasattr(lpsmap, name)
        path = alone / "problem.json"
        path.write_text(
            f'{{"variables": {{"u": [1]}}, "factors": [{{"type": "{name}", "over": ["u"]}}]}}'
        )
        with pytest.raises(FileFormatError, match=f"expected an inst.*pip install {pack}$"):
            read_graph(path)


def test_what_lpsmap_decode_has_says_so_where_it_is_not_installed(alone: Path) -> None:
    advice = "install it with: pip install lpsmap-decode"
    with pytest.raises(ImportError, match=f"'solve_many'; {advice}$"):
        exec("from lpsmap import solve_many", {})
    with pytest.raises(AttributeError, match=f"'solve_many'; {advice}$"):
        _ = lpsmap.solve_many
    assert "solve_many" not in lpsmap.__all__
    with pytest.raises(FileFormatError, match=f"'.uai'; expected one of .json; {advice}"):
        read_graph(alone / "model.uai.gz")
    for command, pack in {"solve": "lpsmap-decode", "induce": "lpsmap-search"}.items():
        result = CliRunner().invoke(cli.main, [command, "model.json"])
        assert result.exit_code == 2
        words = f"Error: No such command '{command}'; install it with: pip install {pack}."
        assert result.output.splitlines()[-1] == words


def test_what_lpsmap_decode_has_is_there_unless_it_is_left_out(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_point = "[lpsmap]\ndecode = lpsmap_decode.plugin\n"
    write_info(alone, "lpsmap-decode", entry_point)
    assert lpsmap.solve_many is lpsmap_decode.solve_many
    assert "solve_many" in dir(lpsmap)
    assert set(COMMANDS) - {"induce"} <= set(registry.installed().commands)
    assert set(SUFFIXES) < set(registry.installed().formats)
    registry.installed.cache_clear()
    monkeypatch.setenv("LPSMAP_DISABLE_PLUGINS", "lpsmap-decode")
    left_out = "lpsmap-decode, which has it, is disabled by LPSMAP_DISABLE_PLUGINS=lpsmap-decode"
    with pytest.raises(AttributeError, match=f"'solve_many'; {left_out}$"):
        _ = lpsmap.solve_many
    assert left_out in CliRunner().invoke(cli.main, ["solve"], terminal_width=300).output


def test_names_that_are_near_are_suggested(alone: Path) -> None:
    install(alone, "good", PACK.format(name="Goodness"))
    exec("from lpsmap import Goodness", {})
    for near, words in {
        "goodnes": r"did you mean Goodness\?",
        "deptree": r"did you mean DepTree \(pip install lpsmap-factors-struct\)",
        "Zzz": "installed factor types: Goodness",
    }.items():
        with pytest.raises(ImportError, match=words):
            exec(f"from lpsmap import {near}", {})


def test_check_tells_a_contested_name_of_a_distribution(alone: Path) -> None:
    install(alone, "one", PACK.format(name="Same"))
    install(alone, "two", PACK.format(name="Same"))
    for name in ("one", "two", "Same"):
        result = CliRunner().invoke(cli.main, ["check", name])
        assert result.exit_code == 1
        assert "Same is claimed by two installed plugins" in result.output


def test_check_tells_a_misspelt_group_from_an_unknown_name(alone: Path) -> None:
    install(alone, "slip", PACK.format(name="Slip"), group="lpsmap_plugins")
    install(alone, "tool", PACK.format(name="Tool"), group="console_scripts")
    install(alone, "empty", "lpsmap_api_version = 3")
    for name, words in {
        "slip": "no entry point in the group 'lpsmap'; its group 'lpsmap_plugins' is ignored",
        "tool": "no entry point in the group 'lpsmap'.",
        "empty": "is installed, but has no factor types",
        "nothing": "is neither an installed factor type, nor a distribution that has one.",
    }.items():
        result = CliRunner().invoke(cli.main, ["check", name], terminal_width=300)
        assert result.exit_code == 2
        assert words in result.output


@pytest.mark.parametrize("group", ["lpsmaps", "lpsmap_plugins"])
def test_the_list_of_plugins_tells_a_misspelt_group(alone: Path, group: str) -> None:
    install(alone, "slip", PACK.format(name="Slip"), group=group)
    result = CliRunner().invoke(cli.main, ["plugins"])
    assert f"slip has entry points in the group '{group}'" in result.output
    assert result.output.count("entry points in the group") == 1


def test_a_warning_of_a_plugin_is_about_the_line_of_the_user(alone: Path) -> None:
    install(alone, "lost", "import no_such_module")
    with pytest.warns(PluginWarning) as caught:
        registry.installed()
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_of_a_solve_is_about_the_line_of_the_user() -> None:
    graph = FactorGraph()
    graph.add(lpsmap.Xor(graph.variable_from([[np.nan, 1.0], [0.0, 1.0]])))
    with pytest.warns(lpsmap_core.ConvergenceWarning) as caught:
        graph.solve()
    assert [warning.filename for warning in caught] == [__file__]
