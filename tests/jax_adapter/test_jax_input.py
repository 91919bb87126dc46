"""Dtypes, padding, -inf, NaN, empty batches, unsolved components, and bad input."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpsmap import AtMostOne, DepTree, Knapsack, Or, Sequence, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_jax import sparse_map, sparse_map_loss

EXACT = {"rtol": 0.0, "atol": 1e-12}


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def total(solve: Any, scores: Any, **arguments: Any) -> jax.Array:
    return jnp.sum(solve(scores, **arguments) ** 2)


@pytest.mark.parametrize(
    "dtype, tolerance",
    [("float64", 1e-12), ("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 1e-2)],
)
def test_dtypes(dtype: str, tolerance: float) -> None:
    """Inputs are rounded before, outputs after; the solve is in float64."""
    rounded = normal(2, 4, 3).astype(dtype)
    w = normal(3, 3, seed=1).astype(dtype)
    solve = sparse_map(Sequence)

    def gradients(scores: Any, w: Any) -> Any:
        return jax.value_and_grad(lambda s, w: total(solve, s, transitions=w), (0, 1))(scores, w)

    for found in (gradients(rounded, w), jax.jit(gradients)(rounded, w)):
        value, (of_scores, of_w) = found
        assert value.dtype == of_scores.dtype == of_w.dtype == dtype
        exact = gradients(rounded.astype("float64"), w.astype("float64"))
        np.testing.assert_allclose(value.astype("float64"), exact[0], rtol=8 * tolerance)
        for own, other in zip((of_scores, of_w), exact[1], strict=True):
            np.testing.assert_allclose(own.astype("float64"), other, rtol=0, atol=8 * tolerance)
    loss = sparse_map_loss(Sequence)(rounded, jnp.zeros((2, 4), int), transitions=w)
    assert loss.dtype == ("float64" if dtype == "float64" else "float32")


def test_without_double_precision() -> None:
    jax.config.update("jax_enable_x64", False)
    scores = jnp.array([[0.3, 0.1, -1.0]])
    found = jax.jit(sparse_map(Xor))(scores)
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, np.float32([[0.6, 0.4, 0.0]]))
    slopes = jax.grad(lambda x: sparse_map(Xor)(x)[0, 0])(scores)
    np.testing.assert_array_equal(slopes, np.float32([[0.5, -0.5, 0.0]]))
    assert sparse_map_loss(Xor)(scores, jnp.array([0])).dtype == "float32"


def test_ties() -> None:
    """At a kink, the gradient is that of one side: an element of the generalised Jacobian."""
    jacobian = jax.jacrev(sparse_map(Xor))(jnp.array([1.0, 1.0, 0.0, 0.0]))
    assert (jacobian == jacobian.T).all()
    np.testing.assert_allclose(jacobian @ jacobian, jacobian, **EXACT)
    np.testing.assert_allclose(sparse_map(Xor)(jnp.zeros(4)), 0.25, **EXACT)


@pytest.mark.parametrize("low", [-np.inf, -1e9])
def test_masks_in_scores(low: float) -> None:
    mask = jnp.array([[True, True, False], [False, True, True]])

    def solve(scores: Any) -> Any:
        return sparse_map(Xor)(jnp.where(mask, scores, low))

    scores = normal(2, 3)
    found, slopes = solve(scores), jax.grad(lambda x: jnp.sum(solve(x) ** 2))(scores)
    assert (np.asarray(found)[~np.asarray(mask)] == 0.0).all()
    assert (np.asarray(slopes)[~np.asarray(mask)] == 0.0).all()
    for i in range(2):
        own = sparse_map(Xor)(scores[i][mask[i]])
        np.testing.assert_allclose(found[i][mask[i]], own, rtol=0, atol=1e-9)


def test_minus_infinity_in_transitions() -> None:
    w = jnp.array([[0.5, -jnp.inf], [0.2, 0.1]])
    scores = normal(3, 2)
    solve = sparse_map(Sequence)
    slopes = jax.grad(lambda w: total(solve, scores, transitions=w))(w)
    assert jnp.isfinite(slopes).all() and slopes[0, 1] == 0.0
    low = jax.grad(lambda w: total(solve, scores, transitions=w))(jnp.maximum(w, -1e6))
    np.testing.assert_allclose(slopes, low, rtol=0, atol=1e-8)


def test_padding_may_hold_anything() -> None:
    scores = normal(2, 3, 3).at[1, 2].set(jnp.nan).at[1, :, 2].set(jnp.inf)
    solve, lengths = sparse_map(DepTree), jnp.array([3, 2])
    found = solve(scores, lengths=lengths)
    slopes = jax.jit(jax.grad(lambda x: total(solve, x, lengths=lengths)))(scores)
    for x in (found, slopes):
        assert (x[1, 2] == 0.0).all() and (x[1, :, 2] == 0.0).all() and jnp.isfinite(x).all()
    np.testing.assert_allclose(found[1, :2, :2], solve(scores[1, :2, :2]), **EXACT)
    heads = jnp.array([[-1, 0, 1], [-1, 0, 77]])
    value, slopes = jax.value_and_grad(sparse_map_loss(DepTree))(scores, heads, lengths=lengths)
    assert jnp.isfinite(value) and (slopes[1, 2] == 0.0).all()


@pytest.mark.parametrize("mapped", [False, True])
def test_nan_stays_in_its_instance(mapped: bool) -> None:
    scores, w = normal(3, 4, 2).at[1, 0, 0].set(jnp.nan), normal(2, 2, seed=1)
    solve = sparse_map(Sequence)

    def function(scores: Any) -> Any:
        return solve(scores, transitions=w)

    if mapped:
        function = jax.vmap(function)
    with pytest.warns(ConvergenceWarning, match="NON_FINITE"):
        found = function(scores)
    with pytest.warns(ConvergenceWarning, match="NON_FINITE"):
        slopes = jax.grad(lambda x: jnp.sum(function(x) ** 2))(scores)
    for x in (found, slopes):
        assert jnp.isnan(x[1]).all() and jnp.isfinite(x[jnp.array([0, 2])]).all()
    loss = sparse_map_loss(Sequence)
    tags = jnp.zeros((3, 4), int)
    with pytest.warns(ConvergenceWarning, match="NON_FINITE"):
        losses = jax.vmap(lambda x, y: loss(x, y, transitions=w))(scores, tags)
    assert jnp.isnan(losses).tolist() == [False, True, False]


@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (2, 0)])
def test_empty_batches(shape: tuple[int, ...]) -> None:
    scores = jnp.zeros(shape)
    for transform in (lambda f: f, jax.jit):
        assert transform(sparse_map(AtMostOne))(scores).shape == shape
        slopes = transform(jax.grad(lambda x: total(sparse_map(AtMostOne), x)))(scores)
        assert slopes.shape == shape
        assert transform(sparse_map_loss(AtMostOne))(scores, jnp.zeros(shape)) == 0.0


def test_no_factors() -> None:
    assert (sparse_map(lambda u: [])(normal(2, 3)) == 0.0).all()
    chain = sparse_map(Sequence)
    single = jax.grad(lambda w: total(chain, normal(2, 1, 3), transitions=w))(normal(3, 3))
    assert (single == 0.0).all()  # no step, so no transition


def test_views_that_are_not_contiguous() -> None:
    scores = normal(3, 5)
    np.testing.assert_array_equal(sparse_map(Xor)(scores.T[::2]), sparse_map(Xor)(scores[:, ::2].T))
    given = np.asarray(scores)[::-1, ::2]
    np.testing.assert_array_equal(sparse_map(Xor)(given), sparse_map(Xor)(jnp.array(given)))


@pytest.mark.parametrize("compiled", [False, True])
def test_infeasible_components(compiled: bool) -> None:
    """They have zeros and a warning; the other components are solved."""

    def build(u: Any) -> list[Any]:
        return [Xor(u), AtMostOne(~u)]  # of three variables, one is on and one is off

    solve = sparse_map(lambda u: [*build(u[0]), Xor(u[1])])
    scores = normal(2, 3)
    transform = jax.jit if compiled else lambda f: f
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        found = jax.block_until_ready(transform(solve)(scores))
    assert (found[0] == 0.0).all()
    np.testing.assert_allclose(found[1], sparse_map(Xor)(scores[1]), **EXACT)
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        slopes = jax.block_until_ready(transform(jax.grad(lambda x: total(solve, x)))(scores))
    assert (slopes[0] == 0.0).all() and (slopes[1] != 0.0).any()


def test_an_unconverged_solve_warns_about_the_line_of_the_user() -> None:
    solve = sparse_map(lambda u: [Xor(u), AtMostOne(u, axis=0)], max_iter=1, adapt=False)
    with pytest.warns(ConvergenceWarning, match="ITERATION_LIMIT") as caught:
        solve(normal(4, 6))
    assert caught[0].filename == __file__


def test_options_and_temperature() -> None:
    scores = normal(2, 4)
    warm = sparse_map(Xor, temperature=2.0)
    np.testing.assert_allclose(warm(scores), sparse_map(Xor)(scores / 2.0), **EXACT)
    slopes = jax.grad(lambda x: total(warm, x))(scores)
    expected = jax.grad(lambda x: total(sparse_map(Xor), x / 2.0))(scores)
    np.testing.assert_allclose(slopes, expected, **EXACT)


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize("make", [sparse_map, sparse_map_loss])
def test_bad_functions_and_options(make: Any) -> None:
    with pytest.raises(TypeError, match=f"{make.__name__}: factors is a str; expected a factor"):
        make("Xor")
    with pytest.raises(ValueError, match="temperature"):
        make(Xor, temperature=0.0)
    with pytest.raises(TypeError, match="speed"):
        make(Xor, speed=1)


@pytest.mark.parametrize(
    "scores, got",
    [
        (jnp.arange(3), "dtype int"),
        ([0.1, 0.2], "a float"),
        (jnp.ones(3, complex), "dtype complex"),
        (None, "None"),
        ({}, "a dict"),
    ],
)
def test_bad_scores(scores: Any, got: str) -> None:
    with pytest.raises(TypeError, match=f"sparse_map: scores: got {got}.*; expected an array of"):
        sparse_map(Xor)(scores)


def test_bad_factors() -> None:
    with pytest.raises(TypeError, match="add: got None; expected a Factor"):
        sparse_map(lambda u: None)(normal(3))
    with pytest.raises(ValueError, match="expected at least 1 axes"):
        sparse_map(Xor)(normal())
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected at least 1 axes"):
        jax.block_until_ready(jax.jit(sparse_map(Xor))(normal()))


@pytest.mark.parametrize(
    "build",
    [
        lambda u, w: Sequence(u, 2.0 * w),
        lambda u, w: Sequence(u, -w),
        lambda u, w: Sequence(u, w + w.T),
        lambda u, w: Sequence(u, np.maximum(w, 0.0)),
        lambda u, w: Sequence(u, np.sort(w)),
        lambda u, w: Sequence(u, w.astype(np.float32)),
        lambda u, w: Knapsack(u[0], np.abs(w[0]) + 0.1, 0.3),
        lambda u, w: Knapsack(u[0], np.abs(w[0]) + 0.1, w[0, 0]),
        lambda u, w: AtMostOne(u) if w[0, 0] < 1.0 else Or(u),
        lambda u, w: AtMostOne(u) if w[0, 0] < 1.0 else [],
        lambda u, w: AtMostOne(u if w[0, 0] < 1.0 else ~u),
    ],
)
def test_gradients_in_what_is_no_score_of_additionals(build: Any) -> None:
    """Such arrays are fine without a gradient, and never get a wrong one."""
    w = normal(2, 2, seed=2)
    assert w[0, 0] < 1.0
    solve, scores = sparse_map(build), normal(3, 2)
    assert jnp.isfinite(jax.grad(lambda x: total(solve, x, w=w))(scores)).all()
    for wrap in (jax.jit, jax.checkpoint):
        traced = jax.grad(wrap(lambda x, w: total(solve, x, w=w)))
        assert jnp.isfinite(jax.jit(traced)(scores, w)).all()
    with pytest.raises(ValueError, match="w: has a gradient, but the function of variables"):
        jax.grad(lambda w: total(solve, scores, w=w))(w)
    assert jax.grad(lambda w: total(solve, scores, w=jax.lax.stop_gradient(w)))(w).shape == w.shape


def test_scores_that_the_function_closes_over() -> None:
    """Their gradient would be lost, and in a callback JAX must not be called."""
    scores, message = normal(3, 2), "closes over; expected an argument. Pass it to the call"

    def solve(w: Any) -> Any:
        return jnp.sum(sparse_map(lambda u: Sequence(u, w))(scores) ** 2)

    with pytest.raises(TypeError, match=message):
        solve(normal(2, 2))
    for transform in (jax.grad, jax.jit):
        with pytest.raises((TypeError, jax.errors.JaxRuntimeError), match="unexpected tracer"):
            jax.block_until_ready(transform(solve)(normal(2, 2)))
    constant = np.asarray(normal(2, 2))
    assert jnp.isfinite(jax.jit(sparse_map(lambda u: Sequence(u, constant)))(scores)).all()


def test_a_gradient_names_its_argument() -> None:
    solve = sparse_map(lambda u, tables: Sequence(u, -tables["transitions"][0]))
    with pytest.raises(ValueError, match=re.escape("tables['transitions'][0]: has a gradient")):
        jax.grad(lambda w: total(solve, normal(3, 2), tables={"transitions": [w]}))(normal(2, 2))


@pytest.mark.parametrize(
    "target, error, message",
    [
        (jnp.zeros(3), ValueError, "target has shape (3,) and dtype float32; expected (2, 3)"),
        (jnp.zeros(2), ValueError, "target has shape (2,) and dtype float32; expected (2, 3)"),
        ([0, 1], ValueError, "target has the structure"),
        (3, TypeError, "target is an int; expected an array"),
        (jnp.full((2, 3), 1.5), ValueError, "target holds 1.5 at [0, 0] of instance 0; expected"),
        (jnp.array([0, 3]), ValueError, "target holds 3 at [1] of instance 0; expected positions"),
        (jnp.array([0, -1]), ValueError, "target holds -1 at [1] of instance 0, which means"),
        (
            jnp.array([[1, 1, 0], [1, 0, 0]]),
            ValueError,
            "target: instance 0 is not a structure that Xor allows",
        ),
        (jnp.array([2, 0]), ValueError, "target: instance 0 has a variable on whose score is -inf"),
    ],
)
def test_bad_targets(target: Any, error: type[Exception], message: str) -> None:
    scores = normal(2, 3).at[0, 2].set(-jnp.inf)
    with pytest.raises(error, match=re.escape(message)):
        sparse_map_loss(Xor)(scores, target)


@pytest.mark.parametrize(
    "heads, message",
    [
        # as far as they cannot be heads counted from 0
        ([-1, 3, 1], "target holds 3 at [1] of instance 0; "),
        ([-1, 1, 0], "target holds 1 at [1] of instance 0; "),
    ],
)
def test_heads_are_counted_from_zero(heads: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        sparse_map_loss(DepTree)(normal(3, 3), jnp.array(heads))
    assert "subtract 1 from heads counted from 1" in str(caught.value)


def test_labels_that_no_structure_completes() -> None:
    target = jnp.array([[1.0, 1.0, jnp.nan], [jnp.nan] * 3])
    loss = sparse_map_loss(Xor)
    with (
        pytest.warns(ConvergenceWarning, match="INFEASIBLE"),
        pytest.raises(ValueError, match="target: no structure of instance 0 agrees"),
    ):
        loss(normal(2, 3), target)
    with (
        pytest.warns(ConvergenceWarning, match="INFEASIBLE"),
        pytest.raises(jax.errors.JaxRuntimeError, match="no structure of instance 1 agrees"),
    ):
        jax.block_until_ready(jax.vmap(loss)(normal(2, 3), target[::-1]))


def test_roots_are_their_own_heads_on_request() -> None:
    scores, loss = normal(4, 4), sparse_map_loss(DepTree)
    found = loss(scores, jnp.array([1, -1, 1, 2]))
    assert loss(scores, jnp.array([1, 1, 1, 2]), root="self") == found
    with pytest.raises(ValueError, match="subtract 1 from heads counted from 1"):
        loss(scores, jnp.array([2, 0, 2, 3]))


def test_padding_without_lengths_warns_of_phantom_words() -> None:
    with pytest.warns(UserWarning, match="lengths="):
        sparse_map_loss(DepTree)(normal(4, 4), jnp.array([1, -1, -100, -100]))


def test_arguments_that_a_factor_type_does_not_take() -> None:
    for solve in (sparse_map(DepTree), lambda x, **y: sparse_map_loss(DepTree)(x, x, **y)):
        with pytest.raises(TypeError, match="DepTree: unexpected argument 'mask'; .* or labelled"):
            solve(normal(2, 3, 3), mask=True)


def test_lengths_of_arcs_that_are_not_square() -> None:
    with pytest.raises(ValueError, match=r"DepTree: variables has shape \(2, 5, 4\); .* equal"):
        sparse_map(DepTree)(normal(2, 5, 4), lengths=jnp.array([4, 5]))
