"""Grammar induction by any of the methods, with the history of the training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_decode import SearchProgress, SearchResult
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.global_search import Certified, global_search
from lpsmap_search.local_search import Method, Trained, expectation_step, restarts
from lpsmap_search.parses import directed_accuracy, parse
from lpsmap_search.tagged_sentence import TaggedSentence

SEARCH = "search"

METHODS: dict[str, Method] = {
    "em": "viterbi",
    "soft-em": "soft",
    "sparsemap-em": "sparsemap",
}
"""The methods of expectation maximisation, and the E-step of each."""

SMOOTHING = {"em": 1.0, "soft-em": 0.1, "sparsemap-em": 1.0}
"""The default smoothing of each method; Viterbi EM has that of Gormley & Eisner (2013)."""

ALL_THAT_FIT = 1_000_000_000
"""Number of restarts with a time limit: practically unlimited."""

FEW = 10
"""Number of restarts without a limit."""


@dataclass(frozen=True)
class Options:
    """Options of a method."""

    max_time: float | None = None
    gap: float = 0.01
    n_restarts: int | None = None
    """None: in expectation maximisation as many as the time limit allows, or 10 without one; in a
    search the default of `global_search`."""
    seed: int = 0
    smoothing: float | None = None
    """Smoothing in expectation maximisation. None: that of `SMOOTHING` for the method."""
    temperature: float = 1.0
    """Temperature of SparseMAP-EM."""
    constraint: CountConstraint | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Further options of `global_search`."""


class Moment(NamedTuple):
    """A point in the history of a training."""

    seconds: float
    objective: float
    bound: float
    """Infinite if the method has no bound."""
    parameters: FloatArray | None
    """(M,) the best parameters, if they changed."""


@dataclass(frozen=True)
class Induced:
    """The result of a method."""

    method: str
    parameters: FloatArray
    """(M,) probabilities."""
    counts: FloatArray
    """(M,) final counts of the method."""
    objective: float
    """The objective of the method."""
    likelihood: float
    """The joint log-likelihood of the best structures and the optimal parameters for them."""
    seconds: float
    interrupted: bool
    history: Sequence[Moment]
    certified: Certified | None = None
    """The certified result, if the method has a bound."""

    @property
    def is_proved(self) -> bool:
        """Whether the result is proved optimal, up to the requested gap."""
        return self.certified is not None and self.certified.proved


Report = Callable[[Moment, int], None]


def tag_corpus(sentences: Sequence[TaggedSentence]) -> Corpus:
    """Return the corpus of tags of sentences, under a model of the tags that occur."""
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
        `SEARCH`, or one of `METHODS`.
    options
        Its options.
    report
        Called with the progress of the method, and the number of boxes or steps.

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
        smoothing=SMOOTHING[method] if options.smoothing is None else options.smoothing,
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
    result = global_search(
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
        result.parameters,
        result.counts,
        result.objective,
        result.objective,
        result.seconds,
        result.interrupted,
        log.finish(log.seconds, result.objective, result.bound),
        result,
    )


class _Log:
    """Records improvements of the objective or the bound."""

    def __init__(self, corpus: Corpus, report: Report) -> None:
        self._corpus, self._report, self._begin = corpus, report, time.monotonic()
        self._moments: list[Moment] = []

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begin

    def train(self, trained: Trained) -> None:
        """Record a better step of local search."""
        self._note(trained.objective, math.inf, trained.parameters, trained.n_steps)

    def search(self, progress: SearchProgress) -> None:
        """Record the progress of a global search."""
        parameters = None
        if isinstance(progress, SearchResult) and progress.answer is not None:
            parameters = self._corpus.model.normalised(np.asarray(progress.answer))
        self._note(progress.score, progress.bound, parameters, progress.n_nodes)

    def finish(self, seconds: float, objective: float, bound: float) -> list[Moment]:
        """Return the history, including the final result."""
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
    """Return the joint log-likelihood after one step of Viterbi training.

    It belongs to the best structures under given parameters, and the optimal parameters for them,
    so that methods with different objectives can be compared.

    Parameters
    ----------
    corpus
        The sentences.
    parameters
        (M,) probabilities.
    constraint
        A constraint on the structures, or None.
    """
    step = expectation_step(corpus, "viterbi", constraint=constraint)
    with np.errstate(divide="ignore"):
        return step(np.log(parameters))[0]


def accuracy(
    model: DependencyModelWithValence, sentences: Sequence[TaggedSentence], parameters: FloatArray
) -> float | None:
    """Return the directed accuracy of the best trees; None if a sentence has no annotated heads.

    Parameters
    ----------
    model
        The model.
    sentences
        Sentences with annotated heads.
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
    """Return the heads of the best trees under given probabilities."""
    with np.errstate(divide="ignore"):
        return parse(model, [sentence.tags for sentence in sentences], np.log(parameters))
