"""Kernels on disk: whatever is wrong with a file or with the disk, every process starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import lpsmap_core
import lpsmap_jit
from cached_package import LEAVES, TOTAL, Package
from lpsmap_jit.baselines import Baseline, files_of_wheel

pytestmark = pytest.mark.compiled

# -------------------------------------------------------------------- damage


def empty(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"")


def truncate(path: Path, rng: np.random.Generator) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.integers(len(content))])


def extend(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(100))


def flip(path: Path, rng: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    path.write_bytes(content)


def overwrite(path: Path, rng: np.random.Generator) -> None:
    content = path.read_bytes()
    at, n = rng.integers(len(content)), rng.integers(1, 4096)
    path.write_bytes((content[:at] + rng.bytes(n) + content[at + n :])[: len(content)])


def exchange(path: Path, rng: np.random.Generator) -> None:
    others = sorted(set(path.parents[2].glob("*/**/*.nb?")) - {path})
    path.write_bytes(rng.choice(others).read_bytes())


DAMAGES = [empty, truncate, flip, extend, overwrite, exchange]


@pytest.mark.parametrize(
    "damages", [DAMAGES[:3], pytest.param(DAMAGES[3:], marks=pytest.mark.slow)]
)
def test_damaged_files_are_compiled_anew(package: Package, damages, rng) -> None:
    assert package.run()[0] == "6.0 1"
    files = package.kept()
    for damage in damages:
        damage(max(files, key=lambda path: path.stat().st_size), rng)
        assert package.run()[0] == "6.0 1", damage.__name__
        assert package.kept() == files
    assert package.run()[0] == "6.0"


REAL = """
import numpy as np
from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Pair, Sequence, Xor

def solve(make):
    rng, graph = np.random.default_rng(0), FactorGraph()
    make(graph, graph.variable_from(rng.standard_normal((2, 4, 4))))
    solution = graph.solve(threads=1)
    product, _ = solution.vjp(rng.standard_normal(32))
    print(solution.values.round(6).tolist(), product.round(6).tolist())

def matching(graph, u):
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))

def parse(graph, u):
    graph.add(DepTree(u))
    graph.add(Budget(u, 2, axis=1))

def tagging(graph, u):
    graph.add(Sequence(u, np.zeros((4, 4))))
    graph.add(Pair(u[:, 0, 0], u[:, 1, 1], 0.5))

for make in (matching, parse, tagging):
    solve(make)
