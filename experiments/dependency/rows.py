"""The rows of the experiment, and how to run one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from experiments.dependency.analysis import (
    ambiguous_parses,
    attachment,
    distributions,
    sparsity,
)
from experiments.dependency.data import Batch, Treebank, Vocabulary, batches
from experiments.dependency.losses import Loss, ParserLoss
from experiments.dependency.parser import Parser, Sizes
from experiments.dependency.structures import Structure
from experiments.rates import choose_rate
from experiments.runs import Job, Result, Row
from experiments.training import Task, Training, steps_per_second, train

__all__ = ["ABLATIONS", "NAME", "Settings", "rows"]

NAME = "dependency"

SAMPLE, LONGEST = 200, 40
"""Number and maximum length of dev sentences whose distributions are measured after every epoch:
before training, long sentences have thousands of trees."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes
    ----------
    language
        "en" or "vi".
    loss, structure
        The compared variant.
    seed, epochs, batch_size
        The training options.
    rates
        Grid of learning rates; the best on dev is used.
    sentences
        Numbers of random training, dev and test sentences; None for all.
    trial_sentences, trial_epochs
        Training sentences and epochs of a trial of a rate.
    sizes
        The sizes of the network.
    single_root
        Whether the root has exactly one modifier.
    trial_rate
        The rate of a trial; None in a row of the table.
    """

    language: str
    loss: Loss
    structure: Structure = Structure.ARCS
    seed: int = 0
    epochs: int = 20
    batch_size: int = 8
    rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    sentences: tuple[int | None, int | None, int | None] = (None, None, None)
    trial_sentences: int = 2000
    trial_epochs: int = 10
    sizes: Sizes = Sizes()
    single_root: bool = False
    trial_rate: float | None = None


TOY = Settings(
    "en",
    Loss.SPARSEMAP,
    epochs=2,
    batch_size=4,
    rates=(2e-3, 8e-3),
    sentences=(24, 12, 12),
    trial_sentences=8,
    trial_epochs=1,
    sizes=Sizes(word=8, tag=4, lstm=6, hidden=8, sibling=3),
)

SMALL = Settings(
    "en",
    Loss.SPARSEMAP,
    epochs=3,
    rates=(4e-3,),
    sentences=(500, 100, 200),
    sizes=Sizes(word=50, tag=16, lstm=50, hidden=50, sibling=12),
)

FULL = Settings("en", Loss.SPARSEMAP)

OF_SIZE = {"toy": TOY, "small": SMALL, "full": FULL}

SEEDS = {"toy": {"en": 1, "vi": 1}, "small": {"en": 1, "vi": 1}, "full": {"en": 3, "vi": 3}}

ABLATIONS = {
    "untagged": "no tags",
    "half": "half of the training sentences",
    "online": "batches of 1",
}
"""Variants of the Vietnamese parser: name in a row, and what differs."""

ABLATION_SEEDS = {"toy": 1, "small": 0, "full": 1}

N_VIETNAMESE = 1400
"""Number of Vietnamese training sentences."""

VIETNAMESE_RATE = 2e-3
"""The learning rate of further parsers and of ablations: the SparseMAP loss's chosen one."""


def rows(size: str, seeds: int | None) -> list[Row]:
    """Return the rows of a size: Table 1, and second-order and labelled parsers of Vietnamese."""
    base = OF_SIZE[size]
    found = []
    for language in ("vi", "en"):
        for seed in range(seeds or SEEDS[size][language]):
            for loss in Loss:
                found.append(row(replace(base, language=language, loss=loss, seed=seed)))
    for seed in range(seeds or 1):
        for structure in (Structure.SIBLINGS, Structure.RELATIONS):
            settings = replace(base, language="vi", loss=Loss.SPARSEMAP, seed=seed)
            found.append(row(replace(settings, structure=structure, rates=(VIETNAMESE_RATE,))))
    for seed in range(seeds or ABLATION_SEEDS[size]):
        found += [ablation(name, replace(base, language="vi", seed=seed)) for name in ABLATIONS]
    return found


