"""Every hook is documented by an example that works; every factor type is in the docs' table."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

import lpsmap_decode.hookspecs
from lpsmap import FactorGraph, Xor
from lpsmap_core.command import cli
from lpsmap_core.local.solvers import override_level
from lpsmap_core.plugins import hookspecs
from lpsmap_core.plugins.registry import installed, registered
from lpsmap_decode.formats.files import read_graph
from pages import execute

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "hooks.md"
SPECS = {
    name: function
    for module in (hookspecs, lpsmap_decode.hookspecs)
    for name, function in vars(module).items()
    if name.startswith("lpsmap_")
}
HOOKS = sorted(SPECS)


@pytest.fixture
def page() -> types.ModuleType:
    """The page's code as one module; its last block is the test that it describes."""
    return execute(PAGE)


def test_every_hook_is_known_to_the_registry() -> None:
    assert set(HOOKS) == {f"lpsmap_{kind}" for kind in installed().kinds}


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_section_and_its_example_offers_something(
    hook: str, page: types.ModuleType
) -> None:
    assert f"\n## `{hook}`\n" in PAGE.read_text(encoding="utf-8")
    assert (SPECS[hook].__doc__ or "").startswith("Return ")
    with registered(page) as found:
        offers = getattr(found, hook.removeprefix("lpsmap_"))
        mine = [r for r in offers.values() if r.plugin.distribution == "registered-by-hand"]
        assert len(mine) == 1


def test_the_examples_do_what_they_say(page: types.ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "scores.one"
    path.write_text("3.0\n1.0\n", encoding="utf-8")
    with registered(page) as found:
        assert CliRunner().invoke(cli.main, ["hello"]).output == "hello\n"
        problem = read_graph(path)
        problem.graph.solve()
        assert problem.variables["u"].value.tolist() == [1.0, 0.0]
        graph = found.graphs["PlainGraph"].value()
        u = graph.variable_from([0.25])
        graph.solve()
        assert u.value == [0.25]
        graph = FactorGraph()
        graph.add(Xor(graph.variable_from([0.5, 2.0])))
        rounded = found.decoders["rounding"].value().near(graph.solve(), gap=1e-8)
        assert (rounded.values.tolist(), rounded.score.tolist()) == ([0.0, 1.0], [2.0])
        assert not rounded.proved.any()
        host = found.backends["host"].value()
        assert host.to_numpy(host.asarray(u.index, "cpu")) == [0]


def listed(section: str) -> dict[str, int]:
    """Return the types of a section of the docs' table, with their levels."""
    text = (ROOT / "docs" / "reference" / "factors.md").read_text(encoding="utf-8")
    rows = re.search(rf"## {section}\n(.*?)(?=\n## |\Z)", text, flags=re.DOTALL)
    assert rows
    found = re.findall(r"^\| `(\w+)` \| .+ \| (\d) \| .+ \|$", rows[1], flags=re.MULTILINE)
    return {name: int(level) for name, level in found}


@pytest.mark.parametrize("pack", ["lpsmap-factors-logic", "lpsmap-factors-struct"])
def test_every_factor_type_is_in_the_table(pack: str) -> None:
    offered = [r for r in installed().factors.values() if r.plugin.distribution == pack]
    assert listed(pack) == {r.name: override_level(r.value) for r in offered}
