"""Inference over the hypergraphs of a declaration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lpsmap_core import Factors, Scores, Structures
from lpsmap_core.api import FloatArray, IntArray, cached_property, interruptible
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.edges import MAX_EDGES, MAX_NONZEROS, N_ITEMS
from lpsmap_dynamic.inference import Beliefs, Found
from lpsmap_dynamic.inside_outside import beliefs_of, hessian_products
from lpsmap_dynamic.k_best import k_best_of
from lpsmap_dynamic.machine_memory import check_fits_memory
from lpsmap_dynamic.sampling import samples_of

MARGIN = 800.0
"""Score margin by which structures with all forced slots outweigh all others beyond float64
precision."""

NONZERO, RANKED = 40, 32
"""Bytes per entry of a structure, including its copy in results, and per ranked derivation."""


class HypergraphInference:
    """Inference over the derivations of hypergraphs: an `Inference`, which `inference` returns.

    A type that has faster sums for some factors may extend it, and override `beliefs` and
    `hessian_product`; both must agree with the hypergraphs.

    Parameters
    ----------
    offsets, n_additionals
        Slot offsets and number of additionals of the factors.
    described
        Function that returns the distinct hypergraphs, and the index of each factor's; it is called
        when they are needed.

    Notes
    -----
    Methods take the arguments of those of `Inference`: the numbers of factors `rows`, the `scores`
    of all slots and additionals, the number of structures `n`, and the generator `random`.
    """

    def __init__(
        self,
        offsets: IntArray,
        n_additionals: int,
        described: Callable[[], tuple[Sequence[Hypergraph], IntArray]],
    ) -> None:
        self.offsets, self.n_additionals = offsets, n_additionals
        self._described = described

    @property
    def hypergraphs(self) -> Sequence[Hypergraph]:
        """The distinct hypergraphs."""
        return self._hypergraphs[0]

    @property
    def which(self) -> IntArray:
        """(F,) the hypergraph of each factor."""
        return self._hypergraphs[1]

    @cached_property
    def _hypergraphs(self) -> tuple[Sequence[Hypergraph], IntArray]:
        return self._described()

    @cached_property
    def _factors(self) -> Factors:
        """The record of the factors, with their hypergraphs as integers."""
        codes = [hypergraph.code for hypergraph in self.hypergraphs]
        ends = np.cumsum([0, *map(len, codes)])
        n = len(self.which)
        return Factors(
            self.offsets,
            np.arange(n + 1) * self.n_additionals,
            np.empty((n, 0)),
            np.empty(0),
            np.concatenate([*codes, np.empty(0, dtype=np.int64)]),
            np.stack([ends[:-1], ends[1:]], axis=1)[self.which],
        )

    @interruptible
    def beliefs(self, rows: IntArray, scores: Scores) -> Beliefs:
        """Return log-partition functions, entropies and marginals."""
        scores, forced, least = self._decided(rows, scores)
        n = len(self.which)
        marginals = np.zeros(len(scores.eta_u)), np.zeros(len(scores.eta_v))
        beliefs = Beliefs(np.zeros(n), np.zeros(n), *marginals)
        remainder = np.zeros(n)
        beliefs_of(rows, self._factors, scores, *beliefs[:4], remainder)
        for r in np.flatnonzero(beliefs.log_partition < least).tolist():
            beliefs.log_partition[r], beliefs.entropy[r] = -np.inf, 0.0
            beliefs.m[self._slots(r)] = 0.0
            beliefs.n[self._additionals(r)] = 0.0
        return beliefs._replace(log_partition=beliefs.log_partition - forced, remainder=remainder)

    @interruptible
    def hessian_product(self, rows: IntArray, scores: Scores, direction: Scores) -> Scores:
        """Return the derivative of the marginals along a direction of the scores."""
        decided, _, least = self._decided(rows, scores)
        product = Scores(np.zeros_like(decided.eta_u), np.zeros_like(decided.eta_v))
        hessian_products(rows, self._factors, decided, *direction, *product)
        if np.isfinite(least).any():  # the passes do not cover slots that no structure has
            for r in np.flatnonzero(np.isneginf(self.beliefs(rows, scores).log_partition)).tolist():
                product.eta_u[self._slots(r)] = 0.0
                product.eta_v[self._additionals(r)] = 0.0
        return product

    @interruptible
    def sample(self, rows: IntArray, scores: Scores, n: int, random: np.random.Generator) -> Found:
        """Sample structures of each factor."""
        deepest = int(self._header(rows, MAX_EDGES).max(initial=0))
        room = self._room_of_samples(self._nonzeros(), n, deepest)
        decided, _, _ = self._decided(rows, scores)
        uniform = random.random(len(self.which) * n * deepest)
        samples_of(rows, self._factors, decided, n, uniform, room)
        return self._scored(scores, room, n)

    @interruptible
    def k_best(self, rows: IntArray, scores: Scores, k: int) -> Found:
        """Return the k best structures of each factor."""
        items = int(self._header(rows, N_ITEMS).max(initial=0))
        sizes = self._nonzeros()
        check_fits_memory("k_best: k", k, _bytes(sizes) + (items + 2) * RANKED)
        decided, _, _ = self._decided(rows, scores)
        room = _room(sizes, k)
        k_best_of(rows, self._factors, decided, k, room)
        return self._scored(scores, room, k)

    def count(self, scores: Scores) -> list[int]:
        """Return the number of allowed structures of each factor that have all forced slots."""
        counts = []
        for r, k in enumerate(self.which):
            mine = scores.eta_u[self._slots(r)], scores.eta_v[self._additionals(r)]
            hypergraph, weights = self.hypergraphs[k], np.concatenate(mine)
            plain = bool(np.isfinite(weights[hypergraph.used]).all() and (weights < np.inf).all())
            counts.append(
                hypergraph.n_structures
                if plain
                else hypergraph.count(weights > -np.inf, weights == np.inf)
            )
        return counts

    def _decided(self, rows: IntArray, scores: Scores) -> tuple[Scores, FloatArray, FloatArray]:
        """Return scores with large numbers for +inf.

        Also return the sum of the forced slots of every factor, and the threshold below which the
        log-partition function shows that no structure has them all.
        """
        owner, where = self._forced(scores)
        n = len(self.which)
        if not where.size:
            return scores, np.zeros(n), np.full(n, -np.inf)
        magnitudes = [np.where(x < np.inf, np.where(x > -np.inf, abs(x), x), 0.0) for x in scores]
        most = self.beliefs(rows, Scores(*magnitudes)).log_partition
        # a power of two: its multiples are exact and can be subtracted again
        enough: FloatArray = np.exp2(np.ceil(np.log2(2.0 * np.maximum(most, 0.0) + MARGIN)))
        eta_u = scores.eta_u.copy()
        eta_u[where] = enough[owner]
        n_forced = np.bincount(owner, minlength=n)
        least = np.where(n_forced > 0, (n_forced - 0.5) * enough, -np.inf)
        return Scores(eta_u, scores.eta_v), n_forced * enough, least

    def _forced(self, scores: Scores) -> tuple[IntArray, IntArray]:
        """Return the forced slots, and the factor of each."""
        where = np.flatnonzero(scores.eta_u == np.inf)
        return np.searchsorted(self.offsets, where, side="right") - 1, where

    def _scored(self, scores: Scores, structures: Structures, k: int) -> Found:
        """Return structures with their scores, without those that lack a forced slot."""
        start, entry, value, size = structures
        n, n_factors = len(size), len(self.offsets) - 1
        owner = np.repeat(np.arange(n_factors), k)
        structure = np.repeat(np.arange(n), np.maximum(size, 0))
        before = np.cumsum(np.maximum(size, 0)) - np.maximum(size, 0)
        place = np.arange(len(structure)) + (start - before)[structure]
        factor, number = owner[structure], entry[place].astype(np.int64)
        behind = number - np.diff(self.offsets)[factor]
        slots = self.offsets[factor] + number
        extra = self.n_additionals * factor + behind
        weight = np.empty(len(structure))
        weight[behind < 0] = scores.eta_u[slots[behind < 0]]
        weight[behind >= 0] = scores.eta_v[extra[behind >= 0]]
        n_forced = np.bincount(self._forced(scores)[0], minlength=n_factors)
        has_all = np.bincount(structure[weight == np.inf], minlength=n) == n_forced[owner]
        weight[weight == np.inf] = 0.0
        score = np.bincount(structure, value[place] * weight, minlength=n)
        exists = (size >= 0) & has_all
        return Found(
            np.where(exists, score, -np.inf), structures._replace(size=np.where(exists, size, -1))
        )

    def _header(self, rows: IntArray, word: int) -> IntArray:
        header: IntArray = self._factors.integers[self._factors.integer_ranges[rows, 0] + word]
        return header

    def _nonzeros(self) -> IntArray:
        """Return the maximum number of entries of a structure of each factor."""
        return self._header(np.arange(len(self.which)), MAX_NONZEROS)

    def _room_of_samples(self, sizes: IntArray, n: int, n_draws: int) -> Structures:
        """Return room for n samples of each factor, of up to `sizes` entries."""
        check_fits_memory("sample: n", n, _bytes(sizes) + len(sizes) * n_draws * 8)
        return _room(sizes, n)

    def _slots(self, r: int) -> slice:
        return slice(*self._factors.offsets[r : r + 2].tolist())

    def _additionals(self, r: int) -> slice:
        return slice(*self._factors.additional_offsets[r : r + 2].tolist())


def _bytes(sizes: IntArray) -> int:
    """Return the bytes of a structure of each factor, of up to `sizes` entries."""
    return int((1 + sizes).sum()) * NONZERO


def _room(sizes: IntArray, k: int) -> Structures:
    """Return room for k structures of each factor, of up to `sizes` entries."""
    sizes = np.repeat(sizes, k)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return Structures(
        ends - sizes,
        np.empty(total, dtype=np.int32),
        np.empty(total),
        np.full(len(sizes), -1, dtype=np.int64),
    )
