"""The polish: when faces count as settled, and what it gives up."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, ConvergenceWarning, Factor, FactorGraph, Xor
from lpsmap_core import FREE, LocalSolution
from lpsmap_core.engine.faces import draw_general_position
from lpsmap_core.engine.polish import (
    FACE_TOLERANCE,
    _find_mu,
    _find_settled,
    make_polish,
)
from lpsmap_core.engine.selection import keep_chosen, multiply_jacobians, select_blocks
from lpsmap_core.engine.state import PartState
from stress_judging import checked

N_COMPONENTS = 3


class Probe:
    """Probes of the components of a solved graph, one after the other."""

    def __init__(self, scores: npt.NDArray[np.float64]) -> None:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        self.state: PartState = graph.solve().solved.state
        self.problem = self.state.problem
        self.workspace = make_polish(self.state, True)
        self.polish = self.workspace.record
        (self.everything,) = select_blocks(self.state, np.arange(N_COMPONENTS))
        variables = self.everything.variables
        draw_general_position(variables, self.state.handle, self.polish.numbers)

    def __call__(self, *components: int) -> list[int]:
        """Probe some components; return those whose faces are found settled."""
        polish = self.polish
        polish.rounds[:] += 1
        polish.selected[:] = np.isin(np.arange(len(polish.selected)), components)
        some = keep_chosen(self.everything, self.state.part, polish.selected)
        now = int(polish.rounds[0])
        latest, before = polish.probed[now % 2], polish.probed[1 - now % 2]
        outputs_v = np.empty(0)
        arrays = polish.numbers, outputs_v, latest, outputs_v
        multiply_jacobians(self.state, some, *arrays)
        handle = self.workspace.handle
        _find_settled(*some[:2], handle, now, latest, before)
        return np.flatnonzero(polish.selected).tolist()


@pytest.fixture
def probe(rng: np.random.Generator) -> Probe:
    return Probe(rng.normal(size=(N_COMPONENTS, 4, 5)))


def test_faces_are_settled_at_the_second_probe_and_tried_once(probe: Probe) -> None:
    assert probe(0, 1, 2) == []
    assert probe(0, 1, 2) == [0, 1, 2]
    assert probe(0, 1, 2) == []


def test_only_the_probe_right_before_counts(probe: Probe) -> None:
    probe(0, 1, 2)
    assert probe(0, 2) == [0, 2]
    assert probe(0, 1, 2) == []  # where 1's products of two probes ago would be compared
    assert probe(0, 1, 2) == [1]


def test_other_faces_are_not_settled(probe: Probe) -> None:
    probe(0, 1, 2)
    for solver in probe.state.solvers:
        face = solver.face  # type: ignore[attr-defined]
        face[: len(face) // N_COMPONENTS] = 2 - face[: len(face) // N_COMPONENTS]
    assert probe(0, 1, 2) == [1, 2]


def test_marginals_far_outside_show_wrong_faces(probe: Probe) -> None:
    """On faces of all slots, and no constraint, the marginals would be the scores."""
    problem, polish = probe.problem, probe.polish
    scores = problem.iterate.eta.reshape(N_COMPONENTS, -1)
    scores[:] = 0.5
    scores[1, 3], scores[2, 3] = 1.0 + 2 * FACE_TOLERANCE, 1.0 + 0.5 * FACE_TOLERANCE
    for solver in probe.state.solvers:
        solver.face[:] = FREE  # type: ignore[attr-defined]
        solver.branch[:] = 0  # type: ignore[attr-defined]
    problem.iterate.z[:] = problem.iterate.a
    polish.selected[:] = True
    variables = probe.everything.variables
    _find_mu(probe.state, probe.everything, (variables, variables[:0]), probe.workspace)
    np.testing.assert_allclose(polish.mu.reshape(scores.shape), scores, rtol=0, atol=1e-12)
    assert polish.selected.tolist() == [True, False, True]


def test_rounding_of_scores_that_cancel_is_not_magnified() -> None:
    """Pair scores cancel those of variables, and every face agrees with every other.

    Found by the stress run: conjugate gradients went on below what 1e5 rounds away, along the null
    space of their operator, until the duals were NaN; which was taken for agreement, as SOLVED.
    """
    assert checked(701256, extreme=False).wrong == []


class NotANumber(Factor):
    """Its solution is not a number, but for its own scores: as where duals are none."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return 0

    def vertex(self, y: Any) -> tuple[Any, Any]:
        return np.zeros(2), np.empty(0)

    @classmethod
    def solve_sparsemap(cls, a: Any, eta_v: Any, *others: Any) -> LocalSolution:
        codes = np.zeros(a.shape, dtype=np.int8)
        z = np.where(a == SCORES, 0.0, np.nan)
        return LocalSolution(z, eta_v, codes, codes[:, 0])

    @classmethod
    def jvp(cls, solution: LocalSolution, d_u: Any, d_v: Any, *others: Any) -> tuple[Any, Any]:
        return d_u, d_v


SCORES = [0.3, 0.2]


def test_what_is_not_a_number_is_not_solved() -> None:
    graph = FactorGraph()
    u = graph.variable_from(SCORES)
    for _ in range(2):
        graph.add(NotANumber(u))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve(max_iter=30)
    assert not solution.ok
