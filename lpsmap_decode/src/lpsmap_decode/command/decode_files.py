"""The command ``lpsmap decode``: solve many model files in parallel."""

from __future__ import annotations

import functools
import glob
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from lpsmap_decode.command.models import errors_as_messages
from lpsmap_decode.command.output import cost_of, numbers
from lpsmap_decode.command.shared_options import (
    SEARCH_OPTIONS,
    UNSOLVED,
    check_options_apply,
    is_terminal,
    limit_options,
    memory_option,
)
from lpsmap_decode.corpus.jobs import MAP, TASKS
from lpsmap_decode.corpus.journal import Journal, JournalError
from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.corpus.solve_many import solve_many
from lpsmap_decode.formats.files import read_graph, states_costs

FAILED, INTERRUPTED = 1, 130
"""Exit codes: a model failed with an error; Ctrl-C."""


@click.command()
@click.argument("patterns", metavar="GLOB...", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to which results are appended. A run skips models with results in it.  [default: "
    "standard output]",
)
@click.option(
    "--task",
    type=click.Choice(list(TASKS)),
    default=MAP,
    show_default=True,
    help="As in `lpsmap solve`.",
)
@click.option("--workers", type=click.IntRange(1), help="Processes.  [default: all cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Address of a dask cluster to run on.")
@limit_options
@memory_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on standard error.")
def decode(
    patterns: tuple[str, ...],
    out: Path | None,
    task: str,
    workers: int | None,
    scheduler: str | None,
    max_time: float | None,
    gap: float,
    solver: str,
    max_memory: float,
    quiet: bool,
) -> None:
    """Solve many models in parallel.

    Every file that GLOB matches is solved, and its result is written as a line of JSON. GLOB is a
    file name or a quoted pattern, such as "models/grid*.uai"; ** matches any folders. Lines are
    written in the order of completion. Each contains the file name and path, the status and score
    of every component, and the values of the variables, or the error of the model. Neither an error
    nor a crashed worker affects the other models.

    With --out, the command can be interrupted and run again: finished models are skipped.

    The exit code is 0 if everything is solved, 3 if a component is not, 1 if a model failed with an
    error, and 130 after Ctrl-C.
    """
    if workers is not None and scheduler is not None:
        raise click.UsageError("--workers and --scheduler exclude each other.")
    check_options_apply(SEARCH_OPTIONS)
    names = _matching_files(patterns)
    options: dict[str, Any] = {"max_time": max_time}
    options["build"] = functools.partial(read_graph, max_memory=max_memory)
    if task == MAP:
        options |= {"gap": gap, "solver": solver}
    with ExitStack() as stack:
        try:
            journal = stack.enter_context(Journal(out, task)) if out else None
        except (OSError, JournalError) as error:
            raise click.ClickException(str(error)) from error
        done = journal.done if journal else ()
        left = {name: path for name, path in names.items() if str(path) not in done}
        executor = stack.enter_context(_executor(scheduler, workers))
        shown = (
            not quiet and is_terminal(sys.stderr) and importlib.util.find_spec("rich") is not None
        )
        with errors_as_messages():
            outcomes = solve_many(
                list(left.values()), executor, task=task, ordered=False, progress=shown, **options
            )
        write = journal.append if journal else lambda line: click.echo(json.dumps(line))
        found = _write_outcomes(outcomes, list(left.items()), task, write)
    if not quiet:
        _print_summary(found, len(names) - len(left), out)
    if found["not done"]:
        raise SystemExit(INTERRUPTED)
    raise SystemExit(FAILED if found["failed"] else UNSOLVED if found["not solved"] else 0)


def _matching_files(patterns: Iterable[str]) -> dict[str, Path]:
    """Return the names of files that match the patterns, with their paths, without duplicates."""
    names: dict[Path, str] = {}
    for pattern in patterns:
        found = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        found = found or ([pattern] if os.path.isfile(pattern) else [])
        if not found:
            raise click.BadParameter(f"no file matches {pattern!r}.", param_hint="GLOB")
        for name in found:
            names.setdefault(Path(name).resolve(), name)
    return {name: path for path, name in names.items()}


@contextmanager
def _executor(scheduler: str | None, workers: int | None) -> Iterator[Executor | int]:
    """Yield an executor of a dask cluster, or a number of processes."""
    if scheduler is None:
        yield workers or os.cpu_count() or 1
        return
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "--scheduler needs dask.distributed, which is not installed. Install it with: pip "
            "install 'lpsmap-decode[distributed]'"
        ) from error
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--scheduler {scheduler}: {error}") from error
    with client:
        yield client.get_executor()


def _write_outcomes(
    outcomes: Iterator[Outcome],
    files: Sequence[tuple[str, Path]],
    task: str,
    write: Callable[[dict[str, Any]], None],
) -> Counter[str]:
    """Write the outcomes as they arrive; return the number of each kind."""
    found = Counter({"not done": len(files)})
    try:
        for outcome in outcomes:
            write(_line(outcome, *files[outcome.index], task))
            kind = "failed" if outcome.error else "solved" if outcome.ok else "not solved"
            found.update({kind: 1, "not done": -1})
    except KeyboardInterrupt:
        pass
    except BrokenExecutor as error:
        raise click.ClickException(str(error)) from error
    return found


def _line(outcome: Outcome, name: str, path: Path, task: str) -> dict[str, Any]:
    line: dict[str, Any] = {"file": name, "path": str(path), "task": task}
    line["seconds"] = round(outcome.seconds, 6)
    if outcome.error is not None:
        return line | {"error": f"{type(outcome.error).__name__}: {outcome.error}"}
    line |= {"status": outcome.status, "score": numbers(outcome.score)}
    if outcome.bound is not None:
        line["bound"] = numbers(outcome.bound)
        if states_costs(path):
            line["cost"] = cost_of(outcome.score)
    return line | {"variables": {str(name): numbers(u) for name, u in outcome.values.items()}}


def _print_summary(found: Counter[str], n_before: int, out: Path | None) -> None:
    """Print the number of models of each kind, and how to continue."""
    kinds = ("solved", "not solved", "failed", "not done")
    counts = [f"{found[kind]} {kind}" for kind in kinds if found[kind]]
    counts += [f"{n_before} done before"] if n_before else []
    click.echo(", ".join(counts) or "nothing to do", err=True)
    if found["not done"] and out:
        click.echo("Run the same command again to continue.", err=True)
