"""Grammar induction by any of the methods, with what each met on its way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import SearchProgress
from lpsmap_decode import SearchResult
from lpsmap_search.arrays import FloatArray
from lpsmap_search.conllu import TaggedSentence
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.global_search import Certified, global_search
from lpsmap_search.local_search import (
    Method,
    Trained,
    expectation_step,
    restarts,
    unconstrained_step,
)
from lpsmap_search.parses import directed_accuracy, parse

__all__ = ["METHODS", "SEARCH", "Induced", "Moment", "Options", "accuracy", "induce", "tag_corpus"]

SEARCH = "search"

METHODS: dict[str, Method] = {
    SEARCH: "viterbi",
    "em": "viterbi",
    "soft-em": "soft",
    "sparsemap-em": "sparsemap",
}
"""The methods, and by which E-step each counts."""

ALL_THAT_FIT = 1_000_000_000
"""Restarts where time limits them."""

FEW = 10
"""Restarts without any limit."""


@dataclass(frozen=True)
class Options:
    """How a method runs."""

    max_time: float | None = None
    gap: float = 0.01
    n_restarts: int | None = None
    """None for as many as there is time for; without a limit of time, for as many as `restarts` or
    `global_search` would run."""
    seed: int = 0
    smoothing: float = 0.1
    """Of expectation maximisation."""
    temperature: float = 1.0
    """Of SparseMAP-EM."""
    constraint: CountConstraint | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Options of `global_search` alone."""


class Moment(NamedTuple):
    """How far a method was."""

    seconds: float
    objective: float
    bound: float
    """Infinite, where the method has none."""
    parameters: FloatArray | None
    """(M,) the best ones, where they are new."""


@dataclass(frozen=True)
class Induced:
    """What a method found."""

    method: str
    parameters: FloatArray
    """(M,) probabilities."""
    counts: FloatArray
    """(M,) that the method ended with."""
    objective: float
    """What the method maximises."""
    likelihood: float
    """Joint log-likelihood of the best structures and of the parameters that fit them best."""
    seconds: float
    interrupted: bool
    history: Sequence[Moment]
    certified: Certified | None = None
    """The bound, where the method has one."""

    @property
    def is_proved(self) -> bool:
        """Whether the optimum is proved, up to the gap asked for."""
        return self.certified is not None and self.certified.proved


Report = Callable[[Moment, int], None]


def tag_corpus(sentences: Sequence[TaggedSentence]) -> Corpus:
    """Return the corpus of the sentences' tags, under a model of the tags that occur."""
    tags = sorted({tag for sentence in sentences for tag in sentence.tags})
    return Corpus(DependencyModelWithValence(tags), [sentence.tags for sentence in sentences])


def induce(
    corpus: Corpus,
    method: str,
    options: Options,
    report: Report = lambda moment, n: None,
) -> Induced:
    """Train a model by a method.

    Parameters
    ----------
    corpus
        The sentences.
    method
        One of `METHODS`.
    options
        How it runs.
    report
        Called with how far the method is, and the number of boxes or steps.

    Raises
    ------
    ValueError
        If an option is out of range, or no structures satisfy the constraint.
    """
    log = _Log(corpus, report)
    if method == SEARCH:
        return _searched(corpus, options, log)
    trained = restarts(
        corpus,
        METHODS[method],
        n_restarts=options.n_restarts or (FEW if options.max_time is None else ALL_THAT_FIT),
        max_time=options.max_time,
        seed=options.seed,
        smoothing=options.smoothing,
        temperature=options.temperature,
        constraint=options.constraint,
        report=log.train,
    )
    return Induced(
        method,
        trained.parameters,
        trained.counts,
        trained.objective,
        likelihood(corpus, trained.parameters, options.constraint),
        trained.seconds,
        trained.interrupted,
        log.finish(trained.seconds, trained.objective, math.inf),
    )


def _searched(corpus: Corpus, options: Options, log: _Log) -> Induced:
    more = dict(options.more)
    if options.n_restarts is not None:
        more["n_restarts"] = options.n_restarts
    found = global_search(
        corpus,
        gap=options.gap,
        max_time=options.max_time,
        seed=options.seed,
        constraint=options.constraint,
        report=log.search,
        **more,
    )
    return Induced(
        SEARCH,
        found.parameters,
        found.counts,
        found.objective,
        found.objective,
        found.seconds,
        found.interrupted,
        log.finish(log.seconds, found.objective, found.bound),
        found,
    )


class _Log:
    """Keeps the moments at which the objective or the bound was better."""

    def __init__(self, corpus: Corpus, report: Report) -> None:
        self._corpus, self._report, self._begin = corpus, report, time.monotonic()
        self._moments: list[Moment] = []

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def train(self, trained: Trained) -> None:
        """Take note of a better step of local search."""
        self._note(trained.objective, math.inf, trained.parameters, trained.n_steps)

    def search(self, progress: SearchProgress) -> None:
        """Take note of how far a global search is."""
        parameters = None
        if isinstance(progress, SearchResult) and progress.answer is not None:
            parameters = self._corpus.model.normalised(np.asarray(progress.answer))
        self._note(progress.score, progress.bound, parameters, progress.n_nodes)

    def finish(self, seconds: float, objective: float, bound: float) -> list[Moment]:
        """Return all moments, and that of the end."""
        return [*self._moments, Moment(seconds, objective, bound, None)]

    def _note(self, objective: float, bound: float, parameters: FloatArray | None, n: int) -> None:
        if self._moments:
            last = self._moments[-1]
            if last.objective == objective:
                if last.bound == bound:
                    return
                parameters = None
        self._moments.append(Moment(self.seconds, objective, bound, parameters))
        self._report(self._moments[-1], n)


def likelihood(
    corpus: Corpus, parameters: FloatArray, constraint: CountConstraint | None = None
) -> float:
    """Return the joint log-likelihood that Viterbi training would go on from.

    That of the best structures under some parameters, and of the parameters that fit them best: so
    the results of methods with other objectives can be compared.

    Parameters
    ----------
    corpus
        The sentences.
    parameters
        (M,) probabilities.
    constraint
        What the structures satisfy, or None.
    """
    step = expectation_step(
        corpus, "viterbi", unconstrained_step(corpus, "viterbi", 1.0), constraint
    )
    with np.errstate(divide="ignore"):
        return step(np.log(parameters))[0]


def accuracy(
    model: DependencyModelWithValence, sentences: Sequence[TaggedSentence], parameters: FloatArray
) -> float | None:
    """Return the directed accuracy of the best trees; None if a sentence has no heads.

    Parameters
    ----------
    model
        The model.
    sentences
        With heads.
    parameters
        (M,) probabilities.
    """
    gold = [sentence.heads for sentence in sentences if sentence.heads is not None]
    if len(gold) < len(sentences):
        return None
    return directed_accuracy(trees(model, sentences, parameters), gold)


def trees(
    model: DependencyModelWithValence, sentences: Sequence[TaggedSentence], parameters: FloatArray
) -> list[tuple[int, ...]]:
    """Return the heads of the words under some probabilities."""
    with np.errstate(divide="ignore"):
        return parse(model, [sentence.tags for sentence in sentences], np.log(parameters))
