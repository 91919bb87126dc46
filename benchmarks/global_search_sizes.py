"""The largest corpora that are certified: boxes and seconds against the number of sentences.

Synthetic sentences over three tags. For each gap, corpora of ever more sentences are searched until
no draw of a size is certified in time. Knuth's estimates, and a line through the logarithms of all
counts, say what larger corpora would need. What is in the record already is not run again.

    python benchmarks/global_search_sizes.py --max-time 3600 --processes 2
"""

from __future__ import annotations

import json
import math
import sys
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
from global_search_common import corpus_of, incumbent, save
from lpsmap_search import global_search, tree_size
from lpsmap_search.lagrangian_space import LagrangianSpace

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 32, 40, 50)

ESTIMATED = (5, 10, 20, 50, 100, 200)
"""Sizes whose trees are estimated by random dives."""

MOST_DIVES = 100_000

NAME = "global_search_sizes"


def certify(
    n: int, seed: int, gap: float, max_time: float, processes: int, report: Callable[[str], None]
) -> dict[str, Any]:
    """Search a corpus of n sentences, and return what came of it."""
    corpus = corpus_of(str(n), seed)
    found = global_search(
        corpus,
        gap=gap,
        max_time=max_time,
        seed=seed,
        executor=None if processes == 1 else processes,
        report=lambda now: report(f"{now.n_nodes} boxes, {now.score:.3f} to {now.bound:.3f}"),
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return {
        "sentences": n,
        "different": len(corpus.sentences),
        "seed": seed,
        "objective": found.objective,
        "bound": found.bound,
        "proved": found.proved,
        "nodes": found.n_nodes,
        "seconds": found.seconds,
    }


def estimate(n: int, gap: float, max_time: float) -> dict[str, Any]:
    """Estimate the boxes that a search of n sentences would look at."""
    corpus = corpus_of(str(n), 0)
    size = tree_size(
        LagrangianSpace(corpus, gap), incumbent(corpus, 200)[0], gap=gap, max_time=max_time
    )
    return {
        "sentences": n,
        "dives": size.n_dives,
        "nodes": size.n_nodes,
        "error": size.n_nodes_error,
    }


def climb(
    record: dict[str, Any],
    gap: float,
    seeds: int,
    search: Callable[[int, int], dict[str, Any]],
    keep: Callable[[], None],
) -> None:
    """Search corpora of ever more sentences, until none of a size is certified."""
    runs: list[dict[str, Any]] = record["searches"].setdefault(f"{gap:g}", [])
    known = {(run["sentences"], run["seed"]): run for run in runs}
    for n in SIZES:
        proved = False
        for seed in range(seeds):
            if (n, seed) not in known:
                known[n, seed] = search(n, seed)
                runs.append(known[n, seed])
                keep()
            proved |= known[n, seed]["proved"]
        if not proved:
            return


def line(runs: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Return the slope and the height of the line through the logarithms of certified counts."""
    points = [(run["sentences"], math.log10(run["nodes"])) for run in runs if run["proved"]]
    if len({n for n, _ in points}) < 3:
        return None
    slope, height = np.polyfit(*zip(*points, strict=True), 1)
    return float(slope), float(height)


def draw(record: dict[str, Any], picture: Path) -> None:
    """Draw boxes against sentences."""
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
    for i, (gap, runs) in enumerate(record["searches"].items()):
        for proved, marker in ((True, "o"), (False, "x")):
            some = [(run["sentences"], run["nodes"]) for run in runs if run["proved"] == proved]
            if some:
                label = f"gap {gap}" if proved else f"gap {gap}, not certified in time"
                axes[0].plot(
                    *zip(*some, strict=True), marker, color=f"C{i}", label=label, alpha=0.7
                )
        fitted = line(runs)
        if fitted:
            x = np.array([2.0, max(run["sentences"] for run in runs)])
            axes[0].plot(x, 10.0 ** (fitted[0] * x + fitted[1]), color=f"C{i}", lw=1.0)
        estimates = record["estimates"].get(gap, [])
        if estimates:
            sizes, nodes = zip(*((e["sentences"], e["nodes"]) for e in estimates), strict=True)
            axes[1].plot(sizes, nodes, "s-", color=f"C{i}", label=f"gap {gap}")
    axes[0].set(title="boxes of searches", yscale="log", xlabel="sentences", ylabel="boxes")
    axes[1].set(title="by Knuth's estimate", xscale="log", yscale="log", xlabel="sentences")
    for axis in axes:
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


def show(record: dict[str, Any], console: Console) -> None:
    """Print the searches and the estimates."""
    table = Table(title="corpora that were searched")
    for column in ("gap", "sentences", "certified", "boxes, median", "seconds, median", "most"):
        table.add_column(column, justify="right")
    for gap, runs in record["searches"].items():
        for n in sorted({run["sentences"] for run in runs}):
            some = [run for run in runs if run["sentences"] == n]
            nodes, seconds = ([run[name] for run in some] for name in ("nodes", "seconds"))
            certified = f"{sum(run['proved'] for run in some)} of {len(some)}"
            medians = f"{np.median(nodes):.0f}", f"{np.median(seconds):.2f}"
            table.add_row(gap, str(n), certified, *medians, f"{max(seconds):.1f}")
    console.print(table)
    for gap, runs in record["searches"].items():
        fitted = line(runs)
        if fitted:
            needed = fitted[0] * 200 + fitted[1]
            console.print(
                f"gap {gap}: {10 ** fitted[0]:.2f} times the boxes for each sentence more; "
                f"10^{needed:.0f} for 200 sentences, if that goes on."
            )
        for found in record["estimates"].get(gap, []):
            console.print(
                f"gap {gap}, {found['sentences']} sentences: {found['nodes']:.1e} boxes by "
                f"{found['dives']} dives (error {found['error']:.1e})"
            )


@click.command(context_settings={"show_default": True})
@click.option("--out", type=click.Path(path_type=Path), default="build", help="Folder.")
@click.option("--max-time", type=float, default=3600.0, help="Seconds for each search.")
@click.option("--processes", type=click.IntRange(1), default=2)
@click.option("--seeds", type=click.IntRange(1), default=3, help="Draws of every size.")
@click.option("--gap", "gaps", type=float, multiple=True, default=(0.05, 0.01))
@click.option("--dives-time", type=float, default=30.0, help="Seconds for each estimate.")
def main(
    out: Path,
    max_time: float,
    processes: int,
    seeds: int,
    gaps: tuple[float, ...],
    dives_time: float,
) -> None:
    """Search corpora of ever more sentences; Ctrl-C keeps what there is."""
    console, path = Console(width=100), out / f"{NAME}.json"
    settings = {"max_time": max_time, "processes": processes}
    record: dict[str, Any] = {"settings": settings, "searches": {}, "estimates": {}}
    if path.exists():
        record = json.loads(path.read_text())
        if record["settings"] != settings:
            raise click.UsageError(f"{path} has other settings. Choose another folder by --out.")
    try:
        with console.status("") as status:
            for gap in gaps:

                def search(n: int, seed: int, gap: float = gap) -> dict[str, Any]:
                    where = f"gap {gap:g}, {n} sentences, draw {seed}"
                    tell = lambda text: status.update(f"{where}: {text}")  # noqa: E731
                    return certify(n, seed, gap, max_time, processes, tell)

                climb(record, gap, seeds, search, lambda: save(record, out, NAME) and None)
                if f"{gap:g}" not in record["estimates"]:
                    status.update(f"gap {gap:g}: dives")
                    estimates = [estimate(n, gap, dives_time) for n in ESTIMATED]
                    record["estimates"][f"{gap:g}"] = estimates
    except KeyboardInterrupt:
        console.print("Interrupted.")
    picture = save(record, out, NAME)
    show(record, console)
    draw(record, picture)
    console.print(f"{picture} and its .json")


if __name__ == "__main__":
    main()