"""


@pytest.mark.slow
def test_a_hundred_damages_of_the_library_s_own_files(package: Package, rng) -> None:
    """Random damages of random files: every start succeeds, and solves the same."""
    package.write("real.py", REAL)
    package.environment["NUMBA_CACHE_DIR"] = str(package.folder / "kept")
    expected, _ = package.run(module="real")
    files = sorted(package.folder.glob("kept/*/*.nb?"))
    assert len(files) > 50
    for _ in range(100):
        # a part that no start has needed since it was emptied is empty still
        path = rng.choice([path for path in files if path.stat().st_size])
        DAMAGES[rng.integers(len(DAMAGES))](path, rng)
        assert package.run(module="real")[0] == expected, path.name


# -------------------------------------------------------------------- disks


def test_nothing_can_be_written(package: Package) -> None:
    """As with read-only site-packages, for a user without a home."""
    jit = package.copy_of(lpsmap_jit)
    for folder in (*jit.glob("**/"), *package.folder.glob("tiny/**/")):
        (folder / "__pycache__").touch()  # also keeps from it who may write everywhere
    package.environment["HOME"] = os.devnull
    package.environment["LOCALAPPDATA"] = os.devnull
    package.environment.pop("XDG_CACHE_HOME", None)
    for _ in range(2):
        printed, notices = package.run("import lpsmap_jit; print(lpsmap_jit.__file__)")
        assert printed.splitlines() == [str(jit / "__init__.py"), "6.0 1"]
        assert notices.count("Notice") == 1
        assert "in every process" in notices
        assert "Set the environment variable NUMBA_CACHE_DIR" in notices


def test_a_full_disk(package: Package) -> None:
    """A limit of the size of files stands for it: nothing can be written, or only a part.

    Python would trust the part that it wrote of its own bytecode.
    """
    pytest.importorskip("resource")
    for room in (0, 1_000, 1_000):  # the last one meets what the one before it left
        full = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({room}, {room}))"
        printed, notices = package.run(f"import sys; sys.dont_write_bytecode = True; {full}")
        assert printed == "6.0 1"
        assert notices.count("in every process") == 1
    assert package.kept() == []
    assert package.run()[0] == "6.0 1"


def test_what_was_never_finished_is_removed(package: Package) -> None:
    """As when the power goes while a file is written."""
    package.run(
        "import os, pathlib, lpsmap_jit\n"
        "pathlib.Path.replace = lambda *_: os._exit(0)  # the file is written, but not in place"
    )
    assert len(package.kept()) == 0
    assert package.run()[0] == "6.0 1"
    folders = package.folder.glob("tiny/**/__pycache__")
    names = [path.name for folder in folders for path in folder.iterdir()]
    assert {Path(name).suffix for name in names} - {".pyc"} == {".nbc", ".lock"}


# -------------------------------------------------------------------- sources

TOTAL_OF_BOTH = TOTAL.replace("scaled(x[i])", "rescaled(scaled(x[i]))").replace(
    "from tiny", "from other.scale import rescaled\nfrom tiny"
)

EDITS = {
    "tiny/leaves/scale.py": ("2.0 * x", "20.0 * x", "120.0"),
    "other/scale.py": ("2.0 * x", "20.0 * x", "1200.0"),
    "lpsmap_core/kernels/entries.py": (
        "by which kernels of solvers",
        "by which solvers",
        "1200.0",
    ),
    "lpsmap_jit/compile.py": ("return x * (2.0 / mask) - 1.0", "return 1e400", "nan"),
}
"""Of a leaf in another folder of the package, of one in another package, of the records of core,
and of what compiles: what is replaced, by what, and the total after that."""


def test_a_kernel_is_compiled_anew_when_its_sources_change(package: Package) -> None:
    package.copy_of(lpsmap_core)
    package.copy_of(lpsmap_jit)
    package.write("other/__init__.py", "")
    package.write("other/scale.py", LEAVES.replace("scaled", "rescaled"))
    package.write("tiny/loops/total.py", TOTAL_OF_BOTH)
    assert package.run()[0] == "12.0 1"
    assert package.run()[0] == "12.0"
    for file, (old, new, total) in EDITS.items():
        kept = package.kept("total.*")
        text = (package.folder / file).read_text(encoding="utf-8")
        assert old in text
        package.write(file, text.replace(old, new))
        assert package.run()[0] == f"{total} 1", file
        assert len(package.kept("total.*")) == len(kept)  # the old ones are gone
        assert not set(package.kept("total.*")) & set(kept)
    assert package.run()[0] == "nan"


PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    {}: float
    {}: float
"""

X_OF = """
from lpsmap_jit import kernel

@kernel
def x_of(pair):
    return pair.x
"""


def test_types_of_the_same_name_are_told_apart(package: Package) -> None:
    package.write("tiny/of.py", X_OF)
    for name, fields in (("a", "x y"), ("b", "y x")):
        package.write(f"tiny/{name}.py", PAIR.format(*fields.split()))
        code = f"from tiny import {name}, of\nprint(of.x_of({name}.Pair(1.0, 2.0)))"
        package.write(f"of_{name}.py", code)
    for name, found in (("a", "1.0"), ("b", "2.0"), ("a", "1.0")):
        assert package.run(module=f"of_{name}")[0] == found


# -------------------------------------------------------------------- other processes


def test_processes_that_start_together_compile_once(package: Package) -> None:
    processes = [package.begin() for _ in range(3)]
    printed = [process.communicate()[0].strip() for process in processes]
    assert sorted(printed) == ["6.0", "6.0", "6.0 1"]


UNIT = """
from lpsmap_jit import kernel

@kernel
def unit(x):
    return x
"""

OTHER = """
from lpsmap_jit import kernel
from tiny.loops.unit import unit

@kernel
def other(x):
    return unit(x)

print(other(1.0))
"""

SLOWLY = """
import contextlib, time
from lpsmap_jit import compile

at_once = compile.locked

@contextlib.contextmanager
def slowly(dispatcher):
    with at_once(dispatcher):
        time.sleep(0.3)
        yield

compile.locked = slowly
"""


