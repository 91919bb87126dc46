"""The command ``lpsmap decode``: many models in files, by many workers."""

from __future__ import annotations

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

from lpsmap_decode.command.answers import numbers
from lpsmap_decode.command.limits import is_terminal, limit_options, refuse_search_options
from lpsmap_decode.command.models import told_in_words
from lpsmap_decode.corpus.journal import Journal, JournalError
from lpsmap_decode.corpus.outcome import Outcome
from lpsmap_decode.corpus.solve_many import solve_many
from lpsmap_decode.corpus.work import MAP, TASKS

__all__ = ["decode"]

UNSOLVED, FAILED, INTERRUPTED = 3, 1, 130
"""Exit codes: a model is not solved, or ended with an error; Ctrl-C came."""


@click.command()
@click.argument("patterns", metavar="GLOB...", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to which results are appended. A run that finds some there goes on with the others."
    "  [default: standard output]",
)
@click.option(
    "--task",
    type=click.Choice(list(TASKS)),
    default=MAP,
    show_default=True,
    help="As of `lpsmap solve`.",
)
@click.option("--workers", type=click.IntRange(1), help="Processes.  [default: all cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Of a dask cluster, whose workers then work.")
@limit_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard error.")
def decode(
    patterns: tuple[str, ...],
    out: Path | None,
    task: str,
    workers: int | None,
    scheduler: str | None,
    max_time: float | None,
    gap: float,
    solver: str,
    quiet: bool,
) -> None:
    """Solve many models, by many workers.

    Every file that GLOB matches is solved, and has a line of JSON in what is written. GLOB is the
    name of a file, or a pattern in quotes, such as "models/grid*.uai"; ** is for any folders. Lines
    come as the results do. Each has the file's name, the status and score of every component, and
    the values of the variables; or the error that the model ended with. Other models do not suffer
    from it, nor from a worker that dies.

    With --out the command can be interrupted and run again: what is done is not done again.

    The exit code is 0 if all is solved, 3 if a component is not, 1 if a model ended with an error,
    and 130 after Ctrl-C.
    """
    if workers is not None and scheduler is not None:
        raise click.UsageError("--workers and --scheduler exclude each other.")
    refuse_search_options(task)
    names = _matched(patterns)
    options: dict[str, Any] = {"max_time": max_time}
    if task == MAP:
        options |= {"gap": gap, "solver": solver}
    with ExitStack() as stack:
        try:
            journal = stack.enter_context(Journal(out, task)) if out else None
        except (OSError, JournalError) as error:
            raise click.ClickException(str(error)) from error
        left = [name for name in names if journal is None or name not in journal.done]
        executor = stack.enter_context(_executor(scheduler, workers))
        shown = (
            not quiet and is_terminal(sys.stderr) and importlib.util.find_spec("rich") is not None
        )
        paths = [Path(name).resolve() for name in left]
        with told_in_words():
            outcomes = solve_many(
                paths, executor, task=task, ordered=False, progress=shown, **options
            )
        write = journal.append if journal else lambda line: click.echo(json.dumps(line))
        found = _written(outcomes, left, task, write)
    if not quiet:
        _tell(found, len(names) - len(left), out)
    if found["not done"]:
        raise SystemExit(INTERRUPTED)
    raise SystemExit(FAILED if found["failed"] else UNSOLVED if found["not solved"] else 0)


def _matched(patterns: Iterable[str]) -> list[str]:
    """Return the names of the files that patterns match, each once."""
    names: dict[str, None] = {}
    for pattern in patterns:
        found = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        found = found or ([pattern] if os.path.isfile(pattern) else [])
        if not found:
            raise click.BadParameter(f"no file matches {pattern!r}.", param_hint="GLOB")
        names.update(dict.fromkeys(found))
    return list(names)


@contextmanager
def _executor(scheduler: str | None, workers: int | None) -> Iterator[Executor | int]:
    """Yield who works: a dask cluster, or so many processes."""
    if scheduler is None:
        yield workers or os.cpu_count() or 1
        return
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "dask.distributed is not installed, which --scheduler takes. Install it with: "
            "pip install 'lpsmap-decode[distributed]'"
        ) from error
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--scheduler {scheduler}: {error}") from error
    with client:
        yield client.get_executor()


def _written(
    outcomes: Iterator[Outcome],
    names: Sequence[str],
    task: str,
    write: Callable[[dict[str, Any]], None],
) -> Counter[str]:
    """Write the outcomes as they come; return how many there are of each kind."""
    found = Counter({"not done": len(names)})
    try:
        for outcome in outcomes:
            write(_line(outcome, names[outcome.index], task))
            kind = "failed" if outcome.error else "solved" if outcome.ok else "not solved"
            found.update({kind: 1, "not done": -1})
    except KeyboardInterrupt:
        pass
    except (BrokenExecutor, OSError) as error:
        raise click.ClickException(str(error)) from error
    return found


def _line(outcome: Outcome, name: str, task: str) -> dict[str, Any]:
    line: dict[str, Any] = {"file": name, "task": task, "seconds": round(outcome.seconds, 6)}
    if outcome.error is not None:
        return line | {"error": f"{type(outcome.error).__name__}: {outcome.error}"}
    line |= {"status": outcome.status, "score": numbers(outcome.score)}
    if outcome.bound is not None:
        line["bound"] = numbers(outcome.bound)
    return line | {"variables": {str(name): numbers(u) for name, u in outcome.values.items()}}


def _tell(found: Counter[str], n_before: int, out: Path | None) -> None:
    """Say how many models there are of each kind, and what to do about those not done."""
    kinds = ("solved", "not solved", "failed", "not done")
    counts = [f"{found[kind]} {kind}" for kind in kinds if found[kind]]
    counts += [f"{n_before} done before"] if n_before else []
    click.echo(", ".join(counts) or "nothing to do", err=True)
    if found["not done"] and out:
        click.echo("The same command goes on from there.", err=True)
