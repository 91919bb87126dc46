"""The face and the command line: the names that they have, and advice on those that they lack."""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lpsmap
import lpsmap_core
import lpsmap_decode
from core.plugins.distributions import PACK, install, write_info
from lpsmap_core import Factor, FactorGraph
from lpsmap_core.command import cli
from lpsmap_core.plugins import registry
from lpsmap_decode import FileFormatError
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.files import read_graph


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
    lines = [re.split("  +", line) for line in result.output.splitlines()]
    assert lines[0] == ["FACTOR", "PACKAGE", "LEVEL", "MEANING"]
    listed = {line[0]: line[1:] for line in lines[1:]}
    sentence = "Exactly one variable of every row is on."
    assert listed["Xor"] == ["lpsmap-factors-logic", "3 closed form", sentence]
    assert listed["DepTree"][:2] == ["lpsmap-factors-struct", "3 closed form"]
    assert listed["Sequence"][1] == "2 compiled oracle"
    assert all(words.endswith(".") for *_, words in listed.values())


def test_the_command_line_without_packs(alone: Path) -> None:
    result = CliRunner().invoke(cli.main, ["factors"])
    assert result.exit_code == 0
    assert "pip install lpsmap\n" in result.output


def test_the_command_line_helps_and_says_its_version() -> None:
    assert lpsmap_core.__version__ in CliRunner().invoke(cli.main, ["--version"]).output
    assert "factors" in CliRunner().invoke(cli.main, ["-h"]).output


IMPORTS = """
import sys, lpsmap
print(*(name for name in sys.modules if name.startswith("lpsmap_")))
lpsmap.FactorGraph, lpsmap.Xor
assert {"FactorGraph", "Xor", "DepTree"} <= {*dir(lpsmap)}
from lpsmap import *
FactorGraph, Xor, DepTree
assert "torch" not in sys.modules
"""


def test_the_face_imports_packs_when_asked_and_never_torch() -> None:
    """``import *`` brings no graph of an adapter, for which it would import torch."""
    printed = subprocess.run(
        [sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True
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
        with pytest.raises(FileFormatError, match="expected an installed .* types: Good$"):
            factor_named(name)


def test_what_lpsmap_decode_has_says_so_where_it_is_not_installed(alone: Path) -> None:
    advice = "install it with: pip install lpsmap-decode"
    with pytest.raises(ImportError, match=f"'solve_many'; {advice}$"):
        exec("from lpsmap import solve_many", {})
    with pytest.raises(AttributeError, match=f"'solve_many'; {advice}$"):
        _ = lpsmap.solve_many
    assert "solve_many" not in lpsmap.__all__
    with pytest.raises(FileFormatError, match="'.uai'; expected one of none; .* enable a plugin"):
        read_graph(alone / "model.uai.gz")
    result = CliRunner().invoke(cli.main, ["solve", "model.json"])
    assert result.exit_code == 2
    words = f"Error: No such command 'solve'; for those on files, {advice}."
    assert result.output.splitlines()[-1] == words


def test_what_lpsmap_decode_has_is_there_unless_it_is_left_out(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_point = "[lpsmap]\ndecode = lpsmap_decode.plugin\n"
    write_info(alone, "lpsmap-decode", entry_point)
    assert lpsmap.solve_many is lpsmap_decode.solve_many
    assert "solve_many" in dir(lpsmap)
    found = registry.installed()
    assert {"convert", "decode", "explain", "info", "solve"} <= {*found.commands}
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
        "Zzz": "installed factor types: Goodness",
    }.items():
        with pytest.raises(ImportError, match=words):
            exec(f"from lpsmap import {near}", {})


def test_a_warning_of_a_solve_is_about_the_line_of_the_user() -> None:
    graph = FactorGraph()
    graph.add(lpsmap.Xor(graph.variable_from([[np.nan, 1.0], [0.0, 1.0]])))
    with pytest.warns(lpsmap_core.ConvergenceWarning) as caught:
        graph.solve()
    assert [warning.filename for warning in caught] == [__file__]
