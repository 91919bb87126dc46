"""Variables index like NumPy arrays, and negate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lpsmap
from lpsmap_core import FactorGraph, Variables, stack


def made(shape: tuple[int, ...]) -> tuple[Variables, np.ndarray[Any, Any]]:
    """Return variables that follow seven others in a graph, and the array of their numbers."""
    graph = FactorGraph()
    graph.variable(7)
    size = int(np.prod(shape))
    return graph.variable(shape), np.arange(7, 7 + size).reshape(shape)


shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=4)


@given(st.data())
def test_basic_indices_are_numpys(data: st.DataObject) -> None:
    u, expected = made(data.draw(shapes))
    key = data.draw(hnp.basic_indices(u.shape, allow_newaxis=True, allow_ellipsis=True))
    np.testing.assert_array_equal(u[key].index, expected[key])
    assert u[key].shape == expected[key].shape
    assert u[key].negated.shape == expected[key].shape


@given(st.data())
def test_fancy_indices_are_numpys(data: st.DataObject) -> None:
    u, expected = made(data.draw(shapes))
    key = data.draw(hnp.integer_array_indices(u.shape))
    np.testing.assert_array_equal(u[key].index, expected[key])
    np.testing.assert_array_equal((~u)[key].negated, np.ones(expected[key].shape, dtype=bool))


@given(st.data())
def test_masks_are_numpys(data: st.DataObject) -> None:
    u, expected = made(data.draw(shapes))
    mask = data.draw(hnp.arrays(bool, u.shape))
    np.testing.assert_array_equal(u[mask].index, expected[mask])


@given(st.data())
def test_views_keep_index_and_negation_together(data: st.DataObject) -> None:
    u, expected = made(data.draw(hnp.array_shapes(min_dims=3, max_dims=3, max_side=3)))
    negated = data.draw(hnp.arrays(bool, u.shape))
    u = Variables(u.graph, u.index, negated)
    axes = data.draw(st.permutations(range(3)))
    for view, f in [
        (u.T, lambda x: x.T),
        (u.transpose(*axes), lambda x: x.transpose(*axes)),
        (u.transpose(axes), lambda x: x.transpose(axes)),
        (u.moveaxis(axes[0], axes[1]), lambda x: np.moveaxis(x, axes[0], axes[1])),
        (u.reshape(-1), lambda x: x.reshape(-1)),
        (u.reshape(u.shape[0], -1), lambda x: x.reshape(x.shape[0], -1)),
        (u.reshape((-1, 1)), lambda x: x.reshape((-1, 1))),
    ]:
        np.testing.assert_array_equal(view.index, f(expected))
        np.testing.assert_array_equal(view.negated, f(negated))
        assert (view.ndim, view.size) == (f(expected).ndim, expected.size)


def test_shape_size_len_and_iteration() -> None:
    u, expected = made((2, 3))
    assert (u.shape, u.ndim, u.size, len(u)) == ((2, 3), 2, 6, 2)
    assert [row.index.tolist() for row in u] == expected.tolist()


def test_iteration_over_no_axis_is_refused_as_numpy_does() -> None:
    u, _ = made(())
    with pytest.raises(TypeError):
        len(u)
    with pytest.raises((IndexError, TypeError)):
        list(u)


def test_negation_undoes_itself() -> None:
    u, _ = made((2, 2))
    assert (~u).negated.all()
    assert not (~~u).negated.any()
    assert not u.negated.any(), "a view never changes the one that it was made of"


def test_values_of_negated_views() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[-1.0, 0.25], [0.5, 2.0]]))
    graph.solve()
    expected = np.array([[0.0, 0.25], [0.5, 1.0]])
    np.testing.assert_array_equal(u.value, expected)
    np.testing.assert_array_equal((~u).value, 1 - expected)
    np.testing.assert_array_equal((~u).T[1].value, 1 - expected[:, 1])
    np.testing.assert_array_equal(stack([u[0], ~u[1]]).value, [[0.0, 0.5], [0.25, 0.0]])


def test_stack_broadcasts_and_makes_a_last_axis() -> None:
    u, expected = made((3, 2))
    stacked = stack([u, ~u[:1], u[0, 0]])
    assert stacked.shape == (3, 2, 3)
    np.testing.assert_array_equal(stacked.index[..., 0], expected)
    np.testing.assert_array_equal(stacked.index[..., 1], np.broadcast_to(expected[:1], (3, 2)))
    np.testing.assert_array_equal(stacked.index[..., 2], np.full((3, 2), 7))
    assert stacked.negated[..., 1].all()
    assert not stacked.negated[..., [0, 2]].any()
    assert stack([u.T, ~u.T]).index.flags.c_contiguous, "factors would have to copy it"


@pytest.mark.parametrize(
    ("views", "error", "words"),
    [
        (lambda u: [], ValueError, "no variables"),
        (lambda u: [u, u.index], TypeError, "entry 1 is an ndarray"),
        (lambda u: [u, FactorGraph().variable(2)], ValueError, "another graph"),
        (lambda u: [u, u.T], ValueError, r"\(3, 2\), \(2, 3\) do not broadcast"),
    ],
)
def test_stack_refuses(views: Any, error: type[Exception], words: str) -> None:
    u, _ = made((3, 2))
    with pytest.raises(error, match=f"stack: .*{words}"):
        stack(views(u))


def test_bad_indices_raise_numpys_errors() -> None:
    u, _ = made((3, 2))
    with pytest.raises(IndexError, match="out of bounds"):
        u[5]
    with pytest.raises(ValueError, match="reshape"):
        u.reshape(4, 2)


def test_values_before_solving() -> None:
    u, _ = made((2,))
    with pytest.raises(RuntimeError, match=r"call graph\.solve\(\)"):
        _ = u.value
    u.graph.solve()
    u.graph.variable(1)
    with pytest.raises(RuntimeError, match="since its last change"):
        _ = u.value


def test_repr_shows_shape_and_negation() -> None:
    u, _ = made((3, 2))
    assert "shape=(3, 2)" in repr(u)
    assert "negated" not in repr(u)
    assert "negated" in repr(~u)


@given(st.data())
def test_a_mask_negates_as_it_does_booleans(data: st.DataObject) -> None:
    u, expected = made(data.draw(shapes))
    before = data.draw(hnp.arrays(bool, u.shape))
    u = Variables(u.graph, u.index, before)
    mask = data.draw(hnp.arrays(bool, data.draw(hnp.broadcastable_shapes(u.shape, max_side=4))))
    for view in (u ^ mask, mask ^ u, u ^ mask.tolist()):
        np.testing.assert_array_equal(view.negated, before ^ mask)
        np.testing.assert_array_equal(
            view.index, np.broadcast_to(expected, view.shape), strict=True
        )
    np.testing.assert_array_equal((u ^ mask ^ mask).negated, view.negated ^ mask)
    np.testing.assert_array_equal((u ^ True).negated, (~u).negated)


def test_negation_by_a_mask_reaches_values_and_factors() -> None:
    scores, mask = np.array([0.9, 0.6, 0.2]), np.array([True, False, True])
    values = []
    for negate in (
        lambda u: u ^ mask,
        lambda u: stack([~u[0], u[1], ~u[2]]),
    ):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(lpsmap.Or(negate(u)))
        graph.solve()
        values.append(negate(u).value)
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        ([1, 0, 1], TypeError, r"mask is \[1, 0, 1\]; expected booleans"),
        (np.array([1, 0, 1]), TypeError, "mask has dtype int64; expected booleans.* mask != 0"),
        (None, TypeError, "mask is None; expected booleans, true where a variable is negated"),
        ("no", TypeError, "mask is 'no'; expected booleans"),
        (np.ma.masked_array([True] * 3, [0, 0, 1]), TypeError, "mask: got a masked array"),
        ([True, False], ValueError, r"mask has shape \(2,\); expected one that broadcasts with"),
    ],
)
def test_masks_of_negation_are_checked(mask: Any, error: type[Exception], words: str) -> None:
    u, _ = made((2, 3))
    with pytest.raises(error, match=rf"^u \^ mask: {words}"):
        u ^ mask
    with pytest.raises(TypeError, match="Variables are not numbers"):
        u ^ u


def test_variables_have_no_truth_value() -> None:
    """``if u[0]:`` could mean an unsolved value, or the number of variables."""
    u, _ = made((2, 3))
    for view in (u, u[0, 0]):
        with pytest.raises(TypeError, match=r"neither true nor false; .* or ~u"):
            bool(view)


def test_numpy_makes_no_arrays_of_variables() -> None:
    u, _ = made((2, 3))
    for make in (np.asarray, np.stack, lambda v: np.array([v, v])):
        with pytest.raises(TypeError, match="Variables are not numbers.*lpsmap.stack"):
            make(u)


def test_indices_of_views_are_read_only() -> None:
    """Compiled code does not validate indices: a wrong one could end the process."""
    graph = FactorGraph()
    whole, mine = graph.variable((2, 3)), np.arange(2)
    for view in (whole, whole[0], whole[[1, 0]], ~whole, whole.T, stack([whole[0], whole[1]])):
        for array in (view.index, view.negated):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 99
    Variables(graph, mine, mine > 5)
    mine[0] = 1  # the caller's array stays writable
