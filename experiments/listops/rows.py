"""The rows of the experiment, and how to run one; data, model and loss are those of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.limits import limited_on_purpose
from experiments.runs import Job, Result, Row
from experiments.training import Task, Training, steps_per_second, train
from listops import make_corpora
from lpsmap import ALGORITHM_1
from valency.batches import Batch, Corpus
from valency.model import Inference, Structure, ValencyTagger
from valency.training import Measured, measure, objective

__all__ = ["ESCAPED", "NAME", "Regime", "Settings", "Study", "rows"]

NAME = "listops"

ESCAPED = 33.0
"""Test accuracy above which a run uses the tree; labels that do not depend on it have 25."""


class Study(str, Enum):
    """The purpose of a run: Table 2, the paper's regime, or the share of seeds that escape."""

    TABLE = "table"
    COLD = "cold"
    ESCAPE = "escape"


class Regime(str, Enum):
    """The training regime: a curriculum with a penalty on scores, or as in the paper."""

    CURRICULUM = "curriculum"
    COLD = "cold"


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes
    ----------
    study, regime, structure
        The compared variant.
    seed, steps, learning_rate
        The training options.
    steps_between
        Steps between two evaluations on the validation set; the learning rate decays by .9 if F1 is
        not the best so far.
    curriculum
        Maximum lengths of expressions in equal parts of the training.
    score_decay
        Weight of the mean square of arc scores in the loss.
    inference
        Limits of the solver.
    sizes
        Numbers of expressions for training, validation and test.
    max_tokens
        Longer expressions are skipped.
    """

    study: Study
    regime: Regime
    structure: Structure
    seed: int = 0
    steps: int = 2400
    learning_rate: float = 1e-3
    steps_between: int = 200
    curriculum: tuple[int, ...] = (20, 40, 100)
    score_decay: float = 0.3
    inference: Inference = Inference(max_iter=100, tol=1e-2)
    sizes: tuple[int, int, int | None] = (70446, 2000, None)
    max_tokens: int = 100


TOY = Settings(
    Study.TABLE,
    Regime.CURRICULUM,
    Structure.TREE,
    steps=4,
    steps_between=2,
    curriculum=(8, 12),
    sizes=(40, 10, 10),
    max_tokens=12,
)

SMALL = replace(
    TOY, steps=300, steps_between=100, curriculum=(20, 40), sizes=(4000, 200, 500), max_tokens=40
)

FULL = Settings(Study.TABLE, Regime.CURRICULUM, Structure.TREE)

OF_SIZE = {"toy": TOY, "small": SMALL, "full": FULL}

SEEDS = {"toy": 1, "small": 1, "full": 5}

ESCAPE_SEEDS = {"toy": 1, "small": 0, "full": 6}

ESCAPE_STEPS = {"toy": 2, "small": 100, "full": 800}

BATCH_SIZE = 64

COLD_EPOCHS = {"toy": 1, "small": 1, "full": 10}
"""Epochs in the paper's regime, for each of two structures."""

COLD_SEEDS = {"toy": 1, "small": 1, "full": 3}

LATENT = (Structure.TREE, Structure.TREE_BUDGET)


def rows(size: str, seeds: int | None) -> list[Row]:
    """Return the rows of a size: Table 2, the paper's regime, and the study of escapes."""
    base = OF_SIZE[size]
    found = [
        replace(base, structure=structure, seed=seed)
        for seed in range(seeds or SEEDS[size])
        for structure in Structure
    ]
    for seed in range(seeds or ESCAPE_SEEDS[size]):
        for structure in LATENT:
            one = replace(base, study=Study.ESCAPE, structure=structure, seed=seed)
            one = replace(one, steps=ESCAPE_STEPS[size])
            found += [one, cold(one)]
    epoch = -(-base.sizes[0] // BATCH_SIZE)
    for seed in range(seeds or COLD_SEEDS[size]):
        for structure in LATENT:
            one = cold(replace(base, study=Study.COLD, structure=structure, seed=seed))
            found.append(replace(one, steps=COLD_EPOCHS[size] * epoch, steps_between=epoch))
    return [row(settings) for settings in found]


def cold(settings: Settings) -> Settings:
    """Return settings with the paper's regime."""
    return replace(
        settings,
        regime=Regime.COLD,
        learning_rate=1e-4,
        curriculum=settings.curriculum[-1:],
        score_decay=0.0,
        inference=Inference(**ALGORITHM_1),
    )


def row(settings: Settings) -> Row:
    """Return the row of settings."""
    parts = [settings.study.value, settings.structure.value, f"{settings.seed}"]
    if settings.study is Study.ESCAPE:
        parts.insert(1, settings.regime.value)
    return Row(NAME, "-".join(parts), settings, run)


@lru_cache(maxsize=1)
def corpora(
    data: Path, sizes: tuple[int, int, int | None], max_tokens: int
) -> tuple[Corpus, Corpus, Corpus]:
    """Return generated training expressions, and those of the published test file."""
    train_set, valid_set, test = make_corpora(*sizes[:2], 0, max_tokens, data / "listops")
    return train_set, valid_set, Corpus(test.expressions[: sizes[2]])


def run(job: Job) -> Result:
    """Train a tagger, and measure it on the test expressions."""
    settings: Settings = job.row.settings
    training, validation, test = corpora(job.data, settings.sizes, settings.max_tokens)
    torch.manual_seed(settings.seed)
    tagger = ValencyTagger(settings.structure, settings.inference)
    parts = [training.up_to(most) for most in settings.curriculum]
    n_epochs = -(-settings.steps // settings.steps_between)

    def epoch(number: int, rng: np.random.Generator) -> Iterator[Batch]:
        part = parts[number * len(parts) // n_epochs]
        endless = chain.from_iterable(part.epoch(BATCH_SIZE, rng) for _ in repeat(None))
        return islice(endless, settings.steps_between)

    def loss(batch: Batch) -> Tensor:
        cross_entropy, pull = objective(tagger, batch, settings.score_decay)
        return cross_entropy + pull

    def evaluate() -> Result:
        scores = measure(tagger, validation).scores
        return {"dev": scores.f1, "accuracy": scores.accuracy}

    how = Training(settings.learning_rate, n_epochs, settings.seed, decay=0.9)
    with limited_on_purpose():
        curve = train(job, Task(tagger, epoch, loss, evaluate), how)
        measured = flat(measure(tagger, test))
    return {
        "dev": max(point["dev"] for point in curve),
        "test": measured,
        "steps_per_second": steps_per_second(curve),
        "curve": curve,
    }


def flat(measured: Measured) -> dict[str, float]:
    """Return the numbers of a measurement by name."""
    return {
        **asdict(measured.scores),
        "accuracy with a mean root": measured.without_root.accuracy,
        "attachment recall": measured.recall,
    }
