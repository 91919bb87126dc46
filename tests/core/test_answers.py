"""What plugins' oracles, kernels and closed forms answer is looked at before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_core import Factor, FactorGraph, kernel
from lpsmap_core.kernels.records import Factors, Scores, Structures
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
