"""Faulty factor types, by the check of the conformance kit that has to catch them."""

from __future__ import annotations

import time

import numpy as np

from lpsmap_core import LOWER, Factor, FactorGraph
from lpsmap_core.model.sums import bounded_sums, one_of_each_group
from lpsmap_factors_logic import AtMostOne, Pair
from sound_types import Allowed, Block, Closed, ClosedKernel, Compiled, OneOf

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


@caught_by("check_parameters")
class MisspeltAxes(OneOf):
    variable_ndim = 1


@caught_by("check_parameters")
class KeptUnderAnotherName(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.rate = self.per_factor("fee", 0.0)


@caught_by("check_parameters")
class RegistersNowAndThen(OneOf):
    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, additionals, lengths=lengths, prize=prize)
        if lengths is not None:
            self.fee = self.per_factor("fee", 0.0)


class EarlierParameters(OneOf):
    row_parameters = ("prize",)


@caught_by("check_parameters")
class MisspeltLengths(OneOf):
    lenght_axes = (0,)


@caught_by("check_parameters")
class HidesUnused(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.unused = np.zeros(3)


@caught_by("check_parameters")
class HidesCounts(OneOf):
    counts = 0


@caught_by("check_parameters")
class ReplacesKeep(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.keep = 0.5


@caught_by("check_parameters")
class ReplacesOffsets(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.offsets = np.zeros(7)


class EarlierCounts(OneOf):
    @staticmethod
    def count_bounds(factors):
        return 1.0, 1.0


class EarlierChain(OneOf):
    chain_states = "n_states"


@caught_by("check_indices")
class KernelFarBeyondItsArrays(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Compiled.map_kernel(rows, factors, scores, structures)
        structures.entry[structures.start[rows[0]] + 10**9] = 0


@caught_by("check_indices")
class ClosedFormFarBeyondItsArrays(ClosedKernel):
    @staticmethod
    def projection_kernel(rows, factors, scores, solution):
        ClosedKernel.projection_kernel(rows, factors, scores, solution)
        solution.z[factors.offsets[rows[-1]] + 10**9] = 0.0


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


# linear constraints


@caught_by("check_linear_constraints")
class ConstraintsOfOthers(OneOf):
    def linear_constraints(self):
        return bounded_sums(self, 0.0, 1.0)


@caught_by("check_linear_constraints")
class ConstraintsOfMore(AtMostOne):
    def linear_constraints(self):
        return bounded_sums(self, 1.0, 1.0)


@caught_by("check_linear_constraints")
class FractionsOfMore(AtMostOne):
    def linear_constraints(self):
        return bounded_sums(self, 0.0, 1.5)


@caught_by("check_linear_constraints")
class NothingFits(AtMostOne):
    def linear_constraints(self):
        return bounded_sums(self, 9.0, 9.0)


@caught_by("check_necessary_constraints")
class EverySlotIsOn(OneOf):
    def necessary_constraints(self):
        return one_of_each_group(self, 1)


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
class KernelOfNoNumbers(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Compiled.map_kernel(rows, factors, scores, structures)
        structures.value[structures.start[rows]] = np.nan


@caught_by("check_map_kernel")
class KernelWritesIntoItsScores(Compiled):
    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        Compiled.map_kernel(rows, factors, scores, structures)
        scores.eta_u[factors.offsets[rows]] = 0.0


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


@caught_by("check_lengths")
class ReadsItsArgument(Block):
    def __init__(self, variables, *, lengths=None):
        super().__init__(variables, lengths=lengths)
        self.n_columns = np.asarray(lengths)[:, 1] + 0.0


@caught_by("check_lengths")
class TakesTheLastOfTheArgument(Block):
    def __init__(self, variables, *, lengths=None):
        super().__init__(variables, lengths=lengths)
        self.n_columns = np.ravel(lengths)[-self.n_factors :] + 0.0


@caught_by("check_lists")
class NeedsAnArray(OneOf):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3)), prize=np.array([1.0, 2.0]))]

    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, prize=prize.mean() if np.ndim(prize) else prize)


@caught_by("check_lengths")
class DropsLengths(OneOf):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 4)), lengths=[4, 1, 2])]

    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, additionals, prize=prize)


@caught_by("check_lengths")
class DropsLengthsThatNoExampleHas(DropsLengths):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 4)))]


@caught_by("check_row_alone")
class BonusOfTheFirstRow(OneOf):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 4)), bonus=np.array([0.0, 5.0, -5.0]))]

    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0, bonus=0.0):
        super().__init__(variables, additionals, lengths=lengths, prize=prize)
        self.bonus = np.broadcast_to(bonus, self.batch_shape).reshape(-1)

    def solve_map(self, eta_u, eta_v):
        return super().solve_map(eta_u if self.bonus[0] == 0.0 else -eta_u, eta_v)


@caught_by("check_integers")
class SameIntegersInAllExamples(Allowed):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 4)), np.array([0, 2]))]


@caught_by("check_integers")
class IntegersOfTheFirstDeclaration(Allowed):
    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u, np.array([0, 2])), cls(u, np.array([1, 3]))]

    @staticmethod
    def map_kernel(rows, factors, *records):
        first = np.zeros_like(factors.integer_ranges) + factors.integer_ranges[0]
        Allowed.map_kernel(rows, factors._replace(integer_ranges=first), *records)


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
