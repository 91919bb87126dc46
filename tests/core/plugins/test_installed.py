"""Plugins of installed distributions: found, skipped, switched off, and checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from core.plugins.distributions import PACK, install
from lpsmap_core.command import cli
from lpsmap_core.plugins import registry
from lpsmap_core.plugins.registry import (
    PluginWarning,
)


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
    assert set(found.backends) == {"numpy"}, "core is no plugin to switch off"


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
