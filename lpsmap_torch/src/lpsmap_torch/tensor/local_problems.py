"""A batch of local problems, by the oracle of their factors.

Each problem maximises ``<c, x> - 1/2 <q, x^2>`` over the convex hull of a factor's structures, of
which x has the variables and then the additionals; q is 0 for additionals (Niculae et al. 2018,
appendix A.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lpsmap_core.api import cached_property
from lpsmap_torch.tensor.multipliers import Rows
from lpsmap_torch.tensor.splices import MIN_PARTS, Rules, Splices

BONUS = 1e-3
"""Bonus on the parts of heavy structures, as a multiple of the scores of forced numbers."""

PROVED = 1e-9
"""Minimum margin of a proof that constraints cannot hold, relative to the summed magnitudes of
scores."""


@dataclass(frozen=True)
class LocalProblems:
    """A batch of local problems.

    Vectors have variables, then additionals, and a last number in which padding is collected.
    """

    oracle: Callable[[Tensor], Tensor]
    """Returns the (n, W) entries of the best structures for (n, D) scores; D for padding."""
    linear: Tensor
    """(n, D + 1) the coefficients c; 0 for forced numbers."""
    quadratic: Tensor
    """(n or 1, D + 1) the coefficients q; 0 for additionals."""
    forced: Tensor
    """(n, D + 1) the numbers that are forced: -1 to be off, 1 to be on, 0 for others."""
    huge: Tensor
    """(n, 1) scores of forced numbers, which outweigh all others."""
    n_parts: int = 0
    """Number of parts of structures that are spliced; 0 for others."""
    rows: Rows | None = None
    """Constraints on the variables."""

    def best(self, gradient: Tensor) -> Tensor:
        """Return the (n, W) entries of the best structures for (n, D + 1) scores."""
        return self.oracle(self.scores(gradient)[:, :-1])

    def scores(self, gradient: Tensor) -> Tensor:
        """Return the scores that the oracle gets, with those of forced numbers."""
        free, forced = self._free_and_forced
        return torch.where(free, gradient, forced)

    def rules(self, width: int) -> Rules:
        """Return how active sets of structures of `width` entries change in an iteration."""
        if self.rows is not None or self.n_parts < MIN_PARTS:
            return Rules()
        return Splices(self.quadratic * (BONUS * self.huge), self.n_parts, width)

    def value(self, x: Tensor) -> Tensor:
        """Return the (n,) objectives."""
        marginal = torch.addcmul(self.linear, self.quadratic, x, value=-0.5)
        return torch.bmm(x.unsqueeze(1), marginal.unsqueeze(2))[:, 0, 0]

    def least_value(self, width: int) -> Tensor:
        """Return (n,) lower bounds of the objective of all mixtures, despite rounding.

        Structures have `width` entries. Variables are at most 1; additionals may count repeatedly.
        """
        is_variable = self.quadratic > 0.0
        most = torch.where(is_variable, self.linear - 0.5 * self.quadratic, width * self.linear)
        magnitudes = self.linear.abs().sum(1)
        return most.clamp(max=0.0).sum(1) - 1.0 - PROVED * width * magnitudes

    @cached_property
    def _free_and_forced(self) -> tuple[Tensor, Tensor]:
        """Flags of the numbers that are not forced, and the scores of those that are."""
        return self.forced == 0.0, self.huge * self.forced
