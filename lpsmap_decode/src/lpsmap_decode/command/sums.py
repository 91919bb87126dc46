"""The tasks of ``lpsmap solve`` that sum over all assignments: MAR and PR of the competitions."""

from __future__ import annotations

import json

import click
import numpy as np

from lpsmap_core.api import FloatArray, slot_values, text_table
from lpsmap_decode.command.output import JSON, UAI, check_states, numbers, value_rows
from lpsmap_decode.corpus.jobs import TASKS
from lpsmap_decode.formats.file_format import NamedGraph
from lpsmap_decode.formats.uai import marginals_text, partition_text

MARGINALS, PARTITION = "marginals", "partition"

SUMS = MARGINALS, PARTITION

ITERATION_OPTIONS = {
    name: ("task", tuple(TASKS)) for name in ("max_iter", "tol", "max_time", "trace")
}
"""Options that do not apply to sums, which are exact, for `check_options_apply`."""


def summed(
    form: str, task: str, named: NamedGraph, known: FloatArray | None = None
) -> tuple[str, bool]:
    """Return the sums over all assignments of a graph as text, and whether they exist.

    Variables in no factor are independent of all others. For a conditioned graph, `known` has the
    scores of the variables that are known to be on.
    """
    graph = named.graph
    scores, taken = graph.flat_scores(), np.zeros(graph.n_variables, dtype=np.bool_)
    log_z = 0.0 if known is None else float(known.sum())
    gibbs = None
    if graph.factors:
        try:
            gibbs = graph.gibbs()
        except TypeError as error:
            raise click.ClickException(str(error)) from error
        for factor in graph.factors:
            taken[slot_values(factor, factor.variables.index)] = True
        log_z += float(gibbs.log_partition.sum())
    log_z += float(np.logaddexp(0.0, scores[~taken]).sum())
    exists = bool(np.isfinite(log_z))
    if task == PARTITION:
        if form == UAI:
            return partition_text(log_z).rstrip("\n"), exists
        answer = {"log_partition": log_z if exists else None}
        return (json.dumps(answer) if form == JSON else _summary(log_z)), exists
    free = np.exp(-np.logaddexp(0.0, -scores))
    values = {}
    for name, u in named.variables.items():
        own = np.where(u.negated, 1.0 - free[u.index], free[u.index])
        values[name] = own if gibbs is None else np.where(taken[u.index], gibbs.value_of(u), own)
    if form == UAI:
        check_states(values)
        return marginals_text(list(values.values())).rstrip("\n"), exists
    if form == JSON:
        shown = {name: numbers(x) for name, x in values.items()}
        return json.dumps({"log_partition": log_z if exists else None, "variables": shown}), exists
    rows = list(value_rows(values))
    table = text_table(rows, ["VALUE"]) if rows else "all variables are 0"
    return f"{table}\n\n{_summary(log_z)}", exists


def _summary(log_z: float) -> str:
    row = {"LOG Z": f"{log_z:.9g}", "LOG10 Z": f"{log_z / np.log(10.0):.9g}"}
    return text_table([row], ["LOG Z", "LOG10 Z"])
