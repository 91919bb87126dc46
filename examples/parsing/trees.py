"""Dependency trees over the sentences of a batch: sparse distributions, and the best ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpsmap import Budget, DepTree, FactorGraph, Pair, Solution, Variables
from lpsmap_core import Assignment
from parsing.bilinear import Bilinear
from parsing.sentences import Sentence

__all__ = ["Constraints", "best_trees", "solve_trees"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Constraints:
    """Which trees are allowed.

    Attributes
    ----------
    projective, single_root
        As `DepTree` takes them.
    budget
        Most dependents that a word may have, by a Budget factor on every head; None for any number.
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
    sentences: Sequence[Sentence], model: Bilinear, constraints: Constraints, tol: float = 1e-6
) -> tuple[Solution, DepTree]:
    """Solve the trees of some sentences in one graph; return them with their declaration."""
    graph, _, trees = _declared(sentences, model, constraints)
    return graph.solve(tol=tol), trees


def best_trees(
    sentences: Sequence[Sentence],
    model: Bilinear,
    constraints: Constraints,
    siblings: float,
    max_time: float | None = None,
) -> Assignment:
    """Find the best tree of every sentence, where neighbours under one head score extra.

    Parameters
    ----------
    sentences, model, constraints
        As in `solve_trees`.
    siblings
        Standard deviation of a random score for every two neighbouring words with the same head.
    max_time
        Limit of the seconds for all.
    """
    graph, u, _ = _declared(sentences, model, constraints)
    longest = u.shape[1]
    inside = np.arange(longest) < np.array([len(s) for s in sentences])[:, None]
    arcs = inside[:, :, None] & inside[:, None, :] & ~np.eye(longest, dtype=bool)
    sentence, word, head = np.nonzero(arcs[:, :-1] & arcs[:, 1:])
    scores = siblings * np.random.default_rng(0).standard_normal(len(word))
    graph.add(Pair(u[sentence, word, head], u[sentence, word + 1, head], scores))
    found = graph.solve_map(exact=True, max_time=max_time)
    assert isinstance(found, Assignment)
    return found


def _declared(
    sentences: Sequence[Sentence], model: Bilinear, constraints: Constraints
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
        inside = np.arange(lengths.max()) < lengths[:, None]
        arcs = inside[:, :, None] & inside[:, None, :] & ~np.eye(lengths.max(), dtype=bool)
        graph.add(Budget(u, constraints.budget, axis=1, mask=arcs))
    return graph, u, trees


def _padded(sentences: Sequence[Sentence], model: Bilinear, longest: int) -> FloatArray:
    scores = np.zeros((len(sentences), longest, longest))
    for row, sentence in zip(scores, sentences, strict=True):
        row[: len(sentence), : len(sentence)] = model.scores(sentence.words)
    return scores
