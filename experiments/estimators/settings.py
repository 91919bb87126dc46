"""The settings of the rows, and their tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.estimators.model import LatentTask
from experiments.estimators.rationales import RationaleTask
from experiments.estimators.trees import TreeTask
from experiments.estimators.variants import VARIANTS, Variant

__all__ = ["OF_SIZE", "TASKS", "Settings", "TimingSettings"]

TASKS = ("trees", "rationales")


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes
    ----------
    task
        One of `TASKS`.
    sizes
        Numbers of instances for training, dev and test; None for all of the test.
    steps, steps_between
        The number of training steps, and that between evaluations on the dev set; the learning rate
        decays by .9 if the accuracy is not the best so far.
    learning_rate, batch_size, score_decay
        Of the training; the weight of the mean square of the scores in the loss.
    curriculum
        Of trees: maximum numbers of tokens in equal parts of the training.
    variant, seed
        The row and its repetition.
    """

    task: str
    sizes: tuple[int, int, int | None]
    steps: int
    steps_between: int
    learning_rate: float
    score_decay: float
    curriculum: tuple[int, ...] = ()
    batch_size: int = 64
    variant: Variant = VARIANTS[0]
    seed: int = 0

    def load(self, data: Path) -> LatentTask[Any]:
        """Return the task, with its data read from a folder."""
        if self.task == "rationales":
            return RationaleTask(data, self.sizes)
        return TreeTask(data, self.sizes, self.curriculum)


@dataclass(frozen=True)
class TimingSettings:
    """The settings of the comparison of times.

    Attributes
    ----------
    tasks
        The settings of both tasks.
    steps
        The number of training steps of every variant.
    seed
        The seed of the networks and of the order of the instances.
    """

    tasks: tuple[Settings, ...]
    steps: int
    seed: int = 0


FULL = (
    Settings("trees", (20000, 1000, None), 2000, 200, 2e-3, 0.03, (20, 40)),
    Settings("rationales", (17188, 984, None), 2000, 200, 3e-3, 0.0),
)

SMALL = tuple(replace(one, steps=200, steps_between=100, sizes=(4000, 200, 500)) for one in FULL)

TOY = (
    replace(FULL[0], steps=4, steps_between=2, sizes=(40, 10, 10), curriculum=(8, 12)),
    replace(FULL[1], steps=4, steps_between=2, sizes=(16, 8, 8), batch_size=4),
)

OF_SIZE = {"toy": TOY, "small": SMALL, "full": FULL}
