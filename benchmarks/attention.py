"""Measure the cost of training steps with structured alignments and with softmax.

The networks and pairs of sentences are those of ``experiments/nli``, in batches of 128. They are
trained in turns, with one thread, and times are the processor's. The data folder is that of the
experiments. ::

    python benchmarks/attention.py --corpus snli --only decomposable --save

writes the table that the README of ``experiments/nli`` is from.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.__main__ import DATA
from experiments.nli.data import CORPORA, Batch, Corpus, Vocabulary, batches
from experiments.nli.model import Alignment, Architecture, Regime, Sizes, make_classifier
from experiments.nli.rows import VARIANTS
from lpsmap import ConvergenceWarning
from measured import DOCS, markdown, origin

SIZE = 128

PARTS = ("forward", "again", "backward")
"""Parts of the alignment; the repeated forward pass finds its layout in the cache."""


class Trained:
    """A network in training, with the times of its steps."""

    def __init__(self, n_words: int, variant: tuple[Architecture, Alignment, Regime]) -> None:
        torch.manual_seed(0)
        self.model = make_classifier(n_words, *variant, Sizes())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.model.attention.register_forward_pre_hook(self._keep)
        self.aligned: tuple[Tensor, Tensor]
        self.times: list[float] = []
        self.parts: dict[str, list[float]] = {part: [] for part in PARTS}

    def _keep(self, _: nn.Module, given: tuple[Tensor, Tensor]) -> None:
        """Keep the last input of the alignment."""
        self.aligned = given

    def step(self, batch: Batch) -> None:
        """Take a step."""

        def work() -> None:
            self.optimizer.zero_grad()
            found = self.model(batch).classes
            loss = nn.functional.cross_entropy(found, batch.labels)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

        self.times.append(timed(work)[0])

    def take_apart(self) -> None:
        """Time the parts of the alignment of the last step, forward twice."""
        # layouts are cached by lengths: another order misses the cache
        scores, lengths = (tensor.detach().roll(1, 0) for tensor in self.aligned)
        scores.requires_grad_()
        for part in PARTS[:2]:
            seconds, found = timed(lambda: self.model.attention(scores, lengths))
            self.parts[part].append(seconds)
        seconds, _ = timed(lambda: torch.autograd.grad(found[0].sum() + found[1].sum(), scores))
        self.parts[PARTS[2]].append(seconds)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of a call, and its result."""
    begin = time.process_time()
    found = work()
    return time.process_time() - begin, found


def median(times: list[float]) -> float:
    """Return the median of the second half in milliseconds, after compilation."""
    return 1e3 * float(np.median(times[len(times) // 2 :]))


@click.command(context_settings={"show_default": True})
@click.option("--steps", type=click.IntRange(min=2), default=40, help="Steps of each network.")
@click.option("--corpus", type=click.Choice(CORPORA), default="mnli")
@click.option(
    "--only", type=click.Choice([n.value for n in Architecture]), help="Of these networks."
)
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=DATA)
@click.option("--save", is_flag=True, help="Write the table.")
def main(steps: int, corpus: str, only: str | None, data: Path, save: bool) -> None:
    """Train with every alignment in turns, and print the cost of a step."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    pairs = Corpus.read(data, corpus).train
    vocabulary = Vocabulary(pairs)
    runs = {
        variant: Trained(len(vocabulary), variant)
        for variant in VARIANTS
        if only in (None, variant[0].value)
    }
    drawn = batches(pairs, vocabulary, SIZE, np.random.default_rng(0))
    for _ in track(range(steps), "training", console=Console(stderr=True)):
        batch = next(drawn)
        for run in runs.values():
            run.step(batch)
            run.take_apart()
    rows = []
    for variant, run in runs.items():
        plain = next(other for key, other in runs.items() if key[0] is variant[0])
        names = dict(zip(("network", "alignment", "inference"), variant, strict=True))
        rows.append(
            {heading: name.value for heading, name in names.items()}
            | {"step": f"{median(run.times):.1f}"}
            | {"of softmax's": f"{median(run.times) / median(plain.times):.2f}"}
            | {part: f"{median(run.parts[part]):.1f}" for part in PARTS}
        )
    text = (
        f"A training step on {corpus}, and the parts of its alignment: milliseconds of processor "
        f"time, medians of {steps - steps // 2} steps.\n\n{markdown(rows)}"
    )
    click.echo(text)
    if save:
        (DOCS / "attention.md").write_text(f"{text}\n{origin('torch')}", encoding="utf-8")


if __name__ == "__main__":
    main()
