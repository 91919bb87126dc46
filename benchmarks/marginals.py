"""Time the marginals of random fields beside torch-struct's, and a lone `Xor` beside entmax.

``pip install torch-struct entmax`` brings the peers, for this benchmark only (``--no-deps`` if an
index has another torch); rows with missing peers are skipped. Every row is timed in turns, by the
process's time with one thread: the marginals, and their gradient. Ratios are ours over the peer's.
The last column is the largest difference of the marginals. ``--save`` writes the table that the
documentation includes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lpsmap import DepTree, Sequence, TorchFactorGraph, Xor
from lpsmap_torch.layers import SparseMAP
from measured import DOCS, markdown, origin
from peers import Pair, compare, eisner, linear_chain, matrix_tree, sparsemax, xor

Layer = Callable[..., torch.Tensor]


def sequence(threads: int, scores: torch.Tensor, transitions: torch.Tensor) -> torch.Tensor:
    """Marginals of a linear chain's states."""
    graph = TorchFactorGraph()
    factor = graph.add(Sequence(graph.variable_from(scores), transitions))
    found: torch.Tensor = graph.gibbs(factor).marginals
    return found


def states(scores: torch.Tensor, transitions: torch.Tensor) -> torch.Tensor:
    """The same of torch-struct, whose marginals are those of (later, earlier) state."""
    steps = linear_chain(scores, transitions)
    return torch.cat([steps[:, :1].sum(2), steps.sum(3)], 1)


def tree(projective: bool) -> Layer:
    """Marginals of dependency trees."""

    def layer(threads: int, scores: torch.Tensor) -> torch.Tensor:
        graph = TorchFactorGraph()
        factor = graph.add(DepTree(graph.variable_from(scores), projective=projective))
        found: torch.Tensor = graph.gibbs(factor).marginals
        return found

    return layer


def modifiers(heads: Layer) -> Layer:
    """Return a layer of torch-struct with a row for every word, as ours has."""
    return lambda scores: heads(scores).transpose(-1, -2)


CHOICE = SparseMAP(Xor, threads=1)


def pairs(batch: int) -> list[Pair]:
    """Return the compared layers, for a batch size."""
    chain = ((batch, 50, 20), (batch, 49, 20, 20))
    found = [Pair("sequence 50x20", "torch-struct", chain, sequence, states, 0.1)]
    for n in (20, 30):
        shape = ((batch, n, n),)
        ours, theirs = tree(True), modifiers(eisner)
        found.append(Pair(f"projective tree n={n}", "torch-struct", shape, ours, theirs, 0.3))
        ours, theirs = tree(False), modifiers(matrix_tree)
        found.append(Pair(f"tree n={n}", "torch-struct matrix-tree", shape, ours, theirs, 1.5))
    for shape in ((128, 64), (1024, 100), (4096, 64)):
        name = "x".join(map(str, shape))
        found.append(Pair(f"Xor graph {name}", "entmax", (shape,), xor, sparsemax, 1.0))
        ours = lambda threads, scores: CHOICE(scores)  # noqa: E731
        found.append(Pair(f"Xor layer {name}", "entmax", (shape,), ours, sparsemax, 1.0))
    return found


def difference(pair: Pair) -> float:
    """Return the largest difference of the marginals."""
    draws = torch.Generator().manual_seed(0)
    tensors = [torch.randn(s, generator=draws, dtype=torch.float64) for s in pair.shapes]
    if pair.peer.startswith("torch-struct"):  # which differentiates to get them
        tensors = [x.requires_grad_() for x in tensors]
    return float((pair.ours(1, *tensors) - pair.theirs(*tensors)).abs().max())


@click.command(context_settings={"show_default": True})
@click.option("--batch", type=click.IntRange(min=1), default=32, help="Instances at once.")
@click.option("--turns", type=click.IntRange(min=1), default=9, help="Turns of each.")
@click.option("--only", default="", help="Only rows whose name contains this.")
@click.option("--save", is_flag=True, help="Write the table that the documentation includes.")
def main(batch: int, turns: int, only: str, save: bool) -> None:
    """Print the times of marginals beside those of other libraries."""
    warnings.simplefilter("ignore")
    table = Table(title=f"batch {batch}, float64, process time of one thread, medians of turns")
    columns = ["forward ms", "both ms", "ratio forward", "ratio both", "goal", "difference"]
    for column in ("layer", "peer", *columns):
        table.add_column(column, justify="left" if column in {"layer", "peer"} else "right")
    chosen, rows = [pair for pair in pairs(batch) if only in pair.name], []
    for pair in track(chosen, "peers", console=Console(stderr=True)):
        if pair.missing:
            table.add_row(pair.name, f"skipped: pip install {pair.missing}")
            continue
        cells = compare(pair, turns, 1, time.process_time, torch.float64)
        off = f"{difference(pair):.0e}"
        table.add_row(pair.name, pair.peer, *cells, f"<= {pair.goal:g}", off)
        named = dict(zip(columns, [*cells, "", off], strict=True))
        rows.append({"marginals": f"{pair.name}, {pair.peer}"} | named)
    Console(width=130).print(table)
    if save:
        shown = [{name: cell for name, cell in row.items() if name != "goal"} for row in rows]
        said = f"Batches of {batch}, float64. " + origin("torch", "torch-struct", "entmax")
        (DOCS / "sums.md").write_text(f"{markdown(shown)}\n{said}", encoding="utf-8")


if __name__ == "__main__":
    main()
