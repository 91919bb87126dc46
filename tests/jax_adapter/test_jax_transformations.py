"""Marginals and losses inside the transformations of JAX."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from lpsmap import AtMostOne, Budget, DepTree, Or, Pair, Sequence, Xor
from lpsmap_core import FactorGraph, Solution
from lpsmap_jax import sparse_map, sparse_map_loss

EXACT = {"rtol": 0.0, "atol": 1e-12}


def matching(u: Any) -> list[Any]:
    return [Xor(u), AtMostOne(u, axis=-2)]


def chain(u: Any, w: Any, lengths: Any = None) -> Any:
    return Sequence(u, w, lengths=lengths)


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def same(found: Any, expected: Any) -> None:
    """Compare trees of arrays."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, **EXACT)


def test_the_projection_onto_the_simplex() -> None:
    """Independent of every solver: sparsemax by hand, and its Jacobian."""
    sparsemax = sparse_map(Xor)
    scores = jnp.array([0.3, 0.1, -1.0])
    same(sparsemax(scores), jnp.array([0.6, 0.4, 0.0]))
    expected = jnp.array([[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    same(jax.jacrev(sparsemax)(scores), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_central_differences(compiled: bool) -> None:
    transform = jax.jit if compiled else lambda f: f
    solve = transform(sparse_map(matching, tol=1e-10))
    check_grads(solve, (normal(2, 3, 4),), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)
    solve = transform(sparse_map(chain, tol=1e-10))
    check_grads(
        lambda eta, w: solve(eta, w=w),
        (normal(2, 4, 3), normal(3, 3, seed=1)),
        order=1,
        modes=["rev"],
        atol=1e-6,
        rtol=1e-6,
    )


def test_a_mapped_batch_is_the_batch() -> None:
    """Lengths mapped, transitions not; then the reverse."""
    eta, w, lengths = normal(3, 4, 2), normal(2, 2, seed=1), jnp.array([4, 2, 3])
    solve = sparse_map(chain)

    def total(eta: Any, w: Any, lengths: Any) -> Any:
        return jnp.sum(jnp.sin(solve(eta, w=w, lengths=lengths)))

    same(
        jax.vmap(lambda eta, n: solve(eta, w=w, lengths=n))(eta, lengths),
        solve(eta, w=w, lengths=lengths),
    )
    mapped = jax.vmap(jax.grad(total, (0, 1)), (0, None, 0))
    expected = jax.grad(total, (0, 1))(eta, w, lengths)
    for transform in (lambda f: f, jax.jit):
        of_eta, of_w = transform(mapped)(eta, w, lengths)
        same((of_eta, of_w.sum(axis=0)), expected)
    same(jax.grad(lambda w: jax.vmap(total, (0, None, 0))(eta, w, lengths).sum())(w), expected[1])
    several = normal(5, 2, 2, seed=2)
    same(
        jax.vmap(lambda w: solve(eta, w=w))(several),
        jnp.stack([solve(eta, w=w) for w in several]),
    )


def test_nested_maps() -> None:
    eta, w = normal(2, 3, 3, 2), normal(3, 2, 2, seed=1)
    solve = sparse_map(chain)
    gradient = jax.grad(lambda eta, w: jnp.sum(solve(eta, w=w)[0] ** 2), (0, 1))
    both = jax.jit(jax.vmap(jax.vmap(gradient), (0, None)))
    expected = [[gradient(eta[i, j], w[j]) for j in range(3)] for i in range(2)]
    same(
        both(eta, w),
        jax.tree.map(
            lambda *x: jnp.stack(x).reshape(2, 3, *x[0].shape),
            *(x for row in expected for x in row),
        ),
    )


def test_a_jacobian_needs_one_solve_per_instance() -> None:
    calls = []

    def counted(u: Any) -> list[Any]:
        calls.append(u.shape)
        return matching(u)

    scores = normal(2, 3, seed=3)
    jacobian = jax.jacrev(sparse_map(counted))(scores)
    assert calls == [(2, 3)] * 2  # forward, backward
    flat = jacobian.reshape(6, 6)
    same(flat, flat.T)
    same(flat @ flat, flat)  # an orthogonal projection
    mapped = jax.jit(jax.vmap(jax.jacrev(sparse_map(matching))))(jnp.stack([scores, -scores]))
    same(mapped[0], jacobian)


def test_inside_control_flow_and_rematerialisation() -> None:
    solve = sparse_map(matching)
    scores = normal(4, 2, 3)

    @jax.jit
    def scanned(scores: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            values = solve(row + carry)
            return values, values

        return jax.lax.scan(jax.checkpoint(step), jnp.zeros((2, 3)), scores)[1]

    def looped(scores: Any) -> Any:
        carry, found = jnp.zeros((2, 3)), []
        for row in scores:
            carry = solve(row + carry)
            found.append(carry)
        return jnp.stack(found)

    same(scanned(scores), looped(scores))
    weights = normal(4, 2, 3, seed=1)
    gradients = [
        jax.grad(lambda x, f=f: jnp.sum(f(x) * weights))(scores) for f in (scanned, looped)
    ]
    same(*gradients)


def test_a_tree_of_blocks() -> None:
    """Two blocks that share a factor; the gradient of one reaches the scores of the other."""

    def build(u: Any, scores: Any) -> list[Any]:
        return [Xor([u["a"][0], *u["b"]]), Pair(u["a"][0], u["a"][1], scores["pair"])]

    blocks = {"a": normal(2), "b": [jnp.asarray(0.25, dtype=jnp.float32), normal(seed=2)]}
    solve = sparse_map(build)
    marginals = solve(blocks, scores={"pair": jnp.asarray(0.5), "name": "pair"})
    assert jax.tree.structure(marginals) == jax.tree.structure(blocks)
    assert [x.dtype for x in jax.tree.leaves(marginals)] == ["float64", "float32", "float64"]
    assert marginals["a"][0] + marginals["b"][0] + marginals["b"][1] == pytest.approx(1.0, abs=1e-7)

    def first(blocks: Any) -> Any:
        return solve(blocks, scores={"pair": jnp.asarray(0.5)})["a"][0]

    slopes = jax.jit(jax.grad(first))(blocks)
    assert slopes["b"][1] < 0.0 and slopes["b"][0].dtype == "float32"


def test_arguments_that_are_not_arrays() -> None:
    def build(u: Any, most: int, name: str, axis: None, rows: Any) -> list[Any]:
        assert (name, axis) == ("a", None)
        return [Budget(u[rows], most), Or(u[0])]

    def solve(scores: Any, rows: Any) -> Any:
        return sparse_map(build)(scores, most=1, name="a", axis=None, rows=rows)

    scores = normal(3, 4)
    found = jax.jit(solve)(scores, jnp.array([2, 0]))
    same(found, solve(scores, jnp.array([2, 0])))
    assert (np.asarray(found[1]) == 0.0).all()


def test_a_change_of_an_input_after_the_call_has_no_effect() -> None:
    """NumPy arrays can change between forward and backward; JAX arrays cannot."""
    scores = np.random.default_rng(0).normal(size=(64, 64))
    gradient = np.random.default_rng(1).normal(size=(64, 64))
    expected = jax.vjp(sparse_map(Xor), jnp.array(scores))[1](gradient)
    _, pull_back = jax.vjp(sparse_map(Xor), scores)
    scores[:] = 0.0
    same(pull_back(gradient), expected)


def test_no_solution_outlives_a_call() -> None:
    def count() -> int:
        gc.collect()
        # The type itself: isinstance would follow a weak proxy, whose object may be gone.
        return sum(issubclass(type(x), (Solution, FactorGraph)) for x in gc.get_objects())

    solve, scores, before = sparse_map(matching), normal(2, 3, 4), count()
    value, pull_back = jax.vjp(jax.jit(solve), scores)
    assert count() == before
    jax.block_until_ready(pull_back(value))
    assert count() == before


@pytest.mark.parametrize("compiled", [False, True])
def test_second_derivatives_are_refused(compiled: bool) -> None:
    transform = jax.jit if compiled else lambda f: f
    heads = jnp.array([-1, 0, 1])
    loss, solve = sparse_map_loss(DepTree), sparse_map(DepTree)
    for function in (
        lambda scores: jnp.sum(solve(scores) ** 2),
        lambda scores: loss(scores, heads),
    ):
        twice = transform(jax.grad(lambda x, f=function: jnp.sum(jax.grad(f)(x) ** 2)))
        with pytest.raises(NotImplementedError, match="second derivative of a solution"):
            twice(normal(3, 3))


def test_a_gradient_that_is_held_fixed_is_no_second_derivative() -> None:
    solve = sparse_map(Xor)

    def step(scores: Any) -> Any:
        slope = jax.grad(lambda x: solve(x)[0])(jax.lax.stop_gradient(scores))
        return jnp.sum(solve(scores + slope) * jnp.arange(3.0))

    assert jnp.isfinite(jax.grad(step)(jnp.array([0.3, 0.1, -1.0]))).all()


def test_the_loss_inside_transformations() -> None:
    loss = sparse_map_loss(chain)
    eta, w = normal(3, 4, 2), normal(2, 2, seed=1)
    lengths, tags = jnp.array([4, 2, 3]), jnp.array([[0, 1, 1, 0], [1, 1, 9, 9], [0, 0, 1, -100]])

    def single(eta: Any, w: Any, tags: Any, n: Any) -> Any:
        return loss(eta, tags, w=w, lengths=n)

    whole, slopes = jax.value_and_grad(single, (0, 1))(eta, w, tags, lengths)
    mapped = jax.vmap(jax.value_and_grad(single, (0, 1)), (0, None, 0, 0))
    for transform in (lambda f: f, jax.jit):
        values, (of_eta, of_w) = transform(mapped)(eta, w, tags, lengths)
        assert values.shape == (3,) and (values >= 0.0).all()
        same((values.sum(), of_eta, of_w.sum(axis=0)), (whole, *slopes))
    check_grads(
        lambda eta, w: single(eta, w, tags, lengths),
        (eta, w),
        order=1,
        modes=["rev"],
        atol=1e-6,
        rtol=1e-6,
    )
    # several targets for one solution
    both = jnp.stack([tags, 1 - tags % 2])
    found = jax.vmap(lambda y: single(eta, w, y, lengths))(both)
    same(found, jnp.stack([single(eta, w, y, lengths) for y in both]))
