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

__all__ = ["MAX_PENALTY", "Multipliers", "Rows"]

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
    """Constraints ``low <= A x <= high`` on the slots of factors."""

    matrix: Tensor
    """(n or 1, R, n_slots + 1) the matrix; the last column, of all other numbers, is zero."""
    low: Tensor
    """(n, R)"""
    high: Tensor

    def of_structures(self, structures: Tensor) -> Tensor:
        """Return the (n, R) sums of structures with given (n, W) entries."""
        entries = structures.clamp(max=self.matrix.shape[2] - 1).unsqueeze(1)
        matrix = self.matrix.expand(len(structures), -1, -1)
        return matrix.gather(2, entries.expand(-1, matrix.shape[1], -1)).sum(2)

    def pull(self, y: Tensor, like: Tensor) -> Tensor:
        """Return ``A' y`` as vectors like the given ones, of all numbers of the factors."""
        slots = (y.unsqueeze(1) @ self.matrix).squeeze(1)
        return torch.nn.functional.pad(slots, (0, like.shape[1] - slots.shape[1]))


@dataclass
class Multipliers:
    """The constraints of a batch of active sets, and their multipliers."""

    rows: Rows
    y: Tensor
    """(n, R) the multipliers."""
    penalty: Tensor
    """(n, 1) weights of squared violations."""
    sums: Tensor
    """(n, capacity, R) the sums ``A s`` of the structures of the active sets."""

    @classmethod
    def first(cls, rows: Rows, capacity: int) -> Multipliers:
        """Return multipliers of zero, with room for the sums of structures."""
        y = torch.zeros_like(rows.low)
        penalty = torch.full_like(y[:, :1], FIRST_PENALTY)
        return cls(rows, y, penalty, y.unsqueeze(1).repeat(1, capacity, 1))

    def force(self, sums: Tensor) -> Tensor:
        """Return the gradient of the augmented Lagrangian in the sums ``A x``."""
        below, above = ((x - sums) * self.penalty + self.y for x in (self.rows.low, self.rows.high))
        return below.clamp(min=0.0) + above.clamp(max=0.0)

    def of(self, weights: Tensor) -> Tensor:
        """Return the (n, R) sums of mixtures."""
        return (weights.unsqueeze(1) @ self.sums).squeeze(1)

    def pull(self, force: Tensor) -> Tensor:
        """Return the (n, capacity) gradient of the augmented Lagrangian in the weights."""
        return (self.sums @ force.unsqueeze(2)).squeeze(2)

    def curvature(self, force: Tensor) -> Tensor:
        """Return its (n, capacity, capacity) negative second derivative."""
        tight = (force != 0.0).to(force.dtype) * self.penalty
        return (self.sums * tight.unsqueeze(1)) @ self.sums.mT

    def length(self, p: Tensor, step: Tensor, slope: Tensor, curvature: Tensor) -> Tensor:
        """Return (n, 1) lengths up to 1 of a step, along which the objective increases.

        Parameters
        ----------
        p, step
            (n, capacity) the weights, and their change.
        slope, curvature
            (n,) first derivative and negative second derivative of the objective along the step,
            without the constraints.
        """
        lengths = SHORTER ** torch.arange(N_LENGTHS, dtype=p.dtype, device=p.device)
        change = self.of(step)
        force = self.force(torch.addcmul(self.of(p), lengths[:, None, None], change))
        derivative = slope - lengths.unsqueeze(1) * curvature + (force * change).sum(2)
        # the first of equal numbers; after rounding errors, none may be positive
        first = (derivative > 0.0).to(torch.int8).argmax(0, keepdim=True)
        longer = (first - 1).clamp(min=0)
        d, below = derivative.gather(0, first), derivative.gather(0, longer)
        share = torch.where((d > 0.0) & (below < 0.0), d / (d - below), 0.0)
        return torch.lerp(lengths[first], lengths[longer], share).squeeze(0).unsqueeze(1)

    def move(self, p: Tensor, arrived: Tensor) -> Tensor:
        """Update the multipliers of solved active sets; return whether their constraints hold."""
        force = self.force(self.of(p))
        violation = (force - self.y).abs().amax(1) / self.penalty.squeeze(1)
        self.y = torch.where(arrived.unsqueeze(1), force, self.y)
        grown = (GROWTH * self.penalty).clamp(max=MAX_PENALTY)
        self.penalty = torch.where(arrived.unsqueeze(1), grown, self.penalty)
        return arrived & (violation <= MAX_VIOLATION)

    def bound(self, p: Tensor) -> Tensor:
        """Return what forces add to the objective in an upper bound of its maximum."""
        sums = self.of(p)
        force = self.force(sums)
        bound = torch.where(force > 0.0, self.rows.low, self.rows.high)
        return torch.where(force == 0.0, 0.0, force * (sums - bound)).sum(1)

    def on_face(self, derivative: Tensor) -> Tensor:
        """Return the derivative of weights in linear terms that keeps tight constraints tight.

        Parameters
        ----------
        derivative
            (n, capacity, capacity) the derivative without constraints.
        """
        size = self.y.abs()
        tight = size > ACTIVE * size.amax(1, keepdim=True).clamp(min=1.0)
        tight = tight | (self.rows.low == self.rows.high)
        sums = torch.where(tight.unsqueeze(1), self.sums, 0.0)
        along = derivative @ sums
        inverse = torch.linalg.pinv(sums.mT @ along, atol=ACTIVE, hermitian=True)
        on_face: Tensor = derivative - along @ inverse @ along.mT
        return on_face
