"""Inference over all structures of factors: the protocols, and their results."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from lpsmap_core import Scores, Structures
from lpsmap_core.api import FloatArray, IntArray


class Beliefs(NamedTuple):
    """The Gibbs distributions of F factors: structures have probability ``exp(score) / Z``.

    Attributes
    ----------
    log_partition
        (F,) ``log Z``, the log of the summed exponentials; -inf if all structures are forbidden,
        and then all other entries are 0.
    entropy
        (F,) entropies of the distributions.
    m, n
        One per slot and one per additional: marginals, and expected counts.
    remainder
        (F,) rounding error to be added to `log_partition`, which matters after subtracting a huge
        score. None for zeros.
    """

    log_partition: FloatArray
    entropy: FloatArray
    m: FloatArray
    n: FloatArray
    remainder: FloatArray | None = None


class Found(NamedTuple):
    """k structures of each of F factors, as sparse vectors.

    Attributes
    ----------
    score
        (F * k,) their scores; those of factor r start at ``r * k``.
    structures
        The output of a MAP oracle, with F * k rows. The size is -1 if there is no structure.
    """

    score: FloatArray
    structures: Structures


class LogPartition(Protocol):
    """Sums over the structures of a declaration's F factors, with flat scores.

    A score of -inf forbids a slot or additional. A score of +inf forces a slot, and sums exclude
    it. Only factors in `rows` are computed; results of other factors are unspecified.
    """

    def beliefs(self, rows: IntArray, scores: Scores) -> Beliefs:
        """Return log-partition functions, entropies and marginals."""

    def hessian_product(self, rows: IntArray, scores: Scores, direction: Scores) -> Scores:
        """Multiply the Hessians of the log-partition functions with a `direction` of the scores.

        The product is the derivative of the marginals. Factors outside `rows` get zeros.
        """


class Inference(LogPartition, Protocol):
    """Sums over the structures of factors, their samples, and the most probable of them.

    `rows` and `scores` are as in `LogPartition`.
    """

    def sample(self, rows: IntArray, scores: Scores, n: int, random: np.random.Generator) -> Found:
        """Draw `n` independent structures of each factor with the generator `random`."""

    def k_best(self, rows: IntArray, scores: Scores, k: int) -> Found:
        """Return the k best structures of each factor, the best first."""

    def count(self, scores: Scores) -> list[int]:
        """Return the number of each factor's structures that the scores do not exclude."""
