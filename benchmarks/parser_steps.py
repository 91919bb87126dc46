"""Time training steps of the dependency parser with every loss, in turns on the same batches.

A parser is trained with the CRF loss first, since the distributions of an untrained one have
thousands of trees; every loss starts from its parameters.

    python benchmarks/parser_steps.py
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.__main__ import DATA
from experiments.dependency.data import Batch, Treebank, Vocabulary, batches
from experiments.dependency.losses import Loss, ParserLoss
from experiments.dependency.parser import Parser

BATCH_SIZE = 8
LEARNING_RATE = 1e-3


def trainer(parser: Parser, loss: Loss) -> Callable[[Batch], None]:
    """Return a function that takes a training step."""
    criterion = ParserLoss(loss, single_root=False, labelled=False)
    optimizer = torch.optim.Adam(parser.parameters(), lr=LEARNING_RATE)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        criterion(parser(batch), batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


@click.command(context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default=DATA, help="Folder of the data.")
@click.option("--language", type=click.Choice(["en", "vi"]), default="en", help="The treebank.")
@click.option("--steps", type=click.IntRange(min=1), default=40, help="Steps in a turn.")
@click.option("--turns", type=click.IntRange(min=1), default=5, help="Turns of each loss.")
@click.option("--before", type=click.IntRange(min=0), default=400, help="Training steps before.")
def main(data: Path, language: str, steps: int, turns: int, before: int) -> None:
    """Print the training steps per second of every loss."""
    treebank = Treebank.read(data, language)
    vocabulary = Vocabulary(treebank.train)
    rng = np.random.default_rng(0)
    every = batches(treebank.train, vocabulary, BATCH_SIZE, rng)
    torch.manual_seed(0)
    parser = Parser(vocabulary)
    console = Console(stderr=True)
    first = trainer(parser, Loss.CRF)
    for batch in track(list(islice(every, before)), "training", console=console):
        first(batch)
    timed = list(islice(every, steps))
    takers = {loss: trainer(copy.deepcopy(parser), loss) for loss in Loss}
    seconds: dict[Loss, list[float]] = {loss: [] for loss in Loss}
    for turn in track(range(turns + 1), "turns", console=console):  # the first compiles
        for loss, step in takers.items():
            begin = time.perf_counter()
            for batch in timed:
                step(batch)
            if turn:
                seconds[loss].append(time.perf_counter() - begin)
    table = Table(title=f"{language}, batches of {BATCH_SIZE} sentences, medians of {turns} turns")
    for column in ("loss", "steps/s", "ms/step", "of the CRF's"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    medians = {loss: float(np.median(found)) for loss, found in seconds.items()}
    for loss, median in medians.items():
        cells = f"{steps / median:.1f}", f"{1e3 * median / steps:.1f}"
        table.add_row(loss.value, *cells, f"{median / medians[Loss.CRF]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
