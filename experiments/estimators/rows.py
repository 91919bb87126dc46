"""The rows of the table, and how to run one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.estimators.model import accuracy, objective, sparsity
from experiments.estimators.settings import OF_SIZE, Settings, TimingSettings
from experiments.estimators.timing import time_steps
from experiments.estimators.variants import VARIANTS
from experiments.runs import Job, Result, Row
from experiments.training import Task, Training, train

__all__ = ["NAME", "rows"]

NAME = "estimators"

SEEDS = {"toy": 1, "small": 1, "full": 3}

TIMED_STEPS = {"toy": 2, "small": 20, "full": 200}


def rows(size: str, seeds: int | None) -> list[Row]:
    """Return the rows of a size: every variant on both tasks, and the times of all of them."""
    timing = TimingSettings(OF_SIZE[size], TIMED_STEPS[size])
    found = [
        row(replace(task, variant=variant, seed=seed))
        for seed in range(seeds or SEEDS[size])
        for task in OF_SIZE[size]
        for variant in VARIANTS
    ]
    return [*found, Row(NAME, "timing", timing, time_steps)]


def row(settings: Settings) -> Row:
    """Return the row of settings."""
    variant = re.sub(r"[^a-z0-9.]+", "-", settings.variant.name.lower()).strip("-")
    return Row(NAME, f"{settings.task}-{variant}-{settings.seed}", settings, run)


def run(job: Job) -> Result:
    """Train a network, and measure it on the test instances."""
    settings: Settings = job.row.settings
    variant, task = settings.variant, settings.load(job.data)
    torch.manual_seed(settings.seed)
    model = task.model(variant.temperature)
    n_epochs = -(-settings.steps // settings.steps_between)

    def epoch(number: int, rng: np.random.Generator) -> Iterator[Any]:
        endless = task.batches(number / n_epochs, settings.batch_size, rng)
        return islice(endless, settings.steps_between)

    def loss(batch: Any) -> Tensor:
        return objective(model, batch, variant, settings.score_decay)

    def evaluate() -> Result:
        return {"dev": accuracy(model, task.dev, variant.deployed)}

    how = Training(settings.learning_rate, n_epochs, settings.seed, decay=0.9)
    curve = train(job, Task(model, epoch, loss, evaluate), how)
    return {
        "dev": max(point["dev"] for point in curve),
        "test": {
            "accuracy": accuracy(model, task.test, variant.deployed),
            "best": accuracy(model, task.test, "map"),
            **sparsity(model, task.test, variant),
        },
        "curve": curve,
    }
