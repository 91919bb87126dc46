"""How active sets change in an iteration: which structures join, and how weights move.

Where structures are paths, one call of the oracle gives more of them, see `TensorOracle`. Beside
the gradient, the oracle gets the gradient with a bonus on every `PERIOD`-th part of a heavy
structure. Between two of these parts, its answer is the best path from the one to the other. Each
run of parts in which it differs makes a structure of its own: far apart, they are independent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

MIN_PARTS = 16
"""Minimum number of parts of structures for which fewer iterations outweigh longer ones."""

N_HEAVY, N_RUNS = 2, 3
"""Number of heavy structures, the heaviest, and of structures made from each."""

PERIOD, SHIFT = 12, 7
"""Distance of the parts with a bonus, and how far they move from one iteration to the next. Those
of the second structure are half a period apart."""

STEPS, SPLICED_STEPS = 3, 6
"""Steps of the weights for each call of the oracle; if it gives several structures."""


class Rules:
    """A call of the oracle gives the best structure alone, which joins sets at their optimum."""

    n_steps = STEPS
    n_others = 0
    """Number of structures that a call gives beside the best."""

    def structures(
        self,
        oracle: Callable[[Tensor], Tensor],
        scores: Tensor,
        p: Tensor,
        entries: Tensor,
        iteration: int,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the (n, 1 + n_others, W) entries of structures, of which the first are the best.

        The flags say for all others whether they are of use; None without others. The oracle takes
        the scores but their last, of padding; `p` are the weights of structures with `entries`.
        """
        return oracle(scores[:, :-1]).unsqueeze(1), None

    def threshold(self, rounding: Tensor, settled: Tensor) -> Tensor:
        """Return the (n,) gaps above which structures join next, after steps of the weights.

        The last step was small where the sets are settled. Gaps up to `rounding` are rounding.
        """
        return torch.where(settled, rounding, torch.inf)


class Splices(Rules):
    """A call of the oracle gives several structures, which join if they depend on no others.

    The (n, D + 1) bonus of a variable outweighs all other scores; that of additionals is 0.
    Structures have `n_parts` parts, and `width` entries.
    """

    n_steps = SPLICED_STEPS
    n_others = N_HEAVY * N_RUNS

    def __init__(self, bonus: Tensor, n_parts: int, width: int) -> None:
        self.n_parts = n_parts
        self._row = torch.arange(len(bonus), device=bonus.device)
        self._bonus = bonus.expand(N_HEAVY, -1, -1)
        arange = functools.partial(torch.arange, device=bonus.device)
        number = arange(PERIOD).reshape(-1, 1, 1)
        first = number + arange(N_HEAVY).reshape(-1, 1) * (PERIOD // N_HEAVY)
        part = arange(width) // (width // n_parts)
        has_bonus = ((part - first) % PERIOD == 0).to(bonus)
        self._has_bonus = has_bonus.unsqueeze(2)  # by period, heavy structure, problem, entry
        self._number = torch.arange(N_RUNS, device=bonus.device).reshape(-1, 1, 1)

    def structures(
        self,
        oracle: Callable[[Tensor], Tensor],
        scores: Tensor,
        p: Tensor,
        entries: Tensor,
        iteration: int,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the best structures, and then spliced ones with flags of those of use."""
        weights, places = p.topk(N_HEAVY, 1)
        places = torch.where(weights > 0.0, places, places[:, :1])  # others may hold no structure
        heavy = entries[self._row, places.mT]
        several = self.scores(scores, heavy, iteration)
        best = oracle(several[:, :-1]).reshape(-1, *heavy.shape[1:])
        spliced, differ = self.spliced(heavy, best[1:])
        return torch.cat([best[:1], spliced]).transpose(0, 1), differ.mT

    def threshold(self, rounding: Tensor, settled: Tensor) -> Tensor:
        """Return the gaps; any will do, since structures that depend on others do not join."""
        return rounding

    def scores(self, scores: Tensor, heavy: Tensor, iteration: int) -> Tensor:
        """Return the ((1 + N_HEAVY) * n, D + 1) scores without, and then with bonuses."""
        several = scores.repeat(1 + N_HEAVY, 1)
        bonus = self._bonus.gather(2, heavy) * self._has_bonus[SHIFT * iteration % PERIOD]
        several.view(-1, *scores.shape)[1:].scatter_add_(2, heavy, bonus)
        return several

    def spliced(self, heavy: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
        """Return heavy structures in which runs of parts are those of the best ones.

        Of (N_HEAVY, n, W) entries these are (n_others, n, W) ones, each with every N_RUNS-th run,
        and (n_others, n) flags of those that differ from the heavy ones.
        """
        shape = N_HEAVY, 1, heavy.shape[1], self.n_parts, -1
        heavy, best = heavy.reshape(shape), best.reshape(shape)
        is_equal = (heavy == best).all(4)
        begins = torch.nn.functional.pad(is_equal[..., :-1], (1, 0), value=True) > is_equal
        is_changed = (begins.cumsum(3) % N_RUNS == self._number) > is_equal
        spliced = torch.where(is_changed.unsqueeze(4), best, heavy)
        return spliced.flatten(0, 1).flatten(2), is_changed.any(3).flatten(0, 1)
