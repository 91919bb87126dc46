"""The rows of the experiment, and how to run one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.limits import limited_on_purpose
from experiments.nli.data import (
    CORPORA,
    Batch,
    Corpus,
    Pair,
    Vocabulary,
    batches,
    evaluation_batches,
    make_batch,
)
from experiments.nli.model import (
    Alignment,
    Architecture,
    Classifier,
    Regime,
    Sizes,
    make_classifier,
)
from experiments.runs import Job, Result, Row
from experiments.training import Task, Training, steps_per_second, train

__all__ = ["NAME", "SNLI_ONLY", "VARIANTS", "Settings", "rows"]

NAME = "nli"

VARIANTS = (
    (Architecture.DECOMPOSABLE, Alignment.SOFTMAX, Regime.SOLVED),
    (Architecture.DECOMPOSABLE, Alignment.MATCHING, Regime.PAPER),
    (Architecture.DECOMPOSABLE, Alignment.LP_MATCHING, Regime.PAPER),
    (Architecture.DECOMPOSABLE, Alignment.LP_MATCHING, Regime.SOLVED),
    (Architecture.DECOMPOSABLE, Alignment.LP_SEQUENCE, Regime.PAPER),
    (Architecture.DECOMPOSABLE, Alignment.LP_SEQUENCE, Regime.SOLVED),
    (Architecture.ESIM, Alignment.SOFTMAX, Regime.SOLVED),
    (Architecture.ESIM, Alignment.SEQUENCE, Regime.SOLVED),
    (Architecture.ESIM, Alignment.MATCHING, Regime.SOLVED),
)
"""Rows of the two tables, and the LP alignments solved to convergence."""

SNLI_ONLY = (Architecture.DECOMPOSABLE, Alignment.LP_SEQUENCE, Regime.SOLVED)
"""A variant that takes more than an hour with MultiNLI's long sentences."""

DRAWN = 5
"""Number of dev pairs whose alignments are recorded by the first seed."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes
    ----------
    corpus
        "snli" or "mnli".
    network, alignment, regime
        The compared variant.
    seed, epochs, batch_size, learning_rate
        The training options; the rate decays by .9 after an epoch that is not the best.
    patience
        Epochs without a new best dev accuracy that end the training; None for all epochs.
    pairs
        Numbers of random training, dev and test pairs; None for all.
    sizes
        The sizes of the network.
    """

    corpus: str
    network: Architecture
    alignment: Alignment
    regime: Regime
    seed: int = 0
    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 2e-3
    patience: int | None = None
    pairs: tuple[int | None, int | None, int | None] = (None, None, None)
    sizes: Sizes = Sizes()


FULL = Settings("snli", *VARIANTS[0])

TOY = replace(FULL, epochs=2, batch_size=4, pairs=(16, 8, 8), sizes=Sizes(word=8, hidden=8))

SMALL = replace(FULL, epochs=3, batch_size=64, pairs=(2000, 300, 300))

OF_SIZE = {"toy": TOY, "small": SMALL, "full": FULL}

ESIM_EPOCHS = {"toy": 1, "small": 2, "full": 8}

ESIM_SIZES = {
    "toy": TOY.sizes,
    "small": Sizes(deviation=1.0),
    "full": Sizes(deviation=1.0, hidden=200),
}
"""With smaller layers or embeddings, sequences give weight to more pairs than in the paper."""

FEW = {"toy": 1, "small": 1, "full": 2}
"""Seeds of LP-sequence and ESIM."""

SEEDS = {"toy": 1, "small": 1, "full": 5}

MNLI_SEEDS = {"toy": 1, "small": 1, "full": 3}
"""Seeds of decomposable attention on MultiNLI; ESIM has one."""

LONG_EPOCHS, LONG_PATIENCE = 100, 10
"""The rows that train until dev accuracy falls end after so many epochs without a new best."""

LONG_SEEDS = {"toy": 1, "small": 0, "full": 3}

LONG_VARIANTS = (VARIANTS[0], VARIANTS[2])
"""Softmax and LP-matching."""


def rows(size: str, seeds: int | None) -> list[Row]:
    """Return the rows of a size: every variant on both corpora, but for one."""
    found = []
    for variant in VARIANTS:
        network, alignment, regime = variant
        one = replace(OF_SIZE[size], network=network, alignment=alignment, regime=regime)
        is_slow = network is Architecture.ESIM or alignment is Alignment.LP_SEQUENCE
        if network is Architecture.ESIM:
            one = replace(one, epochs=ESIM_EPOCHS[size], sizes=ESIM_SIZES[size])
        own = (FEW if is_slow else SEEDS)[size]
        for corpus in ["snli"] if variant == SNLI_ONLY else CORPORA:
            mnli = 1 if network is Architecture.ESIM else MNLI_SEEDS[size]
            for seed in range(seeds or (mnli if corpus == "mnli" else own)):
                found.append(replace(one, corpus=corpus, seed=seed))
    for seed in range(seeds or LONG_SEEDS[size]):
        for network, alignment, regime in LONG_VARIANTS:
            one = replace(OF_SIZE[size], network=network, alignment=alignment, regime=regime)
            if size == "full":
                one = replace(one, epochs=LONG_EPOCHS)
            found.append(replace(one, seed=seed, patience=LONG_PATIENCE))
    return [row(settings) for settings in found]


