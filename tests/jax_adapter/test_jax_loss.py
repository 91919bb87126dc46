"""The SparseMAP loss against enumeration, and against the adapter to torch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpsmap import AtMostOne, DepTree, FactorGraph, Matching, Pair, Sequence, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_jax import sparse_map, sparse_map_loss
from random_graphs import Declared, RandomGraph, random_structures

EXACT = {"rtol": 0.0, "atol": 1e-12}
KINDS = ["Xor", "Or", "AtMostOne", "Budget", "Imply", "OrOut", "Pair", "DepTree", "Sequence"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_definition_by_enumeration(kind: str) -> None:
    """Fenchel-Young: the maximum by the judge's marginals, less the objective of a structure."""
    rng = np.random.default_rng(len(kind))
    _, m, n, parameters = random_structures(rng, kind)
    arity = m.shape[1]
    variables, negated = rng.permutation(arity), rng.integers(0, 2, size=arity) > 0
    w = rng.normal(size=n.shape[1])
    declared = Declared(kind, variables, negated, m, n, w, parameters)
    drawn = RandomGraph(rng.normal(size=arity), [declared])
    mu, (nu,) = drawn.judged()
    whole = np.flatnonzero((m == np.round(m)).all(axis=1))
    k = int(rng.choice(whole))
    y = np.zeros(arity)
    y[variables] = np.where(negated, 1.0 - m[k], m[k])
    agree = np.flatnonzero((m == m[k]).all(axis=1))  # their additionals can differ: the best count
    best = agree[np.argmax((n @ w)[agree])]

    def objective(mu: Any, nu: Any) -> Any:
        return drawn.eta @ mu - 0.5 * mu @ mu + w @ nu

    arguments = {"w": jnp.asarray(w)} if w.size else {}

    def build(u: Any, w: Any = None) -> Any:
        return declared.declare(u, np.zeros(0) if w is None else w)

    loss = sparse_map_loss(build, tol=1e-10)
    found, slopes = jax.value_and_grad(
        lambda eta, arguments: loss(eta, jnp.asarray(y), **arguments), (0, 1)
    )(jnp.asarray(drawn.eta), arguments)
    assert found == pytest.approx(objective(mu, nu) - objective(y, n[best]), rel=0, abs=1e-7)
    np.testing.assert_allclose(slopes[0], mu - y, rtol=0, atol=1e-6)
    if arguments:
        np.testing.assert_allclose(slopes[1]["w"], nu - n[best], rtol=0, atol=1e-6)


def test_zero_at_the_solution() -> None:
    scores = jnp.array([[5.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    found, slopes = jax.value_and_grad(sparse_map_loss(Xor))(scores, jnp.array([0, 2]))
    assert found == 0.0 and (slopes == 0.0).all()


def test_the_gradient_is_the_solution_less_the_labels() -> None:
    scores = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3, 5)))
    labels = jnp.asarray(np.random.default_rng(1).integers(0, 5, size=(4, 3)))

    def build(u: Any) -> Any:
        return Xor(u)

    slopes = jax.jit(jax.grad(sparse_map_loss(build)))(scores, labels)
    expected = sparse_map(build)(scores) - jax.nn.one_hot(labels, 5)
    np.testing.assert_allclose(slopes, expected, **EXACT)


def matching(u: Any) -> list[Any]:
    return [Xor(u), AtMostOne(u, axis=-2)]


def pairs(u: Any, w: Any) -> list[Any]:
    return [Xor(u), Pair(u[:, 0, 0], ~u[:, 1, 0], w)]


