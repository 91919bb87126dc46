"""The command ``lpsmap compile``: compilation of kernels in advance, for images and for CI.

For each factor type, a separate process calls the verbs on the type's examples. Core is compiled
first, and loaded by other processes. The kernels of searches, which depend on the time of a search,
are called by the decoder itself.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import click
import numpy as np

from lpsmap_core.engine.direct import solve_directly
from lpsmap_core.graph import FactorGraph
from lpsmap_core.kernels.records import Scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import row_view
from lpsmap_core.plugins.install_advice import installed_decoder
from lpsmap_core.plugins.registry import installed
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_jit.ahead import Job, do_jobs, run_jobs
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import COMPILED
from lpsmap_jit.threads import default_threads

CORE = "core"
"""Name of the first job: the loop, the active set, and derivatives."""

SEARCHES = "searches"
"""Name of the job of the installed decoder."""


def compile_types(names: Sequence[str], jobs: int | None, native: bool = False) -> bool:
    """Compile core and then factor types, and print the times; return whether all succeeded.

    The progress is a bar on a terminal, and else a line for each type. There are `jobs` parallel
    processes; None for ``LPSMAP_THREADS`` or all cores. With `native`, kernels that are installed
    for baseline processors are compiled for this one.
    """
    if not COMPILED:
        raise click.ClickException("kernels are not compiled here: numba is missing or disabled")
    searches = [SEARCHES] if names and installed().of_kind("decoders") else []
    begin, names = time.perf_counter(), [CORE, *names, *searches]
    running = run_jobs(__name__, names, jobs or default_threads(), native)
    finished = list(_shown(running, len(names)))
    _report(finished, time.perf_counter() - begin)
    return not any(job.error for job in finished)


def _shown(jobs: Iterator[Job], total: int) -> Iterator[Job]:
    """Yield jobs, with a bar on a terminal, and else with a line for each."""
    if sys.stderr is not None and sys.stderr.isatty():
        with click.progressbar(jobs, length=total, label="compiling", file=sys.stderr) as bar:
            yield from bar
        return
    for n, job in enumerate(jobs, 1):
        words = "failed" if job.error else f"{job.functions} functions"
        click.echo(f"{job.name}: {words}, {job.seconds:.1f} s ({n} of {total})", err=True)
        yield job


def _report(finished: Sequence[Job], seconds: float) -> None:
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


def _run(name: str) -> None:
    if name == SEARCHES:
        installed_decoder("lpsmap compile").call_kernels()
        return
    for factor in _examples(name):
        _exercise(factor)
    if name == CORE:
        _contradict()


def _contradict() -> None:
    """Solve graphs that have no solution: with huge scores, acceleration and all tests."""
    for scores in ([1.0, 2.0, 3.0], [1e12, 1.0, -1e9]):
        graph = FactorGraph()
        u = graph.variable_from(np.array(scores))
        graph.add(_OneOfMany(u))
        graph.add(_OneOfMany(~u))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph.solve(trace=True)


def _exercise(factor: Factor) -> None:
    """Call the verbs on a factor alone, with sums, and coupled with a second factor."""
    rng, graph, again = np.random.default_rng(0), FactorGraph(), copy.copy(factor)
    u = graph.variable_from(rng.standard_normal(factor.variables.shape))
    again.variables = (u ^ factor.variables.negated).without_ownership()
    if factor.additionals is not None:
        again.additionals = rng.standard_normal(tuple(factor.additionals.shape))
    graph.add(again)
    _call_verbs(graph)
    row = row_view(again, 0)  # its oracle in Python may call kernels of its own
    row.solve_map(np.zeros(row.event_shape), np.zeros(again.n_additionals))
    if type(factor).inference is not Factor.inference:
        _sum(factor)
    graph.add(copy.copy(again))
    _call_verbs(graph)


def _sum(factor: Factor) -> None:
    """Sum over a factor's structures, differentiate the sums, rank and sample structures."""
    inference, rows = factor.inference(), np.arange(factor.n_factors)
    n_additionals = factor.n_factors * factor.n_additionals
    scores = Scores(np.zeros(int(factor.offsets[-1])), np.zeros(n_additionals))
    inference.beliefs(rows, scores)
    inference.hessian_product(rows, scores, scores)
    inference.k_best(rows, scores, 1)
    inference.sample(rows, scores, 1, np.random.default_rng(0))


def _call_verbs(graph: FactorGraph) -> None:
    solution = graph.solve()
    solution.vjp(np.ones(solution.values.size))
    direct = solve_directly(solution.layout.part, solution.scores, lambda: None)
    if direct is not None:
        direct.multiply(direct.marginals)
    _ = solution.error_bound  # calls the oracles
    graph.structures(graph.factors[0])
    graph.solve_map()
    if installed().of_kind("decoders"):
        solution.decode()
        graph.solve_map(exact=True)
        graph.k_best(2)
    with suppress(TypeError, ValueError):  # types without sums, and cycles
        graph.gibbs().sample(1, seed=0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    do_jobs(_run)
