"""The command ``lpsmap solve``: marginals or the best assignment of a model file."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import click
import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import DEFAULTS, DuplicateNameError, FloatArray, error_with_origin
from lpsmap_decode.command.models import MODEL, errors_as_messages
from lpsmap_decode.command.output import JSON, TABLE, UAI, answer_text, check_form
from lpsmap_decode.command.pictures import plotting_module, save_picture
from lpsmap_decode.command.progress_log import ProgressLog
from lpsmap_decode.command.shared_options import (
    SEARCH_OPTIONS,
    UNSOLVED,
    NumberRange,
    check_options_apply,
    is_terminal,
    limit_options,
    memory_option,
)
from lpsmap_decode.command.sums import ITERATION_OPTIONS, SUMS, summed
from lpsmap_decode.component_results import parts_of
from lpsmap_decode.corpus.jobs import MAP, SPARSEMAP, TASKS, solve_as
from lpsmap_decode.formats.file_format import Evidence, NamedGraph
from lpsmap_decode.formats.files import read_evidence, read_graph, states_costs
from lpsmap_decode.results.assignment import Assignment

MIN_SECONDS = 0.01
"""Minimum seconds to solve in, however long reading took."""


@click.command()
@click.argument("file", type=MODEL)
@click.option(
    "--task",
    type=click.Choice([*TASKS, *SUMS]),
    default=SPARSEMAP,
    show_default=True,
    help="Marginals of LP-SparseMAP, marginals of the relaxation LP-MAP, or the best assignment; "
    "marginals of the Gibbs distribution, or its partition function.",
)
@click.option(
    "--evidence",
    type=MODEL,
    help="File with the values of observed variables: a JSON object of views and numbers, such as "
    '{"u[0]": 1}, if it ends in .json; otherwise in the evidence format that belongs to FILE.',
)
@click.option(
    "--max-iter",
    type=click.IntRange(1),
    default=DEFAULTS.max_iter,
    show_default=True,
    help="Iterations of the relaxation.",
)
@click.option(
    "--tol",
    type=NumberRange(0.0),
    default=DEFAULTS.tol,
    show_default=True,
    help="Tolerance on the disagreement of factors.",
)
@limit_options
@memory_option
@click.option(
    "--output",
    "form",
    type=click.Choice([TABLE, JSON, UAI]),
    help="Output format; uai prints the best state of every variable, its marginals (MAR) or the "
    "partition function (PR).  [default: table on a terminal, else json]",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for a convergence plot: bound and best score with --task map, otherwise residuals.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress messages.")
def solve(
    file: Path,
    task: str,
    evidence: Path | None,
    max_iter: int,
    tol: float,
    max_time: float | None,
    gap: float,
    solver: str,
    max_memory: float,
    form: str | None,
    trace: Path | None,
    quiet: bool,
) -> None:
    """Solve the factor graph in FILE and print the result.

    The suffix of FILE determines its format; `lpsmap plugins` lists the installed ones. With
    evidence, observed variables have the value 0 or 1, and the others are solved for given these. A
    table lists the nonzero values; in JSON, numbers that are not finite are null. Scores are those
    of the printed values: observed variables and variables in no factor count as one component, the
    last.

    With --task map, score and bound are printed too: no assignment scores more than the bound. For
    a .wcnf file the cost, the weight of the violated clauses, is printed, and the score is minus
    it. On a terminal, every better assignment or bound is reported on standard error. Ctrl-C ends
    the search and prints the best assignment so far; a second Ctrl-C ends the command.

    With --task marginals or partition, the sums over all assignments are exact, by a junction tree,
    and natural logarithms, in UAI output log10. A model that would take too much memory is refused.

    If a component has no solution, a few factors that contradict each other are named on standard
    error, by their lines in FILE.

    The exit code is 0 if every component is solved, and 3 if one is not: its status gives the
    reason. It is 1 if the file cannot be read or solved, and 2 for a usage error; then nothing is
    printed.
    """
    deadline = Deadline(max_time)
    check_options_apply({**SEARCH_OPTIONS, **ITERATION_OPTIONS})
    plot = plotting_module("lpsmap_decode.figures", {"--trace": trace})
    form = form or (TABLE if is_terminal(sys.stdout) else JSON)
    log = ProgressLog(aloud=not quiet and is_terminal(sys.stderr))
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol}
    if task == MAP:
        options |= {"gap": gap, "solver": solver, "progress": log.search}
    elif trace:
        options["trace"] = True
    with errors_as_messages():
        named, known = read_graph(file, max_memory), None
        log.read(file, named)
        if evidence is not None:
            observed = read_evidence(evidence, named, file, max_memory)
            named, known = _conditioned(named, observed)
            log.given(named)
        check_form(form, named)
        if task in SUMS:
            text, exists = summed(form, task, named, known)
            click.echo(text)
            raise SystemExit(0 if exists else UNSOLVED)
        if max_time is not None:
            options["max_time"] = max(deadline.left, MIN_SECONDS)
        try:
            found = solve_as(task, named.graph, options)
        except Exception as error:  # an oracle of a plugin can raise anything
            if not _raised_by_core(error):
                raise click.ClickException(f"{file}: {error_with_origin(error)}") from error
            if isinstance(error, ValueError):
                raise click.ClickException(f"{file}: {_odd_block(named, error)}{error}") from error
            raise
    parts = parts_of(found, known)
    if isinstance(found, Assignment):
        log.end(found, parts)
    click.echo(answer_text(form, named, found, parts, states_costs(file)))
    if found.contradictions and not quiet:
        click.echo(f"{file}: {found.explanation}", err=True)
    if plot and trace:
        if isinstance(found, Assignment):
            axes = plot.search(log.history(found, parts))
        else:
            axes = plot.convergence(found)
        save_picture("--trace", axes.figure, trace)
    if not parts.ok:
        raise SystemExit(UNSOLVED)


def _conditioned(named: NamedGraph, evidence: Evidence) -> tuple[NamedGraph, FloatArray]:
    """Return a graph given evidence, and the scores of variables known to be on.

    The blocks have the same names.
    """
    given = named.graph.condition(evidence)
    blocks = {name: given.of(u) for name, u in named.variables.items()}
    return NamedGraph(given.graph, blocks), named.graph.flat_scores()[given.on]


def _odd_block(named: NamedGraph, error: ValueError) -> str:
    """Return the name of the block whose NaN or infinite scores caused an error, as a prefix."""
    scores = named.graph.flat_scores()
    for name, block in named.variables.items():
        if str(error).startswith("scores: ") and not (scores[block.index] < np.inf).all():
            return f"variables[{name!r}]: "
    return ""


def _raised_by_core(error: Exception) -> bool:
    """Return whether core raised an error with a message for the user.

    Exceptions of other types are defects, even if core raised them.
    """
    (*_, (frame, _)) = traceback.walk_tb(error.__traceback__)
    kinds = OSError, ValueError, ModuleNotFoundError, DuplicateNameError
    module = f"{frame.f_globals.get('__name__')}."
    return module.startswith("lpsmap_core.") and isinstance(error, kinds)
