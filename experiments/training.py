"""The training loop of all networks: Adam, model selection on held-out data, checkpoints."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from experiments.runs import Job, Result

__all__ = ["Curve", "Task", "Training", "steps_per_second", "train"]

Batch = TypeVar("Batch")

Curve = list[dict[str, Any]]
"""Points of a learning curve: epoch, steps, seconds, loss, and the measurements of the task.

Seconds are processor time of the training steps, so that other work on the machine does not count.
"""


@dataclass(frozen=True)
class Training:
    """How a network is trained.

    Attributes
    ----------
    learning_rate
        The learning rate of Adam.
    epochs
        The largest number of epochs.
    seed
        The seed of the parameters, the order of the examples, and dropout.
    decay
        Factor of the learning rate after an epoch without a new best held-out measure.
    patience
        Epochs without a new best held-out measure after which the training ends; None for no end
        before the last epoch.
    average
        If not None, the model that is evaluated and kept has an exponential average of the
        parameters, with this decay per step.
    """

    learning_rate: float
    epochs: int
    seed: int = 0
    decay: float = 1.0
    patience: int | None = None
    average: float | None = None


@dataclass(frozen=True)
class Task(Generic[Batch]):
    """A training task.

    Attributes
    ----------
    model
        The network.
    epoch
        Called with the number of an epoch, from 0, and a generator; returns its batches,
        deterministically.
    loss
        The loss of a batch.
    evaluate
        Returns the measurements for JSON at the start and after every epoch; the best model
        maximises "dev".
    """

    model: nn.Module
    epoch: Callable[[int, np.random.Generator], Iterable[Batch]]
    loss: Callable[[Batch], Tensor]
    evaluate: Callable[[], Result]


class _Progress:
    """The progress of training, as saved in a checkpoint."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, decay: float | None
    ) -> None:
        self.model, self.optimizer, self.average = model, optimizer, None
        if decay is not None:
            mean = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(model, multi_avg_fn=mean)
        self.best: Mapping[str, Any] = {}
        self.curve: Curve = []
        self.epoch, self.step, self.total_steps = 0, 0, 0
        self.loss, self.seconds = 0.0, 0.0

    def state(self) -> dict[str, Any]:
        """Return the whole state."""
        plain = ("best", "curve", "epoch", "step", "total_steps", "loss", "seconds")
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "random": torch.get_rng_state(),
            "progress": {name: getattr(self, name) for name in plain},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of another process."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        torch.set_rng_state(state["random"])
        for name, value in state["progress"].items():
            setattr(self, name, value)

    def look(self, task: Task[Any], mean_loss: float | None) -> bool:
        """Evaluate the model, add a point to the curve; return whether it is the best."""
        self.model.eval()
        at = {"epoch": self.epoch, "steps": self.total_steps, "seconds": round(self.seconds, 1)}
        with self._averaged():
            measured = task.evaluate()
            is_best = all(measured["dev"] > point["dev"] for point in self.curve)
            self.curve.append({**at, "loss": mean_loss, **measured})
            if is_best:
                self.best = copy.deepcopy(self.model.state_dict())
        return is_best

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Give the model the averaged parameters for a while, if there are any."""
        if self.average is None:
            yield
            return
        own = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.average.module.state_dict())
        try:
            yield
        finally:
            self.model.load_state_dict(own)


def train(job: Job, task: Task[Batch], training: Training) -> Curve:
    """Train a network, and restore its best parameters at the end.

    A killed run resumes from its last checkpoint, with the same result as an uninterrupted run.
    Seed torch with `training.seed` before creating the network.

    Parameters
    ----------
    job
        Stores checkpoints and the curve.
    task, training
        The task, and how to train it.
    """
    optimizer = torch.optim.Adam(task.model.parameters(), lr=training.learning_rate)
    progress = _Progress(task.model, optimizer, training.average)
    kept = job.load()
    if kept is not None:
        progress.restore(kept)
    else:
        progress.look(task, None)
    while progress.epoch < training.epochs and not _is_over(progress.curve, training.patience):
        _epoch(job, task, progress, training)
        if not progress.look(task, progress.loss / max(progress.step, 1)):
            for group in optimizer.param_groups:
                group["lr"] *= training.decay
        progress.step, progress.loss = 0, 0.0
        job.save(progress.state, now=True)
        job.keep({"curve": progress.curve})
        latest = progress.curve[-1]
        words = f"epoch {progress.epoch}, loss {latest['loss']:.4g}, dev {latest['dev']:.2f}"
        job.show(progress.epoch / training.epochs, words)
    task.model.load_state_dict(progress.best)
    task.model.eval()
    return progress.curve


def _is_over(curve: Curve, patience: int | None) -> bool:
    """Return whether the last `patience` points of a curve have no new best held-out measure."""
    if patience is None or len(curve) <= patience:
        return False
    best = max(point["dev"] for point in curve[:-patience])
    return all(point["dev"] <= best for point in curve[-patience:])


def _epoch(job: Job, task: Task[Batch], progress: _Progress, training: Training) -> None:
    """Take the remaining steps of an epoch."""
    task.model.train()
    rng = np.random.default_rng([training.seed, progress.epoch])
    for batch in islice(task.epoch(progress.epoch, rng), progress.step, None):
        start = time.process_time()
        progress.optimizer.zero_grad()
        loss = task.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        progress.optimizer.step()
        if progress.average is not None:
            progress.average.update_parameters(task.model)
        progress.loss += loss.item()
        progress.seconds += time.process_time() - start
        progress.step += 1
        progress.total_steps += 1
        job.save(progress.state)
    progress.epoch += 1


def steps_per_second(curve: Curve) -> float:
    """Return the training steps per second, without evaluation."""
    last = curve[-1]
    return float(last["steps"] / max(last["seconds"], 1e-3))
