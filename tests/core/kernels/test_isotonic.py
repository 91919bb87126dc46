"""Isotonic regression: slots that move in several groups, as `docs/how-to/kernels.md` has it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lpsmap import FactorGraph, Xor
from lpsmap_core import LOWER, TIED, UPPER, Factor, kernel, largest_arity, leaf
from lpsmap_core.testing import ConformanceError, parametrize_with_checks
from lpsmap_core.testing.local_jacobians import check_jvp

GROUPS = (TIED, TIED + 1)
"""Neighbouring groups have different codes, which is all that it takes to tell them apart."""


@kernel
def project_isotonic(rows, factors, scores, solution):
    """Pool adjacent violators, then clip: the means of the groups do not fall."""
    a, delta, _ = scores
    widest = largest_arity(rows, factors.offsets)
    begin = np.empty(widest + 1, dtype=np.int64)
    along, size, norm = np.empty(widest), np.empty(widest), np.empty(widest)
    for r in rows:
        count, last = 0, factors.offsets[r + 1]
        for i in range(factors.offsets[r], last):
            begin[count], norm[count] = i, 1.0 / (delta[i] * delta[i])
            along[count], size[count] = a[i] / delta[i], abs(a[i] / delta[i])
            while count > 0 and along[count] / norm[count] <= along[count - 1] / norm[count - 1]:
                along[count - 1] += along[count]
                size[count - 1] += size[count]
                norm[count - 1] += norm[count]
                count -= 1
            count += 1
        begin[count] = last
        for k in range(count):
            t, slack = along[k] / norm[k], 1e-14 * max(size[k] / norm[k], 1.0)
            code = GROUPS[k % 2]
            if t <= slack:
                t, code = 0.0, LOWER
            elif t >= 1.0 - slack:
                t, code = 1.0, UPPER
            for i in range(begin[k], begin[k + 1]):
                solution.z[i], solution.face[i] = t / delta[i], code
        solution.branch[r] = 0


@leaf
def multiply_isotonic(rows, factors, direction, product):
    """Move every group as one, by the mean of the vector."""
    delta, face, _, d_u, _ = direction
    for r in rows:
        begin, last = factors.offsets[r], factors.offsets[r + 1]
        while begin < last:
            end, along, norm = begin, 0.0, 0.0
            while end < last and face[end] == face[begin]:
                along += d_u[end] / delta[end]
                norm += 1.0 / (delta[end] * delta[end])
                end += 1
            moved = along / norm if face[begin] >= TIED else 0.0
            for i in range(begin, end):
                product.out_u[i] = moved / delta[i]
            begin = end


class Isotonic(Factor):
    """The variables of a row are off up to some place and on from there."""

    projection_kernel = staticmethod(project_isotonic)
    jvp_kernel = staticmethod(multiply_isotonic)

    def solve_map(self, eta_u, eta_v):
        return max(range(len(eta_u) + 1), key=lambda y: math.fsum(eta_u[y:]))

    def vertex(self, y):
        return np.arange(*self.event_shape) >= y, np.empty(0)

    @classmethod
    def examples(cls):
        graph = FactorGraph()
        return [cls(graph.variable(5)), cls(graph.variable((3, 6)), lengths=[6, 1, 4])]


@kernel
def project_with_one_code(rows, factors, scores, solution):
    """Do the same, but give all groups the code of one."""
    project_isotonic(rows, factors, scores, solution)
    for r in rows:
        for i in range(factors.offsets[r], factors.offsets[r + 1]):
            solution.face[i] = min(solution.face[i], TIED)


class OneGroup(Isotonic):
    """Its slots move in groups that its codes do not tell apart."""

    projection_kernel = staticmethod(project_with_one_code)


@parametrize_with_checks(Isotonic.examples())
def test_it_keeps_the_protocol(factor: Any, check: Any) -> None:
    check(factor)


def test_groups_that_share_a_code_are_found_by_the_kit() -> None:
    for factor in OneGroup.examples():
        with pytest.raises(ConformanceError, match="the derivative of"):
            check_jvp(factor)


def test_two_groups_by_hand() -> None:
    graph = FactorGraph()
    u = graph.variable_from([0.4, 0.2, 0.9, 0.5, 2.0])
    graph.add(Isotonic(u))
    solution = graph.solve()
    np.testing.assert_allclose(u.value, [0.3, 0.3, 0.7, 0.7, 1.0], rtol=0, atol=1e-15)
    gradient, _ = solution.vjp(np.array([1.0, 0.0, 0.0, 1.0, 1.0]))
    np.testing.assert_allclose(gradient, [0.5, 0.5, 0.5, 0.5, 0.0], rtol=0, atol=1e-15)


def marginals(scores: Any, negated: bool) -> tuple[Any, Any]:
    """Solve a table that rises along both axes, whose last column sums to one or is beside it."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Isotonic(u))
    graph.add(Isotonic(~u[::-1].T if negated else u.T))
    graph.add(Xor(u[:, 1]))
    solution = graph.solve(tol=1e-13, max_iter=100_000)
    assert solution.ok
    return u.value.reshape(-1), solution


@pytest.mark.parametrize("negated", [False, True])
def test_gradients_in_graphs_are_central_differences(negated: bool) -> None:
    groups = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        scores = rng.normal(0.4, 0.4, size=(4, 5)) + 0.1 * np.arange(5)
        _, solution = marginals(scores, negated)
        direction, weight = rng.normal(size=(2, *scores.shape))
        step = 1e-6
        ends = [marginals(scores + t * direction, negated)[0] for t in (-step, step)]
        slope = weight.reshape(-1) @ (ends[1] - ends[0]) / (2 * step)
        gradient, _ = solution.vjp(weight.reshape(-1))
        assert abs(gradient @ direction.reshape(-1) - slope) < 1e-6
        inside = np.round(solution.values[(solution.values > 0) & (solution.values < 1)], 9)
        groups = max(groups, len(np.unique(inside)))
    assert groups > 2, "no draw had several groups"
