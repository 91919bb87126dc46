"""Declarations: covered entries, views of rows, parameters, and invalid arguments."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_core import ConvergenceWarning, Factor, FactorGraph, Variables, stack
from lpsmap_core.api import row_view
from lpsmap_core.layout.layout import build_layout
from lpsmap_core.local.solvers import override_level
from lpsmap_core.solution.scored_graph import unused_of
from lpsmap_factors_logic import Xor
from lpsmap_factors_struct import DepTree, Sequence
from random_graphs import Polytope

FloatArray = npt.NDArray[np.float64]


class Spy(Factor):
    """A type whose structure has all variables off; it records the scores of its rows."""

    def __init__(
        self,
        variables: Any,
        additionals: Any = None,
        *,
        weight: npt.ArrayLike = 0.0,
        cost: npt.ArrayLike = 0.0,
        lengths: npt.ArrayLike | None = None,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(variables, additionals, lengths=lengths, mask=mask)
        self.weight = self.per_factor("weight", weight)
        self.cost = self.per_link("cost", cost)
        self.seen: list[Any] = []
        self.graph = self.variables.graph  # a declaration has only a weak reference to its graph

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        self.seen.append((eta_u.copy(), eta_v.copy(), self.weight, self.cost))
        return eta_u.shape

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        return np.zeros(y), np.zeros(self.n_additionals)


class Rich(Spy):
    """A `Spy` with a parameter of each kind."""

    table: FloatArray

    def __init__(self, variables: Variables, table: npt.ArrayLike = 0.0) -> None:
        super().__init__(variables, weight=0.5)
        self.table = self.per_factor("table", table, shape=(2, 2))
        self.edges = self.integers("edges", [[0, 1], [1, 2]])


class Square(Spy):
    """A `Spy` over blocks of two axes."""

    variables_ndim = 2


class Tall(Square):
    """A `Square` with lengths along the first event axis only."""

    length_axes = (0,)


def variables(*shape: int) -> Variables:
    """Return variables whose scores are their numbers."""
    return FactorGraph().variable_from(np.arange(float(np.prod(shape))).reshape(shape))


def seen(factor: Spy) -> list[Any]:
    """Return the first scores of each row, in the order of rows."""
    factor.graph.add(factor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        factor.graph.solve(max_inner_iter=1)
    return factor.seen[: factor.n_factors]


def test_one_factor() -> None:
    factor = Spy(variables(3))
    assert (factor.batch_shape, factor.event_shape, factor.n_factors) == ((), (3,), 1)
    assert factor.offsets.tolist() == [0, 3]
    [(eta_u, eta_v, weight, cost)] = seen(factor)
    assert eta_u.tolist() == [0, 1, 2]
    assert eta_v.shape == (0,)
    assert isinstance(weight, float)
    assert cost.shape == (3,)


def test_batch_axes_are_many_factors() -> None:
    factor = Square(variables(2, 3, 4, 5), np.arange(12).reshape(2, 3, 2))
    assert (factor.batch_shape, factor.event_shape, factor.n_factors) == ((2, 3), (4, 5), 6)
    assert factor.n_additionals == 2
    rows = seen(factor)
    for i, (eta_u, eta_v, _, _) in enumerate(rows):
        np.testing.assert_array_equal(eta_u, np.arange(20).reshape(4, 5) + 20 * i)
        np.testing.assert_array_equal(eta_v, [2 * i, 2 * i + 1])


def test_a_list_of_variables_is_stacked_on_the_last_axis() -> None:
    u = variables(2, 3)
    factor = Spy([u[0], u[1]])
    assert factor.variables.shape == (3, 2)
    assert [x[0].tolist() for x in seen(factor)] == [[0, 3], [1, 4], [2, 5]]


def test_lengths_cut_all_event_axes_or_the_named_ones() -> None:
    square = Square(variables(2, 3, 3), lengths=[2, 3])
    assert np.diff(square.offsets).tolist() == [4, 9]
    rows = seen(square)
    assert rows[0][0].tolist() == [[0, 1], [3, 4]]
    assert rows[1][0].shape == (3, 3)
    tall = Tall(variables(2, 3, 4), lengths=[1, 3])
    assert [x[0].shape for x in seen(tall)] == [(1, 4), (3, 4)]


def test_a_mask_makes_flat_lists() -> None:
    mask = np.array([[True, False], [True, True]])
    factor = Square(variables(3, 2, 2), mask=mask)
    rows = seen(factor)
    assert [x[0].tolist() for x in rows] == [[0, 2, 3], [4, 6, 7], [8, 10, 11]]
    both = Spy(variables(2, 3), mask=[[True, False, True]] * 2, lengths=[2, 3])
    assert [x[0].tolist() for x in seen(both)] == [[0], [3, 5]]


def test_row_views_hold_their_rows_parameters() -> None:
    u = variables(2, 2, 3)
    factor = Spy(
        u, weight=[[1, 2], [3, 4]], cost=np.arange(12).reshape(2, 2, 3), mask=u.index % 2 == 0
    )
    rows = seen(factor)
    assert [x[2] for x in rows] == [1, 2, 3, 4]
    assert [x[3].tolist() for x in rows] == [[0, 2], [4], [6, 8], [10]]
    cut = Square(variables(2, 3, 3), cost=np.arange(18).reshape(2, 3, 3), lengths=[1, 2])
    assert [x[3].tolist() for x in seen(cut)] == [[[0]], [[9, 10], [12, 13]]]


def test_solving_leaves_the_declaration_as_it_was() -> None:
    factor = Spy(variables(2, 3), weight=[1.0, 2.0])
    before = {k: v for k, v in vars(factor).items() if k != "seen"}
    copies = {k: v.copy() for k, v in before.items() if isinstance(v, np.ndarray)}
    seen(factor)
    after = vars(factor)
    assert set(after) == {*before, "seen"}
    for name, value in before.items():
        assert after[name] is value
    for name, value in copies.items():
        np.testing.assert_array_equal(after[name], value)


def test_attributes_of_a_type_do_not_clash_with_internals() -> None:
    names = ("row", "links", "slots_of", "shaped", "placed", "flipped", "iterates", "name_of")

    class Many(Spy):
        def __init__(self, variables: Variables) -> None:
            super().__init__(variables)
            vars(self).update(dict.fromkeys((*names, "kernel_integers"), 0.5))

        def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
            assert all(getattr(self, name) == 0.5 for name in names)
            return super().solve_map(eta_u, eta_v)

    u = variables(2, 3)
    factor = u.graph.add(Many(u))
    u.graph.solve()
    assert not u.value.any()
    assert len(factor.seen) > 0


def test_levels() -> None:
    assert override_level(Polytope) == 1
    assert override_level(Sequence) == 2
    assert override_level(DepTree) == 3
    assert override_level(Xor) == 3


def test_abstract_methods_are_needed() -> None:
    class Half(Factor):
        def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> int:
            return 0

    with pytest.raises(TypeError, match="vertex"):
        Half(variables(2))  # type: ignore[abstract]


def with_attributes(**attributes: Any) -> Spy:
    """Return a declaration of two factors of a type with some attributes."""
    return type("Odd", (Spy,), attributes)(variables(2, 3))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (
            {"weight": 3},
            r"'weight' is registered, but self.weight is 3; .*self.per_factor\('weight'",
        ),
        ({"weight": np.ones(3)}, r"shape \(3,\) and .*; expected an array of shape \(2,\). Assign"),
        ({"cost": np.ones(3)}, r"self.cost is .*; expected an array of shape \(2, 3\). .*per_link"),
        ({"table": np.ones((2, 2))}, r"'table' .*; expected an array of shape \(2, 2, 2\). Assign"),
        (
            {"edges": [1, 2]},
            r"is \[1, 2\]; expected .*, or a tuple of one for each. .*self.integers",
        ),
        ({"edges": np.ones(2)}, "of shape .* and dtype float64; expected an array of int64"),
        ({"edges": (np.ones(1, dtype=np.int64),)}, "or a tuple of one"),
    ],
)
def test_parameters_that_are_replaced(attributes: Any, words: str) -> None:
    factor = Rich(variables(2, 3))
    vars(factor).update(attributes)
    with pytest.raises(TypeError, match=f"^Rich: .*{words}"):
        factor.graph.add(factor)


def test_a_count_that_is_replaced_names_the_method_that_registered_it() -> None:
    factor = Spy(variables(2, 3))
    factor.most = factor.counts("most", 2) + 0 * np.ones((3, 1), dtype=np.int64)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"self\.most = self\.counts\('most', value\)"):
        factor.graph.add(factor)


@pytest.mark.parametrize("name", ["weight", "cost", "table", "edges"])
def test_parameters_that_are_not_kept_under_their_names(name: str) -> None:
    factor = Rich(variables(2, 3))
    delattr(factor, name)
    words = (
        rf"the parameter '{name}' is registered, but self.{name} is missing; .*self.{name} = self"
    )
    with pytest.raises(TypeError, match=words):
        factor.graph.add(factor)


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda x: x.per_factor("weight", 2.0), "weight is registered twice; .* self.weight"),
        (lambda x: x.counts("cost", 2), "cost is registered twice; expected one call"),
        (
            lambda x: x.per_link("fee", 2.0),
            "fee is the second parameter of self.per_link, after cost",
        ),
        (
            lambda x: x.integers("nodes", [2]),
            "nodes is the second .* of self.integers, after edges",
        ),
        (lambda x: x.per_factor("depth", 1.0, shape=-1), "shape of depth is -1; expected sizes"),
    ],
)
def test_registrations_that_are_refused(register: Callable[[Any], Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^Rich: {words}"):
        register(Rich(variables(2, 3)))


def test_declarations_of_a_type_register_the_same() -> None:
    class Varies(Factor):
        def __init__(self, variables: Variables, *names: str, shape: tuple[int, ...] = ()) -> None:
            super().__init__(variables)
            for name in names:
                setattr(self, name, self.per_factor(name, 1.0, shape=shape))

        solve_map, vertex = Spy.solve_map, Spy.vertex

    graph = FactorGraph()
    u = graph.variable((2, 3))
    graph.add(Varies(u, "a", "b"))
    words = r"registers the parameters {}, but .* registers a, b; expected the same .* of every"
    for factor, shown in [
        (Varies(u, "b", "a"), "b, a"),
        (Varies(u, "a"), "a"),
        (Varies(u), "none"),
        (Varies(u, "a", "b", shape=(3, 2)), r"a\[3\]\[2\], b\[3\]\[2\]"),
    ]:
        with pytest.raises(TypeError, match=words.format(shown)):
            graph.add(factor)
    graph.add(Varies(u, "a", "b"))
    copied = pickle.loads(pickle.dumps(FactorGraph()))
    copied.add(Varies(copied.variable((2, 3)), "a"))


def test_tables_are_columns_of_kernels_and_arrays_of_rows() -> None:
    u = variables(2, 3)
    tables = np.arange(8.0).reshape(2, 2, 2)
    factors = [Rich(u, table=tables), Rich(u[1:], table=tables[1])]
    for factor in factors:
        u.graph.add(factor)
    (bucket,) = build_layout(u.graph.n_variables, factors).buckets
    columns = [[0.5, 0, 1, 2, 3], [0.5, 4, 5, 6, 7], [0.5, 4, 5, 6, 7]]
    assert bucket.factors.parameters.tolist() == columns
    assert row_view(factors[0], 1).table.tolist() == [[4, 5], [6, 7]]
    assert row_view(factors[0], 1).weight == 0.5


def test_tables_broadcast_to_batch_and_shape() -> None:
    factor = Spy(variables(3, 4))
    assert factor.per_factor("bias", 1.5, shape=2).tolist() == [[1.5] * 2] * 3
    with pytest.raises(ValueError, match=r"^Spy: ramp .*\(3, 2\)"):
        factor.per_factor("ramp", np.zeros((2, 3)), shape=2)


@pytest.mark.parametrize(
    "found", [np.zeros((2, 3), dtype=bool), (None,), (None, np.zeros(3)), (np.zeros(3), None)]
)
def test_unused_returns_a_pair_of_booleans(found: Any) -> None:
    factor = with_attributes(unused=lambda self: found)
    words = r"^Odd.unused returned .*; expected a pair of boolean arrays, .* \(2, 3\) .*\(2, 0\)"
    with pytest.raises(TypeError, match=words):
        unused_of(factor)


def test_unused_may_return_none() -> None:
    assert unused_of(with_attributes(unused=lambda self: None)) == (None, None)


def test_ragged_integers_are_named() -> None:
    factor = with_attributes()
    with pytest.raises(TypeError, match="^Odd: table: got a list that is not an array of numbers"):
        factor.integers("table", [[1], [2, 3]])


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
    "an array": (
        lambda: Spy(np.zeros(3)),
        TypeError,
        ["Spy: variables", "got an ndarray", "expected Variables", "variable_from"],
    ),
    "a list of numbers": (
        lambda: Spy([1.0, 2.0]),
        TypeError,
        ["entry 0 is a float", "expected Variables", "variable_from"],
    ),
    "an empty list": (lambda: Spy([]), ValueError, ["no variables", "expected at least one"]),
    "two graphs": (
        lambda: Spy([variables(2), variables(2)]),
        ValueError,
        ["another graph", "same graph's variable_from"],
    ),
    "too few axes": (
        lambda: Square(variables(3)),
        ValueError,
        ["Square: variables", "shape (3,)", "at least 2 axes", "reshape"],
    ),
    "no axis": (
        lambda: Spy(variables(3)[0]),
        ValueError,
        ["Spy: variables", "shape ()", "at least 1"],
    ),
    "lengths of another shape": (
        lambda: Spy(variables(2, 3), lengths=[1, 2, 3]),
        ValueError,
        ["Spy: lengths", "shape (3,)", "expected (2,)", "one for every factor"],
    ),
    "lengths that are not integers": (
        lambda: Spy(variables(2, 3), lengths=[1.0, 2.0]),
        ValueError,
        ["Spy: lengths", "float64", "expected integers", "Convert"],
    ),
    "a negative length": (
        lambda: Spy(variables(2, 3), lengths=[1, -1]),
        ValueError,
        ["Spy: lengths[1] is -1", "expected 0 to 3"],
    ),
    "a length beyond the axis": (
        lambda: Tall(variables(1, 2, 7), lengths=[3]),
        ValueError,
        ["Tall: lengths[0] is 3", "expected 0 to 2"],
    ),
    "a mask of numbers": (
        lambda: Spy(variables(3), mask=np.array([1, 0, 1])),
        TypeError,
        ["Spy: mask has dtype int64", "booleans, true where a variable takes part", "mask != 0"],
    ),
    "a mask of another shape": (
        lambda: Spy(variables(3), mask=[True, False]),
        ValueError,
        ["Spy: mask", "shape (2,)", "broadcasts to (3,)"],
    ),
    "a parameter of another shape": (
        lambda: Spy(variables(2, 3), weight=[1.0, 2.0, 3.0]),
        ValueError,
        ["Spy: weight", "shape (3,)", "broadcasts to (2,)"],
    ),
    "a link parameter of another shape": (
        lambda: Spy(variables(2, 3), cost=[1.0, 2.0]),
        ValueError,
        ["Spy: cost", "shape (2,)", "broadcasts to (2, 3)"],
    ),
    "a parameter that is not finite": (
        lambda: Spy(variables(2), weight=np.nan),
        ValueError,
        ["Spy: weight", "not finite", "expected finite numbers"],
    ),
    "additionals without the batch axes": (
        lambda: Spy(variables(2, 3), np.zeros(3)),
        ValueError,
        ["Spy: additionals", "shape (3,)", "batch shape (2,)", "Broadcast"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_name_argument_got_expected_and_fix(case: str) -> None:
    make, error, words = REFUSED[case]
    with pytest.raises(error) as caught:
        make()
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_additionals_that_are_a_list() -> None:
    """A list without a shape becomes an array, instead of being ignored."""
    assert Spy(variables(2, 3), [0.0, 1.0]).n_additionals == 1
    assert Spy(variables(3), [0.0, 1.0]).n_additionals == 2
    with pytest.raises(ValueError, match="additionals"):
        Spy(variables(2, 3), [0.0, 1.0, 2.0])


def test_repr_counts_factors() -> None:
    u = variables(2, 3)
    assert repr(Spy(u)) == "Spy(2 factors over variables of shape (2, 3))"
    assert repr(Spy(u[0])) == "Spy(over variables of shape (3,))"
    assert repr(Spy(stack([u[0], u[1]]))) == "Spy(3 factors over variables of shape (3, 2))"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_factors", 7),
        ("offsets", None),
        ("batch_shape", (9,)),
        ("event_shape", 3),
        ("lengths", np.array([1])),
        ("keep", np.ones(2, dtype=bool)),
    ],
)
def test_a_graph_rejects_overwritten_attributes(name: str, value: Any) -> None:
    """Kernels would read beyond their arrays."""
    graph = FactorGraph()
    factor = Spy(graph.variable((2, 3)))
    setattr(factor, name, value)
    with pytest.raises(TypeError, match=rf"Spy: self.{name} is .* expected another name"):
        graph.add(factor)


def test_a_graph_rejects_a_factor_without_variables() -> None:
    graph = FactorGraph()
    factor = Spy(graph.variable((2, 3)))
    factor.variables = 3  # type: ignore[assignment]
    with pytest.raises(TypeError, match="the Spy has no variables"):
        graph.add(factor)
