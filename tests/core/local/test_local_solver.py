"""Local solvers of factor types, as `docs/how-to/local-solvers.md` has them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from environments import ROOT
from lpsmap_core import Factor, FactorGraph, LocalSolver
from lpsmap_core.api import ActiveSets, SolverDescription
from lpsmap_core.local.solvers import choose_solver, own_solver
from lpsmap_core.testing import ConformanceError, checks_of
from lpsmap_core.testing.buckets import LocalProblems, bucket_of
from lpsmap_core.testing.solutions import check_override_is_generic
from lpsmap_factors_logic import Xor
from pages import execute

with mock.patch("lpsmap_core.testing.check_factor"):  # test_docs runs the page's checks
    PAGE = execute(ROOT / "docs" / "how-to" / "local-solvers.md")
Prefix, Together = PAGE.Prefix, PAGE.Together
Pools = PAGE.Pools


def declared(factor_type: type[Factor], *shape: int) -> Factor:
    """A declaration whose graph is forgotten."""
    return factor_type(FactorGraph().variable(shape))


def both(scores: np.ndarray, factor_type: type[Factor]) -> tuple[FactorGraph, Any]:
    """A graph where factors of a type share variables with others."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(factor_type(u))
    graph.add(Xor(u[:2]))
    return graph, u


# -------------------------------------------------------------------- the choice


@pytest.mark.parametrize("factor_type", [Prefix, Together])
def test_the_kit_asks_a_types_own_solver(factor_type: type[Factor]) -> None:
    factor = declared(factor_type, 4)
    assert check_override_is_generic in checks_of(factor)
    problems = LocalProblems(bucket_of(factor, 1), np.zeros(4), np.ones(4), np.empty(0))
    own = factor_type.local_solver()
    assert list(problems.solvers()) == ["active set", own.__name__]


def test_the_kit_finds_wrong_solvers() -> None:
    class Halved(Pools):
        def solve(self, rows, a, eta_v, z, v, max_iterations):
            super().solve(rows, 0.5 * a, eta_v, z, v, max_iterations)

    class Wrong(Prefix):
        @classmethod
        def local_solver(cls):
            return Halved

    with pytest.raises(ConformanceError, match="a closed form, or a local solver, agrees"):
        check_override_is_generic(declared(Wrong, 4))


def test_a_plan_describes_the_solver() -> None:
    graph = FactorGraph()
    graph.add(Prefix(graph.variable((2, 3))))
    (row,) = graph.plan().factors
    assert (row.solver, row.reason) == ("Pools", "the type's own solver")
    assert row.function.endswith("Pools.solve")

    class Described(Pools):
        @classmethod
        def describe(cls, factor_type):
            return SolverDescription("pools", factor_type.solve_map, "shown")

    class Other(Prefix):
        @classmethod
        def local_solver(cls):
            return Described

    graph.add(Other(graph.variable(3)))
    row = graph.plan().factors[1]
    assert (row.solver, row.reason, row.function) == (
        "pools",
        "shown",
        f"{PAGE.__name__}.Prefix.solve_map",
    )


def test_other_structures_have_the_active_set() -> None:
    class Suffix(Prefix):
        def vertex(self, y):
            return (np.arange(self.event_shape[0]) >= y).astype(float), []

    class Again(Suffix):
        @classmethod
        def local_solver(cls):
            return Pools

    class Renamed(Prefix):
        """All the same."""

    assert own_solver(Suffix) is None
    assert choose_solver(Suffix).solver is ActiveSets
    assert own_solver(Again) is own_solver(Renamed) is Pools


@pytest.mark.parametrize("answer", ["Pools", 3, Factor])
def test_what_is_no_solver_is_refused(answer: object) -> None:
    class Mistaken(Prefix):
        @classmethod
        def local_solver(cls):
            return answer

    graph = FactorGraph()
    graph.add(Mistaken(graph.variable(3)))
    with pytest.raises(
        TypeError, match="Mistaken.local_solver returned .*; expected a subclass of"
    ):
        graph.solve()


