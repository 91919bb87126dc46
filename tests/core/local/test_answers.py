"""What plugins' oracles, kernels and closed forms answer is looked at before it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_core import FREE, LOWER, Factor, FactorGraph, LocalSolution, kernel, leaf
from lpsmap_core.kernels.records import (
    Direction,
    Factors,
    LocalScores,
    Product,
    Scores,
    Structures,
)
from lpsmap_factors_logic import AtMostOne

SCORES = np.array([[0.3, 0.2, 0.1, -0.5], [0.1, 1.0, 0.4, 0.9]])

IntArray = npt.NDArray[np.int64]


class OneOf(Factor):
    """Exactly one variable is on."""

    def solve_map(self, eta_u: npt.NDArray[np.float64], eta_v: npt.NDArray[np.float64]) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: Any) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        return np.eye(self.event_shape[0])[y], []


# -------------------------------------------------------------------- compiled oracles


@kernel
def sound(rows: IntArray, factors: Factors, scores: Scores, found: Structures) -> None:
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        found.entry[found.start[r]] = np.argmax(eta_u)
        found.value[found.start[r]] = 1.0
        found.size[r] = 1


@kernel
def of_no_size(rows: IntArray, factors: Factors, scores: Scores, found: Structures) -> None:
    for r in rows:
        found.entry[found.start[r]] = 0
        found.value[found.start[r]] = 1.0


@kernel
def of_no_size_the_second_time(
    rows: IntArray, factors: Factors, scores: Scores, found: Structures
) -> None:
    for r in rows:
        eta_u = scores.eta_u[factors.offsets[r] : factors.offsets[r + 1]]
        if np.argmax(eta_u) == 0:
            sound(rows, factors, scores, found)


@kernel
def of_size_below_zero(rows: IntArray, factors: Factors, scores: Scores, found: Structures) -> None:
    sound(rows, factors, scores, found)
    for r in rows:
        found.size[r] = -5


@kernel
def of_size_beyond_its_room(
    rows: IntArray, factors: Factors, scores: Scores, found: Structures
) -> None:
    sound(rows, factors, scores, found)
    for r in rows:
        found.size[r] = 5


@kernel
def just_beyond(rows: IntArray, factors: Factors, scores: Scores, found: Structures) -> None:
    sound(rows, factors, scores, found)
    for r in rows:
        found.entry[found.start[r]] = 4


@kernel
def far_beyond(rows: IntArray, factors: Factors, scores: Scores, found: Structures) -> None:
    sound(rows, factors, scores, found)
    for r in rows:
        if r == 1:
            found.entry[found.start[r]] = 100_000_000


@kernel
def of_no_number(rows: IntArray, factors: Factors, scores: Scores, found: Structures) -> None:
    sound(rows, factors, scores, found)
    for r in rows:
        found.value[found.start[r]] = np.nan


KERNELS = {
    of_no_size: "wrote no size for factor 0 of Wrong.*; expected 0 to 4",
    of_no_size_the_second_time: "wrote no size for factor 0 of .*; expected 0 to 4",
    of_size_below_zero: "wrote the size -5 for factor 0 of .*; expected 0 to 4",
    of_size_beyond_its_room: "wrote the size 5 for factor 0 of .*; expected 0 to 4",
    just_beyond: "wrote the entry 4 for factor 0 of .*; expected 0 to 3",
    far_beyond: "wrote the entry 100000000 for factor 1 of .*; expected 0 to 3",
    of_no_number: "wrote the value nan for factor 0 of .*; expected a finite number",
}


def graph_of(factor_type: type[Factor], among_others: bool) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(SCORES)
    graph.add(factor_type(u))
    if among_others:
        graph.add(AtMostOne(u, axis=0))
    return graph


def type_of(oracle: Callable[..., None]) -> type[Factor]:
    return type("Wrong", (OneOf,), {"map_kernel": staticmethod(oracle)})


@pytest.mark.parametrize("among_others", [False, True])
@pytest.mark.parametrize("oracle", KERNELS, ids=lambda oracle: oracle.__name__)
def test_a_kernel_that_writes_no_structure_is_named(
    oracle: Callable[..., None], among_others: bool
) -> None:
    words = rf"Wrong.map_kernel {KERNELS[oracle]}.* `lpsmap check Wrong` shows more"
    with pytest.raises(ValueError, match=words):
        graph_of(type_of(oracle), among_others).solve()
    assert graph_of(type_of(sound), among_others).solve().ok


@pytest.mark.parametrize("exact", [False, True])
def test_so_it_is_where_the_best_structures_are_the_answer(exact: bool) -> None:
    with pytest.raises(ValueError, match=r"Wrong.map_kernel wrote the entry 100000000 .*"):
        graph_of(type_of(far_beyond), False).solve_map(exact=exact)


# -------------------------------------------------------------------- room and vertices


@pytest.mark.parametrize(
    "sizes",
    [3, [1.0, 1.0], [-4, -4], [1], ["a", "b"]],
    ids=["one", "floats", "negative", "few", "words"],
)
def test_sizes_of_vertices_are_integers_for_every_factor(sizes: Any) -> None:
    class Roomy(OneOf):
        @classmethod
        def vertex_sizes(cls, factors: Factors) -> Any:
            return np.array(sizes)

    with pytest.raises(ValueError, match=r"Roomy.vertex_sizes returned .*; expected 2 integers"):
        graph_of(Roomy, False).solve()


@pytest.mark.parametrize("part", [["a"] * 4, [1j] * 4, np.ones(4) * 1j, None, [[1], [1, 2]]])
def test_a_vertex_that_is_no_array_of_numbers_is_named(part: Any) -> None:
    class Wordy(OneOf):
        def vertex(self, y: Any) -> tuple[npt.ArrayLike, npt.ArrayLike]:
            return part, []

    with pytest.raises(TypeError, match=r"Wordy.vertex returned .*; expected an array of real num"):
        graph_of(Wordy, False).solve()


# -------------------------------------------------------------------- closed forms


def filled_with(number: float, code: int) -> Callable[..., None]:
    """Return a closed form whose solutions are one number."""

    @leaf
    def fill(
        rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
    ) -> None:
        for r in rows:
            for i in range(factors.offsets[r], factors.offsets[r + 1]):
                solution.z[i], solution.face[i] = number, code

    return fill


twos, no_numbers = filled_with(2.0, FREE), filled_with(np.nan, FREE)
zeros = filled_with(0.0, LOWER)


@leaf
def nothing_moves(rows: IntArray, factors: Factors, direction: Direction, product: Product) -> None:
    for r in rows:
        for i in range(factors.offsets[r], factors.offsets[r + 1]):
            product.out_u[i] = 0.0


def closed(project: Callable[..., None]) -> type[Factor]:
    kernels = {"projection_kernel": project, "jvp_kernel": nothing_moves}
    return type("Closed", (OneOf,), {name: staticmethod(f) for name, f in kernels.items()})


def test_a_closed_form_outside_of_the_box_is_named() -> None:
    words = r"Closed.projection_kernel wrote .*\[2.0, 2.0, 2.0, 2.0\] for factor 0 of Closed.*; exp"
    with pytest.raises(ValueError, match=words + r".*\[0, 1\]. `lpsmap check Closed` shows more"):
        graph_of(closed(twos), False).solve()
    graph_of(closed(zeros), False).solve()


@pytest.mark.parametrize("among_others", [False, True])
def test_a_closed_form_that_is_not_finite_is_named(among_others: bool) -> None:
    words = r"Closed.projection_kernel wrote .*\[nan, nan, nan, nan\] for factor 0 of Closed"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for max_iter in (5, 1000):
            with pytest.raises(ValueError, match=words):
                graph_of(closed(no_numbers), among_others).solve(max_iter=max_iter)


def arrays(solve: Callable[..., Any]) -> type[Factor]:
    def jvp(cls: type[Factor], solution: LocalSolution, d_u: Any, d_v: Any, *others: Any) -> Any:
        return d_u, d_v

    methods = {"solve_sparsemap": classmethod(solve), "jvp": classmethod(jvp)}
    return type("Arrays", (OneOf,), methods)


ANSWERS: dict[str, tuple[Callable[..., Any], str]] = {
    "an array": (
        lambda a, eta_v: a,
        "returned an object of type ndarray; expected a LocalSolution",
    ),
    "one row for all": (
        lambda a, eta_v: LocalSolution(a[:1], eta_v, 0 * a.astype(np.int8), np.zeros(2, np.int8)),
        r"returned z of shape \(1, 4\); expected \(2, 4\)",
    ),
    "one branch for all": (
        lambda a, eta_v: LocalSolution(a, eta_v, 0 * a.astype(np.int8), np.int8(0)),
        r"returned branch of shape \(\); expected \(2,\)",
    ),
    "twos": (
        lambda a, eta_v: LocalSolution(0 * a + 2, eta_v, a.astype(np.int8), np.zeros(2, np.int8)),
        r"wrote the marginals delta \* z = \[2.0,",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_array_code_that_returns_no_solutions_is_named(case: str) -> None:
    answer, words = ANSWERS[case]

    def solve(cls: type[Factor], a: Any, eta_v: Any, *others: Any) -> Any:
        return answer(a, eta_v)

    with pytest.raises((TypeError, ValueError), match=rf"Arrays.solve_sparsemap {words}"):
        graph_of(arrays(solve), False).solve()


# -------------------------------------------------------------------- what is no override


@pytest.mark.parametrize("name", ["map_kernel", "projection_kernel", "jvp_kernel"])
@pytest.mark.parametrize("value", ["kernel", True])
def test_a_kernel_that_is_no_function_is_named(name: str, value: Any) -> None:
    wrong = type("Worded", (OneOf,), {name: value})
    with pytest.raises(TypeError, match=rf"Worded.{name}: got {value!r}; expected a function"):
        graph_of(wrong, False).solve()


@pytest.mark.parametrize("name", ["vertex_sizes", "solve_sparsemap", "jvp"])
def test_a_method_of_instances_is_no_override_for_many(name: str) -> None:
    wrong = type("Single", (OneOf,), {name: lambda self, *arguments: None})
    with pytest.raises(TypeError, match=rf"Single.{name}: .* Put @classmethod above it"):
        graph_of(wrong, False).solve()
