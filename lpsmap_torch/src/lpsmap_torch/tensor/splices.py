"""More structures from one call of the oracle, where structures are paths; see `TensorOracle`.

Beside the gradient, the oracle gets the gradient with a bonus on every `PERIOD`-th part of a heavy
structure. Between two of these parts, its answer is the best path from the one to the other. Each
run of parts in which it differs makes a structure of its own: far apart, they are independent.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MIN_PARTS", "N_HEAVY", "N_SPLICED", "Splices"]

MIN_PARTS = 16
"""Minimum number of parts of structures for which fewer iterations outweigh longer ones."""

N_HEAVY, N_RUNS = 2, 3
"""Number of heavy structures, the heaviest, and of structures made from each."""

N_SPLICED = N_HEAVY * N_RUNS

PERIOD, SHIFT = 12, 7
"""Distance of the parts with a bonus, and how far they move from one iteration to the next. Those
of the second structure are half a period apart."""


class Splices:
    """What makes more structures of one factor.

    Parameters
    ----------
    bonus
        (n, D + 1) a score that outweighs all others, for each variable; 0 for additionals.
    n_parts
        Number of parts of structures.
    width
        Number of entries of structures.
    """

    def __init__(self, bonus: Tensor, n_parts: int, width: int) -> None:
        self.n_parts = n_parts
        self._bonus = bonus.expand(N_HEAVY, -1, -1)
        number = torch.arange(PERIOD).reshape(-1, 1, 1)
        first = number + torch.arange(N_HEAVY).reshape(-1, 1) * (PERIOD // N_HEAVY)
        part = torch.arange(width) // (width // n_parts)
        has_bonus = ((part - first) % PERIOD == 0).to(bonus)
        self._has_bonus = has_bonus.unsqueeze(2)  # by period, heavy structure, problem, entry
        self._number = torch.arange(N_RUNS, device=bonus.device).reshape(-1, 1, 1)

    def scores(self, scores: Tensor, heavy: Tensor, iteration: int) -> Tensor:
        """Return the ((1 + N_HEAVY) * n, D + 1) scores without, and then with bonuses.

        Parameters
        ----------
        scores
            (n, D + 1) scores for the oracle.
        heavy
            (N_HEAVY, n, W) the entries of heavy structures.
        """
        several = scores.repeat(1 + N_HEAVY, 1)
        bonus = self._bonus.gather(2, heavy) * self._has_bonus[SHIFT * iteration % PERIOD]
        several.view(-1, *scores.shape)[1:].scatter_add_(2, heavy, bonus)
        return several

    def spliced(self, heavy: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
        """Return heavy structures in which runs of parts are those of the best ones.

        Parameters
        ----------
        heavy, best
            (N_HEAVY, n, W) entries.

        Returns
        -------
        structures, differ
            (N_SPLICED, n, W) the entries of the structures, and (N_SPLICED, n) whether they differ
            from the heavy ones. Each has every N_RUNS-th run.
        """
        shape = N_HEAVY, 1, heavy.shape[1], self.n_parts, -1
        heavy, best = heavy.reshape(shape), best.reshape(shape)
        is_equal = (heavy == best).all(4)
        begins = torch.nn.functional.pad(is_equal[..., :-1], (1, 0), value=True) > is_equal
        is_changed = (begins.cumsum(3) % N_RUNS == self._number) > is_equal
        spliced = torch.where(is_changed.unsqueeze(4), best, heavy)
        return spliced.flatten(0, 1).flatten(2), is_changed.any(3).flatten(0, 1)
