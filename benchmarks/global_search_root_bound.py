"""Figure 4 of Gormley & Eisner (2013): the bound at the root against the share of products.

Random products of rows, of which there are hundreds of thousands for five sentences, tighten the
bound at the root. Few of them bind: violated ones are added to a program of the rows with columns
of the objective, until no row is violated. Bounds come from dual solutions: they hold for the
program of all rows at any accuracy, also after a time limit.

    python benchmarks/global_search_root_bound.py --sentences five --max-share 0.1
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from global_search_common import corpus_of, described, incumbent, options, save
from lpsmap_core import Deadline
from lpsmap_search.linear_programs import LinearProgram, SimplexSolver
from lpsmap_search.paper import McCormickOptions, McCormickSpace
from lpsmap_search.sparse_matrix import SparseMatrix

SHARES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)

INTERIOR = {"solver": "hipo", "run_crossover": "off", "presolve": "on"}
"""An interior point is in the middle of the optimal face, where the fewest rows are violated."""

MAX_NEW = 2000
"""Maximum number of violated rows added per round."""

VIOLATED = 1e-6
"""Minimum violation of a row of norm one."""

IDLE = 3
"""Consecutive rounds with a zero dual after which a row is removed."""


def rows_of(program: LinearProgram, rows: np.ndarray) -> LinearProgram:
    """Return the program with some of its rows."""
    matrix = program.matrix
    sizes = np.diff(matrix.start)[rows]
    entry = np.repeat(matrix.start[rows] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    return LinearProgram(
        program.objective,
        program.lower,
        program.upper,
        SparseMatrix(
            np.concatenate([[0], np.cumsum(sizes)]),
            matrix.column[entry],
            matrix.value[entry],
            matrix.n_columns,
        ),
        program.row_lower[rows],
        program.row_upper[rows],
    )


def violations(program: LinearProgram, x: np.ndarray) -> np.ndarray:
    """Return the violation of each row at a point, scaled to norm one."""
    matrix = program.matrix
    row = np.repeat(np.arange(matrix.n_rows), np.diff(matrix.start))
    value = np.bincount(row, matrix.value * x[matrix.column], minlength=matrix.n_rows)
    length = np.sqrt(np.bincount(row, matrix.value**2, minlength=matrix.n_rows))
    excess = np.maximum(program.row_lower - value, value - program.row_upper)
    return excess / np.where(length > 0.0, length, 1.0)


def first_rows(program: LinearProgram, n_linear: int) -> np.ndarray:
    """Return the rows with columns of the objective, or without columns of products."""
    matrix = program.matrix
    row, n = np.repeat(np.arange(matrix.n_rows), np.diff(matrix.start)), matrix.n_rows
    n_of_objective = np.bincount(row, program.objective[matrix.column] != 0.0, minlength=n)
    n_of_products = np.bincount(row, matrix.column >= n_linear, minlength=n)
    first: np.ndarray = (n_of_objective > 0) | (n_of_products == 0)
    return first


def bounded(
    program: LinearProgram, n_linear: int, max_time: float, report: Callable[[str], None]
) -> dict[str, Any]:
    """Bound a program, adding violated rows."""
    deadline, begin, bound = Deadline(max_time), time.process_time(), 0.0
    n, status = program.matrix.n_rows, "stopped"
    active, idle = first_rows(program, n_linear), np.zeros(n, dtype=np.int64)
    while not deadline.passed:
        rows = np.flatnonzero(active)
        solver = SimplexSolver(rows_of(program, rows), INTERIOR)
        solution = solver.solve(max_time=deadline.left)
        lower, bound = solution.bound < bound - VIOLATED, min(bound, solution.bound)
        if solution.status == "stopped":
            break
        violated = violations(program, solution.x)
        n_violated = (violated > VIOLATED).sum()
        report(f"{len(rows)} of {n} rows, bound {bound:.5f}, {n_violated} violated")
        idle[rows] = np.where(np.abs(solution.row_duals) < 1e-9, idle[rows] + 1, 0)
        violated[rows] = 0.0
        new = np.argsort(-violated)[:MAX_NEW]
        new = new[violated[new] > VIOLATED]
        if not len(new):
            status = "optimal"
            break
        if lower:  # otherwise the same rows could be added and removed forever
            active[idle >= IDLE] = False
        active[new], idle[new] = True, 0
    return {
        "rows": n,
        "joined": int(active.sum()),
        "columns": program.matrix.n_columns,
        "bound": bound,
        "status": status,
        "seconds": time.process_time() - begin,
    }


def root(
    corpus: Any, products: Any, polytope: str, max_time: float, report: Callable[[str], None]
) -> dict[str, Any]:
    """Return the bound of the root, and the size of its program."""
    settings = McCormickOptions(products=products, polytope=polytope)  # type: ignore[arg-type]
    space = McCormickSpace(corpus, 0.01, settings)
    n_linear = space.relaxation.rows.n_variables
    found = bounded(space.program(space.root()), n_linear, max_time, report)
    return {"products": space.relaxation.n_products, **found}


def draw(record: dict[str, Any], picture: Path) -> None:
    """Draw the bounds against the shares."""
    figure, axis = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    shares, bounds = zip(*((100.0 * x["share"], x["bound"]) for x in record["shares"]), strict=True)
    axis.plot(shares, bounds, "o-", mfc="white")
    some = [(100.0 * x["share"], x["bound"]) for x in record["shares"] if x["status"] == "optimal"]
    axis.plot(*zip(*some, strict=True), "o", color="C0", label="optimal (others: time was up)")
    if record["objective_filter"]:
        axis.axhline(record["objective_filter"]["bound"], ls="--", color="C1", label="Obj.Filter")
    axis.axhline(record["objective"], color="black", label="best likelihood known")
    axis.set(xlabel="share of all products (%)", ylabel="bound at the root (nats)")
    axis.set_xscale("symlog", linthresh=0.1)
    axis.set_xlim(left=0.0)
    axis.legend()
    axis.grid(alpha=0.3)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@options
@click.option("--max-share", type=float, default=0.03, help="The largest share of the products.")
@click.option("--max-time", type=float, default=600.0, help="Seconds for each program.")
def main(
    sentences: str, polytope: str, seed: int, out: Path, max_share: float, max_time: float
) -> None:
    """Draw the bound at the root against the share of products; Ctrl-C keeps the results so far."""
    corpus, console = corpus_of(sentences, seed), Console(width=100)
    record: dict[str, Any] = {**described(corpus), "polytope": polytope}
    record |= {"objective": incumbent(corpus, 200)[0], "shares": [], "objective_filter": None}
    table = Table(title=f"bound at the root, {corpus.n_sentences} sentences")
    for column in ("share", "products", "rows", "joined", "columns", "bound", "status", "seconds"):
        table.add_column(column, justify="right")
    try:
        with console.status("") as status:
            for share in (None, *SHARES):
                name = "Obj.Filter" if share is None else f"{100.0 * share:g} %"
                if share is not None and share > max_share:
                    continue
                tell = lambda text, name=name: status.update(f"{name}: {text}")  # noqa: E731
                products = "objective" if share is None else share
                found = root(corpus, products, polytope, max_time, tell)
                if share is None:
                    record["objective_filter"] = found
                else:
                    record["shares"].append({"share": share, **found})
                cells = (f"{x:.3f}" if isinstance(x, float) else str(x) for x in found.values())
                table.add_row(name, *cells)
    except KeyboardInterrupt:
        console.print("Interrupted.")
    console.print(table)
    picture = save(record, out, "global_search_root_bound")
    draw(record, picture)
    console.print(f"{picture} and its .json")


if __name__ == "__main__":
    main()
