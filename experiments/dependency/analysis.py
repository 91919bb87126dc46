"""The predictions of a parser: best trees, sparse distributions, and ambiguous sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.dependency.data import Vocabulary, evaluation_batches
from experiments.dependency.parser import Parser
from experiments.dependency.structures import sibling_tables, tree_factors
from lpsmap import DepTree, FactorGraph
from lpsmap_search import TaggedSentence

__all__ = ["Attachment", "ambiguous_parses", "attachment", "sparsity"]

IntArray = NDArray[np.int64]

MAX_DRAWN = 12
"""Maximum number of ambiguous sentences in a record."""


@dataclass(frozen=True)
class Attachment:
    """Attachment scores in percent: unlabelled, without punctuation, and labelled."""

    uas: float
    uas_without_punctuation: float
    las: float | None


@torch.no_grad()
def attachment(
    parser: Parser,
    sentences: Sequence[TaggedSentence],
    vocabulary: Vocabulary,
    *,
    single_root: bool,
) -> Attachment:
    """Compare the best trees of sentences with the gold trees."""
    parser.eval()
    right = counted_right = right_relations = words = counted = 0
    for _, batch in evaluation_batches(sentences, vocabulary):
        scores = parser(batch)
        siblings = None if scores.siblings is None else sibling_tables(*scores.siblings)
        found = best_trees(scores.arcs, batch.lengths, single_root=single_root, siblings=siblings)
        slot = torch.arange(batch.heads.shape[1])
        gold = torch.where(batch.heads == -1, slot, batch.heads).numpy()  # the root on the diagonal
        there = (slot < batch.lengths[:, None]).numpy()
        hit = (found[..., 0] == gold) & there
        words += int(there.sum())
        right += int(hit.sum())
        counts = batch.counted.numpy() & there
        counted += int(counts.sum())
        counted_right += int((hit & counts).sum())
        right_relations += int((hit & (found[..., 1] == batch.relations.numpy())).sum())
    las = 100 * right_relations / words if parser.labelled else None
    return Attachment(100 * right / words, 100 * counted_right / max(counted, 1), las)


def best_trees(
    scores: Tensor,
    lengths: Tensor,
    *,
    single_root: bool,
    siblings: tuple[Tensor, Tensor] | None = None,
) -> IntArray:
    """Return (size, n, 2) heads, a word's own index for the root, and relations.

    With sibling scores, these are the best trees under the marginals of LP-MAP, which are optimal
    if the marginals are integral.
    """
    arcs = scores.numpy()
    labelled = arcs.ndim == 4
    if siblings is not None:
        graph = FactorGraph()
        u = graph.variable_from(arcs)
        for factor in tree_factors(u, lengths=lengths, single_root=single_root, siblings=siblings):
            graph.add(factor)
        graph.solve_map()
        arcs = np.asarray(u.value)
    graph = FactorGraph()
    u = graph.variable_from(arcs)
    for factor in tree_factors(u, lengths=lengths, single_root=single_root, labelled=labelled):
        graph.add(factor)
    graph.solve_map()
    values = np.asarray(u.value)
    if not labelled:
        values = values[..., None]
    flat = values.reshape(*values.shape[:2], -1).argmax(axis=-1)
    return np.stack(np.divmod(flat, values.shape[-1]), axis=-1)


@dataclass(frozen=True)
class Distribution:
    """The trees of a sentence with nonzero weight, the most likely first."""

    sentence: TaggedSentence
    heads: list[list[int]]
    probabilities: list[float]
    scores: list[float]

    @property
    def parents(self) -> float:
        """The mean number of a word's parents with weight."""
        arcs = {arc for heads in self.heads for arc in enumerate(heads)}
        return len(arcs) / len(self.sentence)


@torch.no_grad()
def distributions(
    parser: Parser,
    sentences: Sequence[TaggedSentence],
    vocabulary: Vocabulary,
    *,
    single_root: bool,
) -> list[Distribution]:
    """Return the SparseMAP distributions of a first-order parser over sentences."""
    parser.eval()
    found = []
    for some, batch in evaluation_batches(sentences, vocabulary):
        graph = FactorGraph()
        u = graph.variable_from(parser(batch).arcs.numpy())
        (tree,) = tree_factors(u, lengths=batch.lengths, single_root=single_root)
        graph.add(cast(DepTree, tree))
        solution = graph.solve()
        for sentence, trees in zip(some, solution.structures(tree), strict=True):
            found.append(
                Distribution(
                    sentence,
                    [[int(head) for head in one.decoded["heads"]] for one in trees],
                    [float(one.probability) for one in trees],
                    [float(one.score) for one in trees],
                )
            )
    return found


def sparsity(found: Sequence[Distribution]) -> dict[str, list[float]]:
    """Return quantiles (5, 25, 50, 75, 95 %) and means of the numbers of trees and of parents."""

    def summary(values: list[float]) -> list[float]:
        quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
        return [round(float(x), 3) for x in (*quantiles, np.mean(values))]

    return {
        "trees": summary([float(len(one.heads)) for one in found]),
        "parents": summary([one.parents for one in found]),
    }


def ambiguous_parses(found: Sequence[Distribution]) -> dict[str, Any]:
    """Return statistics of sentences whose gold tree has weight but is not the best.

    The shortest such sentences of at least six words and at most four trees are included in full,
    to be drawn.
    """
    ambiguous = []
    for one in found:
        gold = list(one.sentence.heads or ())
        if gold in one.heads and one.scores[one.heads.index(gold)] < max(one.scores) - 1e-9:
            ambiguous.append(one)
    drawn = [one for one in ambiguous if len(one.sentence) >= 6 and len(one.heads) <= 4]
    drawn = sorted(drawn, key=lambda one: len(one.sentence))[:MAX_DRAWN]
    return {
        "sentences": len(found),
        "one tree": sum(len(one.heads) == 1 for one in found),
        "gold has weight": sum(list(one.sentence.heads or ()) in one.heads for one in found),
        "gold has weight, and another is the best": len(ambiguous),
        "drawn": [
            {
                "words": list(one.sentence.words),
                "gold": list(one.sentence.heads or ()),
                "heads": one.heads,
                "probabilities": [round(p, 4) for p in one.probabilities],
            }
            for one in drawn
        ],
    }
