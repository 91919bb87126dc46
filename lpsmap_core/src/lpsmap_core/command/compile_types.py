"""The command ``lpsmap compile``: compilation of kernels in advance, for images and for CI.

For each factor type, a separate process solves and differentiates the type's examples. Core is
compiled first, and loaded by all other processes.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import click
import numpy as np

from lpsmap_core.graph import FactorGraph
from lpsmap_core.kernels.records import Scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.registry import installed
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_core.testing.gibbs import has_sums
from lpsmap_core.testing.graphs import declared_again
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import COMPILED
from lpsmap_jit.lazy_kernels import compile_all
from lpsmap_jit.threads import default_threads
from lpsmap_jit.tiers import PATIENCE

__all__ = ["compile_types"]

CORE = "core"
"""Name of the first job: the loop, the active set, and derivatives."""


class CompiledType(NamedTuple):
    """The result of the process for a factor type."""

    name: str
    seconds: float
    functions: int
    error: str = ""


def compile_types(names: Sequence[str], jobs: int | None) -> bool:
    """Compile core and then factor types, and print the times; return whether all succeeded.

    Parameters
    ----------
    names
        The factor types, by their registered names.
    jobs
        Number of parallel processes; None for ``LPSMAP_THREADS`` or all cores.
    """
    if not COMPILED:
        raise click.ClickException("kernels are not compiled here: numba is missing or disabled")
    begin, finished = time.perf_counter(), []
    with click.progressbar(length=1 + len(names), label="compiling", file=sys.stderr) as bar:
        for job in _run([CORE, *names], jobs or default_threads()):
            finished.append(job)
            bar.update(1)
    _report(finished, time.perf_counter() - begin)
    return not any(job.error for job in finished)


def _report(finished: Sequence[CompiledType], seconds: float) -> None:
    rows = [
        {"WHAT": job.name, "FUNCTIONS": str(job.functions), "SECONDS": f"{job.seconds:.1f}"}
        for job in finished
    ]
    click.echo(text_table(rows, ["FUNCTIONS", "SECONDS"]))
    total = sum(job.seconds for job in finished)
    click.echo(f"\n{seconds:.1f} s in total; {total:.1f} s if run sequentially.")
    for job in finished:
        if job.error:
            click.echo(f"\n{job.name}\n{job.error}")


def _run(names: Sequence[str], jobs: int) -> Iterator[CompiledType]:
    """Yield the results. The first process ends before the others start."""
    first, *others = names
    yield _compile(first)
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(_compile, name) for name in others]):
            yield future.result()


def _compile(name: str) -> CompiledType:
    """Run the process that compiles the kernels for a type."""
    begin = time.perf_counter()
    finished = subprocess.run(
        [sys.executable, "-m", __name__, name],
        env={**os.environ, "LPSMAP_THREADS": "1", PATIENCE: "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begin
    if finished.returncode:
        return CompiledType(
            name, seconds, 0, finished.stderr.strip() or f"ended with {finished.returncode}"
        )
    return CompiledType(name, seconds, json.loads(finished.stdout))


# -------------------------------------------------------------------- in the separate process


class _OneOfMany(Factor):
    """Exactly one variable is on. The oracle is Python, so that only core is compiled."""

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> int:
        """Return the best variable."""
        return int(np.argmax(eta_u))

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return the assignment that turns it on."""
        return np.eye(self.event_shape[0])[y], np.empty(0)


def _examples(name: str) -> Sequence[Factor]:
    if name == CORE:
        return [_OneOfMany(FactorGraph().variable((2, 3)))]
    factor_type: type[Factor] = installed().factors[name].value
    return factor_type.examples()


def _exercise(factor: Factor) -> None:
    """Solve and differentiate a factor alone, with sums, and coupled with a second factor."""
    rng = np.random.default_rng(0)
    n_slots, shape = int(factor.offsets[-1]), (1, factor.n_factors, factor.n_additionals)
    again = declared_again(factor, rng.standard_normal((1, n_slots)), rng.standard_normal(shape))
    _differentiate(again.graph)
    if has_sums(type(factor)):
        _sum(factor)
    again.graph.add(copy.copy(again.factors[0]))
    _differentiate(again.graph)


def _sum(factor: Factor) -> None:
    """Sum over a factor's structures, differentiate the sums, rank and sample structures."""
    inference, rows = factor.inference(), np.arange(factor.n_factors)
    n_additionals = factor.n_factors * factor.n_additionals
    scores = Scores(np.zeros(int(factor.offsets[-1])), np.zeros(n_additionals))
    inference.beliefs(rows, scores)
    inference.hessian_product(rows, scores, scores)
    inference.k_best(rows, scores, 1)
    inference.sample(rows, scores, 1, np.random.default_rng(0))


def _differentiate(graph: FactorGraph) -> None:
    solution = graph.solve()
    solution.vjp(np.ones(solution.values.size))
    _ = solution.error_bound  # calls the oracles


def main(name: str) -> None:
    """Compile the kernels for a type; print the number of compiled functions."""
    from lpsmap_jit.numba_names import install_recorder  # noqa: PLC0415

    with install_recorder("numba:compile") as recorder:
        for factor in _examples(name):
            _exercise(factor)
        compile_all()
    print(json.dumps(len(recorder.buffer) // 2))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
