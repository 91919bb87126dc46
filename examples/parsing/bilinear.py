"""Arc scores of a random bilinear model over hashed word forms, an untrained parser."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["Bilinear"]

FloatArray = npt.NDArray[np.float64]

BUCKETS = 1 << 14
"""Number of embeddings; words with colliding hashes share one."""


class Bilinear:
    """Scores ``scale * <e_m, W e_h> / dimension`` of word h as the head of word m.

    The embeddings e and the matrix W are standard normal, so that scores have mean zero and
    standard deviation `scale`. The root has a separate embedding; equal words have equal
    embeddings.

    Parameters
    ----------
    seed
        The seed of the model.
    scale
        Standard deviation of the scores. With larger values, fewer trees share the probability.
    dimension
        Dimension of the embeddings.
    """

    def __init__(self, seed: int, scale: float, dimension: int = 32) -> None:
        rng = np.random.default_rng(seed)
        self._embeddings = rng.standard_normal((BUCKETS, dimension))
        self._matrix = scale / dimension * rng.standard_normal((dimension, dimension))
        self._root = rng.standard_normal(dimension)

    def scores(self, words: tuple[str, ...]) -> FloatArray:
        """Return the (n, n) scores of a sentence's arcs; those from the root on the diagonal."""
        buckets = [zlib.crc32(word.lower().encode()) % BUCKETS for word in words]
        dependents = self._embeddings[buckets] @ self._matrix
        scores = dependents @ self._embeddings[buckets].T
        np.fill_diagonal(scores, dependents @ self._root)
        return scores
