"""The rows of the experiment, and how to run one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from experiments.multilabel.data import SETS, Examples, Split, read_split
from experiments.multilabel.model import FloatArray, Loss, Regime, Tagger, example_f1
from experiments.runs import Job, Result, Row
from experiments.training import Task, Training, steps_per_second, train

__all__ = ["DESCRIPTION", "NAME", "Settings", "rows"]

NAME = "multilabel"

DESCRIPTION = "data"
"""The row with the statistics of all data sets."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes
    ----------
    data
        Name of the data set.
    loss, regime, glorot
        The compared variant; see `Tagger`.
    seed, epochs, batch_size, learning_rate, average, patience
        The training options; see `Training`.
    hidden
        Size of both hidden layers.
    examples
        Number of examples of each part; None for all.
    search_seconds
        Mean time limit of the search for the best label set of a test example.
    """

    data: str
    loss: Loss
    regime: Regime
    glorot: bool = False
    seed: int = 0
    epochs: int = 12
    batch_size: int = 32
    learning_rate: float = 1e-3
    average: float = 0.99
    patience: int | None = None
    hidden: int = 300
    examples: int | None = None
    search_seconds: float = 0.2


@dataclass(frozen=True)
class Description:
    """The settings of the row of statistics: the names of the data sets."""

    data: tuple[str, ...]


FULL = Settings("bibtex", Loss.UNSTRUCTURED, Regime.SOLVED)

TOY = replace(
    FULL, data="emotions", epochs=2, batch_size=8, hidden=8, examples=16, search_seconds=0.1
)

SMALL = replace(FULL, data="emotions", epochs=5, hidden=50)


OF_SIZE = {"toy": TOY, "small": SMALL, "full": FULL}

EPOCHS = {"bibtex": 60, "emotions": 150, "scene": 48, "yeast": 38, "enron": 52, "medical": 165}
"""Largest numbers of epochs at full size; on the small data sets about 1,650 steps."""

PATIENCE = {"bibtex": 8}
"""The training on bibtex ends after so many epochs without a new best held-out measure."""

DATA = {"toy": ("emotions",), "small": ("emotions", "scene", "yeast"), "full": SETS}

SEEDS = {"toy": 1, "small": 1, "full": 2}

BIBTEX_SEEDS = 3
"""Seeds of the rows that are compared on bibtex, the data set of the paper."""

COMPARED = {
    Loss.HINGE: Regime.CUT,
    Loss.SPARSEMAP: Regime.SOLVED,
    Loss.MARGIN_SPARSEMAP: Regime.SOLVED,
}
"""The regime of these rows. LP-MAP takes hours to 1e-6: the other regimes have one seed."""


STRUCTURED = tuple(COMPARED)


def rows(size: str, seeds: int | None) -> list[Row]:
    """Return the rows of a size: every loss on every data set, structured ones in both regimes.

    Bibtex has the other initial weights with its structured losses, too.
    """
    found = []
    for data in DATA[size]:
        base = replace(OF_SIZE[size], data=data)
        if size == "full":
            base = replace(base, epochs=EPOCHS[data], patience=PATIENCE.get(data))
        for seed in range(seeds or (BIBTEX_SEEDS if data == "bibtex" else SEEDS[size])):
            one = replace(base, seed=seed)
            found += [one, replace(one, glorot=True)]
            for loss, regime in itertools.product(STRUCTURED, Regime):
                variant = replace(one, loss=loss, regime=regime)
                if data != "bibtex" or COMPARED[loss] is regime or seed == 0:
                    found.append(variant)
                if data == "bibtex" and COMPARED[loss] is regime:
                    found.append(replace(variant, glorot=True))
    description = Row(NAME, DESCRIPTION, Description(DATA[size]), described)
    return [description, *(row(settings) for settings in found)]


def row(settings: Settings) -> Row:
    """Return the row of settings."""
    parts = [settings.data, settings.loss.value]
    if settings.loss is not Loss.UNSTRUCTURED:
        parts.append(settings.regime.value)
    if settings.glorot:
        parts.append("glorot")
    parts.append(f"{settings.seed}")
    return Row(NAME, "-".join(parts), settings, run)


@lru_cache(maxsize=2)
def read(data: Path, name: str) -> Split:
    """Read a data set with a cache per process."""
    return read_split(data, name)


def run(job: Job) -> Result:
    """Train a tagger, and measure it on the test examples."""
    settings: Settings = job.row.settings
    split = read(job.data, settings.data).part(settings.examples)
    torch.manual_seed(settings.seed)
    sizes = split.train.features.shape[1], settings.hidden, split.train.labels.shape[1]
    tagger = Tagger(sizes, settings.loss, settings.regime, glorot=settings.glorot)

    def epoch(_: int, rng: np.random.Generator) -> Iterator[Examples]:
        return parts(split.train[rng.permutation(len(split.train))], settings.batch_size)

    def evaluate() -> Result:
        return {"dev": rounded_f1(tagger, split.dev)}

    curve = train(
        job,
        Task(tagger, epoch, tagger.loss, evaluate),
        Training(
            settings.learning_rate,
            settings.epochs,
            settings.seed,
            average=settings.average,
            patience=settings.patience,
        ),
    )
    test = decoded(tagger, split.test, settings.search_seconds)
    return {
        "dev": max(point["dev"] for point in curve),
        "test": test,
        "steps_per_second": steps_per_second(curve),
        "curve": curve,
    }


def described(job: Job) -> Result:
    """Return the statistics of data sets, as LP-SparseMAP's Table 6."""
    settings: Description = job.row.settings
    return {name: statistics(read_split(job.data, name)) for name in settings.data}


