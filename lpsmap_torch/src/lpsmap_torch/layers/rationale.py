"""Rationales: a few words in contiguous spans."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.types import Device

from lpsmap_core import Variables
from lpsmap_core.api import checked_count, checked_flag
from lpsmap_torch.built_graph import Declarations, SharedScores, factor_type
from lpsmap_torch.layers.checks import Instances, words_of
from lpsmap_torch.layers.layer import Layer


class Rationale(Layer):
    """Marginals of selecting the words of a text, at most `budget`, preferably contiguous.

    The factor is a `SequenceBudget` over two states per word, with one learned score for two
    neighbours that are both selected; or a `SequenceSpans`, if spans have limits. In its structures
    the tag of a selected word is 1, and that of others is 0.

    Parameters
    ----------
    budget
        The maximum number of selected words. A call can set it for every instance:
        ``layer(scores, budget=torch.tensor([2, 5]))``. Below `min_span` it selects none.
    transition
        The initial value of the parameter of this name.
    exactly
        Whether exactly `budget` words are selected. A text without words has none; a text with
        fewer words is refused: give ``budget=torch.minimum(budget, lengths)`` to the call.
    min_span
        The minimum number of words of a span, a run of selected neighbours.
    max_spans
        The maximum number of spans, 1 or more; None for any number.
    device, dtype
        Of the parameter, as in the modules of `torch.nn`.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Raises
    ------
    ValueError
        If no word can be selected within the budget, or not ``exactly`` so many.

    Attributes
    ----------
    transition
        (1,) the score of two neighbours that are both selected; a parameter.

    Notes
    -----
    Scores eta of selecting a word are ``(..., n)``; not selecting it scores 0. The marginals mu,
    and the expected number nu of neighbours that are both selected, solve over mixtures::

        max  <eta, mu> + transition * nu - T/2 (||mu||^2 + ||1 - mu||^2)

    with the temperature T. Both states of a word count in the norm, twice as much as in `TopK`. So
    without a transition and with an unbounded budget, ``mu = (1 + eta / T) / 2`` cut to 0 to 1:
    scores (.6, -.2, -1) give (.8, .4, 0), and a word has the weight 0 below ``-T``, not below 0.

    Lengths are integers in the shape of the batch. A mask of shape ``(..., n)`` marks the words;
    padding must come last.
    """

    limit: ClassVar[str] = "budget"
    solved_by: ClassVar[tuple[str, ...]] = ("budget", "exactly", "min_span", "max_spans")

    def __init__(
        self,
        budget: int,
        transition: float = 0.0,
        *,
        exactly: bool = False,
        min_span: int = 1,
        max_spans: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.budget = checked_count("Rationale: budget", budget, least=0)
        self.exactly = checked_flag("Rationale: exactly", exactly)
        self.min_span = checked_count("Rationale: min_span", min_span)
        if max_spans is not None:
            max_spans = checked_count("Rationale: max_spans", max_spans)
        self.max_spans = max_spans
        if 0 < self.budget < self.min_span:
            raise ValueError(
                f"Rationale: budget is {self.budget}, but min_span is {self.min_span}, so no word "
                "can be selected; expected a budget of min_span or more."
            )
        self.first_transition = float(transition)
        self.transition = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the score of neighbours to its initial value."""
        nn.init.constant_(self.transition, self.first_transition)

    def variables_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the variables, two states per word, for scores of a given `shape`."""
        return (*shape, 2)

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return one sequence per instance; state 1 means that a word is selected."""
        n = u.shape[-2]
        budget = self.budget if instances.limits is None else instances.limits
        n_words = words_of(type(self).__name__, u.shape[:-1], instances)
        steps = np.zeros((*u.shape[:-2], max(n - 1, 0), 2, 2))
        if self.exactly:
            budget = self._exact(budget, np.full(u.shape[:-2], n) if n_words is None else n_words)
        options: dict[str, Any] = {
            "force_budget": self.exactly,
            "counted_state": 1,
            "lengths": n_words,
        }
        name = "SequenceBudget"
        if self.min_span > 1 or self.max_spans is not None:
            name = "SequenceSpans"
            options.update(min_span=self.min_span, max_spans=self.max_spans)
        sequence = factor_type(name)(u, steps, budget, **options)
        both_chosen = np.full((max(n - 1, 0), 2, 2), -1)
        both_chosen[:, 1, 1] = 0
        index = np.concatenate([[-1, -1], both_chosen.reshape(-1), [-1, -1]])
        return Declarations([sequence], shared=(SharedScores(sequence, index),), shown=(..., 1))

    def _exact(self, budget: Any, n_words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of words to select, which must be possible."""
        numbers = np.where(n_words == 0, 0, budget)
        wrong = np.argwhere((numbers > n_words) | ((numbers > 0) & (numbers < self.min_span)))
        if len(wrong):
            where = tuple(wrong[0].tolist())
            which = f"instance {where[0] if len(where) == 1 else where}" if where else "the text"
            raise ValueError(
                f"Rationale: budget is {numbers[where]} with exactly=True, but {which} has "
                f"{n_words[where]} words, and min_span is {self.min_span}; expected budgets of "
                f"min_span to the number of words in the last axis of scores, whose batch has the "
                f"shape {numbers.shape}. Set budget for every text in the call, or leave out "
                "exactly."
            )
        return numbers

    def _weights(self) -> Tensor:
        return self.transition

    def _repr_arguments(self) -> dict[str, Any]:
        changed = {"exactly": False, "min_span": 1, "max_spans": None}
        shown = {k: getattr(self, k) for k, x in changed.items() if getattr(self, k) != x}
        return {"budget": self.budget, **shown}
