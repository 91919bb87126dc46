"""Table 1 of Gormley & Eisner (2013): estimated nodes and hours, and milliseconds per node.

Random dives are pruned by the best likelihood of local search.

    python benchmarks/global_search_tree_size.py --sentences eight --max-time 60
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from global_search_common import chosen, corpus_of, described, options, save, space_of
from lpsmap_search import TreeSize, global_search, tree_size

PAPER = {
    "Obj.Filter": (63.0, 3.2e8),
    "Max.0k": (6.0, 1.7e10),
    "Max.1k": (15.0, 3.5e8),
    "Max.10k": (161.0, 1.3e9),
    "Max.100k": (232_259.0, 1.7e9),
}
"""Milliseconds per node, and nodes, in Table 1 of the paper, for eight other sentences."""


def draw(record: dict[str, Any], picture: Path) -> None:
    """Draw the estimated nodes and milliseconds per node, beside those of the paper."""
    names = list(record["relaxations"])
    found = [record["relaxations"][name] for name in names]
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.4), sharey=True, layout="constrained")
    axes[0].barh(names, [x["n_nodes"] for x in found], xerr=[x["n_nodes_error"] for x in found])
    axes[1].barh(names, [1e3 * x["seconds_per_node"] for x in found])
    known = [name for name in names if name in PAPER]
    for axis, i in ((axes[0], 1), (axes[1], 0)):
        axis.plot([PAPER[name][i] for name in known], known, "k|", ms=14, label="the paper's")
        axis.set_xscale("log")
        axis.grid(alpha=0.3)
    axes[0].set_xlabel("nodes, estimated")
    axes[1].set_xlabel("milliseconds a node")
    axes[1].legend(fontsize=8)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


def row(name: str, size: TreeSize) -> list[str]:
    """Return the cells of a relaxation."""
    paper = PAPER.get(name)
    return [
        name,
        f"{1e3 * size.seconds_per_node:.2f}",
        "" if paper is None else f"{paper[0]:g}",
        str(size.n_dives),
        f"{size.n_nodes:.1e} ({size.n_nodes_error:.1e})",
        "" if paper is None else f"{paper[1]:.1e}",
        f"{size.seconds / 3600.0:.1e} ({size.seconds_error / 3600.0:.1e})",
    ]


@click.command(context_settings={"show_default": True})
@options
@click.option("--max-time", type=float, default=60.0, help="Seconds for each relaxation.")
@click.option("--dives", type=int, default=10_000, help="Maximum number of dives for each.")
@click.option("--gap", type=float, default=0.01, help="Gap of the searches.")
@click.option("--restarts", "n_restarts", type=int, default=100, help="Restarts of local search.")
@click.option("--only", multiple=True, help="A relaxation to show; again for more of them.")
def main(
    sentences: str,
    polytope: str,
    seed: int,
    out: Path,
    max_time: float,
    dives: int,
    gap: float,
    n_restarts: int,
    only: tuple[str, ...],
) -> None:
    """Estimate the sizes of search trees; Ctrl-C keeps the results so far."""
    names, corpus, console = chosen(only), corpus_of(sentences, seed), Console(width=110)
    score = global_search(corpus, n_restarts=n_restarts, max_nodes=1).objective
    record: dict[str, Any] = {**described(corpus), "polytope": polytope, "gap": gap}
    record |= {"objective": score, "relaxations": {}, "paper": PAPER}
    table = Table(title=f"{corpus.n_sentences} sentences, likelihood {score:.4f}; (errors)")
    columns = ("relaxation", "ms a node", "paper's", "dives", "nodes", "paper's", "hours")
    for column in columns:
        table.add_column(column, justify="right")
    try:
        with console.status("") as status:
            for name in names:
                status.update(f"{name}")
                size = tree_size(
                    space_of(name, corpus, gap, polytope),
                    score,
                    gap=gap,
                    n_dives=dives,
                    max_time=max_time,
                    report=lambda size, name=name: status.update(
                        f"{name}: {size.n_dives} dives, {size.n_nodes:.1e} nodes"
                    ),
                )
                record["relaxations"][name] = dataclasses.asdict(size)
                table.add_row(*row(name, size))
    except KeyboardInterrupt:
        console.print("Interrupted.")
    console.print(table)
    picture = save(record, out, "global_search_tree_size")
    draw(record, picture)
    console.print(f"{picture} and its .json")


if __name__ == "__main__":
    main()