HEADS = np.array([[-1, 0, 1], [1, -1, -100]])
PARTLY = np.array([[1.0, 0.0, 0.0], [np.nan] * 3])
CASES: dict[str, tuple[Any, tuple[int, ...], Any, dict[str, Any], dict[str, Any]]] = {
    "trees": (DepTree, (2, 3, 3), HEADS, {}, {"lengths": np.array([3, 2])}),
    "matching": (matching, (2, 2, 3), np.array([[0, 2], [1, -100]]), {}, {}),
    "no partner": (AtMostOne, (2, 2, 3), np.array([[0, -1], [-1, -100]]), {}, {}),
    "pairs": (pairs, (3, 2, 3), np.array([[0, 2], [1, 1], [0, 0]]), {"w": (3,)}, {}),
    "tags": (Sequence, (2, 3, 2), np.array([[0, 1, 1], [1, 0, 0]]), {"transitions": (2, 2)}, {}),
    "some tags": (
        Sequence,
        (2, 3, 2),
        np.array([[0, -100, 1], [-100, -100, 0]]),
        {"transitions": (2, 2), "final": (2,)},
        {"lengths": np.array([3, 2])},
    ),
    "single variables": (Xor, (2, 3), PARTLY, {}, {}),
    "booleans": (Xor, (2, 3), np.array([[True, False, False], [False, True, False]]), {}, {}),
}


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("name", CASES)
def test_agreement_with_the_adapter_to_torch(name: str, temperature: float) -> None:
    torch = pytest.importorskip("torch")
    from lpsmap_torch.losses import SparseMAPLoss

    factors, shape, target, shapes, constants = CASES[name]
    rng = np.random.default_rng(0)
    eta, given = rng.normal(size=shape), {k: rng.normal(size=s) for k, s in shapes.items()}
    scores = torch.tensor(eta, requires_grad=True)
    others = {k: torch.tensor(x, requires_grad=True) for k, x in given.items()}
    fixed = {k: torch.tensor(x) for k, x in constants.items()}
    criterion = SparseMAPLoss(factors, temperature=temperature, reduction="none")
    losses = criterion(scores, torch.tensor(target), **others, **fixed)
    losses.sum().backward()

    loss = sparse_map_loss(factors, temperature=temperature)
    arrays = {k: jnp.asarray(x) for k, x in constants.items()}

    def total(eta: Any, given: Any) -> Any:
        return loss(eta, jnp.asarray(target), **given, **arrays)

    given = {k: jnp.asarray(x) for k, x in given.items()}
    found, slopes = jax.jit(jax.value_and_grad(total, (0, 1)))(jnp.asarray(eta), given)
    np.testing.assert_allclose(found, losses.detach().numpy().sum(), **EXACT)
    np.testing.assert_allclose(slopes[0], scores.grad.numpy(), **EXACT)
    for key, other in others.items():
        np.testing.assert_allclose(slopes[1][key], other.grad.numpy(), **EXACT)


def chain(u: Any, w: Any) -> Any:
    return Sequence(u, w)


@pytest.mark.parametrize("with_additionals", [False, True])
def test_agreement_with_torch_on_marginals(with_additionals: bool) -> None:
    torch = pytest.importorskip("torch")
    from lpsmap_torch.losses import SparseMAPLoss

    rng = np.random.default_rng(3)
    eta, w = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 2))
    mu, nu = sampled_marginals(rng)
    factors = chain if with_additionals else Xor
    given = {"w": torch.tensor(w, requires_grad=True)} if with_additionals else {}
    more = {"target_additionals": torch.tensor(nu)} if with_additionals else {}
    scores = torch.tensor(eta, requires_grad=True)
    losses = SparseMAPLoss(factors, reduction="none")(scores, torch.tensor(mu), **more, **given)
    losses.sum().backward()
    assert (losses > 0.0).all()

    def total(eta: Any, w: Any) -> Any:
        arguments = {"w": w, "target_additionals": jnp.asarray(nu)} if with_additionals else {}
        return sparse_map_loss(factors)(eta, jnp.asarray(mu), **arguments)

    found, slopes = jax.value_and_grad(total, (0, 1))(jnp.asarray(eta), jnp.asarray(w))
    np.testing.assert_allclose(found, losses.detach().numpy().sum(), **EXACT)
    np.testing.assert_allclose(slopes[0], scores.grad.numpy(), **EXACT)
    if with_additionals:
        np.testing.assert_allclose(slopes[1], given["w"].grad.numpy(), **EXACT)

        def of_item(*arrays: Any) -> Any:
            eta, mu, nu = arrays
            return sparse_map_loss(factors)(eta, mu, w=jnp.asarray(w), target_additionals=nu)

        arrays = jnp.asarray(eta), jnp.asarray(mu), jnp.asarray(nu)
        mapped = jax.jit(jax.vmap(of_item))(*arrays)
        np.testing.assert_allclose(mapped, losses.detach().numpy(), **EXACT)


