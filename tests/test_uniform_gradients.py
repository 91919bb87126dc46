"""Gradients of every type at nearly uniform scores, as of a network before training.

Such a solution is the mean of very many structures, and few of them represent it up to rounding.
The derivative is the projection onto the directions of the whole face.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Hashable

import numpy as np
import numpy.typing as npt
import pytest

import judges
import sweep_cases
from environments import ROOT
from lpsmap import Budget, DepTree, Permutation
from lpsmap_core import Factor, FactorGraph, Solution, Status, Variables
from lpsmap_core.api import slot_values, slots_of
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row, subset_hypergraph
from stress_graphs import again

FloatArray = npt.NDArray[np.float64]
Draw = Callable[..., FloatArray]
Make = Callable[[Variables, Draw], Factor]

SCALES = [1.0, 1e-2, 1e-4, 1e-6, 1e-8, 0.0]

MAX_JUDGED = 2
"""Factors of a declaration that are judged."""

TOLERANCE = 1e-7

STEP, KINK = 1e-4, 1e-2
"""Step of differences, and the smallest disagreement of one-sided ones at a kink."""

LONGEST = 20.0
"""Seconds of a solve. Additionals of small scores decide among structures as in a linear program,
which may take longer."""


class Subsets(Factor):
    """Subsets of half of the elements, by an oracle in Python and nothing else."""

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Hashable:
        """Return the elements of the best subset."""
        return tuple(np.argsort(-eta_u, kind="stable")[: len(eta_u) // 2].tolist())

    def vertex(self, y: Hashable) -> tuple[FloatArray, FloatArray]:
        """Return the indicator of subset `y`."""
        m = np.zeros(self.event_shape)
        m[list(y)] = 1.0  # type: ignore[call-overload]
        return m, np.empty(0)


class DeclaredSubsets(DynamicProgram):
    """The same subsets as a dynamic program."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Return the goal item."""
        n = row.event_shape[0]
        return subset_hypergraph(build, n, n // 2, n // 2)


def check(make: Make, shape: tuple[int, ...], scale: float, seed: int = 0) -> None:
    """Check a product with the Jacobian of some factors without common variables.

    If a status says that a component is not solved, the product has to warn. Equal scores may be at
    a kink, where there is no derivative and one-sided differences disagree.
    """
    rng = np.random.default_rng(seed)
    scores, d = scale * rng.standard_normal(shape), rng.standard_normal(shape)

    def solved(x: FloatArray) -> tuple[Factor, Solution]:
        drawn = np.random.default_rng(seed + 1)
        graph = FactorGraph()
        u = graph.variable_from(x)
        factor = graph.add(make(u, lambda *sizes: scale * drawn.standard_normal(sizes)))
        return factor, graph.solve(max_time=LONGEST)

    factor, solution = solved(scores)
    if not solution.layout.part.all_direct:
        pytest.skip("the factors share variables")
    if not solution.ok:
        reasons = set(solution.status) - {Status.SOLVED}
        assert reasons <= {Status.INNER_ITERATION_LIMIT, Status.TIME_LIMIT}
        if Status.INNER_ITERATION_LIMIT in reasons:
            with pytest.warns(RuntimeWarning, match="gradients of some components are approximate"):
                solution.jvp(d)
        return
    index = slot_values(factor, factor.variables.index)
    flipped = slot_values(factor, factor.variables.negated)
    product, along, eta, mean = (
        np.where(flipped, moved - x.reshape(-1)[index], x.reshape(-1)[index])
        for x, moved in (
            *((np.asarray(solution.jvp(d)[0]), 0.0), (d, 0.0)),
            *((scores, 1.0), (np.asarray(solution.values), 1.0)),
        )
    )
    extra = np.zeros((factor.n_factors, factor.n_additionals))
    if factor.additionals is not None:
        extra[:] = np.array(factor.additionals).reshape(extra.shape)
    for f, oracle in enumerate(oracles_of(factor)[:MAX_JUDGED]):
        slots = slots_of(factor, f)
        basis = judges.face_directions(oracle, eta[slots], extra[f], mean[slots])
        wrong = np.abs(product[slots] - basis @ (basis.T @ along[slots])).max(initial=0.0)
        if wrong > TOLERANCE:
            assert scale == 0.0, f"wrong by {wrong}; the face has {basis.shape[1]} dimensions"
            around = [solved(scores + h * d)[1].values[index[slots]] for h in (-STEP, 0.0, STEP)]
            assert np.abs(np.diff(around, n=2, axis=0)).max() > KINK * STEP


def check_kind(kind: str, size: int, scale: float) -> None:
    """Check a declaration of the sweep."""
    declared = sweep_cases.KINDS[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*were not solved")
        check(declared.make, declared.shape(size), scale)


@pytest.mark.compiled
@pytest.mark.parametrize("scale", [1e-2, 1e-8, 0.0])
@pytest.mark.parametrize("kind", sweep_cases.kinds())
def test_gradients_of_every_type(kind: str, scale: float) -> None:
    check_kind(kind, 6, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size", [10, 25])
@pytest.mark.parametrize("kind", sweep_cases.kinds())
def test_gradients_of_every_type_at_larger_sizes(kind: str, size: int, scale: float) -> None:
    check_kind(kind, size, scale)


LONG: dict[str, Make] = {
    "Permutation": lambda u, draw: Permutation(u),
    "Budget": lambda u, draw: Budget(u, u.shape[-1] // 2, force_budget=True),
    "oracle in Python": lambda u, draw: Subsets(u),
    "dynamic program": lambda u, draw: DeclaredSubsets(u),
}


@pytest.mark.compiled
@pytest.mark.parametrize("scale", [1e-2, 0.0])
@pytest.mark.parametrize("make", LONG.values(), ids=LONG)
def test_gradients_where_few_structures_represent_the_mean(make: Make, scale: float) -> None:
    """About 52 do so like binary digits. The smallest weights are below rounding."""
    check(make, (250,), scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("n", [30, 128, 300])
@pytest.mark.parametrize("make", LONG.values(), ids=LONG)
def test_gradients_of_long_rows(make: Make, n: int, scale: float) -> None:
    check(make, (n,), scale)


@pytest.mark.parametrize("scale", [1e-2, 1e-8, 0.0])
@pytest.mark.parametrize("name", ["lpsmap-edit-distance", "lpsmap-equal", "lpsmap-span"])
def test_gradients_of_example_plugins(
    name: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "plugins" / name / "src"))
    plugin = importlib.import_module(f"{name.replace('-', '_')}.plugin")
    for factor_type in plugin.lpsmap_factors():
        for example in factor_type.examples():
            size, count = example.variables.size, (example.n_factors, example.n_additionals)

            def make(u: Variables, draw: Draw) -> Factor:
                numbers, positive = np.arange(size), np.zeros(size, dtype=bool)  # noqa: B023
                return again(example, u, numbers, positive, draw(*count))  # noqa: B023

            check(make, (size,), scale)


@pytest.mark.compiled
def test_the_tilt_is_no_larger_than_the_scores() -> None:
    """The last structure of this face was hidden by those that scores of 1e-8 exclude."""
    check(lambda u, draw: DepTree(u, projective=True), (20, 20), 1e-8)


@pytest.mark.compiled
def test_a_set_that_cannot_improve_is_not_called_solved() -> None:
    """Exchanges of structures end in a cycle here, far from the optimum."""
    check_kind("SequenceDistance", 25, 1e-6)


@pytest.mark.compiled
def test_gradients_over_a_part_of_a_face_are_called_approximate() -> None:
    graph = FactorGraph()
    graph.add(DepTree(graph.variable((8, 8)), projective=True))
    with pytest.warns(UserWarning, match="INNER_ITERATION_LIMIT"):
        solution = graph.solve(max_inner_iter=3)
    with pytest.warns(RuntimeWarning, match="an active set ran out of iterations"):
        solution.jvp(np.ones((8, 8)))
