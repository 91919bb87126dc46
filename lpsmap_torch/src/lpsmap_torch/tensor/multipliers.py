"""Linear constraints beside the structures of active sets, by the method of multipliers.

The constraints ``low <= A x <= high`` have multipliers y. A solve of the active sets maximises the
augmented Lagrangian, whose gradient in the sums ``A x`` is

    force(A x) = max(0, y + penalty (low - A x)) + min(0, y + penalty (high - A x)).

The forces at its solution are the next multipliers, and the penalty grows, until the constraints
hold (Hestenes 1969; Rockafellar 1973).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FIRST_PENALTY, GROWTH, MAX_PENALTY = 10.0, 10.0, 1e4
"""First weight of squared violations of constraints, its growth, and its maximum."""

MAX_VIOLATION = 1e-11
"""Maximum violation of constraints that hold."""

SHORTER, N_LENGTHS = 0.25, 8
"""Ratio and number of the lengths that a step of the weights tries. It takes the first at which the
objective still increases, and a share of the way to the one before."""

ACTIVE = 1e-9
"""Minimum multiplier of a tight constraint, relative to the largest, and to 1."""


@dataclass(frozen=True)
class Rows:
    """Constraints ``low <= A x <= high`` on the numbers of factors."""

    matrix: Tensor
    """(n or 1, R, D + 1) the matrix; the last column, of padding, is zero."""
    low: Tensor
    """(n, R)"""
    high: Tensor

    def contradict_themselves(self) -> Tensor:
        """Return (n,) flags of problems with a constraint that nothing satisfies."""
        return (self.low > self.high).any(1)

    def of_structures(self, structures: Tensor) -> Tensor:
        """Return the (n, R) sums of structures with given (n, W) entries."""
        entries = structures.unsqueeze(1).expand(-1, self.matrix.shape[1], -1)
        return self.matrix.expand(len(structures), -1, -1).gather(2, entries).sum(2)

    def add_pull(self, y: Tensor, x: Tensor) -> Tensor:
        """Return ``x + A' y``."""
        matrix = self.matrix.expand(len(y), -1, -1)
        return torch.baddbmm(x.unsqueeze(1), y.unsqueeze(1), matrix).squeeze(1)


