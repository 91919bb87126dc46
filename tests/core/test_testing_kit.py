"""The conformance kit: sound factors pass, and every planted fault is caught by a named check."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from array_api_compat import array_namespace

from lpsmap_core import FREE, LOWER, Factor, FactorGraph, LocalSolution
from lpsmap_core.testing import (
    ConformanceError,
    check_factor,
    checks_of,
    parametrize_with_checks,
    run_checks,
)
from lpsmap_factors_logic import Knapsack, Pair

# -------------------------------------------------------------------- sound factors of every level


class OneOf(Factor):
    """Exactly one variable is on; an additional, if there is one, says whether it is the first."""

    row_parameters = ("prize",)

    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, additionals, lengths=lengths)
        self.prize = self.per_factor("prize", prize)

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u), cls(u, np.zeros((3, 1)), lengths=[4, 1, 2])]

    def solve_map(self, eta_u, eta_v):
        scores = eta_u.copy()
        scores[0] += eta_v.sum()
        return int(np.argmax(scores))

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], np.full(self.n_additionals, float(y == 0))


class Compiled(OneOf):
    """The same with an oracle for many rows; the rules are the same for one that is compiled."""

    def map_kernel(rows, factors, scores, structures):
        offsets, extra = factors.offsets, factors.additional_offsets
        start, entry, value, size = structures
        for r in rows:
            eta_u = scores.eta_u[offsets[r] : offsets[r + 1]].copy()
            eta_u[0] += scores.eta_v[extra[r] : extra[r + 1]].sum()
            best, n = int(np.argmax(eta_u)), len(eta_u)
            size[r] = 2 if best == 0 and extra[r + 1] > extra[r] else 1
            entry[start[r] : start[r] + size[r]] = (best, n)[: size[r]]
            value[start[r] : start[r] + size[r]] = 1.0

    map_kernel = staticmethod(map_kernel)

    @classmethod
    def vertex_sizes(cls, factors):
        return np.minimum(np.diff(factors.additional_offsets), 1) + 1


class Allowed(Factor):
    """One of some variables is on, which the declaration names: for all factors, or for each."""

    integer_parameter = "allowed"

    def __init__(self, variables, allowed):
        super().__init__(variables)
        several = np.ndim(allowed[0]) == 1
        self.allowed = self.integers("allowed", allowed, per_factor=several)

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u, np.array([0, 2])), cls(u, [[1], [0, 2, 3], [3, 1]])]

    def solve_map(self, eta_u, eta_v):
        return int(self.allowed[np.argmax(eta_u[self.allowed])])

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], []

    def map_kernel(rows, factors, scores, structures):
        for r in rows:
            begin, end = factors.integer_ranges[r]
            first, best = factors.offsets[r], factors.integers[begin]
            for k in factors.integers[begin:end]:
                best = k if scores.eta_u[first + k] > scores.eta_u[first + best] else best
            at = structures.start[r]
            structures.entry[at], structures.value[at], structures.size[r] = best, 1.0, 1

    map_kernel = staticmethod(map_kernel)


class Closed(OneOf):
    """The same without additionals, in closed form: ``z = max(a - tau delta, 0)``."""

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u), cls(u, lengths=[4, 1, 2])]

    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, parameters, link_parameter):
        xp = array_namespace(a)
        order = xp.argsort(-a / delta, axis=1)
        x, d = (xp.take_along_axis(numbers, order, axis=1) for numbers in (a, delta))
        tau = (xp.cumulative_sum(d * x, axis=1) - 1) / xp.cumulative_sum(d * d, axis=1)
        support = xp.sum(xp.astype(x > tau * d, xp.int64), axis=1, keepdims=True)
        z = xp.clip(a - xp.take_along_axis(tau, support - 1, axis=1) * delta, min=0.0)
        face = LOWER * xp.astype(z == 0, xp.int8)
        return LocalSolution(z, eta_v, face, 0 * face[:, 0])

    @classmethod
    def jvp(cls, solution, d_u, d_v, delta, parameters, link_parameter):
        xp = array_namespace(d_u)
        free = solution.face == FREE
        w, d = xp.where(free, delta, 0.0), xp.where(free, d_u, 0.0)
        along = xp.sum(w * d, axis=1, keepdims=True) / xp.sum(w * w, axis=1, keepdims=True)
        return d - w * along, d_v


class ClosedKernel(Closed):
    """The same as kernels on flat arrays."""

    def projection_kernel(rows, factors, scores, solution):
        a, delta, eta_v = scores
        for r in rows:
            s = slice(factors.offsets[r], factors.offsets[r + 1])
            found = Closed.solve_sparsemap(a[None, s], eta_v[:0], delta[None, s], None, None)
            solution.z[s], solution.face[s] = found.z[0], found.face[0]

    def jvp_kernel(rows, factors, direction, product):
        delta, face, _, d_u, d_v = direction
        for r in rows:
            s = slice(factors.offsets[r], factors.offsets[r + 1])
            found = LocalSolution(None, None, face[None, s], None)
            out = Closed.jvp(found, d_u[None, s], d_v, delta[None, s], None, None)
            product.out_u[s] = out[0][0]

    projection_kernel = staticmethod(projection_kernel)
    jvp_kernel = staticmethod(jvp_kernel)


LEVELS = (OneOf, Compiled, Allowed, Closed, ClosedKernel)
SOUND = [factor for cls in LEVELS for factor in cls.examples()]


@parametrize_with_checks(SOUND)
def test_sound_factors_pass(factor, check):
    check(factor)


# -------------------------------------------------------------------- planted faults

FAULTS: dict[str, list[type[Factor]]] = {}
"""For every check the faulty types that it has to catch."""


def caught_by(check):
    """Register a faulty factor type."""

    def register(cls):
        FAULTS.setdefault(check, []).append(cls)
        return cls

    return register


# what a structure is


@caught_by("check_parameters")
class ParameterOfAnotherShape(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.prize = np.zeros(self.n_factors + 1)


@caught_by("check_parameters")
class InfiniteParameter(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.prize = np.full(self.n_factors, np.inf)


@caught_by("check_parameters")
class IntegersAsFloats(Allowed):
    def __init__(self, variables, allowed):
        super().__init__(variables, allowed)
        self.allowed = np.array([0.0, 2.0])


@caught_by("check_parameters")
class IntegersOfTooFew(Allowed):
    def __init__(self, variables, allowed):
        super().__init__(variables, allowed)
        self.allowed = (np.array([1]),) * (self.n_factors - 1)


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
class CallsAllUnused(OneOf):
    def unused(self):
        return np.ones(self.variables.shape, dtype=bool), None


@caught_by("check_unused")
class UnusedOfAnotherShape(OneOf):
    def unused(self):
        return None, np.zeros(self.n_additionals, dtype=bool)


# the best structure


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
class PreferenceOfItsOwn(OneOf):
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


@caught_by("check_forbidden")
class TakesHugeScoresForNone(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(np.where(eta_u < -2e5, 0.0, eta_u), eta_v)


# the same question, the same answer


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
class KnownByAnObject(OneOf):
    known = []

    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.key = object()
        self.known.append(self.key)

    def solve_map(self, eta_u, eta_v):
        sign = 1.0 if self.key in self.known else -1.0
        return super().solve_map(sign * eta_u, eta_v)


# compiled oracles


@caught_by("check_vertex_sizes")
class RoomForNone(Compiled):
    @classmethod
    def vertex_sizes(cls, factors):
        return np.zeros(len(factors.offsets) - 1, dtype=np.int64)


@caught_by("check_vertex_sizes")
class SizesAreFloats(Compiled):
    @classmethod
    def vertex_sizes(cls, factors):
        return np.full(len(factors.offsets) - 1, 2.0)


@caught_by("check_map_kernel")
class KernelForAllRows(Compiled):
    @staticmethod
    def map_kernel(rows, factors, *records):
        Compiled.map_kernel(np.arange(len(factors.offsets) - 1), factors, *records)


@caught_by("check_map_kernel")
class KernelOfTheNextRow(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        others = scores._replace(eta_u=np.roll(scores.eta_u, 1))
        Compiled.map_kernel(rows, factors, others, structures)


@caught_by("check_map_kernel")
class KernelOfTheFirstIntegers(Allowed):
    @staticmethod
    def map_kernel(rows, factors, *records):
        first = np.zeros_like(factors.integer_ranges) + factors.integer_ranges[0]
        Allowed.map_kernel(rows, factors._replace(integer_ranges=first), *records)


@caught_by("check_map_kernel")
class KernelWritesTooMuch(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Compiled.map_kernel(rows, factors, scores, structures)
        start, entry, value, _ = structures
        for r in rows:
            entry[start[r] : start[r] + 4], value[start[r] : start[r] + 4] = range(4), 0.0


@caught_by("check_map_kernel")
class KernelCountsFromTheBucketsStart(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Compiled.map_kernel(rows, factors, scores, structures)
        for r in rows:
            structures.entry[structures.start[r]] += factors.offsets[r]


@caught_by("check_map_kernel")
class KernelOfAnotherPolytope(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Compiled.map_kernel(rows, factors, scores, structures)
        for r in rows:
            if scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]].max() < 0:
                structures.size[r] = 0


# solutions


@caught_by("check_certificate")
class IgnoresDegrees(Closed):
    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, *others):
        return super().solve_sparsemap(a, eta_v, np.ones_like(delta), *others)


@caught_by("check_certificate")
class OutsideThePolytope(Closed):
    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, *others):
        solution = super().solve_sparsemap(a, eta_v, delta, *others)
        return solution._replace(z=np.clip(a, 0.0, 1.0 / delta))


@caught_by("check_override_is_generic")
class AtMostOneOf(Closed):
    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, *others):
        solution = super().solve_sparsemap(a, eta_v, delta, *others)
        box = np.clip(a, 0.0, None)
        return solution._replace(
            z=np.where((box * delta).sum(axis=1, keepdims=True) < 1, box, solution.z)
        )


@caught_by("check_override_is_complete")
class WithoutDerivative(ClosedKernel):
    jvp_kernel = None


@caught_by("check_faces")
class NearlyZero(Closed):
    @classmethod
    def solve_sparsemap(cls, *problem):
        solution = super().solve_sparsemap(*problem)
        return solution._replace(z=np.maximum(solution.z, 1e-14))


@caught_by("check_faces")
class BoundsThatMove(Closed):
    @classmethod
    def jvp(cls, solution, d_u, *others):
        out_u, out_v = super().jvp(solution, d_u, *others)
        return np.where(solution.face == LOWER, 1e-8 * d_u, out_u), out_v


@caught_by("check_rows")
class SolvesAllRows(ClosedKernel):
    @staticmethod
    def projection_kernel(rows, factors, *records):
        ClosedKernel.projection_kernel(np.arange(len(factors.offsets) - 1), factors, *records)


@caught_by("check_rows")
class DifferentiatesAllRows(ClosedKernel):
    @staticmethod
    def jvp_kernel(rows, factors, *records):
        ClosedKernel.jvp_kernel(np.arange(len(factors.offsets) - 1), factors, *records)


@caught_by("check_batching")
class LooksAtBatchMates(Closed):
    @classmethod
    def solve_sparsemap(cls, a, *others):
        return super().solve_sparsemap(a - a.mean(), *others)


@caught_by("check_warm_start")
class KeepsItsFirstFace(ClosedKernel):
    @staticmethod
    def projection_kernel(rows, factors, scores, solution):
        z, _, face, branch = solution
        old = face.copy()
        ClosedKernel.projection_kernel(rows, factors, scores, solution)
        for r in rows:
            s = slice(factors.offsets[r], factors.offsets[r + 1])
            if branch[r]:
                z[s][old[s] == LOWER] = 0.0
            branch[r] = 1


@caught_by("check_devices")
class AnswersInNumpy(Closed):
    @classmethod
    def solve_sparsemap(cls, *problem):
        solution = super().solve_sparsemap(*problem)
        return solution._replace(z=np.asarray(solution.z))


@caught_by("check_devices")
class AsksForCopies(Closed):
    @classmethod
    def jvp(cls, solution, d_u, *others):
        return super().jvp(solution, d_u.copy(), *others)


# derivatives


@caught_by("check_jvp")
class IdentityForJacobian(Closed):
    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        return d_u, d_v


@caught_by("check_jvp")
class JacobianWithoutDegrees(Closed):
    @classmethod
    def jvp(cls, solution, d_u, d_v, delta, *others):
        return super().jvp(solution, d_u, d_v, np.ones_like(delta), *others)


@caught_by("check_jvp")
class JacobianWithoutAdditionals(Pair):
    projection_kernel = jvp_kernel = None

    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        out_u, out_v = super().jvp(solution, d_u, 0.0 * d_v, *others)
        return out_u, 0.0 * out_v


@caught_by("check_jvp_is_symmetric")
class JacobianOfScoresOnly(Pair):
    projection_kernel = jvp_kernel = None

    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        return super().jvp(solution, d_u, 0.0 * d_v, *others)


@caught_by("check_jvp_is_symmetric")
class SkewJacobian(Closed):
    @classmethod
    def jvp(cls, solution, d_u, d_v, *others):
        return super().jvp(solution, np.roll(d_u, 1, axis=1), d_v, *others)


@caught_by("check_jvp_is_projection")
class TwiceTheJacobian(Closed):
    @classmethod
    def jvp(cls, *arguments):
        out_u, out_v = super().jvp(*arguments)
        return 2.0 * out_u, out_v


# declared otherwise


class Block(Factor):
    """One entry of a matrix is on, of the first rows and columns."""

    variables_ndim = 2
    row_parameters = ("n_columns",)

    def __init__(self, variables, *, lengths=None):
        super().__init__(variables, lengths=lengths)
        columns = self.event_shape[1] if self.lengths is None else self.lengths[:, 1]
        self.n_columns = self.per_factor("n_columns", np.reshape(columns, (-1,)))

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3, 3)), lengths=np.array([[3, 2], [1, 2]]))]

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))

    def vertex(self, y):
        m = np.zeros(self.event_shape)
        m.flat[y] = 1.0
        return m, []


@caught_by("check_lengths")
class ReadsItsArgument(Block):
    def __init__(self, variables, *, lengths=None):
        super().__init__(variables, lengths=lengths)
        self.n_columns = self.per_factor("n_columns", np.asarray(lengths)[:, 1])


@caught_by("check_lengths")
class TakesTheLastOfTheArgument(Block):
    def __init__(self, variables, *, lengths=None):
        super().__init__(variables, lengths=lengths)
        self.n_columns = self.per_factor("n_columns", np.ravel(lengths)[-self.n_factors :] + 0.0)


@caught_by("check_lists")
class NeedsAnArray(OneOf):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3)), prize=np.array([1.0, 2.0]))]

    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, prize=prize.mean() if np.ndim(prize) else prize)


@caught_by("check_larger")
class KnowsFourAtMost(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(eta_u if len(eta_u) <= 4 else -eta_u, eta_v)


# in graphs


@caught_by("check_negation")
class NegatesAgain(OneOf):
    def solve_map(self, eta_u, eta_v):
        negated = self.variables.negated.any()
        return super().solve_map(-eta_u if negated else eta_u, eta_v)


@caught_by("check_negation")
class BothOfTheTiedUnderNegation(AllOfTheTied):
    def solve_map(self, eta_u, eta_v):
        tied = super().solve_map(eta_u, eta_v)
        return tied if self.variables.negated.any() else tied[:1]


@caught_by("check_forbidden_scores")
class ForgetsTheMask(Closed):
    @classmethod
    def solve_sparsemap(cls, a, *others):
        return super().solve_sparsemap(np.where(a < -1e4, 0.0, a), *others)


@caught_by("check_sharp_scores")
class DampsLargeScores(Closed):
    @classmethod
    def solve_sparsemap(cls, a, *others):
        return super().solve_sparsemap(np.clip(a, -1e4, 1e4), *others)


@caught_by("check_distribution")
class SolutionWithoutStructures(Closed):
    @classmethod
    def solve_sparsemap(cls, *problem):
        solution = super().solve_sparsemap(*problem)
        return solution._replace(z=0.5 * solution.z)


@pytest.mark.parametrize(
    ("check", "cls"),
    [pytest.param(check, cls, id=cls.__name__) for check in FAULTS for cls in FAULTS[check]],
)
def test_planted_faults_are_caught_by_the_named_check(check, cls):
    errors = {}
    if check == "check_devices":
        pytest.importorskip("torch")
    for factor in cls.examples():
        function = {c.__name__: c for c in checks_of(factor)}[check]
        try:
            function(factor)
        except ConformanceError as error:
            errors[factor] = str(error)
    assert errors, f"{check} passes {cls.__name__}"
    for message in errors.values():
        assert "Rule: " in message
        assert "because" in message
        assert "Got: " in message
        assert "Expected: " in message


def test_there_is_a_planted_fault_for_every_check():
    known = {check.__name__ for factor in SOUND for check in checks_of(factor)}
    assert set(FAULTS) == known
    assert sum(map(len, FAULTS.values())) >= 25


# -------------------------------------------------------------------- running the checks

ARRAYS = {"check_decode": "arrays are what it is about"}


def failing(factor, **options):
    return {result.check for result in run_checks(factor, **options) if not result.ok}


def test_one_error_names_every_failing_check():
    factor = DecodesToArrays.examples()[0]
    with pytest.raises(ConformanceError) as caught:
        check_factor(factor)
    assert str(caught.value).startswith(
        "DecodesToArrays(3 factors over variables of shape (3, 4)) fails 1 of the checks:\n\n"
        "check_decode\nRule: decode returns a dictionary of plain Python numbers and lists, because"
    )
    assert failing(TwiceTheJacobian.examples()[0]) == {"check_jvp", "check_jvp_is_projection"}


def test_an_authors_own_error_is_a_failure_of_the_check_that_met_it():
    class Stuck(OneOf):
        def decode(self, variables, additionals):
            raise RuntimeError("out of words")

    with pytest.raises(ConformanceError, match="check_decode\nRuntimeError: out of words"):
        check_factor(Stuck.examples()[0])


def test_nothing_runs_after_a_kernel_that_writes_beyond_its_room():
    results = list(run_checks(KernelWritesTooMuch.examples()[0]))
    assert results[-1].check == "check_map_kernel"
    assert not results[-1].ok


@parametrize_with_checks(Block.examples())
def test_a_type_of_two_axes_passes(factor, check):
    check(factor)


def test_declaring_again_leaves_the_type_as_it_was():
    for cls in (OneOf, NegatesAgain):
        before = dict(vars(cls))
        for name in ("check_lengths", "check_lists", "check_larger"):
            (check,) = (c for c in checks_of(cls.examples()[0]) if c.__name__ == name)
            check(cls.examples()[0])
        now = dict(vars(cls))
        now.pop("__slotnames__", None)  # what copying notes down
        before.pop("__slotnames__", None)
        assert now == before


def test_draws_and_seed():
    asked = []

    class Asked(OneOf):
        def solve_map(self, eta_u, eta_v):
            asked.append(eta_u.copy())
            return super().solve_map(eta_u, eta_v)

    factor = Asked(FactorGraph().variable(4))
    (check,) = (c for c in checks_of(factor) if c.__name__ == "check_shapes")
    scores = []
    for options in ({}, {}, {"seed": 1}, {"draws": 100}):
        asked.clear()
        check(factor, **options)
        scores.append(np.array(asked))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()
    assert len(scores[3]) == 100


class KnownToDecodeToArrays(DecodesToArrays):
    expected_failures = ARRAYS


def test_expected_failures_of_the_caller_and_of_the_type():
    for factor, more in (
        (DecodesToArrays.examples()[0], ARRAYS),
        (KnownToDecodeToArrays.examples()[0], None),
    ):
        assert failing(factor, expected_failures=more) == set()
        check_factor(factor, expected_failures=more)


def test_an_expected_failure_that_passes_is_an_error():
    with pytest.raises(ConformanceError, match="passes, though it was expected to fail: arrays"):
        check_factor(OneOf.examples()[0], expected_failures=ARRAYS)


@pytest.mark.parametrize("run", [check_factor, lambda f, **kw: parametrize_with_checks([f], **kw)])
def test_expected_failures_need_a_known_name_and_a_reason(run):
    factor = OneOf.examples()[0]
    for reason in ("", "  ", None):
        with pytest.raises(ValueError, match=r"'check_ties' has the reason .* expected words"):
            run(factor, expected_failures={"check_ties": reason})
    with pytest.raises(ValueError, match="check_tie.*expected .*check_ties"):
        run(factor, expected_failures={"check_tie": "a slip"})


def test_a_test_for_every_instance_and_check():
    mark = parametrize_with_checks([*Halves.examples(), OneOf.examples()[0]], ARRAYS).mark
    names, parameters = mark.args
    assert names == ("factor", "check")
    by_id = {parameter.id: parameter for parameter in parameters}
    assert len(by_id) == len(parameters)
    assert {"Halves-0-check_decode", "Halves-1-check_ties", "OneOf-0-check_linear"} <= set(by_id)
    marked = {name for name, parameter in by_id.items() if parameter.marks}
    assert marked == {f"{name}-check_decode" for name in ("Halves-0", "Halves-1", "OneOf-0")}
    (xfail,) = by_id["Halves-0-check_decode"].marks
    assert xfail.name == "xfail"
    assert xfail.kwargs == {"reason": ARRAYS["check_decode"], "strict": True}


def test_parametrisation_refuses_what_is_no_instance():
    with pytest.raises(ValueError, match="instances: got none"):
        parametrize_with_checks([])
    with pytest.raises(TypeError, match="expected a declared factor"):
        parametrize_with_checks([OneOf])
    with pytest.raises(ValueError, match="holds no factor"):
        check_factor(OneOf(FactorGraph().variable((0, 3))))


def test_pytest_is_imported_only_to_parametrise():
    program = "import lpsmap_core.testing, sys; raise SystemExit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


# -------------------------------------------------------------------- its page in the docs

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "conformance.md"


def test_the_docs_name_every_check():
    named = re.findall(r"^\| `(check_\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    known = {check.__name__: check for factor in SOUND for check in checks_of(factor)}
    assert sorted(named) == sorted(known)
    assert all(check.__doc__ for check in known.values())


def test_the_docs_quote_an_expected_failure():
    assert str(Knapsack.expected_failures).replace("'", '"') in PAGE.read_text()