def test_a_missing_method_is_named() -> None:
    class Unfinished(LocalSolver):
        """Neither solves nor has derivatives."""

    class Mistaken(Prefix):
        @classmethod
        def local_solver(cls):
            return Unfinished

    graph = FactorGraph()
    graph.add(Mistaken(graph.variable(3)))
    with pytest.raises(NotImplementedError, match="Unfinished: no method solve; expected one"):
        graph.solve()


def test_a_method_of_instances_is_refused() -> None:
    class Mistaken(Prefix):
        def local_solver(self):
            return Pools

    graph = FactorGraph()
    with pytest.raises(TypeError, match="Mistaken.local_solver: got an instance method"):
        graph.add(Mistaken(graph.variable(3)))


def test_solvers_that_iterate_obey_no_limit() -> None:
    class Iterated(Pools):
        iterates = True

    class Long(Prefix):
        @classmethod
        def local_solver(cls):
            return Iterated

    assert choose_solver(Long).solver is Iterated
    assert choose_solver(Long, limited=True).solver is ActiveSets
    assert choose_solver(Prefix, limited=True).solver is Pools


# -------------------------------------------------------------------- solves


@pytest.mark.parametrize("factor_type", [Prefix, Together])
def test_solutions_are_those_of_the_active_set(factor_type: type[Factor], rng) -> None:
    """Among other factors, with what is forbidden, with structures, gaps and gradients."""

    class Plain(factor_type):  # type: ignore[misc, valid-type]
        @classmethod
        def local_solver(cls):
            return None

    scores, d = 0.5 * rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    scores[3, 4] = -np.inf
    found = []
    for kind in (factor_type, Plain):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        factor = graph.add(kind(u))
        graph.add(Xor(u[:2, 0]))
        solution = graph.solve(tol=1e-10)
        assert solution.ok
        assert solution.gap.max() < 1e-8
        structures = graph.structures(factor)
        mean = (structures.probabilities[..., None] * structures.variables).sum(axis=1)
        np.testing.assert_allclose(mean, u.value, atol=1e-7)
        found.append((u.value, solution.vjp(d.reshape(-1))[0], graph.solve_map().objective))
    for mine, generic, allowed in zip(*found, (1e-7, 1e-5, 1e-5), strict=True):
        np.testing.assert_allclose(mine, generic, atol=allowed)


def test_what_a_solver_raises_comes_out_of_a_solve() -> None:
    class Broken(Pools):
        def solve(self, rows, a, eta_v, z, v, max_iterations):
            raise ValueError("no solution")

    class Raises(Prefix):
        @classmethod
        def local_solver(cls):
            return Broken

    graph = FactorGraph()
    graph.add(Raises(graph.variable(3)))
    with pytest.raises(ValueError, match="no solution"):
        graph.solve()


def test_solutions_that_are_none_are_refused() -> None:
    class Broken(Pools):
        def solve(self, rows, a, eta_v, z, v, max_iterations):
            z[:] = np.nan

    class Unsound(Prefix):
        @classmethod
        def local_solver(cls):
            return Broken

    graph = FactorGraph()
    graph.add(Unsound(graph.variable(3)))
    with pytest.raises(ValueError, match="Unsound.local_solver wrote the marginals"):
        graph.solve()


def test_a_solver_learns_where_an_earlier_one_ended() -> None:
    class Warm(Pools):
        starts_warm = True
        heard: list[LocalSolver] = []

        def copy_from(self, other):
            self.heard.append(other)

    class Moving(Prefix):
        @classmethod
        def local_solver(cls):
            return Warm

    graph, u = both(np.array([0.5, 0.25, 0.75]), Moving)
    first = graph.solve()
    graph.rescore(u, np.array([0.5, 0.2, 0.75]))
    graph.solve(warm_start=first)
    assert Warm.heard == [first.solved.state.solvers[0]]
