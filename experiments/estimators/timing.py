"""Times of training steps, of all variants in turns."""

from __future__ import annotations

import time
from itertools import islice

import numpy as np
import torch

from experiments.estimators.model import objective
from experiments.estimators.settings import Settings, TimingSettings
from experiments.estimators.variants import VARIANTS
from experiments.runs import Job, Result

__all__ = ["time_steps"]


def time_steps(job: Job) -> Result:
    """Train all variants in turns, a step of each on the same batch; return their median times.

    Returns
    -------
    dict
        For every task, ``milliseconds`` of processor time for every variant: of the loss, its
        gradient and the update.
    """
    settings: TimingSettings = job.row.settings
    found = {one.task: _times(job, one, settings.steps, settings.seed) for one in settings.tasks}
    return {"milliseconds": found}


def _times(job: Job, settings: Settings, n_steps: int, seed: int) -> dict[str, float]:
    task, rng = settings.load(job.data), np.random.default_rng(seed)
    models, optimizers = [], []
    for variant in VARIANTS:
        torch.manual_seed(seed)
        models.append(task.model(variant.temperature))
        optimizers.append(torch.optim.Adam(models[-1].parameters(), lr=settings.learning_rate))
    times: dict[str, list[float]] = {variant.name: [] for variant in VARIANTS}
    for step in range(n_steps):
        (batch,) = islice(task.batches(step / n_steps, settings.batch_size, rng), 1)
        for variant, model, optimizer in zip(VARIANTS, models, optimizers, strict=True):
            start = time.process_time()
            optimizer.zero_grad()
            loss = objective(model, batch, variant, settings.score_decay)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            times[variant.name].append(time.process_time() - start)
        job.show((step + 1) / n_steps, settings.task)
    return {name: 1000 * float(np.median(some)) for name, some in times.items()}
