"""Head automata against enumeration and a plain recursion; alone, and in a second-order parser."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import judges
from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import row_view, slot_values
from lpsmap_factors_struct import DepTree, HeadAutomaton


def pairs(modifiers, n):
    """What follows what: the start is -1, the end n."""
    return itertools.pairwise((-1, *modifiers, n))


def vertices(n):
    on = judges.binary_vectors(n)
    siblings = np.zeros((len(on), n + 1, n + 1))
    for used, modifiers in zip(siblings, on, strict=True):
        for before, after in pairs(np.flatnonzero(modifiers), n):
            used[before + 1, after] = 1.0
    return on, siblings


def make(u, eta_v):
    side = u.shape[-1] + 1
    return HeadAutomaton(u, eta_v.reshape(*u.shape[:-1], side, side))


def case(n):
    return Case(make, (n,), *vertices(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_best_modifiers_are_the_best_of_all(draws, n):
    check_oracle(case(n), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_best_modifiers_are_the_best_of_all_in_many_draws(n):
    check_oracle(case(n), SLOW, seed=1)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_sparsemap_and_gradients(draws, n):
    check_sparsemap(case(n), 1 + draws // 40)
    check_gradients(case(n), draws // 10)
    check_probabilities(case(n), draws // 10, scale=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_sparsemap_and_gradients_in_many_draws(n):
    check_sparsemap(case(n), SLOW, seed=1)
    check_gradients(case(n), SLOW, seed=1)
    check_probabilities(case(n), 2 * SLOW, seed=1, scale=0.5)


def plain_best(scores, siblings):
    """Return the best score, by a recursion over what comes after a candidate."""
    n = len(scores)

    @functools.cache
    def after(i):
        following = (siblings[i + 1, j] + scores[j] + after(j) for j in range(i + 1, n))
        return max([siblings[i + 1, -1], *following])

    return after(-1)


@pytest.mark.parametrize("n", [8, 20, 60])
def test_more_candidates_agree_with_a_plain_recursion(rng, graph, run_oracle, n):
    scores = rng.standard_normal((5, n))
    siblings = rng.standard_normal((5, n + 1, n + 1))
    factor = HeadAutomaton(graph.variable(scores.shape), siblings)
    found_m, found_n = run_oracle(factor, scores.reshape(-1), siblings.reshape(-1))
    for b, (m, used) in enumerate(zip(found_m, found_n, strict=True)):
        again_m, again_n = row_view(factor, b).vertex(tuple(np.flatnonzero(m)))
        assert (again_m == m).all()
        assert (again_n.reshape(-1) == used).all()
        score = m @ scores[b] + used @ siblings[b].reshape(-1)
        assert score == pytest.approx(plain_best(scores[b], siblings[b]), abs=1e-11)


def test_ragged_batch_is_its_heads(rng, graph, run_oracle):
    n, lengths = 4, np.array([[4, 0, 1], [2, 3, 4]])
    scores = rng.standard_normal((2, 3, n))
    siblings = rng.standard_normal((2, 3, n + 1, n + 1))
    factor = HeadAutomaton(graph.variable(scores.shape), siblings, lengths=lengths)
    found_m, found_n = run_oracle(factor, slot_values(factor, scores), siblings.reshape(-1))
    for f, (b, c) in enumerate(itertools.product(range(2), range(3))):
        own = scores[b, c, : lengths[b, c]]
        modifiers = row_view(factor, f).solve_map(own, siblings[b, c].reshape(-1))
        m, used = row_view(factor, f).vertex(modifiers)
        assert m.shape == own.shape
        assert (found_m[f] == m).all()
        assert (found_n[f] == used.reshape(-1)).all()
        assert row_view(factor, f).decode(m, used) == {"modifiers": list(modifiers)}
        if len(own) == 0:
            assert not used.any()
            continue
        score = m @ own + (used * siblings[b, c]).sum()
        assert score == pytest.approx(plain_best(own, siblings[b, c]), abs=1e-12)


def test_forbidden_candidates_leave_no_modifiers():
    graph = FactorGraph()
    u = graph.variable_from(np.full(3, -np.inf))
    factor = graph.add(HeadAutomaton(u, np.zeros((4, 4))))
    graph.solve()
    assert (u.value == 0.0).all()
    assert graph.additionals_of(factor)[3] == 1.0


def test_a_head_without_candidates_may_stand_alone():
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.3]))
    empty = graph.add(HeadAutomaton(u[:0], np.ones((1, 1))))
    other = graph.add(HeadAutomaton(u, np.zeros((2, 2))))
    graph.solve()
    assert u.value == pytest.approx([0.3])
    assert graph.additionals_of(empty).tolist() == [0.0]
    assert graph.additionals_of(other) == pytest.approx([0.3, 0.7, 0.0, 0.3])


def test_a_batch_of_no_heads_is_solved():
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((0, 3)))
    factor = graph.add(HeadAutomaton(u, np.zeros((4, 4)), lengths=np.zeros(0, dtype=int)))
    graph.solve()
    assert graph.additionals_of(factor).shape[0] == 0


# -------------------------------------------------------------------- with a tree


def sides(u):
    """The arcs from every word to the right and to the left, nearest first; packed layout."""
    for h in range(len(u)):
        yield u[h + 1 :, h]
        yield u[:h, h][::-1]


def parser(scores, siblings, projective):
    """A graph of a tree and the automata of both sides of every word."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factors = [graph.add(DepTree(u, projective=projective))]
    for arcs, extra in zip(sides(u), siblings, strict=True):
        if arcs.size:
            factors.append(graph.add(HeadAutomaton(arcs, extra)))
    return graph, u, factors


