"""Scores of arcs by a random bilinear model over hashed word forms: a parser before training."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["Bilinear"]

FloatArray = npt.NDArray[np.float64]

BUCKETS = 1 << 14
"""Rows of the table of embeddings; words whose hashes collide share one."""


class Bilinear:
    """Scores ``scale * <e_m, W e_h> / dimension`` of word h as the head of word m.

    The embeddings e and the matrix W are standard normal, so that scores have mean zero and
    standard deviation `scale`. The root has an embedding of its own; equal words have equal ones.

    Parameters
    ----------
    seed
        Of the generator that draws the model.
    scale
        Standard deviation of the scores. The larger, the fewer trees share the probability.
    dimension
        Of the embeddings.
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