def ablation(name: str, settings: Settings) -> Row:
    """Return the row of one of the `ABLATIONS`."""
    settings = replace(settings, loss=Loss.SPARSEMAP, rates=(VIETNAMESE_RATE,))
    if name == "untagged":
        settings = replace(settings, sizes=settings.sizes._replace(tag=0))
    elif name == "half":
        n_train, n_dev, n_test = settings.sentences
        half = (n_train or N_VIETNAMESE) // 2
        settings = replace(settings, sentences=(half, n_dev, n_test))
    else:
        settings = replace(settings, batch_size=1)
    return row(settings, name)


def row(settings: Settings, variant: str = "") -> Row:
    """Return the row of settings, of a variant that the settings alone do not name."""
    parts = [settings.language, settings.loss.value]
    if variant:
        parts.append(variant)
    if settings.structure is not Structure.ARCS:
        parts.append(settings.structure.value)
    parts.append(f"{settings.seed}")
    if settings.trial_rate is not None:
        parts = ["rate", *parts, f"{settings.trial_rate:g}"]
    return Row(NAME, "-".join(parts), settings, run)


@lru_cache(maxsize=2)
def read_treebank(data: Path, language: str) -> Treebank:
    """Read a treebank with a cache per process."""
    return Treebank.read(data, language)


def run(job: Job) -> Result:
    """Train a parser, and measure it on the test sentences unless the run is a trial."""
    settings: Settings = job.row.settings
    is_trial = settings.trial_rate is not None
    treebank = read_treebank(job.data, settings.language).part(*settings.sentences)
    rate = settings.trial_rate or chosen_rate(job)
    if is_trial:
        treebank = treebank.part(settings.trial_sentences, None, None)
    torch.manual_seed(settings.seed)
    vocabulary = Vocabulary(treebank.train)
    parser = Parser(
        vocabulary,
        settings.sizes,
        labelled=settings.structure is Structure.RELATIONS,
        siblings=settings.structure is Structure.SIBLINGS,
    )
    epochs = settings.trial_epochs if is_trial else settings.epochs
    curve = train(
        job,
        parser_task(settings, parser, treebank, vocabulary),
        Training(rate, epochs, settings.seed),
    )
    result: Result = {
        "learning_rate": rate,
        "dev": max(point["dev"] for point in curve),
        "steps_per_second": steps_per_second(curve),
        "curve": curve,
    }
    if not is_trial:
        one_root = settings.single_root
        test = attachment(parser, treebank.test, vocabulary, single_root=one_root)
        result["test"] = asdict(test)
        if settings.structure is Structure.ARCS and settings.loss is Loss.SPARSEMAP:
            found = distributions(parser, treebank.dev, vocabulary, single_root=one_root)
            result["ambiguous"] = ambiguous_parses(found)
    return result


def chosen_rate(job: Job) -> float:
    """Return the learning rate of a row, by trials if its grid has several; seeds share them."""
    settings: Settings = job.row.settings
    if len(settings.rates) == 1:
        return settings.rates[0]

    def trial(rate: float) -> Row:
        return row(replace(settings, seed=0, trial_rate=rate))

    return choose_rate(job, trial, settings.rates)


def parser_task(
    settings: Settings, parser: Parser, treebank: Treebank, vocabulary: Vocabulary
) -> Task[Batch]:
    """Return the training task with its evaluation."""
    labelled = settings.structure is Structure.RELATIONS
    loss = ParserLoss(settings.loss, single_root=settings.single_root, labelled=labelled)
    short = [sentence for sentence in treebank.dev if len(sentence) <= LONGEST]
    sample = Treebank([], short, []).part(None, SAMPLE, None).dev

    def evaluate() -> Result:
        """Measure the attachment on dev, and the sparsity on a part of it."""
        roots = settings.single_root
        found = attachment(parser, treebank.dev, vocabulary, single_root=roots)
        measured: Result = {"dev": found.uas, "las": found.las}
        if settings.structure is Structure.ARCS and settings.trial_rate is None:
            measured |= sparsity(distributions(parser, sample, vocabulary, single_root=roots))
        return measured

    def epoch(_: int, rng: np.random.Generator) -> Iterator[Batch]:
        return batches(treebank.train, vocabulary, settings.batch_size, rng)

    return Task(parser, epoch, lambda batch: loss(parser(batch), batch), evaluate)