def enumerated(index, siblings, trees):
    """The same factors, by their vertices."""
    listed = [(index.reshape(-1), np.zeros(index.size, bool), *trees, np.empty(0))]
    for arcs, extra in zip(sides(index), siblings, strict=True):
        if arcs.size:
            m, used = vertices(arcs.size)
            positive = np.zeros(arcs.size, bool)
            listed.append((arcs, positive, m, used.reshape(len(used), -1), extra.ravel()))
    return listed


def random_siblings(rng, n):
    return [rng.standard_normal((arcs.size + 1,) * 2) for arcs in sides(np.zeros((n, n)))]


def test_a_tree_with_sibling_scores_solves_the_quadratic_program(rng):
    n = 4
    for draw in range(8):
        scores, siblings = rng.standard_normal((n, n)), random_siblings(rng, n)
        graph, u, _ = parser(scores, siblings, projective=False)
        solution = graph.solve(tol=1e-10)
        assert solution.status.tolist() == [Status.SOLVED], draw
        mu, _, _ = judges.solve_graph(
            scores.reshape(-1), enumerated(u.index, siblings, judges.trees(n))
        )
        np.testing.assert_allclose(u.value.reshape(-1), mu, rtol=0, atol=1e-8)


@pytest.mark.parametrize("projective", [False, True])
def test_an_integral_solution_is_the_best_second_order_tree(rng, projective):
    n, whole = 5, 0
    heads = [tree for tree in judges.tree_heads(n) if not projective or not crosses(tree)]
    trees = np.eye(n)[np.array(heads)]
    for _ in range(20):
        scores, siblings = 30 * rng.standard_normal((n, n)), random_siblings(rng, n)
        graph, u, _ = parser(scores, siblings, projective)
        graph.solve()
        if np.abs(u.value - u.value.round()).max() > 1e-9:
            continue
        whole += 1
        second_order = [sibling_score(tree, siblings) for tree in trees]
        best = trees[((trees * scores).sum(axis=(1, 2)) + second_order).argmax()]
        assert (u.value.round() == best).all()
    assert whole >= 10


def sibling_score(tree, siblings):
    total = 0.0
    for arcs, extra in zip(sides(tree), siblings, strict=True):
        if arcs.size:
            steps = pairs(np.flatnonzero(arcs), arcs.size)
            total += sum(extra[before + 1, after] for before, after in steps)
    return total


def crosses(heads):
    """Whether two arcs cross, the root standing before the first word."""
    arcs = [(min(m, -1 if h == m else h), max(m, h)) for m, h in enumerate(heads)]
    return any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))


def test_gradients_of_a_tree_with_sibling_scores(rng):
    n, checked = 3, 0
    sizes = [extra.size for extra in random_siblings(rng, n) if extra.size > 1]

    def split(x):
        blocks = np.split(x[n * n :], np.cumsum(sizes)[:-1])
        squares = iter(block.reshape(round(block.size**0.5), -1) for block in blocks)
        empty = np.zeros((1, 1))
        siblings = [next(squares) if a.size else empty for a in sides(np.zeros((n, n)))]
        return x[: n * n].reshape(n, n), siblings

    def solve(x):
        return parser(*split(x), projective=False)[0].solve(tol=1e-12)

    for _ in range(10):
        point, direction = rng.standard_normal((2, n * n + sum(sizes)))
        d = rng.standard_normal(n * n)
        derivative, smooth = judges.directional_derivative(
            lambda x: solve(x).values, point, direction
        )
        if smooth:
            by_scores, by_additionals = solve(point).vjp(d)
            parts = [np.ravel(g) for g in (by_scores, *by_additionals[1:])]
            product = np.concatenate(parts) @ direction
            assert product == pytest.approx(d @ derivative, abs=1e-5)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((), {"siblings": np.zeros((1, 1))}, r"variables has shape \(\); expected at least 1 axes"),
        (
            (2, 3),
            {"siblings": np.zeros((3, 3))},
            r"siblings has shape \(3, 3\); expected one that broadcasts to \(2, 4, 4\)",
        ),
        (
            (2, 3),
            {"siblings": np.zeros((4, 4)), "lengths": [1, 4]},
            r"lengths\[1\] is 4; expected 0 to 3",
        ),
    ],
)
def test_wrong_arguments_are_named(graph, shape, arguments, message):
    with pytest.raises(ValueError, match=f"HeadAutomaton: .*{message}"):
        HeadAutomaton(graph.variable(shape), **arguments)


def test_tensors_stay_differentiable(graph):
    torch = pytest.importorskip("torch")
    siblings = torch.zeros((4, 4), dtype=torch.float64, requires_grad=True)
    factor = HeadAutomaton(graph.variable((5, 3)), siblings)
    factor.additionals.sum().backward()
    assert (siblings.grad == 5.0).all()


def test_scores_of_siblings_are_needed() -> None:
    with pytest.raises(TypeError, match="HeadAutomaton: siblings: got None; expected an array"):
        HeadAutomaton(FactorGraph().variable(3), None)
