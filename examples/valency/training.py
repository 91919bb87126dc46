"""Training and evaluation of a tagger; a run is a record that can be written to a file."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from valency.batches import N_CLASSES, UNLABELLED, Batch, Corpus
from valency.model import Inference, Structure, ValencyTagger


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Training ends at `epochs` or `minutes`, whichever comes first; one of them must be given. It
    consists of equal parts, each with the maximum length of expressions in `curriculum`; an empty
    curriculum uses all expressions from the start.

    `score_decay` times the mean square of the arcs' scores is added to the loss. An arc outside the
    support of the sparse distribution has no gradient; the penalty can bring it back.
    """

    structure: Structure
    seed: int = 0
    epochs: float | None = None
    minutes: float | None = None
    learning_rate: float = 1e-4
    batch_size: int = 64
    decay: float = 0.9
    score_decay: float = 0.3
    curriculum: tuple[int, ...] = ()
    budget_on_root: bool = True
    evaluations_per_epoch: int = 1
    inference: Inference = field(default_factory=Inference)

    def share_done(self, epoch: float, seconds: float) -> float:
        """Finished share of the training after some epochs and seconds, 1 at the end."""
        by_epochs = epoch / self.epochs if self.epochs else 0.0
        by_time = seconds / (60 * self.minutes) if self.minutes else 0.0
        return min(1.0, max(by_epochs, by_time))


@dataclass(frozen=True)
class Scores:
    """Accuracy and F1 in percent, over all operators of a corpus pooled.

    F1 is the unweighted mean over the four classes (2 to 5 arguments) of the F1 of that class; a
    class that is neither predicted nor present counts as 0.
    """

    accuracy: float
    f1: float

    @classmethod
    def from_confusion(cls, confusion: NDArray[np.int64]) -> Scores:
        """From counts (classes, classes), gold by predicted."""
        hits = confusion.diagonal()
        gold_and_predicted = confusion.sum(0) + confusion.sum(1)
        f1 = np.divide(
            2 * hits, gold_and_predicted, where=gold_and_predicted > 0, out=np.zeros(len(hits))
        )
        return cls(100 * float(hits.sum() / max(confusion.sum(), 1)), 100 * float(f1.mean()))


@dataclass(frozen=True)
class Point:
    """One point of a learning curve: validation scores after so much training."""

    epoch: float
    seconds: float
    loss: float
    validation: Scores


@dataclass(frozen=True)
class Run:
    """The result of training: the model with the best validation F1, and the learning curve."""

    settings: Settings
    model: ValencyTagger
    curve: list[Point]

    @property
    def best(self) -> Point:
        """The point of the best model."""
        return max(self.curve, key=lambda point: point.validation.f1)


@dataclass(frozen=True)
class Measured:
    """The evaluation of a model on a corpus.

    Attributes
    ----------
    scores
        Scores of its labels.
    without_root
        Scores of its labels, if every token is attached to the root with the mean probability over
        tokens of its expression. The root keeps its number of modifiers, but a token can no longer
        read its label from its attachment to the root.
    recall
        Percentage of the gold trees' arcs, by their mean probability. The labels depend only on
        numbers of modifiers, which many trees share.
    """

    scores: Scores
    without_root: Scores
    recall: float


@torch.no_grad()
def measure(model: ValencyTagger, corpus: Corpus, batch_size: int = 128) -> Measured:
    """Tag a corpus and evaluate the labels."""
    confusion = np.zeros((2, N_CLASSES, N_CLASSES), dtype=np.int64)
    found = n_arcs = 0.0
    for batch in corpus.in_order_of_length(batch_size):
        is_operator, arcs = batch.labels != UNLABELLED, model.arcs(batch)
        gold = batch.labels[is_operator].numpy()
        for k, shown in enumerate((arcs, with_mean_root(arcs, batch))):
            predicted = model.tag(shown)[is_operator].argmax(-1).numpy()
            np.add.at(confusion[k], (gold, predicted), 1)
        words = batch.valid[:, 1:]
        hits = arcs.gather(-1, batch.heads[..., None])[:, 1:, 0]
        found, n_arcs = found + float(hits[words].sum()), n_arcs + float(words.sum())
    plain, without_root = map(Scores.from_confusion, confusion)
    return Measured(plain, without_root, 100 * found / max(n_arcs, 1.0))


def with_mean_root(arcs: Tensor, batch: Batch) -> Tensor:
    """Arcs (size, length, length) with uniform attachment of tokens to the root."""
    words = batch.valid.clone()
    words[:, 0] = False
    mean = arcs[..., 0].sum(-1) / words.sum(-1)
    return torch.cat([(mean[:, None] * words)[..., None], arcs[..., 1:]], dim=-1)


def train(
    settings: Settings,
    corpus: Corpus,
    validation: Corpus,
    on_progress: Callable[[float, Point | None], None] = lambda done, point: None,
) -> Run:
    """Train one tagger with Adam; the rate decays when validation F1 does not improve.

    The same settings give the same run on the same machine, unless `minutes` ends it.

    Parameters
    ----------
    on_progress : callable, optional
        Called after every update with the share of training done and the latest validation point.
    """
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    model = ValencyTagger(
        settings.structure, settings.inference, budget_on_root=settings.budget_on_root
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=settings.decay, patience=0
    )
    steps_per_epoch = -(-len(corpus) // settings.batch_size)
    interval = max(1, steps_per_epoch // settings.evaluations_per_epoch)
    parts = [corpus.up_to(n) for n in settings.curriculum] or [corpus]
    done = 0.0

    def batches() -> Iterator[Batch]:
        while True:
            part = parts[min(int(done * len(parts)), len(parts) - 1)]
            yield from part.epoch(settings.batch_size, rng)

    curve: list[Point] = []
    losses: list[float] = []
    best_f1, best_state = -1.0, model.state_dict()
    start = time.perf_counter()
    for step, batch in enumerate(batches(), start=1):
        losses.append(update(model, optimizer, batch, settings.score_decay))
        epoch, seconds = step / steps_per_epoch, time.perf_counter() - start
        done = settings.share_done(epoch, seconds)
        if step % interval == 0 or done == 1:
            scores = measure(model, validation).scores
            curve.append(Point(epoch, seconds, float(np.mean(losses)), scores))
            losses.clear()
            schedule.step(scores.f1)
            if scores.f1 > best_f1:
                best_f1, best_state = scores.f1, copy.deepcopy(model.state_dict())
        on_progress(done, curve[-1] if curve else None)
        if done == 1:
            break
    model.load_state_dict(best_state)
    return Run(settings, model, curve)


def update(
    model: ValencyTagger, optimizer: torch.optim.Optimizer, batch: Batch, score_decay: float = 0.0
) -> float:
    """One step of the optimizer; the mean cross-entropy over the batch's operators.

    Parameters
    ----------
    score_decay : float
        Weight of the mean square of arc scores in the loss.
    """
    optimizer.zero_grad()
    loss, pull = objective(model, batch, score_decay)
    (loss + pull).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def objective(model: ValencyTagger, batch: Batch, score_decay: float) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy over the operators of a batch, and the penalty on arc scores."""
    scores = model.scores(batch) if model.structure.is_latent else None
    logits = model.tag(model.arcs(batch, scores))
    loss = cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=UNLABELLED)
    pull = torch.zeros(())
    if scores is not None:
        inside = batch.valid[:, :, None] & batch.valid[:, None, :]
        pull = score_decay * scores[inside].square().mean()
    return loss, pull
