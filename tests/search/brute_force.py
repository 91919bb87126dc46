"""The best joint likelihood by enumeration of all structures."""

from __future__ import annotations

import itertools

import numpy as np

from lpsmap_search import Corpus, CountConstraint, CountModel


def all_counts(corpus: Corpus, s: int) -> set[tuple[int, ...]]:
    """Return the counts of all structures of a sentence."""
    hypergraph, n = corpus.hypergraphs[s], corpus.model.n_parameters
    edges, arity = hypergraph.edges, hypergraph.arity
    found: list[set[tuple[int, ...]]] = [{(0,) * n}]
    for i in range(1, len(edges.first_edge)):
        mine = set()
        for e in range(edges.first_edge[i - 1], edges.first_edge[i]):
            own = np.zeros(n, dtype=np.int64)
            used = edges.entries[edges.first_entry[e] : edges.first_entry[e + 1]]
            np.add.at(own, used[used >= arity] - arity, 1)
            left, right = (found[tail] for tail in edges.tails[2 * e : 2 * e + 2])
            mine |= {tuple(own + a + b) for a, b in itertools.product(left, right)}
        found.append(mine)
    return found[-1]


def best_likelihood(corpus: Corpus, constraint: CountConstraint | None = None) -> float:
    """Return the greatest joint log-likelihood, equal sentences having structures of their own."""
    totals: set[tuple[int, ...]] = {(0,) * corpus.model.n_parameters}
    for s, times in enumerate(corpus.multiplicity):
        for _ in range(times):
            totals = {
                tuple(map(sum, zip(a, b, strict=True)))
                for a in totals
                for b in all_counts(corpus, s)
            }
    rows = np.array(sorted(totals), dtype=np.float64)
    if constraint is not None:
        rows = rows[rows @ constraint.weights >= constraint.least - 1e-9]
    sums = np.add.reduceat(rows, corpus.model.first[:-1], axis=1)
    return float((_x_log_x(rows).sum(axis=1) - _x_log_x(sums).sum(axis=1)).max())


def corpus_counts(corpus: Corpus) -> np.ndarray:
    """Return the counts of all choices of structures; equal sentences have equal ones."""
    totals = {(0,) * corpus.model.n_parameters}
    for s, times in enumerate(corpus.multiplicity):
        own = [tuple(times * np.array(f)) for f in all_counts(corpus, s)]
        totals = {tuple(map(sum, zip(a, b, strict=True))) for a in totals for b in own}
    return np.array(sorted(totals), dtype=np.float64)


def shares_of(model: CountModel, counts: np.ndarray) -> np.ndarray:
    """Return the shares of counts; those of an unused block are one of its first parameter."""
    unused = model.sums(counts) == 0.0
    counts = counts.copy()
    counts[model.first[:-1][unused]] = 1.0
    return model.normalised(counts)


def _x_log_x(x: np.ndarray) -> np.ndarray:
    positive = np.where(x > 0.0, x, 1.0)
    return positive * np.log(positive)
