"""What sums over all structures of factors: the protocols, and what they answer with."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from lpsmap_core.kernels.records import Scores, Structures
from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = ["Beliefs", "Found", "Inference", "LogPartition", "no_inference"]


class Beliefs(NamedTuple):
    """The Gibbs distributions of F factors: structures have probability ``exp(score) / Z``.

    Attributes
    ----------
    log_partition
        (F,) ``log Z``, the log of the summed exponentials; -inf if all structures are forbidden,
        and then the rest are zeros.
    entropy
        (F,)
    m, n
        One per slot and one per additional: marginals, and expected counts.
    remainder
        (F,) what is to be added to `log_partition`, which is rounded: that shows where a huge score
        is taken off it. None for zeros.
    """

    log_partition: FloatArray
    entropy: FloatArray
    m: FloatArray
    n: FloatArray
    remainder: FloatArray | None = None


class Found(NamedTuple):
    """So many structures of each of F factors, as sparse vectors.

    Attributes
    ----------
    score
        (F * k,) their scores; those of factor r are at ``r * k`` and behind.
    structures
        What a MAP oracle writes, but for F * k rows. Of size -1 where there is none.
    """

    score: FloatArray
    structures: Structures


class LogPartition(Protocol):
    """Sums over the structures of a declaration's F factors, with flat scores.

    A score of -inf forbids; a slot's score of +inf forces it, and counts for nothing in sums.
    Only the factors in `rows` are served: results of the others are whatever they are.
    """

    def beliefs(self, rows: IntArray, scores: Scores) -> Beliefs:
        """Return log-partition functions, entropies and marginals."""

    def hessian_product(self, rows: IntArray, scores: Scores, direction: Scores) -> Scores:
        """Return how the marginals change along a `direction` of the scores, zeros for other rows.

        That is the product of a vector with the symmetric Hessian of the log-partition function.
        """


class Inference(LogPartition, Protocol):
    """Sums over the structures of factors, and structures of them by their probability.

    `rows` and `scores` are as in `LogPartition`.
    """

    def sample(self, rows: IntArray, scores: Scores, n: int, random: np.random.Generator) -> Found:
        """Draw `n` structures of each factor, independently, by the numbers of `random`."""

    def k_best(self, rows: IntArray, scores: Scores, k: int) -> Found:
        """Return the k best structures of each factor, the best first."""

    def count(self, scores: Scores) -> list[int]:
        """Return how many structures of each factor are not forbidden, and have what is forced."""


def no_inference(name: str) -> TypeError:
    """Return the error about a factor type of some name that has no sums over its structures."""
    return TypeError(
        f"{name} has no inference over its structures; expected a DynamicProgram (pip install "
        "lpsmap-dynamic), or a type with log_partition() for sums, or inference() for all."
    )