def statistics(split: Split) -> Result:
    """Return the statistics of a data set; the held-out examples are of its training part."""
    n_train, n_test = len(split.train) + len(split.dev), len(split.test)
    labels = torch.cat([split.train.labels, split.dev.labels, split.test.labels])
    return {
        "samples": n_train + n_test,
        "train": n_train,
        "test": n_test,
        "features": split.train.features.shape[1],
        "labels": labels.shape[1],
        "density": float(labels.mean()),
        "cardinality": float(labels.sum(dim=1).mean()),
    }


def rounded(tagger: Tagger, examples: Examples) -> tuple[FloatArray, FloatArray]:
    """Return the rounded label sets of all examples, and their marginals."""
    found, marginals = zip(*map(tagger.rounded, parts(examples)), strict=True)
    return np.concatenate(found), np.concatenate(marginals)


def rounded_f1(tagger: Tagger, examples: Examples) -> float:
    """Return the example F1 of rounded marginals."""
    return example_f1(rounded(tagger, examples)[0], examples.labels.double().numpy())


def decoded(tagger: Tagger, examples: Examples, seconds: float) -> Result:
    """Return the example F1 of every decoding, and what explains their differences.

    That is the mean numbers of labels in the gold and decoded sets, of labels with a fractional
    marginal, and the share of examples whose best set has a proof.
    """
    gold = examples.labels.double().numpy()
    found, marginals = rounded(tagger, examples)
    sets = {"rounded": found}
    result: Result = {}
    if tagger.loss_kind is not Loss.UNSTRUCTURED:
        sets["best"], result["proved"] = best(tagger, examples, seconds)
        sets["regularised"], _ = best(tagger, examples, seconds, regularised=True)
        result["fractional"] = float((abs(marginals - 0.5) < 0.499).sum(axis=1).mean())
    result |= {name: example_f1(some, gold) for name, some in sets.items()}
    sizes = {name: float(some.sum(axis=1).mean()) for name, some in {"gold": gold, **sets}.items()}
    return {**result, "labels": sizes}


def best(
    tagger: Tagger, examples: Examples, seconds: float, *, regularised: bool = False
) -> tuple[FloatArray, float]:
    """Return the best label sets of all examples, and the share with a proof."""
    found, proved = zip(
        *(tagger.best(part, seconds, regularised=regularised) for part in parts(examples)),
        strict=True,
    )
    weights = [len(part) for part in parts(examples)]
    return np.concatenate(found), float(np.average(proved, weights=weights))


def parts(examples: Examples, size: int = 64) -> Iterator[Examples]:
    """Yield examples in parts, to bound the size of graphs."""
    return (examples[start : start + size] for start in range(0, len(examples), size))
