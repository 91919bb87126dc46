"""Draw graphs of mixed types, and count the assignments that the search does not find in time.

``python tests/stress_answers.py --last 3000 --output answers.jsonl`` draws a graph a seed: two to
five declarations of any installed type over the variables of a square of 3 to 60 a side, in blocks
of it or anywhere. Every graph gets a line of the file; seeds that have one are not repeated. What
is found is held against the plain oracles of all factors. A graph without an assignment is
infeasible if HiGHS says so of the rows that all factors meet, feasible if a longer search or HiGHS
finds one, and otherwise open.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import highspy
import numpy as np
import numpy.typing as npt
from rich.console import Console

from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_core.api import slot_values
from lpsmap_decode.constraints import known_constraints
from stress_large import Judge, score_of
from sweep_cases import KINDS, kinds

FloatArray = npt.NDArray[np.float64]

SECONDS, SOON, PATIENCE = 2.0, 0.4, 10.0
"""The limit; a shorter one that is tried first; and seconds for HiGHS or a longer search."""

OPTIONS: dict[str, Any] = {"threads": 1, "solver": "lpsmap"}

DESCRIBED = ("HeadAutomaton", "SemiMarkov", "Sequence", "SequenceBudget", "SequenceDistance")
"""Types whose rows say all that is allowed, though not what it scores."""

PLACES = ("block", "transposed", "anywhere")


class Mixed(NamedTuple):
    """A graph of mixed types."""

    graph: FactorGraph
    eta: FloatArray
    words: str


def draw_mixed(seed: int) -> Mixed:
    """Draw a graph; half of them without regard to whether it has an assignment.

    In the others, slots are negated as a structure of the first declaration needs it.
    """
    rng = np.random.default_rng([seed, 5])
    side = int(np.exp(rng.uniform(np.log(3), np.log(61))))
    eta = rng.normal(size=(side, side))
    if rng.random() < 0.2:
        eta = np.round(eta)
    graph, hidden = FactorGraph(), (rng.random(eta.size) < 0.5 if rng.random() < 0.5 else None)
    if hidden is None and rng.random() < 0.2:
        eta[rng.random(eta.shape) < 0.1] = -np.inf
    u = graph.variable_from(eta)
    words = [f"side {side}{'' if hidden is None else ', planted'}"]
    n_declarations = int(rng.integers(2, 6))
    while len(words) <= n_declarations:
        kind, size = str(rng.choice(kinds())), side
        while np.prod(KINDS[kind].shape(size)) > eta.size:
            size -= 1
        if size < 2:
            continue
        if rng.random() < 0.5:
            size = int(rng.integers(2, size + 1))
        place = str(rng.choice(PLACES))
        view = _placed(u, KINDS[kind].shape(size), place, rng)

        def declare(view: Variables, kind: str = kind) -> Factor:
            return KINDS[kind].make(view, lambda *shape: rng.normal(size=shape))

        if hidden is not None:
            fitted = _fitted(view, declare, hidden, rng, is_first=len(words) == 1)
            view = view if fitted is None else fitted
        graph.add(declare(view))
        words.append(f"{kind} {place} {size}")
    return Mixed(graph, eta, ", ".join(words))


def _fitted(
    view: Variables,
    declare: Callable[[Variables], Factor],
    hidden: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    is_first: bool,
) -> Variables | None:
    """Return a view that is negated as the hidden assignment needs it; None if no rows tell.

    The first declaration is not negated; its structure is hidden.
    """
    alone = FactorGraph()
    u = alone.variable_from(rng.normal(size=view.shape))
    factor = alone.add(declare(u))
    if not (is_first or _is_described(factor)):
        return None
    on = alone.solve_map(exact=True, max_time=PATIENCE).values.reshape(view.shape) > 0.0
    if is_first:
        hidden[view.index] = on
        return view
    return Variables(view.graph, view.index, hidden[view.index] != on)


def _is_described(factor: Factor) -> bool:
    """Return whether rows say all that a declaration allows."""
    return factor.linear_constraints() is not None or type(factor).__name__ in DESCRIBED


def _placed(
    u: Variables, shape: tuple[int, ...], place: str, rng: np.random.Generator
) -> Variables:
    """Return some variables of a square in a shape."""
    if place == "transposed":
        u = u.T
    if place != "anywhere" and len(shape) == 2 and shape[0] <= len(u) and shape[1] <= len(u):
        i, j = (int(rng.integers(len(u) - n + 1)) for n in shape)
        return u[i : i + shape[0], j : j + shape[1]]
    chosen = np.arange(u.size)
    if place == "anywhere":
        chosen = rng.permutation(u.size)
    return u.reshape(-1)[chosen[: np.prod(shape)]].reshape(*shape)


def answer(seed: int) -> dict[str, Any]:
    """Return what becomes of the graph of a seed."""
    drawn = draw_mixed(seed)
    words: dict[str, Any] = {"seed": seed, "graph": drawn.words}
    found = drawn.graph.solve_map(exact=True, max_time=SOON, **OPTIONS)
    feasible, exact = (True, True) if found.found.all() else meets_rows(drawn)
    if feasible is not False and not (found.found.all() or found.proved.all()):
        found = drawn.graph.solve_map(exact=True, max_time=SECONDS, **OPTIONS)
    proved = bool(found.proved.all())
    if found.found.all():
        judge = Judge(drawn)
        score, allowed = score_of(judge, found.values)
        if not allowed or abs(score - found.total) > judge.slack:
            return words | {"outcome": "wrong", "why": f"{score}, {allowed}, {found.total}"}
        return words | {"outcome": "found", "proved": proved}
    if feasible and exact:
        return words | {"outcome": "wrong" if proved else "missed", "why": "HiGHS finds one"}
    if feasible is False or proved:
        return words | {"outcome": "infeasible", "by": "rows" if feasible is False else "search"}
    longer = drawn.graph.solve_map(exact=True, max_time=PATIENCE, **OPTIONS)
    if longer.found.all():
        return words | {"outcome": "missed", "why": f"found in {PATIENCE:g} s"}
    return words | {"outcome": "infeasible" if longer.proved.all() else "open"}


def meets_rows(drawn: Mixed) -> tuple[bool | None, bool]:
    """Return whether some assignment meets the known rows, and whether they describe all factors.

    None if HiGHS does not know.
    """
    model, exact = highspy.Highs(), True
    model.silent()
    model.setOptionValue("time_limit", PATIENCE)
    model.setOptionValue("threads", 1)
    eta = drawn.eta.reshape(-1)
    for score in eta.tolist():
        model.addVar(0.0, 0.0 if score == -np.inf else 1.0)
    for v in range(len(eta)):
        model.changeColIntegrality(v, highspy.HighsVarType.kInteger)
    for factor in drawn.graph.factors:
        exact &= _add_rows(model, factor)
    model.run()
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return False, exact
    return (True if status == highspy.HighsModelStatus.kOptimal else None), exact


def _add_rows(model: highspy.Highs, factor: Factor) -> bool:
    """Add the rows that a declaration meets; return whether they describe it."""
    known, _ = known_constraints(factor)
    exact = _is_described(factor)
    if known is None:
        return exact
    first = model.getNumCol()
    n_additionals = factor.n_factors * factor.n_additionals
    for _ in range(n_additionals + known.n_auxiliary):
        model.addVar(0.0, 1.0)
    index = slot_values(factor, factor.variables.index)
    flipped = slot_values(factor, factor.variables.negated)
    column = np.concatenate([index, first + np.arange(n_additionals + known.n_auxiliary)])
    flips = np.concatenate([flipped, np.zeros(n_additionals + known.n_auxiliary, bool)])
    for r in range(len(known.low)):
        own = known.row == r
        columns, a = column[known.column[own]], known.coefficient[own]
        turned = flips[known.column[own]]
        shift, a = a[turned].sum(), np.where(turned, -a, a)
        distinct, place = np.unique(columns, return_inverse=True)
        a = np.bincount(place, a, len(distinct))
        low, high = known.low[r] - shift, known.high[r] - shift
        model.addRow(low, high, len(distinct), distinct.astype(np.int32), a)
    return exact


@click.command(context_settings={"show_default": True})
@click.option("--first", default=0, help="The first seed.")
@click.option("--last", default=3000, help="The seed after the last.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("answers.jsonl"))
def main(first: int, last: int, output: Path) -> None:
    """Draw graphs, and print how many of their assignments were missed."""
    warnings.simplefilter("ignore")
    output.parent.mkdir(parents=True, exist_ok=True)
    lines = output.read_text().splitlines() if output.exists() else []
    known = {line["seed"]: line for line in map(json.loads, lines)}
    with output.open("a") as file:
        for seed in range(first, last):
            if seed not in known:
                known[seed] = answer(seed)
                print(json.dumps(known[seed]), file=file, flush=True)
    chosen = [known[seed] for seed in range(first, last)]
    outcomes = Counter(line["outcome"] for line in chosen)
    console = Console()
    for line in chosen:
        if line["outcome"] in ("missed", "wrong", "open"):
            console.print(line)
    console.print(dict(outcomes))
    n_feasible = outcomes["found"] + outcomes["missed"]
    sys.exit(outcomes["wrong"] > 0 or outcomes["missed"] > 0.01 * n_feasible)


if __name__ == "__main__":
    main()