def test_processes_that_compile_each_other_s_kernels_do_not_wait_for_ever(package: Package) -> None:
    """A kernel in a folder calls one in another, and the other way round."""
    package.write("tiny/loops/unit.py", UNIT)
    package.write("tiny/leaves/other.py", OTHER)
    processes = [package.begin(SLOWLY, f"tiny.{name}") for name in ("loops.total", "leaves.other")]
    try:
        printed = [process.communicate(timeout=100)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert printed == ["6.0 1", "1.0"]


MEETS = """
import contextlib, time
from pathlib import Path
from lpsmap_jit import compile

alone = compile.locked

@contextlib.contextmanager
def meeting(dispatcher):
    with alone(dispatcher):
        if dispatcher.py_func.__name__ == "{0}":
            Path("{0}.begun").touch()
            while not Path("{1}.begun").exists():
                time.sleep(0.01)
        yield

compile.locked = meeting
"""


def test_processes_compile_different_kernels_of_a_package_at_the_same_time(
    package: Package,
) -> None:
    """Each begins a kernel, and ends it only when the other one has begun its own."""
    package.write("tiny/loops/unit.py", f"{UNIT}\nprint(unit(1.0))\n")
    processes = [
        package.begin(MEETS.format(name, other), f"tiny.loops.{name}")
        for name, other in (("total", "unit"), ("unit", "total"))
    ]
    try:
        printed = [process.communicate(timeout=100)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert printed == ["6.0 1", "1.0"]


# -------------------------------------------------------------------- the platform wheel


def test_files_of_the_wheel_are_loaded_and_nothing_is_written(
    package: Package, wheel: Path
) -> None:
    assert package.run()[0] == "6.0"
    assert not [*package.folder.glob("cache/**/*.nbc")]


def test_files_of_the_wheel_are_loaded_where_nothing_can_be_written(
    package: Package, wheel: Path
) -> None:
    (package.folder / "cache").touch()
    for folder in package.folder.glob("tiny/**/"):
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        (folder / "__pycache__").touch()
    package.environment |= {"HOME": os.devnull, "LOCALAPPDATA": os.devnull}
    package.environment.pop("XDG_CACHE_HOME", None)
    first = "import sys; sys.dont_write_bytecode = True"
    assert package.run(first) == ("6.0", "")
    for path in wheel.iterdir():
        path.unlink()
    printed, notices = package.run(first)
    assert printed == "6.0 1"
    assert "in every process" in notices


@pytest.mark.parametrize("variable", ["LPSMAP_NATIVE", "NUMBA_BOUNDSCHECK"])
def test_files_of_the_wheel_are_not_for_other_settings(
    package: Package, wheel: Path, variable: str
) -> None:
    package.environment[variable] = "1"
    assert package.run()[0] == "6.0 1"


def test_what_is_compiled_for_this_processor_comes_before_the_wheel(
    package: Package, wheel: Path
) -> None:
    package.environment["LPSMAP_NATIVE"] = "1"
    assert package.run()[0] == "6.0 1"
    del package.environment["LPSMAP_NATIVE"]
    for path in wheel.iterdir():
        path.unlink()
    assert package.run()[0] == "6.0"


def test_damaged_files_of_the_wheel_are_compiled_anew(package: Package, wheel: Path, rng) -> None:
    flip(*wheel.glob("total.*"), rng)
    assert package.run()[0] == "6.0 1"
    assert package.run()[0] == "6.0"


def test_the_wheel_is_of_the_same_sources_wherever_they_lie(package: Package, wheel: Path) -> None:
    """As in an environment to which they are copied; and not of others."""
    for path in package.folder.glob("tiny/**/*.py"):
        os.utime(path, (0, 0))
    assert package.run()[0] == "6.0"
    package.write("tiny/leaves/scale.py", LEAVES.replace("2.0", "3.0"))
    assert package.run()[0] == "9.0 1"


def test_a_processor_without_a_feature_has_slower_files_or_none(tmp_path, monkeypatch) -> None:
    fast, slow = Baseline("fast", frozenset({"avx2"})), Baseline("slow", frozenset())
    folder = tmp_path / "lpsmap_kernels"
    for name in ("fast", "slow", ""):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("LPSMAP_NATIVE", raising=False)
    monkeypatch.setattr("lpsmap_jit.baselines.baselines", lambda: (fast, slow))
    found = files_of_wheel.__wrapped__
    assert [path.name for path, _ in found(("t", "cpu", "+sse,+avx2"))] == ["fast", "slow"]
    assert found(("t", "cpu", "+sse,-avx2")) == ((folder / "slow", ("t", "slow", "")),)
    (folder / "slow").rmdir()
    assert found(("t", "cpu", "")) == ()
