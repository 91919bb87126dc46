"""Feasible points near a solution of a relaxation (Gormley & Eisner 2013, section 5)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_search.corpus import Corpus
from lpsmap_search.count_model import CountModel
from lpsmap_search.flow_polytope import arcs_of
from lpsmap_search.structures import structures_of

Projection = Literal["normalise", "euclidean", "parse"]
"""What is made feasible: the parameters in two ways, or the parses."""


def projected(model: CountModel, p: FloatArray, projection: Projection) -> FloatArray:
    """Return parameters near given ones whose blocks sum to one.

    Parameters
    ----------
    model
        The model.
    p
        (M,) nonnegative numbers.
    projection
        ``"normalise"`` divides by the sums, ``"euclidean"`` takes the nearest point.

    Raises
    ------
    ValueError
        If the projection is unknown.
    """
    if projection == "normalise":
        return model.normalised(p)
    if projection == "euclidean":
        return onto_simplex(model, p)
    raise ValueError(f"projection: got {projection!r}; expected 'normalise' or 'euclidean'.")


def onto_simplex(model: CountModel, p: FloatArray) -> FloatArray:
    """Return the nearest point whose blocks are nonnegative and sum to one (Chen & Ye 2011).

    Parameters
    ----------
    model
        The model.
    p
        (M,) numbers.
    """
    first, block = model.first, model.block
    order = np.lexsort((-p, block))  # each block in descending order, the order of blocks unchanged
    sums = np.cumsum(p[order])
    before = np.concatenate([[0.0], sums])[first[:-1]]
    rank = np.arange(len(p)) - first[block] + 1
    thresholds = (sums - before[block] - 1.0) / rank
    kept = p[order] > thresholds
    last = np.maximum.reduceat(np.where(kept, np.arange(len(p)), 0), first[:-1])
    nearest: FloatArray = np.maximum(p - thresholds[last][block], 0.0)
    return nearest


def parsed_counts(corpus: Corpus, parses: FloatArray) -> FloatArray:
    """Return the counts of the projective trees with the largest sums of fractional arcs.

    Parameters
    ----------
    corpus
        The sentences, under a dependency model.
    parses
        (P,) a point of the `flow_polytope`.
    """
    weights = np.zeros((len(corpus.sentences), max(map(len, corpus.sentences)) ** 2))
    first = 0
    for row, sentence in zip(weights, corpus.sentences, strict=True):
        n = len(sentence)
        head, child = arcs_of(n)
        row[(child - 1) * n + np.where(head > 0, head, child) - 1] = parses[first : first + n * n]
        first += 2 * n * n + 4 * n
    graph, factor = structures_of(corpus, np.zeros(corpus.model.n_parameters), weights)
    best = [trees.additionals.reshape(-1) for trees in graph.gibbs(factor).k_best(1)]
    counts: FloatArray = corpus.multiplicity @ np.array(best)
    return counts
