"""Dependency trees over the sentences of a batch: sparse distributions, and best trees."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpsmap import DepTree, FactorGraph, ModifierBudget, Pair, Solution, Variables
from lpsmap_search import TaggedSentence
from parsing.bilinear import Bilinear

__all__ = ["Constraints", "sibling_graph", "sibling_scores", "solve_trees"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Constraints:
    """Constraints on trees.

    Attributes
    ----------
    projective, single_root
        As in `DepTree`.
    budget
        Maximum number of dependents of a word, by a ModifierBudget; None for any number.
    """

    projective: bool = False
    single_root: bool = False
    budget: int | None = None

    def __str__(self) -> str:
        kind = "projective" if self.projective else "non-projective"
        root = ", single root" if self.single_root else ""
        budget = "" if self.budget is None else f", at most {self.budget} dependents"
        return kind + root + budget


def solve_trees(
    sentences: Sequence[TaggedSentence],
    model: Bilinear,
    constraints: Constraints,
    tol: float = 1e-6,
) -> tuple[Solution, DepTree]:
    """Solve the trees of sentences in one graph; return the solution and the declaration."""
    graph, _, trees = _declared(sentences, model, constraints)
    return graph.solve(tol=tol), trees


def sibling_graph(
    sentence: TaggedSentence, model: Bilinear, constraints: Constraints, siblings: float
) -> FactorGraph:
    """Return the graph of a sentence's trees, with scores for neighbours with a common head.

    Parameters
    ----------
    sentence, model, constraints
        As in `solve_trees`.
    siblings
        As in `sibling_scores`.
    """
    graph, u, _ = _declared([sentence], model, constraints)
    word, head, scores = sibling_scores(sentence, siblings)
    graph.add(Pair(u[0, word, head], u[0, word + 1, head], scores))
    return graph


def sibling_scores(
    sentence: TaggedSentence, deviation: float
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return words and heads, and a score for each word and its right neighbour under that head.

    The scores are normal, and deterministic: the words of the sentence are their seed.

    Parameters
    ----------
    sentence
        The sentence.
    deviation
        Standard deviation of the scores.
    """
    n = len(sentence)
    rng = np.random.default_rng(zlib.crc32(" ".join(sentence.words).encode()))
    word, head = np.indices((n - 1, n))
    apart = (head != word) & (head != word + 1)
    word, head = word[apart], head[apart]
    return word, head, deviation * rng.standard_normal(len(word))


def _declared(
    sentences: Sequence[TaggedSentence], model: Bilinear, constraints: Constraints
) -> tuple[FactorGraph, Variables, DepTree]:
    """Return a graph of the sentences' trees, its arcs, and the trees' declaration."""
    lengths = np.array([len(sentence) for sentence in sentences])
    graph = FactorGraph()
    u = graph.variable_from(_padded(sentences, model, lengths.max()))
    trees = graph.add(
        DepTree(
            u,
            projective=constraints.projective,
            single_root=constraints.single_root,
            lengths=lengths,
        )
    )
    if constraints.budget is not None:
        graph.add(ModifierBudget(u, constraints.budget, lengths=lengths))
    return graph, u, trees


def _padded(sentences: Sequence[TaggedSentence], model: Bilinear, longest: int) -> FloatArray:
    scores = np.zeros((len(sentences), longest, longest))
    for row, sentence in zip(scores, sentences, strict=True):
        row[: len(sentence), : len(sentence)] = model.scores(sentence.words)
    return scores
