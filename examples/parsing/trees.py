"""Sparse distributions of dependency trees over the sentences of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpsmap import Budget, DepTree, FactorGraph, Solution
from parsing.bilinear import Bilinear
from parsing.sentences import Sentence

__all__ = ["Constraints", "solve_trees"]

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
    return graph.solve(tol=tol), trees


def _padded(sentences: Sequence[Sentence], model: Bilinear, longest: int) -> FloatArray:
    scores = np.zeros((len(sentences), longest, longest))
    for row, sentence in zip(scores, sentences, strict=True):
        row[: len(sentence), : len(sentence)] = model.scores(sentence.words)
    return scores
