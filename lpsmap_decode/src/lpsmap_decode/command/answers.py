"""What ``lpsmap solve`` prints: an answer as a table, as JSON, or as a solution of UAI."""

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
"""How far marginals of the states of one variable may be from summing to 1."""

Found = Solution | Assignment


def check_form(form: str, named: NamedGraph) -> None:
    """Refuse a form that cannot say the answer.

    Raises
    ------
    click.ClickException
        If states are asked for, and a block of variables is not the states of one.
    """
    if form != UAI:
        return
    for name, u in named.variables.items():
        if u.ndim != 1 or not u.size:
            raise click.ClickException(
                f"--output uai: {name} has shape {u.shape}; expected blocks of states, one axis "
                "each, as graphs in .uai files have. Choose table or json."
            )


def _check_states(named: NamedGraph) -> None:
    """Refuse values that are no states: none were found, or several of a block are on.

    Raises
    ------
    click.ClickException
        If a block's values do not sum to 1.
    """
    for name, u in named.variables.items():
        total = float(np.sum(u.value))
        if not abs(total - 1.0) <= SUM_OF_STATES:
            raise click.ClickException(
                f"--output uai: the values of {name} sum to {total:g}; expected 1, as of a "
                "variable that has one of its states. Choose table or json."
            )


def answer_text(form: str, named: NamedGraph, found: Found) -> str:
    """Return an answer in a form."""
    if form == JSON:
        return json.dumps(_as_json(named, found), allow_nan=False)
    if form == UAI:
        _check_states(named)
        return assignment_text(list(named.variables.values())).rstrip("\n")
    rows = list(_rows(named))
    values = text_table(rows, ["VALUE"]) if rows else "all variables are 0"
    return f"{values}\n\n{text_table(list(_summary(found)), ['COMPONENTS', 'SCORE', 'BOUND'])}"


def numbers(array: npt.NDArray[np.float64]) -> Any:
    """Return numbers as JSON has them, which knows neither NaN nor infinity."""
    plain = np.asarray(array).astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()


def _as_json(named: NamedGraph, found: Found) -> dict[str, Any]:
    answer: dict[str, Any] = {"status": list(status_names(found))}
    if isinstance(found, Assignment):
        answer |= {"score": numbers(found.score), "bound": numbers(found.bound)}
        answer |= {"nodes": found.n_nodes.tolist(), "solver": found.solver}
    else:
        answer["objective"] = numbers(found.objective)
    answer["variables"] = {name: numbers(u.value) for name, u in named.variables.items()}
    return answer


def _rows(named: NamedGraph) -> Iterator[dict[str, str]]:
    """Yield what is not 0, by name and position."""
    for name, u in named.variables.items():
        values = np.asarray(u.value)
        for at in np.argwhere(values != 0.0).tolist():
            value = float(values[tuple(at)])
            yield {"VARIABLE": f"{name}{at if at else ''}", "VALUE": f"{value:.6g}"}


def _summary(found: Found) -> Iterator[dict[str, str]]:
    """Yield how many components are of each status, and what they score together."""
    status = np.array(status_names(found))
    scores = found.score if isinstance(found, Assignment) else found.objective
    for name in dict.fromkeys(status.tolist()):
        mine = status == name
        row = {"STATUS": name, "COMPONENTS": str(mine.sum()), "SCORE": f"{scores[mine].sum():.9g}"}
        if isinstance(found, Assignment):
            row["BOUND"] = f"{found.bound[mine].sum():.9g}"
        yield row
