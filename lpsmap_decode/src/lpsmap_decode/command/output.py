"""The output of ``lpsmap solve``: a table, JSON, or a UAI solution file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from lpsmap_core import Solution
from lpsmap_core.api import FloatArray, label_of, text_table
from lpsmap_decode.component_results import Parts
from lpsmap_decode.formats.file_format import NamedGraph
from lpsmap_decode.formats.uai import assignment_text
from lpsmap_decode.results.assignment import Assignment

TABLE, JSON, UAI = "table", "json", "uai"

SUM_OF_STATES = 1e-3
"""Tolerance for the sum of the marginals of a variable's states, which should be 1."""

SolveResult = Solution | Assignment


def check_form(form: str, named: NamedGraph) -> None:
    """Validate that an output format can represent the answer."""
    if form != UAI:
        return
    for name, u in named.variables.items():
        if u.ndim != 1 or not u.size:
            raise click.ClickException(
                f"--output uai: {name} has shape {u.shape}; expected one-dimensional blocks of "
                "states, as in graphs read from .uai files. Choose table or json."
            )


def check_states(values: Mapping[str, FloatArray]) -> None:
    """Validate that the values of each block select one state."""
    for name, own in values.items():
        total = float(np.sum(own))
        if not abs(total - 1.0) <= SUM_OF_STATES:
            raise click.ClickException(
                f"--output uai: the values of {name} sum to {total:g}; expected 1, for one state "
                "per variable. Choose table or json."
            )


def answer_text(
    form: str, named: NamedGraph, result: SolveResult, parts: Parts, costs: bool = False
) -> str:
    """Return an answer as text in an output format.

    The cost of an assignment, which is minus its score, is included if `costs`.
    """
    costs = costs and isinstance(result, Assignment)
    if form == JSON:
        return json.dumps(_as_json(named, result, parts, costs), allow_nan=False)
    if form == UAI:
        check_states(_values(named))
        return assignment_text(list(named.variables.values())).rstrip("\n")
    rows = list(value_rows(_values(named)))
    known = all(np.isfinite(own).all() for own in _values(named).values())
    none = "all variables are 0" if known else "no variable has a value other than 0"
    values = text_table(rows, ["VALUE"]) if rows else none
    summary = list(_summary(parts, costs))
    return f"{values}\n\n{text_table(summary, ['COMPONENTS', 'SCORE', 'BOUND', 'COST'])}"


def numbers(array: npt.NDArray[np.float64]) -> Any:
    """Return numbers for JSON, with null for NaN and infinity, which JSON lacks."""
    plain = np.asarray(array).astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()


def cost_of(score: FloatArray) -> int | None:
    """Return the cost of an assignment with scores that are minus whole costs; None without one."""
    total = float(score.sum())
    return round(-total) if np.isfinite(total) else None


def _as_json(graph: NamedGraph, result: SolveResult, parts: Parts, costs: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"status": list(parts.status)}
    if isinstance(result, Assignment) and parts.bound is not None:
        answer |= {"score": numbers(parts.score), "bound": numbers(parts.bound)}
        nodes = result.n_nodes.tolist() + [0] * (len(parts.status) - len(result.n_nodes))
        answer |= {"nodes": nodes, "solver": result.solver}
        if costs:
            answer["cost"] = cost_of(parts.score)
    else:
        answer["objective"] = numbers(parts.score)
    if result.contradictions:
        answer["contradictions"] = {
            str(component): [label_of(*each, result.factors) for each in named]
            for component, named in result.contradictions.items()
        }
    answer["variables"] = {name: numbers(u.value) for name, u in graph.variables.items()}
    return answer


def _values(named: NamedGraph) -> dict[str, FloatArray]:
    return {name: np.asarray(u.value) for name, u in named.variables.items()}


def value_rows(values: Mapping[str, FloatArray]) -> Iterator[dict[str, str]]:
    """Yield the nonzero values, by name and position; variables without a value have none."""
    for name, own in values.items():
        for at in np.argwhere(np.nan_to_num(own) != 0.0).tolist():
            value = float(own[tuple(at)])
            yield {"VARIABLE": f"{name}{at if at else ''}", "VALUE": f"{value:.6g}"}


def _summary(parts: Parts, costs: bool) -> Iterator[dict[str, str]]:
    """Yield the number of parts and their total score, by status."""
    status = np.array(parts.status)
    for name in dict.fromkeys(parts.status):
        mine = status == name
        score = parts.score[mine].sum()
        row = {"STATUS": name, "COMPONENTS": str(mine.sum()), "SCORE": _figure(score)}
        if parts.bound is not None:
            row["BOUND"] = _figure(parts.bound[mine].sum())
        if costs:
            cost = cost_of(parts.score[mine])
            row["COST"] = "" if cost is None else str(cost)
        yield row


def _figure(number: float) -> str:
    """Return a number as text, or nothing if there is none."""
    return f"{number:.9g}" if np.isfinite(number) else ""
