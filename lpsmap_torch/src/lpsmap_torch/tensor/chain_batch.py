"""Batches of sequences: flows through states, whose equations are block tridiagonal.

The numbers of a sequence are the marginals ``u[t, i]`` of its states, and the flow ``e[t, i, j]``
of every step. A state's marginal is the flow that leaves it and the flow that arrives::

    sum_j e[t, i, j] = u[t, i]      sum_i e[t, i, j] = u[t + 1, j]      sum_i u[0, i] = 1

These describe the polytope exactly, since the graph of steps has no cycles. The flows need no upper
bounds, and the marginals of two or more positions no bounds at all.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from lpsmap_torch.tensor.batch import Batch
from lpsmap_torch.tensor.equations import BlockTridiagonal, Equations

__all__ = ["Bins", "ChainBatch"]


@dataclass(frozen=True)
class Bins:
    """The additionals of sequences whose steps share scores, as matrices of zeros and ones."""

    initial: Tensor
    """(n, n_states, k) the bin of each first state."""
    step: Tensor
    """(1, n_states ** 2, 2 k + 1) the bin of each step."""
    final: Tensor
    """(n, n_states, k) the bin of each last state."""

    def to(self, device: torch.device) -> Bins:
        """Return the bins on a device."""
        return Bins(*(x.to(device) for x in (self.initial, self.step, self.final)))


@dataclass(frozen=True)
class ChainBatch(Batch):
    """Sequences, one for each component.

    The rows are those of arriving flows, for every state, then those of leaving flows. The row of
    the first state stands for the sum of the first marginals.
    """

    last: Tensor
    """(n, length, 1) ones at the last positions."""
    n_states: int
    bins: Bins | None
    """The bins of `SequenceDistance`; None if every step has a score of its own."""

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the marginals and the flows."""
        length, s = self.last.shape[-2], self.n_states
        u, e = x[..., : length * s], x[..., length * s :]
        return torch.unflatten(u, -1, (length, s)), torch.unflatten(e, -1, (length - 1, s, s))

    def sums(self, x: Tensor) -> Tensor:
        """Return A x."""
        u, e = self._parts(x)
        first = torch.nn.functional.pad(u[..., :1, :].sum(-1, keepdim=True), (0, self.n_states - 1))
        arriving = torch.cat([first, e.sum(-2) - u[..., 1:, :]], dim=-2)
        return torch.cat([arriving.flatten(-2), (e.sum(-1) - u[..., :-1, :]).flatten(-2)], dim=-1)

    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for multipliers `y` of the rows."""
        arriving, leaving = self._rows(y)
        first = arriving[..., :1, :1].expand_as(arriving[..., :1, :])
        u = torch.cat([first, -arriving[..., 1:, :]], dim=-2)
        u = u - torch.nn.functional.pad(leaving, (0, 0, 0, 1))
        e = leaving.unsqueeze(-1) + arriving[..., 1:, :].unsqueeze(-2)
        return torch.cat([u.flatten(-2), e.flatten(-3)], dim=-1)

    def _rows(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers of the rows of arriving and of leaving flows."""
        length, s = self.last.shape[-2], self.n_states
        arriving, leaving = torch.split(y, [length * s, (length - 1) * s], dim=-1)
        arriving = torch.unflatten(arriving, -1, (length, s))
        return arriving, torch.unflatten(leaving, -1, (length - 1, s))

    def equations(self, d: Tensor, diagonal: Tensor, tight: Tensor | None = None) -> Equations:
        """Return the equations with the matrix ``A diag(d) A' + diag(diagonal)``."""
        u, e = self._parts(d)
        first = torch.nn.functional.pad(u[..., :1, :].sum(-1, keepdim=True), (0, self.n_states - 1))
        arriving = torch.cat([first, e.sum(-2) + u[..., 1:, :]], dim=-2)
        leaving = e.sum(-1) + u[..., :-1, :]
        # of arriving flows with those that leave the same states: of the first, their sum
        of_first = torch.nn.functional.pad(-u[..., :1, None, :], (0, 0, 0, self.n_states - 1))
        through = torch.cat([of_first, torch.diag_embed(u[..., 1:-1, :])], dim=-3)
        if tight is not None:
            of_arriving, of_leaving = self._rows(tight.to(d.dtype))
            arriving, leaving = of_arriving * arriving, of_leaving * leaving
            through = of_arriving[..., :-1, :, None] * through * of_leaving.unsqueeze(-2)
            e = of_leaving.unsqueeze(-1) * e * of_arriving[..., 1:, None, :]
        more_arriving, more_leaving = self._rows(diagonal)
        blocks = _alternating(arriving + more_arriving, leaving + more_leaving)
        return _Alternating(self, BlockTridiagonal(blocks, _pairs(through, e), self.precision))

    def presolved(self, open_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``low, high, open, fixed``: numbers that no whole sequence uses are zero."""
        states, steps = self._parts(open_)
        ahead = [states[..., 0, :]]
        for t in range(states.shape[-2] - 1):
            arrives = (ahead[-1].unsqueeze(-1) & steps[..., t, :, :]).any(-2)
            ahead.append(arrives & states[..., t + 1, :])
        ends = self.last > 0.0
        back = [states[..., -1, :] & ends[..., -1, :]]
        for t in range(states.shape[-2] - 2, -1, -1):
            leaves = (steps[..., t, :, :] & back[-1].unsqueeze(-2)).any(-1)
            back.append(states[..., t, :] & (leaves | ends[..., t, :]))
        reached, useful = torch.stack(ahead, dim=-2), torch.stack(back[::-1], dim=-2)
        steps = steps & reached[..., :-1, :, None] & useful[..., 1:, None, :]
        found = torch.cat([(reached & useful).flatten(-2), steps.flatten(-3)], dim=-1)
        return self.low, self.high, found, torch.zeros_like(found, dtype=self.low.dtype)

    def bounded(self, open_: Tensor) -> tuple[Tensor, Tensor]:
        """Return flags of the open flows, which need a lower bound; none needs an upper one."""
        assert self.linear is not None
        is_single = self.last[..., 0, :] > 0.0  # no flow bounds the marginals of a single position
        return open_ & (self.linear | is_single), torch.zeros_like(open_)

    def start(self) -> Tensor:
        """Return uniform marginals and flows."""
        assert self.linear is not None
        share = 1.0 / self.n_states
        return torch.where(self.linear, share**2, share)

    def scores(self, eta: Tensor) -> Tensor:
        """Return the scores of marginals and flows, given those of states and additionals."""
        length, s = self.last.shape[-2], self.n_states
        states, rest = eta[..., : length * s], eta[..., length * s :]
        if self.bins is None:
            initial, steps, final = torch.split(rest, [s, (length - 1) * s * s, s], dim=-1)
        else:
            k = self.bins.initial.shape[-1]
            initial, distances, final = torch.split(rest, [k, 2 * k + 1, k], dim=-1)
            initial = (self.bins.initial @ initial.unsqueeze(-1)).squeeze(-1)
            final = (self.bins.final @ final.unsqueeze(-1)).squeeze(-1)
            step = (self.bins.step @ distances.unsqueeze(-1)).squeeze(-1)
            steps = step.unsqueeze(-2).expand(*step.shape[:-1], length - 1, s * s).flatten(-2)
        u = torch.unflatten(states, -1, (length, s)) + self.last * final.unsqueeze(-2)
        u = torch.cat([u[..., :1, :] + initial.unsqueeze(-2), u[..., 1:, :]], dim=-2)
        return torch.cat([u.flatten(-2), steps], dim=-1)

    def values(self, x: Tensor) -> Tensor:
        """Return the values of states and additionals; the transpose of `scores`."""
        u, e = self._parts(x)
        initial, final = u[..., 0, :], (self.last * u).sum(-2)
        steps = e.flatten(-3)
        if self.bins is not None:
            initial = (initial.unsqueeze(-2) @ self.bins.initial).squeeze(-2)
            final = (final.unsqueeze(-2) @ self.bins.final).squeeze(-2)
            steps = (e.sum(-3).flatten(-2).unsqueeze(-2) @ self.bins.step).squeeze(-2)
        return torch.cat([u.flatten(-2), initial, steps, final], dim=-1)

    def to(self, device: torch.device) -> ChainBatch:
        """Return the batch on a device."""
        moved = super().to(device)
        bins = None if self.bins is None else self.bins.to(device)
        return dataclasses.replace(moved, bins=bins)


class _Alternating(Equations):
    """Equations in the order of the rows, by those in the order of the positions."""

    def __init__(self, batch: ChainBatch, equations: BlockTridiagonal) -> None:
        self._batch, self._equations = batch, equations

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n_rows) right-hand sides."""
        blocks = _alternating(*self._batch._rows(right))
        x = self._equations.solve(blocks.flatten(-2)).reshape(blocks.shape)
        return torch.cat([x[..., ::2, :].flatten(-2), x[..., 1::2, :].flatten(-2)], dim=-1)


def _alternating(arriving: Tensor, leaving: Tensor) -> Tensor:
    """Return the blocks of arriving and leaving flows by positions."""
    return torch.cat([_pairs(arriving[..., :-1, :], leaving, -2), arriving[..., -1:, :]], dim=-2)


def _pairs(first: Tensor, second: Tensor, axis: int = -3) -> Tensor:
    """Return two tensors of equal shape in turns along an axis."""
    return torch.stack([first, second], dim=axis).flatten(axis - 1, axis)