@dataclass
class Multipliers:
    """The constraints of a batch of active sets, and their multipliers."""

    rows: Rows
    y: Tensor
    """(n, R) the multipliers."""
    penalty: Tensor
    """(n, 1) weights of squared violations."""
    sums: Tensor
    """(n, 1 + capacity, R) the sums ``A s`` of the structures of the active sets, after zeros for
    the multiplier of the sum of their weights; see `ActiveSets.unknowns`."""
    at: Tensor
    """(n, R) the sums of the mixtures."""
    force: Tensor
    """(n, R) the gradient of the augmented Lagrangian in these sums."""
    lengths: Tensor
    """(N_LENGTHS,) the lengths that a step tries, from 1."""
    gains: Tensor
    """(N_LENGTHS - 1,) by how much each is longer than the next."""
    least: Tensor
    """(n,) lower bounds of the objective."""

    @classmethod
    def first(cls, rows: Rows, capacity: int, least: Tensor) -> Multipliers:
        """Return multipliers of zero, with room for the sums of structures."""
        y = torch.zeros_like(rows.low)
        penalty = torch.full_like(y[:, :1], FIRST_PENALTY)
        sums = y.unsqueeze(1).repeat(1, 1 + capacity, 1)
        lengths = SHORTER ** torch.arange(N_LENGTHS, dtype=y.dtype, device=y.device)
        gains = lengths[:-1] - lengths[1:]
        return cls(rows, y, penalty, sums, y, y, lengths, gains, least)

    def arrive(self, unknowns: Tensor) -> None:
        """Compute the sums of mixtures, and their forces."""
        self.at = self.of(unknowns)
        self.force = self.force_at(self.at.unsqueeze(1)).squeeze(1)

    def of(self, unknowns: Tensor) -> Tensor:
        """Return the (n, R) sums of mixtures, or of their changes."""
        return torch.bmm(unknowns.unsqueeze(1), self.sums).squeeze(1)

    def force_at(self, sums: Tensor) -> Tensor:
        """Return the gradient of the augmented Lagrangian in (n, k, R) sums ``A x``."""
        y, penalty, low, high = (
            x.unsqueeze(1) for x in (self.y, self.penalty, self.rows.low, self.rows.high)
        )
        # both terms are the distance from the bounds of the sums, shifted by the multipliers
        shifted = torch.addcdiv(sums, y, penalty, value=-1.0)
        return (shifted.clamp(low, high) - shifted) * penalty

    def add_pull(self, residual: Tensor) -> Tensor:
        """Return the (n, 1 + capacity, 1) residuals with what the forces add."""
        return torch.baddbmm(residual, self.sums, self.force.unsqueeze(2))

    def add_curvature(self, matrix: Tensor) -> Tensor:
        """Return the bordered matrices with the negative second derivative of the constraints."""
        tight = ((self.force != 0.0) * self.penalty).unsqueeze(1)
        return torch.baddbmm(matrix, self.sums * tight, self.sums.mT)

    def rate(self, change: Tensor, slope: Tensor, curvature: Tensor) -> Tensor:
        """Return -1 / t for (n, 1) lengths t up to 1, to which the objective increases.

        Of the lengths tried, t is at the first whose derivative is positive, and a share of the way
        to the one before. Without the constraints, the objective has the first derivative `slope`
        and the negative second derivative `curvature` along the change.
        """
        of_step, lengths = self.of(change), self.lengths.unsqueeze(1)
        sums = torch.addcmul(self.at.unsqueeze(1), lengths, of_step.unsqueeze(1))
        derivative = torch.addcmul(slope, lengths, curvature, value=-1.0)
        derivative = torch.baddbmm(derivative, self.force_at(sums), of_step.unsqueeze(2)).squeeze(2)
        shorter, longer = derivative[:, 1:], derivative[:, :-1]
        # derivatives decrease: beyond the root, shares are 0 or less, and before it 1 or more
        share = (shorter / (shorter - longer)).nan_to_num_(nan=1.0).clamp_(0.0, 1.0)
        opposite = torch.addmv(self.lengths[-1:], share, self.gains, beta=-1.0, alpha=-1.0)
        return opposite.reciprocal_().unsqueeze(1)

    def move(self, arrived: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        """Update the multipliers of active sets that have arrived, which are solved.

        Returns flags of those whose constraints hold, and of those whose constraints cannot hold,
        by upper bounds of the objective's maximum without what the forces add.
        """
        violation = (self.force - self.y) / self.penalty  # of the bounds that have forces
        bound = torch.baddbmm(
            bound[:, None, None], self.force.unsqueeze(1), violation.unsqueeze(2), alpha=-1.0
        )
        fails = arrived & (bound[:, 0, 0] < self.least)
        holds = arrived & (torch.linalg.vector_norm(violation, torch.inf, dim=1) <= MAX_VIOLATION)
        grown = (GROWTH * self.penalty).clamp(max=MAX_PENALTY)
        column = arrived.unsqueeze(1)
        self.y = torch.where(column, self.force, self.y)
        self.penalty = torch.where(column, grown, self.penalty)
        self.force = self.force_at(self.at.unsqueeze(1)).squeeze(1)
        return holds, fails

    def on_face(self, derivative: Tensor) -> Tensor:
        """Return the derivative of weights that keeps tight constraints tight, given it without."""
        size = self.y.abs()
        tight = size > ACTIVE * size.amax(1, keepdim=True).clamp(min=1.0)
        tight = tight | (self.rows.low == self.rows.high)
        sums = torch.where(tight.unsqueeze(1), self.sums[:, 1:], 0.0)
        along = derivative @ sums
        inverse = torch.linalg.pinv(sums.mT @ along, atol=ACTIVE, hermitian=True)
        on_face: Tensor = derivative - along @ inverse @ along.mT
        return on_face
