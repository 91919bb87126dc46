"""Faults of compiled oracles and of linear constraints."""

from __future__ import annotations

import numpy as np

from lpsmap_core import FactorGraph
from lpsmap_core.model.linear_constraints import LinearConstraints, bounded_sums
from lpsmap_dynamic import one_of_each_group
from lpsmap_factors_logic import AtMostOne
from planted_faults.registry import caught_by
from sound_types import Allowed, ClosedKernel, Compiled, OneOf


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


@caught_by("check_linear_constraints")
class ConstraintsInAList(AtMostOne):
    def linear_constraints(self):
        return [bounded_sums(self, 0.0, 1.0)]


@caught_by("check_linear_constraints")
class ColumnsWithoutASlot(AtMostOne):
    def linear_constraints(self):
        return LinearConstraints([0], [int(self.offsets[-1])], 1.0, 0.0, 1.0)


@caught_by("check_linear_constraints")
class EntriesWithoutAColumn(AtMostOne):
    def linear_constraints(self):
        return LinearConstraints([0, 0], [0], 1.0, 0.0, 1.0)


@caught_by("check_necessary_constraints")
class EverySlotIsOn(OneOf):
    def necessary_constraints(self):
        return one_of_each_group(self, 1)


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
class KernelOfTheFirstParameters(OneOf):
    """Whether the first or the last variable is on, as a parameter says."""

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((3, 4)), prize=[0.0, 1.0, 0.0])]

    def solve_map(self, eta_u, eta_v):
        return len(eta_u) - 1 if self.prize else 0

    @staticmethod
    def map_kernel(rows, factors, scores, structures):
        for r in rows:
            last = factors.offsets[r + 1] - factors.offsets[r] - 1
            at = structures.start[r]
            structures.entry[at] = last if factors.parameters[0, 0] else 0
            structures.value[at], structures.size[r] = 1.0, 1


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
