"""Time the first solve on a new machine: an empty cache, one core, one thread.

``python benchmarks/cold_start.py`` starts processes for every case and prints wall and processor
seconds, including imports: of a default process, whose small solve is interpreted; of one that
compiles at once; and of one with the filled cache. On a shared machine, compare processor seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

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


def measure(python: str, case: str, cache: str, core: int, now: bool) -> tuple[float, float]:
    """Return wall and processor seconds of a new process that runs a case."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    environment |= {"LPSMAP_COMPILE_AFTER": "0"} if now else {}
    command = [python, __file__, "--serve", case, "--core", str(core)]
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    wall, processor = json.loads(answer.stdout)
    return wall, processor


def serve(case: str, core: int) -> None:
    """Run a case on one core; print its wall and processor seconds, including start-up."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    CASES[case]()
    print(json.dumps([time.perf_counter() - begin, time.process_time()]))


@click.command(context_settings={"show_default": True})
@click.argument("pythons", nargs=-1)
@click.option("--only", default="", help="Only cases whose name contains this.")
@click.option("--core", default=0, help="The core to run on.")
@click.option("--serve", "serving", default="", hidden=True)
def main(pythons: tuple[str, ...], only: str, core: int, serving: str) -> None:
    """Time first solves with this interpreter, or with all PYTHONS in turns."""
    if serving:
        serve(serving, core)
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


if __name__ == "__main__":
    main()
