"""A treebank decoded by one process, by a pool, and by a dask cluster.

``python benchmarks/corpus.py`` solves the dependency trees of every sentence, with at most five
dependents a word, for the random scores of `examples/parsing`. Every way has to give the same
numbers.

On a shared machine, wall time means little; the speed-up is the processor time of one process
divided by that of the busiest worker.

A worker is killed in the middle of two of the runs, and `lpsmap decode` is interrupted, killed and
run again: nothing may be lost, and nothing done twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from corpus_jobs import processor_time, tree  # noqa: E402
from lpsmap_core.solution.table_rendering import text_table  # noqa: E402
from lpsmap_decode import NamedGraph, solve_many  # noqa: E402
from lpsmap_decode.corpus.jobs import TASKS  # noqa: E402
from lpsmap_decode.formats.files import write_graph  # noqa: E402
from lpsmap_search import TaggedSentence, read_conllu  # noqa: E402

DATA = ROOT.parent / "shared/data/ud/en_ewt/dev.conllu.gz"


class Run(NamedTuple):
    """The result of one way."""

    values: list[bytes]
    n_solved: int
    seconds: float
    processor: float
    """Processor time of the busiest process, from its first problem on."""
    workers: int


def solved(
    sentences: Sequence[TaggedSentence],
    executor: Any,
    scale: float,
    task: str,
    visit: Callable[[int, set[int]], None] = lambda n, processes: None,
) -> Run:
    """Solve all sentences; call `visit` with the number of finished ones and the workers."""
    begin = time.perf_counter()
    clocks: dict[int, list[float]] = defaultdict(list)
    values: list[bytes] = []
    n_solved = 0
    outcomes = solve_many(
        sentences,
        executor,
        task=task,
        build=partial(tree, scale=scale),
        extract=processor_time,
    )
    for n, outcome in enumerate(outcomes, start=1):
        assert outcome.error is None, outcome.traceback
        assert outcome.index == n - 1
        process, clock = outcome.extracted
        clocks[process].append(clock)
        values.append(outcome.values[0].tobytes())
        n_solved += outcome.ok
        visit(n, set(clocks))
    busiest = max(times[-1] - times[0] for times in clocks.values())
    return Run(values, n_solved, time.perf_counter() - begin, busiest, len(clocks))


@contextmanager
def dask_executor(n: int) -> Iterator[Executor]:
    """Yield the executor of a cluster of worker processes on this machine."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()


def killer(at: int) -> Callable[[int, set[int]], None]:
    """Return a visitor that kills a worker after a number of problems."""
    killed: list[int] = []

    def visit(n: int, processes: set[int]) -> None:
        if n >= at and not killed:
            killed.append(max(processes))
            os.kill(killed[0], signal.SIGKILL)

    return visit


COMMAND = """
import signal
from lpsmap_core.command.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored by the shell
main()
"""


def interrupted(sentences: Sequence[TaggedSentence], scale: float, task: str, workers: int) -> str:
    """Decode files by the command, which is interrupted, killed, and run to its end."""
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name, "out.jsonl")
        for i, sentence in enumerate(sentences):
            graph = tree(sentence, scale)
            write_graph(NamedGraph(graph, {"u": graph.blocks[0]}), folder / f"{i}.json")
        command = [sys.executable, "-c", COMMAND]
        command += ["decode", f"{folder}/*.json", "--out", str(out), "--task", task]
        command += ["--workers", str(workers), "-q"]
        counts = []
        for share, kind in ((0.3, signal.SIGINT), (0.6, signal.SIGKILL), (1.1, signal.SIGINT)):
            with subprocess.Popen(command, start_new_session=True) as process:
                while process.poll() is None:
                    if _n_lines(out) >= share * len(sentences):
                        os.killpg(process.pid, kind)
                        break
                    time.sleep(0.02)
            counts.append(_n_lines(out))
        files = [json.loads(line)["file"] for line in out.read_text().splitlines()]
    once = len(files) == len(set(files)) == len(sentences)
    return (
        f"lpsmap decode: {counts[0]} done at Ctrl-C, {counts[1]} when killed, {counts[2]} at the "
        f"end, {'each once' if once else 'WRONG'}"
    )


def _n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=DATA)
@click.option("--workers", type=int, default=2, show_default=True)
@click.option("--most", type=int, help="Sentences.  [default: all]")
@click.option("--scale", type=float, default=4.0, show_default=True)
@click.option("--task", type=click.Choice(list(TASKS)), default="sparsemap", show_default=True)
def main(data: Path, workers: int, most: int | None, scale: float, task: str) -> None:
    """Solve a treebank in every way, and print a table."""
    sentences = list(islice(read_conllu(data, punctuation=True), most))
    rows = []
    runs: dict[str, Run] = {}

    def tell(name: str, run: Run) -> None:
        runs[name] = run
        first = runs["one process"]
        same = sum(a == b for a, b in zip(run.values, first.values, strict=True))
        row = {"BY": name, "SENTENCES": str(len(run.values)), "SOLVED": str(run.n_solved)}
        row |= {"THE SAME": str(same), "SECONDS": f"{run.seconds:.1f}"}
        if "killed" not in name:  # the processor time of killed workers is unknown
            row |= {"PROCESSOR": f"{run.processor:.1f}"}
            row |= {"SPEED-UP": f"{first.processor / run.processor:.2f}"}
        rows.append(row)

    solved(sentences[:5], None, scale, task)  # loads kernels
    tell("one process", solved(sentences, None, scale, task))
    tell(f"{workers} processes", solved(sentences, workers, scale, task))
    middle = killer(len(sentences) // 2)
    tell(f"{workers} processes, one killed", solved(sentences, workers, scale, task, middle))
    with dask_executor(workers) as executor:
        tell(f"dask, {workers} workers", solved(sentences, executor, scale, task))
        middle = killer(len(sentences) // 2)
        # tasks that are not in dask's cache
        run = solved(sentences[::-1], executor, scale, task, middle)
        tell(f"dask, {workers} workers, one killed", run._replace(values=run.values[::-1]))
    click.echo(text_table(rows, list(rows[0])[1:]))
    click.echo(interrupted(sentences, scale, task, workers))


if __name__ == "__main__":
    main()
