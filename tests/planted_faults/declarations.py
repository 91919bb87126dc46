"""Faults of parameters and declarations, and faults in graphs."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factor, FactorGraph
from planted_faults.oracles import AllOfTheTied
from planted_faults.registry import caught_by
from sound_types import Allowed, Block, Closed, OneOf


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
class StoredUnderAnotherName(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.rate = self.per_factor("fee", 0.0)


@caught_by("check_parameters")
class RegistersOnlyWithLengths(OneOf):
    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, additionals, lengths=lengths, prize=prize)
        if lengths is not None:
            self.fee = self.per_factor("fee", 0.0)


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


class Masked(OneOf):
    """One of the variables that a mask selects is on."""

    def __init__(self, variables, *, lengths=None, mask=None):
        Factor.__init__(self, variables, lengths=lengths, mask=mask)
        self.prize = self.per_factor("prize", 0.0)

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((2, 3))
        return [cls(u), cls(u, mask=[True, True, False]), cls(u, lengths=[3, 2])]


@caught_by("check_lengths")
class DropsMask(Masked):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3)), mask=[True, True, False])]

    def __init__(self, variables, *, lengths=None, mask=None):
        super().__init__(variables, lengths=lengths)


@caught_by("check_lengths")
class DropsMaskThatNoExampleHas(DropsMask):
    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3)))]


@caught_by("check_lengths")
class DropsMaskBesideLengths(DropsMask):
    @classmethod
    def examples(cls):
        u = FactorGraph().variable((2, 3))
        return [cls(u, lengths=[3, 2], mask=[True, True, False])]


@caught_by("check_shapes")
class ArrayOfAllRows(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.bonus = np.zeros(self.n_factors)

    def solve_map(self, eta_u, eta_v):
        return super().solve_map(eta_u + self.bonus, eta_v)

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 4)))]


@caught_by("check_indices")
class TableOfAllRows(OneOf):
    def __init__(self, variables, *args, **options):
        super().__init__(variables, *args, **options)
        self.bonus = np.zeros(self.variables.shape) + np.arange(self.n_factors)[:, None]

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u + self.bonus))

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
class RightUpToFourVariables(OneOf):
    def solve_map(self, eta_u, eta_v):
        return super().solve_map(eta_u if len(eta_u) <= 4 else -eta_u, eta_v)


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
