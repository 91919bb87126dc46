"""Figure 5 of Gormley & Eisner (2013): bounds over time of their relaxations and of ours.

Each relaxation searches from the same incumbent, for the same time.

    python benchmarks/global_search_bounds.py --sentences five --max-time 60
    python benchmarks/global_search_bounds.py --sentences 5 --seed 4 --max-time 1500

The second has five short sentences, which the relaxations of the paper can solve.
"""

from __future__ import annotations

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
from global_search_common import chosen, corpus_of, described, incumbent, options, save, space_of
from lpsmap_core import Deadline
from lpsmap_decode import Search, SearchProgress

STEP = 1.02
"""A point of a line is at least this factor later than the previous one, or has a different
value."""


class Trace:
    """The bounds of a search over time."""

    def __init__(self, report: Any) -> None:
        self.points: list[tuple[float, float, float, int]] = []
        self._report = report

    def __call__(self, progress: SearchProgress) -> None:
        """Record the progress of a search, if its time or values changed enough."""
        now = (progress.seconds, progress.score, progress.bound, progress.n_nodes)
        last = self.points[-1] if self.points else (0.0, -float("inf"), 0.0, 0)
        if now[0] >= STEP * last[0] or now[1] > last[1]:
            self.points.append(now)
        self._report(f"{now[3]} nodes, {now[1]:.3f} to {now[2]:.3f}, {now[0]:.0f} s")


def draw(record: dict[str, Any], picture: Path) -> None:
    """Draw bounds and the best likelihoods against the logarithm of the time."""
    figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for i, (name, found) in enumerate(record["relaxations"].items()):
        seconds, scores, bounds, _ = zip(*found["points"], strict=True)
        axis.step(seconds, bounds, where="post", color=f"C{i}", label=name)
        axis.step(seconds, scores, where="post", color=f"C{i}", ls=":")
    axis.set(
        xscale="log", xlabel="seconds", ylabel="log-likelihood: bound, and best known (dotted)"
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@options
@click.option("--max-time", type=float, default=60.0, help="Seconds for each relaxation.")
@click.option("--gap", type=float, default=0.01, help="Searches end within it.")
@click.option(
    "--restarts", "n_restarts", type=int, default=10, help="Of Viterbi EM, to begin with."
)
@click.option("--only", multiple=True, help="A relaxation to show; again for more of them.")
def main(
    sentences: str,
    polytope: str,
    seed: int,
    out: Path,
    max_time: float,
    gap: float,
    n_restarts: int,
    only: tuple[str, ...],
) -> None:
    """Draw the bounds of searches over time; Ctrl-C ends one, twice in a row all."""
    names, corpus, console = chosen(only), corpus_of(sentences, seed), Console(width=100)
    record: dict[str, Any] = {**described(corpus), "polytope": polytope, "gap": gap}
    record["relaxations"] = {}
    start = incumbent(corpus, n_restarts)
    table = Table(title=f"{corpus.n_sentences} sentences, {max_time:g} s each, from {start[0]:.4f}")
    for column in ("relaxation", "likelihood", "bound", "nodes", "seconds", "ms a node", "proved"):
        table.add_column(column, justify="right")
    try:
        with console.status("") as status:
            for name in names:
                trace = Trace(lambda text, name=name: status.update(f"{name}: {text}"))
                space = space_of(name, corpus, gap, polytope)
                search: Search[Any, Any] = Search(space.root(), gap, start, bound=0.0)
                found = search.run(space, deadline=Deadline(max_time), report=trace)
                trace.points.append((found.seconds, found.score, found.bound, found.n_nodes))
                record["relaxations"][name] = {"points": trace.points, "proved": found.finished}
                table.add_row(
                    name,
                    f"{found.score:.4f}",
                    f"{found.bound:.4f}",
                    str(found.n_nodes),
                    f"{found.seconds:.1f}",
                    f"{1e3 * found.seconds / max(found.n_nodes, 1):.2f}",
                    "yes" if found.finished else "no",
                )
    except KeyboardInterrupt:
        console.print("Interrupted.")
    console.print(table)
    picture = save(record, out, "global_search_bounds")
    draw(record, picture)
    console.print(f"{picture} and its .json")


if __name__ == "__main__":
    main()
