"""Inference over non-projective trees: sums, samples, the k best, and counts."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Scores, Structures
from lpsmap_core.api import IntArray, interruptible
from lpsmap_dynamic import Found, check_fits_memory
from lpsmap_factors_struct.matrix_tree.counts import count_trees
from lpsmap_factors_struct.matrix_tree.log_partition import MatrixTree
from lpsmap_factors_struct.matrix_tree.sampling import most_draws, sample_trees
from lpsmap_factors_struct.ranked_trees import rank_trees

BLOCK = 1 << 20
"""Random numbers that are drawn at once."""

ARC, CANDIDATE = 40, 24
"""Bytes of an arc of a structure, including its copy in results, and of an arc of a candidate."""


class TreeInference(MatrixTree):
    """Inference over non-projective dependency trees; see `Inference`."""

    @interruptible
    def sample(self, rows: IntArray, scores: Scores, n: int, random: np.random.Generator) -> Found:
        """Sample trees of each factor."""
        check_fits_memory("sample: n", n, ARC * int(self._n_words.sum()))
        found = self._room(n)
        most = np.array([most_draws(words) for words in self._n_words[rows].tolist()])
        done, total = 0, len(rows) * n
        while done < total:
            size = max(min(BLOCK, n * int(most.sum())), int(most.max()))
            done = sample_trees(rows, self._factors, scores, done, random.random(size), found)
        return found

    @interruptible
    def k_best(self, rows: IntArray, scores: Scores, k: int) -> Found:
        """Return the k best trees of each factor."""
        n_words = self._n_words
        check_fits_memory(
            "k_best: k", k, ARC * int(n_words.sum()) + CANDIDATE * int(n_words.max(initial=0))
        )
        found = self._room(k)
        rank_trees(rows, self._factors, scores, found)
        return found

    def count(self, scores: Scores) -> list[int]:
        """Return the number of allowed trees of each factor that have all forced arcs."""
        offsets, parameters = self._factors.offsets, self._factors.parameters
        counts: dict[tuple[bool, int, bytes], int] = {}  # most factors of a batch have equal arcs
        found = []
        for r, n in enumerate(self._n_words.tolist()):
            packed, single_root = bool(parameters[r, 0]), bool(parameters[r, 2])
            own = scores.eta_u[offsets[r] : offsets[r + 1]].reshape(n, n, int(parameters[r, 3]))
            forced = own == np.inf
            n_forced = forced.sum(axis=(1, 2), keepdims=True)
            allowed = np.where(n_forced > 0, forced & (n_forced == 1), own > -np.inf)
            arcs = _packed(allowed.sum(axis=2), packed)
            key = single_root, n, arcs.tobytes()
            if key not in counts:
                counts[key] = count_trees(arcs, single_root)
            found.append(counts[key])
        return found

    @property
    def _n_words(self) -> IntArray:
        """(F,) the numbers of words."""
        arcs = np.diff(self._factors.offsets) / self._factors.parameters[:, 3]
        return np.rint(np.sqrt(arcs)).astype(np.int64)

    def _room(self, k: int) -> Found:
        """Return space for k trees of every factor."""
        sizes = np.repeat(self._n_words, k)
        ends = np.cumsum(sizes)
        total = int(sizes.sum())
        entry, value = np.empty(total, dtype=np.int32), np.empty(total)
        without = np.full(len(sizes), -1, dtype=np.int64)
        score = np.full(len(sizes), -np.inf)
        return Found(score, Structures(ends - sizes, entry, value, without))


def _packed(arcs: IntArray, packed: bool) -> IntArray:
    """Return (n, n) numbers of arcs in packed layout."""
    if packed:
        return arcs
    n = len(arcs)
    found = np.zeros((n, n), dtype=np.int64)
    others = ~np.eye(n, dtype=np.bool_)
    found[others] = arcs[:, 1:].reshape(-1)
    found[~others] = arcs[:, 0]
    return found
