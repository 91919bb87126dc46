"""Figure 4 of Gormley & Eisner (2013): the bound at the root against the share of products.

Random products of the rows of the program, of which there are hundreds of thousands for five
sentences, bound the root ever better. Interior points solve these programs; bounds come from their
dual solutions, and hold whatever their accuracy.

    python benchmarks/global_search_root_bound.py --sentences five --max-share 0.1
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from global_search_common import corpus_of, described, incumbent, options, save
from lpsmap_search.linear_programs import SimplexSolver
from lpsmap_search.paper import McCormickOptions, McCormickSpace

SHARES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)

INTERIOR = {"solver": "ipm", "run_crossover": "choose", "presolve": "on"}


def root(corpus: Any, products: Any, polytope: str, max_time: float) -> dict[str, Any]:
    """Return the bound of the root, and the size of its program."""
    settings = McCormickOptions(products=products, polytope=polytope)  # type: ignore[arg-type]
    space = McCormickSpace(corpus, 0.01, settings)
    program = space.program(space.root())
    begin = time.process_time()
    solution = SimplexSolver(program, INTERIOR).solve(max_time=max_time)
    return {
        "products": space.relaxation.n_products,
        "rows": program.matrix.n_rows,
        "columns": program.matrix.n_columns,
        "bound": min(solution.bound, 0.0),
        "status": solution.status,
        "seconds": time.process_time() - begin,
    }


def draw(record: dict[str, Any], picture: Path) -> None:
    """Draw the bounds against the shares."""
    figure, axis = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    found = [x for x in record["shares"] if x["status"] != "stopped"]
    axis.plot([100.0 * x["share"] for x in found], [x["bound"] for x in found], marker="o")
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
    """Draw the bound at the root against the share of products; Ctrl-C keeps what there is."""
    corpus, console = corpus_of(sentences, seed), Console(width=100)
    record: dict[str, Any] = {**described(corpus), "polytope": polytope}
    record |= {"objective": incumbent(corpus, 200)[0], "shares": [], "objective_filter": None}
    table = Table(title=f"bound at the root, {corpus.n_sentences} sentences")
    for column in ("share", "products", "rows", "columns", "bound", "status", "seconds"):
        table.add_column(column, justify="right")
    try:
        with console.status("") as status:
            for share in (None, *SHARES):
                name = "Obj.Filter" if share is None else f"{100.0 * share:g} %"
                if share is not None and share > max_share:
                    continue
                status.update(f"{name} of the products")
                found = root(corpus, "objective" if share is None else share, polytope, max_time)
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
