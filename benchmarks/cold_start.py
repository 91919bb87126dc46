"""Time the first solve on a new machine: an empty cache, one core, one thread.

``python benchmarks/cold_start.py`` starts processes for every case and prints wall and processor
seconds, including imports: of a default process, whose small solve is interpreted; of one that
compiles at once; and of one with the filled cache. On a shared machine, compare processor seconds.

``python benchmarks/cold_start.py --types 20`` does so for every type, on the graph of 20 a side
of the sweep, and prints the processor seconds of its first solve and derivative alone.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table


def nothing() -> None:
    """Import only."""
    import lpsmap  # noqa: F401, PLC0415


def logic(backward: bool = False) -> None:
    """Solve Xor and AtMostOne; differentiate, too."""
    from lpsmap import AtMostOne, Xor  # noqa: PLC0415

    _solve((4, 5), lambda u: [Xor(u), AtMostOne(u, axis=0)], backward)


def logic_and_back() -> None:
    """Solve Xor and AtMostOne, and differentiate."""
    logic(backward=True)


def tree() -> None:
    """Solve DepTree and Budget."""
    from lpsmap import Budget, DepTree  # noqa: PLC0415

    _solve((6, 6), lambda u: [DepTree(u), Budget(u, 2)])


def sequence() -> None:
    """Solve Sequence and AtMostOne."""
    from lpsmap import AtMostOne, Sequence  # noqa: PLC0415

    _solve((3, 6), lambda u: [Sequence(u, [[0.0] * 6] * 6), AtMostOne(u, axis=0)])


def _solve(
    shape: tuple[int, ...], factors: Callable[..., list[object]], backward: bool = False
) -> None:
    import numpy as np  # noqa: PLC0415

    from lpsmap import FactorGraph  # noqa: PLC0415

    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal(shape))
    for factor in factors(u):
        graph.add(factor)
    solution = graph.solve(threads=1)
    if backward:
        solution.vjp(2 * solution.values)


CASES: dict[str, Callable[[], None]] = {
    "import": nothing,
    "Xor + AtMostOne": logic,
    "Xor + AtMostOne, backward": logic_and_back,
    "DepTree + Budget": tree,
    "Sequence + AtMostOne": sequence,
}


def kinds_of_graphs() -> dict[str, Any]:
    """Return how the sweep declares graphs of every factor type."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    return vars(importlib.import_module("sweep_cases"))["KINDS"]  # type: ignore[no-any-return]


def measure(
    python: str, case: str, cache: str, core: int, now: bool, size: int = 0
) -> tuple[float, float]:
    """Return the two numbers that `serve` prints in a new process."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    environment |= {"LPSMAP_COMPILE_AFTER": "0"} if now else {}
    command = [python, __file__, "--serve", case, "--core", str(core), "--types", str(size)]
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    first, second = json.loads(answer.stdout)
    return first, second


def serve(case: str, core: int, size: int) -> None:
    """Run a case on one core; print its wall and processor seconds, including start-up.

    With a size, the case is a factor type: print the seconds of its solve and its derivative.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    if size:
        print(json.dumps(solve_type(case, size)))
        return
    CASES[case]()
    print(json.dumps([time.perf_counter() - begin, time.process_time()]))


def solve_type(name: str, size: int) -> tuple[float, float]:
    """Return the processor seconds of a type's first solve and derivative."""
    import numpy as np  # noqa: PLC0415

    from lpsmap import FactorGraph  # noqa: PLC0415

    kind, rng, graph = kinds_of_graphs()[name], np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.standard_normal(kind.shape(size)))
    graph.add(kind.make(u, lambda *shape: rng.standard_normal(shape)))
    begin = time.process_time()
    solution = graph.solve(threads=1)
    solved = time.process_time()
    solution.vjp(2 * solution.values)
    return solved - begin, time.process_time() - solved


@click.command(context_settings={"show_default": True})
@click.argument("pythons", nargs=-1)
@click.option("--only", default="", help="Only cases whose name contains this.")
@click.option("--core", default=0, help="The core to run on.")
@click.option("--types", "size", default=0, help="Size of graphs of all types; 0 without.")
@click.option("--serve", "serving", default="", hidden=True)
def main(pythons: tuple[str, ...], only: str, core: int, size: int, serving: str) -> None:
    """Time first solves with this interpreter, or with all PYTHONS in turns."""
    if serving:
        serve(serving, core, size)
        return
    if size:
        print_types(pythons or (sys.executable,), only, core, size)
        return
    table = Table(title="first solves on one core, seconds: wall / processor")
    for column in ("case", "interpreter", "fresh cache", "compiled at once", "filled cache"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case in (case for case in CASES if only in case):
        for python in pythons or (sys.executable,):
            with tempfile.TemporaryDirectory() as cache:
                times = [measure(python, case, cache, core, now) for now in (False, True, True)]
            table.add_row(case, python, *(f"{wall:.1f} / {cpu:.1f}" for wall, cpu in times))
    Console().print(table)


def print_types(pythons: tuple[str, ...], only: str, core: int, size: int) -> None:
    """Print the processor seconds of the first solve and derivative of every factor type."""
    table = Table(title=f"first solves with an empty cache, graphs of {size} a side, seconds")
    for column in ("type", "interpreter", "solve", "derivative"):
        table.add_column(column, justify="left" if column == "type" else "right")
    for name in (name for name in kinds_of_graphs() if only in name):
        for python in pythons:
            with tempfile.TemporaryDirectory() as cache:
                times = measure(python, name, cache, core, False, size)
            table.add_row(name, python, *(f"{seconds:.2f}" for seconds in times))
    Console().print(table)


if __name__ == "__main__":
    main()