def row(settings: Settings) -> Row:
    """Return the row of settings."""
    parts = [settings.corpus, settings.network.value, settings.alignment.value]
    if settings.alignment is not Alignment.SOFTMAX:
        parts.append(settings.regime.value)
    if settings.patience is not None:
        parts.append("long")
    return Row(NAME, "-".join([*parts, f"{settings.seed}"]), settings, run)


@lru_cache(maxsize=2)
def read_corpus(data: Path, name: str) -> Corpus:
    """Read a corpus with a cache per process."""
    return Corpus.read(data, name)


def run(job: Job) -> Result:
    """Train a classifier, and measure it on the test pairs."""
    settings: Settings = job.row.settings
    corpus = read_corpus(job.data, settings.corpus).part(*settings.pairs)
    torch.manual_seed(settings.seed)
    vocabulary = Vocabulary(corpus.train)
    model = make_classifier(
        len(vocabulary), settings.network, settings.alignment, settings.regime, settings.sizes
    )

    def epoch(_: int, rng: np.random.Generator) -> Iterator[Batch]:
        return batches(corpus.train, vocabulary, settings.batch_size, rng)

    def loss(batch: Batch) -> Tensor:
        return cross_entropy(model(batch).classes, batch.labels)

    def evaluate() -> Result:
        measured = measure(model, corpus.dev, vocabulary)
        return {"dev": measured["accuracy"], "nonzero": measured["nonzero"], **transition(model)}

    how = Training(
        settings.learning_rate,
        settings.epochs,
        settings.seed,
        decay=0.9,
        patience=settings.patience,
    )
    with limited_on_purpose():
        curve = train(job, Task(model, epoch, loss, evaluate), how)
        result: Result = {
            "dev": max(point["dev"] for point in curve),
            "test": {**measure(model, corpus.test, vocabulary), **transition(model)},
            "steps_per_second": steps_per_second(curve),
            "curve": curve,
        }
        if settings.regime is Regime.PAPER:
            result["solved"] = measure(solved(model, settings), corpus.test, vocabulary)
        if settings.seed == 0:
            result["alignments"] = alignments(model, chosen_pairs(corpus.dev), vocabulary)
    return result


def solved(model: Classifier, settings: Settings) -> Classifier:
    """Return a trained model whose alignments are solved to convergence."""
    shape = settings.network, settings.alignment, Regime.SOLVED, settings.sizes
    found = make_classifier(model.words.num_embeddings, *shape)
    found.load_state_dict(model.state_dict())
    return found.eval()


@torch.no_grad()
def measure(model: Classifier, pairs: Sequence[Pair], vocabulary: Vocabulary) -> dict[str, float]:
    """Return the accuracy, and the share of pairs of words with weight, in percent."""
    right, weights, of = 0, 0, 0
    for batch in evaluation_batches(pairs, vocabulary):
        output = model(batch)
        right += int((output.classes.argmax(1) == batch.labels).sum())
        weights += sum(int((found > 0.0).sum()) for found in (output.rows, output.columns))
        of += 2 * int(batch.lengths.prod(1).sum())
    return {"accuracy": 100 * right / len(pairs), "nonzero": 100 * weights / of}


def transition(model: Classifier) -> dict[str, float]:
    """Return the learned transition score by name, if any."""
    found = model.attention.transition
    return {} if found is None else {"transition": found}


def chosen_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Return short pairs with different premises to draw, the same for all models."""
    short = [pair for pair in pairs if len(pair.premise) <= 12 and 4 <= len(pair.hypothesis) <= 8]
    first = {pair.premise: pair for pair in reversed(short)}
    return [pair for pair in short if pair is first[pair.premise]][:DRAWN]


@torch.no_grad()
def alignments(
    model: Classifier, pairs: Sequence[Pair], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Return data to draw: words, weights of both directions in percent, and structures.

    Weights are one string per row. The structures of every direction that has its own are pairs of
    words, with their probabilities.
    """

    def lines(weights: Tensor) -> list[str]:
        return [" ".join(f"{100 * x:.0f}" for x in line) for line in weights.tolist()]

    found = []
    for pair in pairs:
        output = model(make_batch([pair], vocabulary))
        rows, columns = lines(output.rows[0]), lines(output.columns[0])
        one = {"premise": " ".join(pair.premise), "hypothesis": " ".join(pair.hypothesis)}
        batch = make_batch([pair], vocabulary)
        structures = [
            [{"p": p, "pairs": np.argwhere(x > 0.5).tolist()} for p, x in some]
            for some in model.attention.structures(model.pair_scores(batch), batch.lengths)
        ]
        found.append(
            {
                **one,
                "rows": rows,
                **({} if columns == rows else {"columns": columns}),
                **({"structures": structures} if structures else {}),
            }
        )
    return found
