"""How active sets change in an iteration: which structures join, and how weights move."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Rules"]


class Rules:
    """A call of the oracle gives the best structure alone.

    Parameters
    ----------
    n_steps
        Number of steps of the weights for each call.
    clear_gap
        Gap above which structures join sets that are not at their optimum, whose active structures
        have gaps, too.
    """

    n_others = 0
    """Number of structures that a call gives beside the best."""

    def __init__(self, n_steps: int, clear_gap: float) -> None:
        self.n_steps, self._clear_gap = n_steps, clear_gap

    def structures(
        self,
        oracle: Callable[[Tensor], Tensor],
        scores: Tensor,
        p: Tensor,
        entries: Tensor,
        iteration: int,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the (n, 1 + n_others, W) entries of structures, of which the first are the best.

        The flags say for all others whether they are of use; None without others.

        Parameters
        ----------
        oracle
            Returns the entries of the best structures for scores.
        scores
            (n, D + 1) scores for the oracle, and a last one for padding.
        p, entries
            The weights, and the entries of the structures.
        iteration
            Number of the iteration.
        """
        return oracle(scores[:, :-1]).unsqueeze(1), None

    def limited(self, rate: Tensor) -> Tensor:
        """Return the (n, capacity) rates at which weights change; the least one's leaves."""
        return rate

    def settle(
        self, p: Tensor, used: Tensor, rounding: Tensor, settled: Tensor, blocked: Tensor
    ) -> Tensor:
        """Return the (n,) gaps above which structures join next, after steps of the weights.

        Parameters
        ----------
        p, used
            The weights, and whether there is a structure.
        rounding
            (n,) gaps that are rounding.
        settled, blocked
            (n,) whether the last step was small, and whether a structure left at its end.
        """
        threshold = torch.where(settled, rounding, self._clear_gap)
        return threshold.masked_fill_(blocked, torch.inf)
