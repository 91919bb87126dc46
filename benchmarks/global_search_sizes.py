"""The largest corpora that are certified: boxes and seconds against the number of sentences.

Synthetic sentences over three tags, of at most six words and of at most ten. Corpora of all sizes
are searched: the largest need not be the hardest. Knuth's estimates are reported beside the boxes
of the searches, also for corpora that were not certified; if the estimate far exceeds the time
limit, the search is skipped. Runs in the record are not repeated.

    python benchmarks/global_search_sizes.py --max-time 3600 --processes 2
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
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
from global_search_common import corpus_of, save
from lpsmap_search import global_search, tree_size
from lpsmap_search.lagrangian_space import LagrangianSpace

SIZES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

MAX_DIVES = 100_000
"""Maximum number of dives of an estimate; its time limit is reached earlier."""

HOPELESS = 1.5
"""A search is skipped if its estimated time exceeds this multiple of the limit."""

NAME = "global_search_sizes"

MEDIANS = ("different", "nodes", "estimate", "seconds")
"""The fields whose medians over the draws of a size are shown."""

Run = dict[str, Any]


def certify(
    n: int,
    seed: int,
    series: tuple[float, int],
    limits: dict[str, Any],
    report: Callable[[str], None],
) -> Run:
    """Estimate the tree of a corpus of n sentences, search it, and return the result."""
    gap, max_words = series
    corpus = corpus_of(str(n), seed, max_words)
    report("local search")
    begun = global_search(corpus, gap=gap, seed=seed, max_nodes=1)
    report("dives")
    space, dives_time = LagrangianSpace(corpus, gap), limits["dives_time"]
    size = tree_size(space, begun.objective, gap=gap, max_time=dives_time, n_dives=MAX_DIVES)
    run = {
        "sentences": n,
        "different": len(corpus.sentences),
        "seed": seed,
        "estimate": size.n_nodes,
        "estimate_error": size.n_nodes_error,
        "estimated_seconds": size.seconds / limits["processes"],
        "proved": False,
    }
    if run["estimated_seconds"] > HOPELESS * limits["max_time"]:
        return run
    found = global_search(
        corpus,
        gap=gap,
        max_time=limits["max_time"],
        seed=seed,
        executor=None if limits["processes"] == 1 else limits["processes"],
        report=lambda now: report(f"{now.n_nodes} boxes, {now.score:.3f} to {now.bound:.3f}"),
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return run | {
        "objective": found.objective,
        "bound": found.bound,
        "proved": found.proved,
        "nodes": found.n_nodes,
        "seconds": found.seconds,
    }


def climb(
    runs: list[Run], sizes: Sequence[int], seeds: int, search: Callable[[int, int], Run]
) -> None:
    """Search corpora of all sizes: larger ones may be easier."""
    known = {(run["sentences"], run["seed"]) for run in runs}
    for n, seed in itertools.product(sizes, range(seeds)):
        if (n, seed) not in known:
            runs.append(search(n, seed))


def draw(record: dict[str, Any], picture: Path) -> None:
    """Draw boxes and seconds against sentences."""
    figure, axes = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
    for i, (name, runs) in enumerate(record["searches"].items()):
        for axis, what in zip(axes, ("nodes", "seconds"), strict=True):
            for proved, marker in ((True, "o"), (False, "x")):
                some = [
                    (run["sentences"], run[what])
                    for run in runs
                    if run["proved"] == proved and what in run
                ]
                if some:
                    label = name if proved else f"{name}, not certified"
                    axis.plot(*zip(*some, strict=True), marker, color=f"C{i}", label=label)
        estimates = [(run["sentences"], run["estimate"]) for run in runs]
        if estimates:
            axes[0].plot(*zip(*estimates, strict=True), "_", color=f"C{i}", ms=12, alpha=0.6)
    axes[0].set(ylabel="boxes; lines: Knuth's estimates")
    axes[1].set(ylabel="seconds")
    axes[1].axhline(record["settings"]["max_time"], color="0.4", ls=":")
    for axis in axes:
        axis.set(xscale="log", yscale="log", xlabel="sentences")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


def show(record: dict[str, Any], console: Console) -> None:
    """Print the searches."""
    table = Table(title="corpora that were searched; medians")
    columns = ("corpora", "sentences", "different", "certified", "boxes", "by dives", "seconds")
    for column in columns:
        table.add_column(column, justify="right")
    for name, runs in record["searches"].items():
        for n in sorted({run["sentences"] for run in runs}):
            some = [run for run in runs if run["sentences"] == n]
            median = {what: np.median([run.get(what, np.nan) for run in some]) for what in MEDIANS}
            table.add_row(
                name,
                str(n),
                f"{median['different']:.0f}",
                f"{sum(run['proved'] for run in some)} of {len(some)}",
                f"{median['nodes']:.0f}",
                f"{median['estimate']:.1e}",
                f"{median['seconds']:.1f}",
            )
    console.print(table)


@click.command(context_settings={"show_default": True})
@click.option("--out", type=click.Path(path_type=Path), default="build", help="Folder.")
@click.option("--max-time", type=float, default=3600.0, help="Seconds for each search.")
@click.option("--processes", type=click.IntRange(1), default=2)
@click.option("--seeds", type=click.IntRange(1), default=3, help="Draws of every size.")
@click.option("--gap", "gaps", type=float, multiple=True, default=(0.05, 0.01))
@click.option("--max-words", "words", type=click.IntRange(1), multiple=True, default=(6, 10))
@click.option("--sentences", "sizes", type=click.IntRange(1), multiple=True, default=SIZES)
@click.option("--dives-time", type=float, default=10.0, help="Seconds for each estimate.")
def main(
    out: Path,
    max_time: float,
    processes: int,
    seeds: int,
    gaps: tuple[float, ...],
    words: tuple[int, ...],
    sizes: tuple[int, ...],
    dives_time: float,
) -> None:
    """Search corpora of many sizes; Ctrl-C keeps the results so far."""
    console, path = Console(width=100), out / f"{NAME}.json"
    settings = {"max_time": max_time, "processes": processes, "dives_time": dives_time}
    record: dict[str, Any] = {"settings": settings, "searches": {}}
    if path.exists():
        record = json.loads(path.read_text())
        if record["settings"] != settings:
            raise click.UsageError(f"{path} has other settings. Choose another folder by --out.")
    try:
        with console.status("") as status:
            for max_words, gap in itertools.product(words, gaps):
                name = f"gap {gap:g}, at most {max_words} words"
                runs = record["searches"].setdefault(name, [])

                def search(n: int, seed: int, series: Any = (gap, max_words)) -> Run:
                    save(record, out, NAME)
                    where = f"{n} sentences of at most {series[1]} words, gap {series[0]:g}"
                    return certify(
                        n, seed, series, settings, lambda text: status.update(f"{where}: {text}")
                    )

                climb(runs, sizes, seeds, search)
    except KeyboardInterrupt:
        console.print("Interrupted.")
    picture = save(record, out, NAME)
    show(record, console)
    draw(record, picture)
    console.print(f"{picture} and its .json")


if __name__ == "__main__":
    main()
