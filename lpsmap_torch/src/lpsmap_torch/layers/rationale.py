"""Rationales: a few words, in few pieces."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lpsmap_core import Variables
from lpsmap_core.api import checked_count
from lpsmap_torch.layers.checks import leading, present
from lpsmap_torch.layers.layer import Layer, Lengths, Mask, factor_type
from lpsmap_torch.layers.layout import Declared, Tied

__all__ = ["Rationale"]


class Rationale(Layer):
    """How much each word of a text is chosen, of at most so many, neighbours together.

    A `SequenceBudget` over the words, chosen or not, with one learned score for two neighbours that
    are both chosen.

    Parameters
    ----------
    budget
        The most words that are chosen.
    transition
        What the parameter of this name is reset to.
    max_iter, max_inner_iter, tol, step_size, adapt, relaxation, threads, engine
        As for `FactorGraph.solve`.

    Attributes
    ----------
    transition
        (1,) the score of two neighbours that are both chosen; a parameter.

    Notes
    -----
    Scores are ``(..., n)``, of choosing a word; not to choose it scores 0. Lengths are integers of
    the batch's shape. A mask says which words there are, ``(..., n)``; padding has to come last.
    """

    solved_by: ClassVar[tuple[str, ...]] = ("budget",)

    def __init__(self, budget: int, transition: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.budget = checked_count("Rationale: budget", budget, least=0)
        self.first_transition = float(transition)
        self.transition = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the score of neighbours to what the constructor was given."""
        nn.init.constant_(self.transition, self.first_transition)

    def variables_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of two states for each of the words in scores of some `shape`."""
        return (*shape, 2)

    def declare(self, u: Variables, lengths: Lengths, mask: Mask, n_weights: int) -> Declared:
        """Return a sequence an instance, in whose state 0 words are chosen."""
        n = u.shape[-2]
        words = present(type(self).__name__, u.shape[:-1], lengths, mask)
        own = None if words.all() else leading(type(self).__name__, words, "words")
        steps = np.zeros((*u.shape[:-2], max(n - 1, 0), 2, 2))
        sequence = factor_type("SequenceBudget")(u, steps, self.budget, lengths=own)
        both_chosen = np.full((max(n - 1, 0), 2, 2), -1)
        both_chosen[:, 0, 0] = 0
        index = np.concatenate([[-1, -1], both_chosen.reshape(-1), [-1, -1]])
        return Declared([sequence], tied=(Tied(sequence, index),), shown=(..., 0))

    def _weights(self) -> Tensor:
        return self.transition

    def _own_repr(self) -> dict[str, Any]:
        return {"budget": self.budget}
