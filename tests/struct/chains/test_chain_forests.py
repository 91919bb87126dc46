"""Forests of tiny chains, which are quick where kernels are interpreted, too.

What is larger is in ``test_chain_projection.py``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from chain_solvers import forests_of, make_bucket
from lpsmap import Budget, FactorGraph, Sequence
from lpsmap_core.api import UNTIL_SOLVED, ActiveSets

FloatArray = npt.NDArray[np.float64]


def solved(solver: ActiveSets, a: FloatArray, eta_v: FloatArray) -> FloatArray:
    """Return the local solution, and a product with its Jacobian, of the slots."""
    rows, z, v = np.arange(1), np.full(len(a), np.nan), np.full(len(eta_v), np.nan)
    solver.solve(rows, a.copy(), eta_v.copy(), z, v, UNTIL_SOLVED)
    assert not solver.unsolved().size
    solver.complete_faces(rows, a.copy(), eta_v.copy(), z)
    directions = np.cos(np.arange(len(a))), np.sin(np.arange(len(v)))
    product, product_v = np.full(len(a), np.nan), np.full(len(v), np.nan)
    solver.jvp(rows, *directions, product, product_v)
    return np.stack([z, product])


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 0.1, 1.0])
@pytest.mark.parametrize(("length", "n_states"), [(2, 3), (3, 2), (4, 3), (6, 5), (8, 4)])
def test_forests_agree_with_active_sets(
    length: int, n_states: int, scale: float, rng: np.random.Generator
) -> None:
    """Also from the face of the scores before."""
    bucket, delta = (
        make_bucket(length, n_states),
        np.sqrt(rng.integers(1, 4, size=length * n_states)),
    )
    solver = forests_of(bucket, delta)
    a, eta_v = (scale * rng.standard_normal(n) for n in (bucket.n_links, bucket.n_additionals))
    for moved in (0.0, 1e-3, 1.0):
        a += moved * scale * rng.standard_normal(len(a))
        with np.errstate(all="ignore"):  # interpreted, they warn of what is infinite
            found = solved(solver, a, eta_v)
            expected = solved(ActiveSets(bucket, delta), a, eta_v)
        np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-9)
        # a product with the inverse of a face's equations, which loses some digits
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-7)


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:lpsmap. the gradients of some components are approximate")
@pytest.mark.parametrize("budget", [False, True])
def test_solutions_after_a_time_limit(budget: bool) -> None:
    """Structures, values and products are of the same solution, wherever a solve was stopped."""
    scores = 0.01 * np.random.default_rng(0).standard_normal((4, 25, 12))
    for seconds in (1e-6, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        factor = graph.add(Sequence(u, np.zeros((12, 12))))
        if budget:
            graph.add(Budget(u.reshape(4, -1), 24))
        solution = graph.solve(max_time=seconds)
        assert np.isfinite(solution.vjp(np.ones(scores.size))[0]).all()
        done = np.flatnonzero(solution.iterations)
        # between two iterations, residuals are distances from the mean, and u is over-relaxed
        off = 1e-9 + 2.0 * solution.primal_residual
        found = graph.structures(factor)
        for b in done:
            mixed = np.tensordot(found[b].probabilities, found[b].variables, 1)
            np.testing.assert_allclose(mixed, u.value[b], rtol=0, atol=off[b])
