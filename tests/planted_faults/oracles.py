"""Faults of MAP oracles: structures that are not the best, and results that are not repeatable."""

from __future__ import annotations

import time

import numpy as np
from array_api_compat import array_namespace

from lpsmap_core import TensorOracle
from planted_faults.registry import caught_by
from sound_types import Allowed, ClosedKernel, OneOf, OnTensors, best_slots


@caught_by("check_map_is_best")
class SecondBest(OneOf):
    def solve_map(self, eta_u, eta_v):
        return int(np.argsort(eta_u)[-2:][0])


@caught_by("check_map_is_best")
class ForgetsAdditionals(OneOf):
    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))


@caught_by("check_map_is_best")
class LowestForHighest(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(-eta_u, -eta_v)


@caught_by("check_linear")
class AddsAPreference(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(eta_u + 1e-5 * np.arange(len(eta_u)), eta_v)


@caught_by("check_linear")
class Rounds(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(np.round(eta_u, 5), eta_v)


@caught_by("check_ties")
class AllOfTheTied(OneOf):
    def solve_map(self, eta_u, eta_v):
        return tuple(np.flatnonzero(eta_u == eta_u.max()).tolist())

    def vertex(self, y):
        return np.isin(np.arange(self.event_shape[0]), y), np.zeros(self.n_additionals)


@caught_by("check_ties")
class NoneOfTheTied(OneOf):
    def solve_map(self, eta_u, eta_v):
        flat = len(eta_u) > 1 and np.ptp(eta_u) == 0
        return -1 if flat else super().solve_map(eta_u, eta_v)

    def vertex(self, y):
        m, n = super().vertex(max(y, 0))
        return m * (y >= 0), n * (y >= 0)


@caught_by("check_tensor_oracle")
class LowestForHighestOnTensors(OnTensors):
    def tensor_oracle(self):
        (arities,) = super().tensor_oracle().tables
        return TensorOracle(lambda eta_u, *given: best_slots(-eta_u, *given), (arities,))


@caught_by("check_tensor_oracle")
class IgnoresLengths(OnTensors):
    def tensor_oracle(self):
        return TensorOracle(best_slots, (np.full(self.n_factors, self.event_shape[0]),))


@caught_by("check_tensor_oracle")
class OnlyForNumPy(OneOf):
    def tensor_oracle(self):
        return TensorOracle(lambda eta_u, eta_v: np.argmax(eta_u, axis=1, keepdims=True))


@caught_by("check_tensor_oracle")
class SharesEmptyParts(OnTensors):
    """Even slots are in the first part, odd ones in the last, with an empty part between them."""

    def tensor_oracle(self):
        (arities,) = super().tensor_oracle().tables
        return TensorOracle(_in_three_parts, (arities,), n_parts=3)


def _in_three_parts(eta_u, eta_v, arities):
    xp, entries = array_namespace(eta_u), best_slots(eta_u, eta_v, arities)
    is_even, empty = entries[:, :1] % 2 == 0, xp.full_like(entries, -1)
    return xp.concat(
        [xp.where(is_even, entries, -1), empty, xp.where(is_even, -1, entries)], axis=1
    )


@caught_by("check_forbidden")
class IgnoresHugeScores(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(np.where(eta_u < -2e5, 0.0, eta_u), eta_v)


@caught_by("check_determinism")
class RandomAnswers(OneOf):
    def solve_map(self, eta_u, eta_v):
        return int(np.random.default_rng().integers(len(eta_u)))


@caught_by("check_hidden_state")
class FirstAnswerForEver(OneOf):
    def solve_map(self, eta_u, eta_v):
        if not hasattr(self, "first"):
            self.first = super().solve_map(eta_u, eta_v)
        return self.first


@caught_by("check_hidden_state")
class ScoresOfOtherCalls(OneOf):
    total = 0.0

    def solve_map(self, eta_u, eta_v):
        self.total = self.total + eta_u
        return super().solve_map(self.total, eta_v)


@caught_by("check_inputs_unchanged")
class WritesIntoScores(OneOf):
    def solve_map(self, eta_u, eta_v):
        eta_u[0] += eta_v.sum()
        best = int(np.argmax(eta_u))
        eta_u[best] = -np.inf
        return best


@caught_by("check_inputs_unchanged")
class ClosedFormWritesIntoScores(ClosedKernel):
    @staticmethod
    def projection_kernel(rows, factors, scores, solution):
        ClosedKernel.projection_kernel(rows, factors, scores, solution)
        scores.a[factors.offsets[0]] += 1.0


@caught_by("check_inputs_unchanged")
class WritesIntoIntegers(Allowed):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Allowed.map_kernel(rows, factors, scores, structures)
        factors.integers[0] = 1 - factors.integers[0]


@caught_by("check_immutable")
class CountsItsCalls(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.calls = np.zeros(1)

    def solve_map(self, eta_u, eta_v):
        self.calls += 1
        return super().solve_map(eta_u, eta_v)


@caught_by("check_threads")
class SharedScratch(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.scratch = np.zeros(4)

    def solve_map(self, eta_u, eta_v):
        scores = self.scratch[: len(eta_u)]
        scores[:] = eta_u
        time.sleep(0)
        return super().solve_map(scores, eta_v)


@caught_by("check_pickling")
class HoldsALambda(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.best = lambda scores: int(np.argmax(scores))


@caught_by("check_pickling")
class DependsOnIdentity(OneOf):
    keys = []

    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.key = object()
        self.keys.append(self.key)

    def solve_map(self, eta_u, eta_v):
        sign = 1.0 if self.key in self.keys else -1.0
        return super().solve_map(sign * eta_u, eta_v)
