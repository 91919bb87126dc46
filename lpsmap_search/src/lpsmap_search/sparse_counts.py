"""Expected counts under the sparse distribution of SparseMAP."""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_search.checks import checked_positive
from lpsmap_search.corpus import Corpus
from lpsmap_search.structures import structures_of
from lpsmap_search.viterbi import checked_scores, viterbi


def sparse_counts(
    corpus: Corpus, scores: FloatArray, *, temperature: float = 1.0
) -> tuple[float, FloatArray]:
    """Return the objective of SparseMAP on a corpus, and its expected counts.

    This is the E-step of SparseMAP-EM. For each sentence, the distribution over structures
    maximises ::

        E <scores, counts(y)> - temperature / 2 * || E variables(y) ||^2

    where the variables are those of the model, such as arcs (Niculae et al. 2018). The distribution
    is sparse; as the temperature tends to zero, only the best structures remain.

    Parameters
    ----------
    corpus
        The sentences.
    scores
        (M,) logarithms of the parameters, -inf allowed.
    temperature
        Weight of the quadratic term, above 0.

    Returns
    -------
    float
        The sum of the maxima; -inf if a sentence has no structure of finite score.
    counts
        (M,) expected counts under the distributions; zeros if the sum is -inf.

    Raises
    ------
    ValueError
        If the temperature is not positive, or so small that scores divided by it overflow, the
        scores are not of shape (M,), or one is NaN or infinite.
    """
    return SparseCounts(corpus, temperature)(scores)


class SparseCounts:
    """`sparse_counts` for one corpus and many scores.

    Parameters
    ----------
    corpus, temperature
        As in `sparse_counts`.
    """

    def __init__(self, corpus: Corpus, temperature: float = 1.0) -> None:
        self._corpus, self._temperature = corpus, checked_positive("temperature", temperature)
        self._graph, self._factor = structures_of(corpus, np.zeros(corpus.model.n_parameters))

    def __call__(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the expected counts."""
        corpus = self._corpus
        scores = checked_scores(corpus, scores)
        if viterbi(corpus, scores)[0] == -math.inf:
            return -math.inf, np.zeros(len(scores))
        with np.errstate(over="ignore"):
            scaled = scores / self._temperature
        if (np.isfinite(scores) & ~np.isfinite(scaled)).any():
            raise ValueError(
                f"temperature: got {self._temperature}; expected more, since scores divided by it "
                "overflow. Use Viterbi EM for a temperature of almost 0."
            )
        rows = np.tile(scaled, (len(corpus.sentences), 1))
        self._graph.rescore(self._factor, rows)
        solution = self._graph.solve(threads=1)
        counts = corpus.multiplicity @ self._graph.additionals_of(self._factor)
        squares = corpus.multiplicity @ (solution.values.reshape(len(rows), -1) ** 2).sum(axis=1)
        used = counts > 0.0
        value = float(counts[used] @ scores[used])
        return value - 0.5 * self._temperature * float(squares), counts
