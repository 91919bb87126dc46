"""Plugins: what they offer, and how they are kept from harming each other."""

from __future__ import annotations

import types
from typing import Any

import click
import pytest

import lpsmap
import lpsmap_core
from lpsmap.names import OWN
from lpsmap_core import Factor, FactorGraph
from lpsmap_core.engine.protocol import NumpyBackend
from lpsmap_core.plugins.registry import (
    DuplicateNameError,
    Plugin,
    PluginWarning,
    Registry,
    installed,
    registered,
)
from lpsmap_decode import FileFormat, hookspecs


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
    for kind in found.kinds:
        assert not getattr(found, kind)
    assert not found.of_kind("formats")  # of a hook that no plugin specifies
    with pytest.raises(AttributeError, match="no contributions called 'formats'"):
        _ = found.formats


def with_formats() -> Registry:
    """A registry with a plugin that specifies the hook for file formats."""
    found, module = Registry(), plugin()
    module.lpsmap_hookspecs = [hookspecs]
    found.register(module, Plugin("formats", "pack-f", "1"))
    return found


class Twin(FileFormat):
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
    found = with_formats()
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
    found = with_formats()
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
    words = r"A is claimed by an installed plugin, twice, pack-a 1\.2 .*rename it, .*=pack-a$"
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
    own = {*OWN, "solve_many"}
    offered = set(lpsmap.__all__) - {"TorchFactorGraph"}  # there if torch is imported
    assert {*own, *installed().factors} == offered


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
            "lpsmap_egnines",
            True,
            r"implements .* did you mean lpsmap_engines\? Until",
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


def test_a_plugin_specifies_a_hook_once_and_others_implement_it() -> None:
    found = with_formats()
    again = plugin(lpsmap_formats=[Twin])
    again.lpsmap_hookspecs = [hookspecs]
    found.register(again, Plugin("a", "pack-a", "1.2"))
    assert set(found.formats) == {".a", ".b"}
    found.unregister(found.plugins[-1])
    assert not found.formats


def test_a_hook_that_no_installed_plugin_specifies_is_named() -> None:
    found = Registry()
    words = "implements lpsmap_formats, which no installed plugin specifies; did you mean"
    with pytest.warns(PluginWarning, match=words):
        found.register(plugin(lpsmap_formats=[Twin]), Plugin("a", "pack-a", "1.2"))
    assert not found.of_kind("formats")


def test_helpers_beside_the_hooks_are_no_misspelt_hooks() -> None:
    Registry().register(misspelt("lpsmap_helper", marked=False), Plugin("a", "pack-a", "1.2"))
    Registry().register(misspelt("factor_of", marked=False), Plugin("a", "pack-a", "1.2"))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (4, "is written for version 4 .* has version 3. Upgrade lpsmap-core$"),
        (2, "is written for version 2 .* has version 3. Upgrade pack-a$"),
        ("3", "lpsmap_api_version is '3'; expected the version .* such as 3. .*pack-a$"),
        (True, "lpsmap_api_version is True; expected the version"),
        (None, "lpsmap_api_version is None; expected the version"),
    ],
)
def test_another_api_version(version: Any, words: str) -> None:
    module = plugin([A])
    module.lpsmap_api_version = version
    with pytest.raises(RuntimeError, match=words):
        Registry().register(module, Plugin("a", "pack-a", "1.2"))


@pytest.mark.filterwarnings("error")
def test_a_plugin_whose_warning_is_an_error_is_not_registered() -> None:
    found = Registry()
    one = Plugin("a", "pack-a", "1.2")
    for _ in range(2):  # again, as it is not registered already
        with pytest.raises(PluginWarning):
            found.register(misspelt("lpsmap_graphs", False), one)
    assert found.plugins == []
    with pytest.raises(PluginWarning), registered(plugin([A]), misspelt("lpsmap_graphs", False)):
        pass
    assert not hasattr(lpsmap, "A")


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
