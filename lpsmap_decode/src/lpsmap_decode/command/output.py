"""The output of ``lpsmap solve``: a table, JSON, or a UAI solution file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from lpsmap_core import Assignment, NamedGraph, Solution
from lpsmap_core.api import text_table
from lpsmap_decode.corpus.outcome import status_names
from lpsmap_decode.formats.uai import assignment_text

__all__ = ["JSON", "TABLE", "UAI", "answer_text", "check_form", "numbers"]

TABLE, JSON, UAI = "table", "json", "uai"

SUM_OF_STATES = 1e-3
"""Tolerance for the sum of the marginals of a variable's states, which should be 1."""

SolveResult = Solution | Assignment


def check_form(form: str, named: NamedGraph) -> None:
    """Validate that an output format can represent the answer.

    Raises
    ------
    click.ClickException
        If UAI output is requested and a block of variables is not the states of one variable.
    """
    if form != UAI:
        return
    for name, u in named.variables.items():
        if u.ndim != 1 or not u.size:
            raise click.ClickException(
                f"--output uai: {name} has shape {u.shape}; expected one-dimensional blocks of "
                "states, as in graphs read from .uai files. Choose table or json."
            )


def _check_states(named: NamedGraph) -> None:
    """Validate that the values of each block select one state.

    Raises
    ------
    click.ClickException
        If a block's values do not sum to 1.
    """
    for name, u in named.variables.items():
        total = float(np.sum(u.value))
        if not abs(total - 1.0) <= SUM_OF_STATES:
            raise click.ClickException(
                f"--output uai: the values of {name} sum to {total:g}; expected 1, for one state "
                "per variable. Choose table or json."
            )


def answer_text(form: str, named: NamedGraph, result: SolveResult) -> str:
    """Return an answer as text in an output format."""
    if form == JSON:
        return json.dumps(_as_json(named, result), allow_nan=False)
    if form == UAI:
        _check_states(named)
        return assignment_text(list(named.variables.values())).rstrip("\n")
    rows = list(_rows(named))
    values = text_table(rows, ["VALUE"]) if rows else "all variables are 0"
    return f"{values}\n\n{text_table(list(_summary(result)), ['COMPONENTS', 'SCORE', 'BOUND'])}"


def numbers(array: npt.NDArray[np.float64]) -> Any:
    """Return numbers for JSON, with null for NaN and infinity, which JSON lacks."""
    plain = np.asarray(array).astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()


def _as_json(named: NamedGraph, result: SolveResult) -> dict[str, Any]:
    answer: dict[str, Any] = {"status": list(status_names(result))}
    if isinstance(result, Assignment):
        answer |= {"score": numbers(result.score), "bound": numbers(result.bound)}
        answer |= {"nodes": result.n_nodes.tolist(), "solver": result.solver}
    else:
        answer["objective"] = numbers(result.objective)
    answer["variables"] = {name: numbers(u.value) for name, u in named.variables.items()}
    return answer


def _rows(named: NamedGraph) -> Iterator[dict[str, str]]:
    """Yield the nonzero values, by name and position."""
    for name, u in named.variables.items():
        values = np.asarray(u.value)
        for at in np.argwhere(values != 0.0).tolist():
            value = float(values[tuple(at)])
            yield {"VARIABLE": f"{name}{at if at else ''}", "VALUE": f"{value:.6g}"}


def _summary(result: SolveResult) -> Iterator[dict[str, str]]:
    """Yield the number of components and their total score, by status."""
    status = np.array(status_names(result))
    scores = result.score if isinstance(result, Assignment) else result.objective
    for name in dict.fromkeys(status.tolist()):
        mine = status == name
        row = {"STATUS": name, "COMPONENTS": str(mine.sum()), "SCORE": f"{scores[mine].sum():.9g}"}
        if isinstance(result, Assignment):
            row["BOUND"] = f"{result.bound[mine].sum():.9g}"
        yield row
