"""Faults of structures: shapes, numbers, labels and decoded forms."""

from __future__ import annotations

import numpy as np

from planted_faults.registry import caught_by
from sound_types import OneOf


@caught_by("check_shapes")
class WrongShape(OneOf):
    def vertex(self, y):
        m, n = super().vertex(y)
        return m[:, None], n


@caught_by("check_shapes")
class ShapeOfTheLongestRow(OneOf):
    def vertex(self, y):
        m, n = super().vertex(y)
        return np.append(m, np.zeros(self.variables.shape[-1] - len(m))), n


@caught_by("check_shapes")
class NoAdditionals(OneOf):
    def vertex(self, y):
        return super().vertex(y)[0], []


@caught_by("check_zero_one")
class Halves(OneOf):
    def vertex(self, y):
        m, n = super().vertex(y)
        return 0.5 * m, n


@caught_by("check_zero_one")
class NotANumber(OneOf):
    def vertex(self, y):
        m, n = super().vertex(y)
        return m * np.nan, n


@caught_by("check_zero_one")
class FractionOfAnAdditional(OneOf):
    def vertex(self, y):
        m, n = super().vertex(y)
        return m, 0.5 * n


@caught_by("check_labels")
class UnhashableLabel(OneOf):
    def solve_map(self, eta_u, eta_v):
        return [super().solve_map(eta_u, eta_v)]

    def vertex(self, y):
        return super().vertex(y[0])


@caught_by("check_labels")
class ForgetsToReturn(OneOf):
    def solve_map(self, eta_u, eta_v):
        super().solve_map(eta_u, eta_v)

    def vertex(self, y):
        return np.arange(self.event_shape[0]) == y, super().vertex(0)[1]


@caught_by("check_labels")
class LabelOfManyStructures(OneOf):
    def solve_map(self, eta_u, eta_v):
        self.best = super().solve_map(eta_u, eta_v)
        return "the best"

    def vertex(self, y):
        return super().vertex(self.best)


@caught_by("check_labels")
class LabelsNeverEqual(OneOf):
    def solve_map(self, eta_u, eta_v):
        self.calls = getattr(self, "calls", 0) + 1
        return super().solve_map(eta_u, eta_v), self.calls

    def vertex(self, y):
        return super().vertex(y[0])


@caught_by("check_decode")
class DecodesToArrays(OneOf):
    def decode(self, variables, additionals):
        return {"on": np.flatnonzero(variables)}


@caught_by("check_unused")
class MarksAllAsUnused(OneOf):
    def unused(self):
        return np.ones(self.variables.shape, dtype=bool), None


@caught_by("check_unused")
class UnusedOfAnotherShape(OneOf):
    def unused(self):
        return None, np.zeros(self.n_additionals, dtype=bool)
