"""Sampling sentences from a dependency model with valence."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import FloatArray, checked_count
from lpsmap_search.checks import checked_parameters
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.half_spans import LEFT, RIGHT
from lpsmap_search.tagged_sentence import ROOT, TaggedSentence

MAX_DRAWS = 1_000_000
"""Maximum number of trees sampled to find one that is short enough."""


def verb_noun_adjective() -> tuple[DependencyModelWithValence, FloatArray]:
    """Return a dependency model over the tags V, N and A, and parameters of a small language.

    Verbs take nouns on either side, nouns take adjectives on their left.

    Returns
    -------
    model
        The model.
    parameters
        Its (M,) probabilities.
    """
    root = [0.85, 0.13, 0.02]
    left = [[0.05, 0.90, 0.05], [0.05, 0.15, 0.80], [0.05, 0.15, 0.80]]
    right = [[0.10, 0.75, 0.15], [0.30, 0.60, 0.10], [0.10, 0.60, 0.30]]
    goes_on = [
        [[0.85, 0.35, 0.05], [0.10, 0.15, 0.05]],  # left: without a child there, with one
        [[0.60, 0.08, 0.05], [0.15, 0.10, 0.05]],  # right
    ]
    decisions = np.stack([np.array(goes_on), 1.0 - np.array(goes_on)], axis=-1)
    parameters = np.concatenate([root, np.ravel([left, right]), decisions.reshape(-1)])
    return DependencyModelWithValence("VNA"), parameters


def sampled_sentences(
    model: DependencyModelWithValence,
    parameters: FloatArray,
    n_sentences: int,
    rng: np.random.Generator,
    *,
    max_words: int = 10,
) -> list[TaggedSentence]:
    """Sample sentences with their trees from a model; longer ones are rejected.

    Parameters
    ----------
    model
        The model.
    parameters
        (M,) probabilities, or nonnegative numbers, which are normalised.
    n_sentences
        Number of sentences, at least 1.
    rng
        The random generator.
    max_words
        Maximum length of a sentence, at least 1.

    Raises
    ------
    ValueError
        If an option is out of range, the parameters are not of shape (M,), one is negative, NaN or
        infinite, or no tree is short enough.
    """
    parameters = model.normalised(checked_parameters(model, parameters))
    max_words = checked_count("max_words", max_words)
    draw = _Tree(model, parameters, rng, max_words)
    return [draw() for _ in range(checked_count("n_sentences", n_sentences))]


class _TooLongError(Exception):
    pass


class _Tree:
    """Samples trees from the root down."""

    def __init__(
        self,
        model: DependencyModelWithValence,
        parameters: FloatArray,
        rng: np.random.Generator,
        max_words: int,
    ) -> None:
        t = len(model.tags)
        self._tags, self._rng, self._max_words = model.tags, rng, max_words
        self._root = parameters[:t]
        self._child = parameters[t : t + 2 * t * t].reshape(2, t, t)
        self._goes_on = parameters[t + 2 * t * t :].reshape(2, 2, t, 2)[..., 0]

    def __call__(self) -> TaggedSentence:
        for _ in range(MAX_DRAWS):
            self._drawn: list[int] = []
            self._parent: list[int] = []
            try:
                order = self._words(self._pick(self._root), ROOT)
            except _TooLongError:
                continue
            place = {word: i for i, word in enumerate(order)}
            tags = tuple(self._tags[self._drawn[word]] for word in order)
            parents = [self._parent[word] for word in order]
            heads = tuple(ROOT if head == ROOT else place[head] for head in parents)
            return TaggedSentence(tags, tags, heads)
        raise ValueError(
            f"max_words: got {self._max_words}, but {MAX_DRAWS} trees in a row were longer. "
            "Allow more words, or parameters that stop sooner."
        )

    def _pick(self, probabilities: FloatArray) -> int:
        return int(self._rng.choice(len(probabilities), p=probabilities))

    def _words(self, tag: int, parent: int) -> list[int]:
        """Return the words of a subtree from left to right, numbered in the order of sampling."""
        word = len(self._drawn)
        if word == self._max_words:
            raise _TooLongError
        self._drawn.append(tag)
        self._parent.append(parent)
        sides: dict[int, list[list[int]]] = {LEFT: [], RIGHT: []}
        for side, children in sides.items():
            # from the nearest child outwards
            while self._rng.random() < self._goes_on[side, min(len(children), 1), tag]:
                children.append(self._words(self._pick(self._child[side, tag]), word))
        left = [w for child in reversed(sides[LEFT]) for w in child]
        return [*left, word, *(w for child in sides[RIGHT] for w in child)]