def sampled_marginals(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return marginals and additionals of mixtures of taggings of three words, for two items."""
    tags = rng.integers(0, 2, size=(2, 5, 3))
    on = np.eye(2)[tags]
    graph = FactorGraph()
    factor = graph.add(Sequence(graph.variable_from(1e3 * (on - 0.5)), np.zeros((2, 2))))
    graph.solve()
    steps = graph.additionals_of(factor)
    p = rng.dirichlet(np.ones(5), size=2)
    return np.einsum("bs,bsia->bia", p, on), np.einsum("bs,bs...->b...", p, steps)


@pytest.mark.parametrize(
    "target, message",
    [
        ([[0.5, 0.4, 0.4]], "target: instance 0 is no mixture of structures of Xor"),
        ([[0.5, 0.5, np.nan]], "target: marginals are given for some variables only"),
        (
            [[1.5, 0.0, 0.0]],
            r"target holds 1.5 at \[0, 0\] of instance 0; expected 0, 1, marg",
        ),
    ],
)
def test_bad_marginals(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sparse_map_loss(Xor)(jnp.zeros((1, 3)), jnp.asarray(target))


def test_missing_and_misshapen_additionals() -> None:
    loss, mu = sparse_map_loss(chain), jnp.full((3, 2), 0.5)
    with pytest.raises(ValueError, match="marginals do not determine the additionals of Sequence"):
        loss(jnp.zeros((3, 2)), mu, w=jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"target_additionals has shape \(2,\); expected \(8,\)"):
        loss(jnp.zeros((3, 2)), mu, w=jnp.zeros((2, 2)), target_additionals=jnp.zeros(2))
    with pytest.raises(TypeError, match="target_additionals is an int; expected an array"):
        loss(jnp.zeros((3, 2)), mu, w=jnp.zeros((2, 2)), target_additionals=3)


def test_negative_losses_are_warned_of_as_in_torch() -> None:
    """Few iterations of the completion, which is then no feasible point."""
    torch = pytest.importorskip("torch")
    from lpsmap_torch.losses import SparseMAPLoss

    options: dict[str, Any] = {"max_iter": 5, "adapt": False, "step_size": 0.01}
    eta = 3.0 * np.random.default_rng(0).normal(size=(1, 3, 3))
    target = np.full((1, 3, 3), np.nan)
    target[0, 0, eta[0, 0].argmax()] = 1.0
    with pytest.warns(ConvergenceWarning) as of_jax:
        found = sparse_map_loss(crossing, **options)(jnp.asarray(eta), jnp.asarray(target))
    with pytest.warns(ConvergenceWarning) as of_torch:
        loss = SparseMAPLoss(crossing, **options)(torch.tensor(eta), torch.tensor(target))
    assert float(found) == float(loss) == 0.0
    assert sum("Losses of instances are negative" in str(x.message) for x in of_jax) == 1
    assert sum("Losses of items are negative" in str(x.message) for x in of_torch) == 1


def crossing(u: Any) -> list[Any]:
    return [Xor(u), AtMostOne(u, axis=-2)]


def test_a_tree_of_labels() -> None:
    def build(u: Any) -> list[Any]:
        return [Xor(u["a"]), AtMostOne([u["a"][:, 0], u["b"]])]

    scores = {"a": jnp.zeros((2, 3)), "b": jnp.array([1.0, -1.0])}
    target = {"a": jnp.array([1, 0]), "b": jnp.array([1.0, 0.0])}
    loss = sparse_map_loss(build)
    slopes = jax.grad(loss)(scores, target)
    marginals = sparse_map(build)(scores)
    np.testing.assert_allclose(
        slopes["a"], marginals["a"] - jax.nn.one_hot(target["a"], 3), **EXACT
    )
    np.testing.assert_allclose(slopes["b"], marginals["b"] - target["b"], **EXACT)


def test_a_partner_in_the_padding_is_refused() -> None:
    loss = sparse_map_loss(lambda u, lengths: Matching(u, "none", lengths=lengths))
    lengths = jnp.array([[2, 2], [2, 3]])
    with pytest.raises(Exception, match=r"position 2 is on at \[0, 1\] of instance 0.* 2 of 3 "):
        loss(jnp.zeros((2, 2, 3)), jnp.array([[-1, 2], [0, 2]]), lengths=lengths)
    assert loss(jnp.zeros((2, 2, 3)), jnp.array([[-1, 1], [0, 2]]), lengths=lengths) >= 0.0


def test_arguments_are_given_by_name() -> None:
    scores, lengths = jnp.zeros((1, 2, 2)), jnp.array([2])
    with pytest.raises(TypeError, match="sparse_map: got 1 .* by position; .* by name"):
        sparse_map(DepTree)(scores, lengths)
    with pytest.raises(TypeError, match="sparse_map_loss: got 1 .* by position; .* by name"):
        sparse_map_loss(DepTree)(scores, jnp.array([[-1, 0]]), lengths)
