"""Gibbs distributions of factors that form cycles, against enumeration and other eliminations."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from judges import central_difference
from lpsmap import (
    Alignment,
    AndOut,
    AtMostOne,
    BinaryTree,
    Bits,
    Budget,
    Dense,
    DepTree,
    FactorGraph,
    Imply,
    Nand,
    Or,
    OrOut,
    Pair,
    Potts,
    Sequence,
    SequenceBudget,
    SequenceDistance,
    SequenceSpans,
    TopK,
    Xor,
    XorOut,
)
from lpsmap_dynamic import GraphGibbs, HypergraphFactor, cheapest_order, factor_pieces
from lpsmap_search import DMVTree
from random_forests import enumerate_graph

FloatArray = Any

ROWS = (Xor, XorOut, AtMostOne, Or, Imply, OrOut, AndOut, Bits, Nand)


def drawn(seed: int, scale: float = 1.0, masks: float = 0.0, moved: FloatArray = 0.0) -> Any:
    """Return random factors of all kinds over three blocks of three variables."""
    rng, graph, n = np.random.default_rng(seed), FactorGraph(), 9
    scores = scale * rng.standard_normal(n)
    scores[rng.random(n) < 0.1] += masks
    u = graph.variable_from(scores + moved)
    for _ in range(rng.integers(2, 6)):
        kind, order = int(rng.integers(8)), rng.permutation(n)
        row = u[order[: rng.integers(2, 9)]]
        row = row ^ (rng.random(len(row)) < 0.3)
        most = int(rng.integers(1, len(row) + 1))
        if kind <= 1:
            blocks = [u[3 * b : 3 * b + 3] for b in rng.permutation(3)[: rng.integers(1, 4)]]
            graph.add(Dense(blocks, scale * rng.standard_normal((3,) * len(blocks))))
        elif kind == 2:
            graph.add(Pair(u[order[0]], u[order[1]], scale * rng.standard_normal()))
        elif kind == 3:
            graph.add(Budget(row, most, force_budget=bool(rng.integers(2))))
        elif kind == 4:
            graph.add(TopK(row, most, exact=bool(rng.integers(2))))
        elif kind == 5:
            tags = u[order[:6]].reshape(3, 2) ^ (rng.random((3, 2)) < 0.2)
            graph.add(Sequence(tags, scale * rng.standard_normal((2, 2))))
        elif kind == 6:
            graph.add(DepTree(u[order[:4]].reshape(2, 2), projective=True))
        else:
            graph.add(ROWS[int(rng.integers(len(ROWS)))](row))
    return graph


def check(graph: FactorGraph, tolerance: float = 1e-11) -> GraphGibbs:
    """Hold the sums of a graph against enumeration."""
    gibbs, truth = graph.gibbs(), enumerate_graph(graph)
    assert gibbs.log_partition.sum() == pytest.approx(truth.log_partition, abs=tolerance)
    if truth.log_partition > -np.inf:
        assert gibbs.entropy.sum() == pytest.approx(truth.entropy, abs=tolerance)
        np.testing.assert_allclose(gibbs.value_of(graph.blocks[0]), truth.m, atol=tolerance)
        for factor, n in zip(graph.factors, truth.n, strict=True):
            found = gibbs.additionals_of(factor).reshape(n.shape)
            np.testing.assert_allclose(found, n, rtol=0, atol=tolerance)
    return gibbs


@pytest.mark.parametrize("seed", range(80))
def test_sums_are_those_over_all_assignments(seed: int) -> None:
    check(drawn(seed))


@pytest.mark.parametrize("masks", [-np.inf, -1e9])
@pytest.mark.parametrize("seed", range(100, 115))
def test_masks(seed: int, masks: float) -> None:
    check(drawn(seed, masks=masks), 1e-11 if masks == -np.inf else 1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-8, 30.0, 1e3, 1e8])
@pytest.mark.parametrize("seed", range(200, 208))
def test_scores_of_any_size(seed: int, scale: float) -> None:
    check(drawn(seed, scale), 1e-13 * max(scale, 100.0))


@pytest.mark.parametrize("seed", range(300, 312))
def test_tangents(seed: int) -> None:
    """They agree with central differences."""
    graph = drawn(seed)
    d_u = np.random.default_rng(seed).standard_normal(graph.n_variables)
    if not np.isfinite(graph.gibbs().log_partition).all():
        return

    def numbers(t: FloatArray) -> FloatArray:
        moved = drawn(seed, moved=t * d_u)
        gibbs = moved.gibbs()
        extra = [gibbs.additionals_of(factor).reshape(-1) for factor in moved.factors]
        return np.concatenate([gibbs.log_partition, gibbs.value_of(moved.blocks[0]), *extra])

    log_z, m, n = graph.gibbs().jvp(d_u)
    slope = central_difference(numbers, np.zeros(()), 1e-4)
    found = np.concatenate([log_z, m, *(x.reshape(-1) for x in n)])
    np.testing.assert_allclose(found, slope, rtol=0, atol=1e-7)


@pytest.mark.parametrize("seed", [2, 4, 6, 8, 10, 12])
def test_samples(seed: int) -> None:
    """Their frequencies and log-probabilities are those of all assignments."""
    graph, n = drawn(seed), 4000
    truth, gibbs = enumerate_graph(graph), graph.gibbs()
    if truth.log_partition == -np.inf:
        return
    samples = gibbs.sample(n, seed=seed)
    number = {x.astype(np.int8).tobytes(): i for i, x in enumerate(truth.points)}
    which = np.array([number[x.astype(np.int8).tobytes()] for x in samples.values])
    log_p = samples.log_probabilities.sum(axis=1)
    np.testing.assert_allclose(log_p, truth.log_p[which], atol=1e-9)
    for found, extra in zip(samples.additionals, truth.extras, strict=True):
        np.testing.assert_array_equal(found.reshape(n, -1), extra.reshape(len(extra), -1)[which])
    p = np.exp(truth.log_p)
    error = np.abs(np.bincount(which, minlength=len(p)) / n - p)
    assert (error <= 5.0 * np.sqrt(p * (1.0 - p) / n) + 1e-12).all()


# ---------------------------------------------------------------- textbook networks


def bayesian_network(tables: dict[str, tuple[str, Any]]) -> tuple[FactorGraph, dict[str, Any]]:
    """Return a graph of conditional probability tables, and the block of every variable.

    A table has an axis for each parent, and the last for the variable.
    """
    graph = FactorGraph()
    blocks = {name: graph.variable(np.shape(table)[-1]) for name, (_, table) in tables.items()}
    for name, (parents, table) in tables.items():
        with np.errstate(divide="ignore"):
            scores = np.log(np.asarray(table, dtype=float))
        graph.add(Dense([blocks[x] for x in parents] + [blocks[name]], scores))
    return graph, blocks


def joint_of(tables: dict[str, tuple[str, Any]]) -> FloatArray:
    """Return the joint distribution, an axis for each variable."""
    operands: list[Any] = []
    letters = {name: k for k, name in enumerate(tables)}
    for name, (parents, table) in tables.items():
        operands += [np.asarray(table, dtype=float), [letters[x] for x in (*parents, name)]]
    return np.einsum(*operands, list(range(len(tables))))


def yes(p: Any) -> FloatArray:
    """Return a table of probabilities of yes, whose complement is the second state."""
    return np.stack([np.asarray(p), 1.0 - np.asarray(p)], axis=-1)


ASIA = {
    "a": ("", yes(0.01)),
    "s": ("", yes(0.5)),
    "t": ("a", yes([0.05, 0.01])),
    "l": ("s", yes([0.1, 0.01])),
    "b": ("s", yes([0.6, 0.3])),
    "e": ("tl", yes([[1.0, 1.0], [1.0, 0.0]])),
    "x": ("e", yes([0.98, 0.05])),
    "d": ("eb", yes([[0.9, 0.7], [0.8, 0.1]])),
}
"""Chest clinic (Lauritzen & Spiegelhalter 1988): visit to Asia, smoking, tuberculosis, lung cancer,
bronchitis, either of the diseases, X-ray, dyspnoea."""

EARTHQUAKE = {
    "B": ("", yes(0.001)),
    "E": ("", yes(0.002)),
    "A": ("BE", yes([[0.95, 0.94], [0.29, 0.001]])),
    "J": ("A", yes([0.9, 0.05])),
    "M": ("A", yes([0.7, 0.01])),
}
"""Burglary, earthquake, alarm, calls by John and Mary (Russell & Norvig, section 13.2)."""

SPRINKLER = {
    "C": ("", yes(0.5)),
    "S": ("C", yes([0.1, 0.5])),
    "R": ("C", yes([0.8, 0.2])),
    "W": ("SR", yes([[0.99, 0.9], [0.9, 0.0]])),
}
"""Clouds, sprinkler, rain, wet grass (Murphy 2001)."""


@pytest.mark.parametrize("tables", [ASIA, EARTHQUAKE, SPRINKLER])
def test_textbook_networks(tables: Any) -> None:
    """All marginals, without evidence and given each state of each variable."""
    graph, blocks = bayesian_network(tables)
    joint, names = joint_of(tables), list(tables)
    cases: list[list[tuple[str, int]]] = [[], *([(x, k)] for x in names for k in (0, 1))]
    for evidence in cases:
        given = graph.condition([(blocks[x], np.arange(2) == k) for x, k in evidence])
        gibbs, known = given.graph.gibbs(), np.zeros_like(joint)
        at: list[Any] = [slice(None)] * len(names)
        for x, k in evidence:
            at[names.index(x)] = slice(k, k + 1)
        known[tuple(at)] = joint[tuple(at)]
        assert gibbs.log_partition.sum() == pytest.approx(np.log(known.sum()), abs=1e-12)
        for axis, x in enumerate(names):
            others = tuple(k for k in range(len(names)) if k != axis)
            expected = known.sum(axis=others) / known.sum()
            found = gibbs.value_of(given.of(blocks[x]))
            if not any(x == y for y, _ in evidence):  # known variables have copies
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_published_values() -> None:
    graph, x = bayesian_network(EARTHQUAKE)
    given = graph.condition([(x["J"], [1, 0]), (x["M"], [1, 0])])
    np.testing.assert_allclose(
        given.graph.gibbs().value_of(given.of(x["B"]))[0], 0.2841718, 0, 5e-8
    )
    graph, x = bayesian_network(SPRINKLER)
    given = graph.condition([(x["W"], [1, 0])])
    assert given.graph.gibbs().log_partition.sum() == pytest.approx(np.log(0.6471), abs=1e-12)
    np.testing.assert_allclose(given.graph.gibbs().value_of(given.of(x["S"]))[0], 0.4298, 0, 5e-5)
    np.testing.assert_allclose(given.graph.gibbs().value_of(given.of(x["R"]))[0], 0.7079, 0, 5e-5)
    graph, x = bayesian_network(ASIA)
    marginals = {"t": 0.0104, "l": 0.055, "b": 0.45, "e": 0.064828, "x": 0.11029, "d": 0.435971}
    for name, p in marginals.items():
        np.testing.assert_allclose(graph.gibbs().value_of(x[name])[0], p, rtol=0, atol=5e-7)


# ---------------------------------------------------------------- large networks of small width


def test_two_tables_over_a_block_are_a_chain() -> None:
    rng, n, k = np.random.default_rng(0), 300, 4
    scores, tables = rng.standard_normal((n, k)), rng.standard_normal((n - 1, k, k))
    graph, other = FactorGraph(), FactorGraph()
    x, y = graph.variable_from(scores), other.variable_from(scores)
    dense = graph.add(Dense([x[:-1], x[1:]], tables))
    sequence = other.add(Sequence(y, tables))
    gibbs, expected = graph.gibbs(), other.gibbs(sequence)
    np.testing.assert_allclose(gibbs.log_partition, expected.log_partition, rtol=1e-13)
    np.testing.assert_allclose(gibbs.entropy, expected.entropy, rtol=1e-12)
    np.testing.assert_allclose(gibbs.value_of(x), expected.marginals, atol=1e-12)
    both = expected.additionals.reshape(-1)[k : k + (n - 1) * k * k].reshape(n - 1, k, k)
    np.testing.assert_allclose(gibbs.additionals_of(dense), both, atol=1e-12)


def test_trees_of_thousands_of_tables() -> None:
    rng, n, k = np.random.default_rng(1), 3000, 3
    parent = (rng.random(n - 1) * np.arange(1, n)).astype(int)
    scores, tables = rng.standard_normal((n, k)), rng.standard_normal((n - 1, k, k))
    graph = FactorGraph()
    x = graph.variable_from(scores)
    graph.add(Dense([x[1:], x[parent]], tables))
    total = scores.copy()  # messages from the leaves to the root
    for i in range(n - 1, 0, -1):
        total[parent[i - 1]] += np.logaddexp.reduce(total[i][:, None] + tables[i - 1], axis=0)
    gibbs = graph.gibbs()
    expected = np.logaddexp.reduce(total[0])
    np.testing.assert_allclose(gibbs.log_partition, [expected], rtol=1e-13)
    np.testing.assert_allclose(gibbs.value_of(x[0]), np.exp(total[0] - expected), atol=1e-10)


@pytest.mark.parametrize("columns", [2, 60])
def test_narrow_grids(columns: int) -> None:
    """By the transfer matrix from column to column."""
    rng, k = np.random.default_rng(2), 2
    scores, strength = rng.standard_normal((3, columns, k)), 0.7
    graph = FactorGraph()
    x = graph.variable_from(scores)
    graph.add(Potts(x[:, :-1], x[:, 1:], strength))
    graph.add(Potts(x[:-1], x[1:], -strength))
    states = list(itertools.product(range(k), repeat=3))
    across = np.array(
        [
            [strength * sum(a == b for a, b in zip(s, t, strict=True)) for t in states]
            for s in states
        ]
    )
    down = np.array([-strength * ((s[0] == s[1]) + (s[1] == s[2])) for s in states])
    total = np.zeros(len(states))
    for c in range(columns):
        own = np.array([sum(scores[r, c, s[r]] for r in range(3)) for s in states]) + down
        total = own + (np.logaddexp.reduce(total[:, None] + across, axis=0) if c else 0.0)
    gibbs, expected = graph.gibbs(), np.logaddexp.reduce(total)
    np.testing.assert_allclose(gibbs.log_partition, [expected], rtol=1e-13)
    p = np.exp(total - expected)
    last = [sum(p[i] for i, s in enumerate(states) if s[0] == a) for a in range(k)]
    np.testing.assert_allclose(gibbs.value_of(x[0, -1]), last, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_counts_are_chains(n: int) -> None:
    """Rows and columns with one variable on each are permutations."""
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((n, n)))
    graph.add(Xor(u))
    graph.add(Xor(u, axis=0))
    gibbs = graph.gibbs()
    np.testing.assert_allclose(gibbs.log_partition, math.lgamma(n + 1), atol=1e-12)
    np.testing.assert_allclose(gibbs.entropy, math.lgamma(n + 1), atol=1e-12)
    np.testing.assert_allclose(gibbs.value_of(u), 1.0 / n, atol=1e-12)


def test_counts_over_hundreds_of_variables() -> None:
    """A budget over all, one over the even ones in reverse, and one that is on."""
    n, scores = 300, np.random.default_rng(3).standard_normal(300)
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Budget(u, 4))
    graph.add(Budget(u[::-2], 2, force_budget=True))
    graph.add(Or(u[:7]))
    ways = {(0, 0, 0): 1.0}  # on, on at the odd places, and whether one of the first is on
    for i in range(n):
        more: dict[tuple[int, int, int], float] = {}
        for (a, b, c), weight in ways.items():
            for on in (0, 1):
                key = (a + on, b + (on and i % 2), c or (on and i < 7))
                more[key] = more.get(key, 0.0) + weight * math.exp(on * scores[i])
        ways = more
    z = sum(w for (a, b, c), w in ways.items() if a <= 4 and b == 2 and c)
    np.testing.assert_allclose(graph.gibbs().log_partition, [math.log(z)], rtol=1e-13)


def test_sequences_with_counts() -> None:
    """A tag occurs at most twice in a sentence: by the chain with a count."""
    rng, n, k = np.random.default_rng(4), 40, 3
    scores, transitions = rng.standard_normal((n, k)), rng.standard_normal((k, k))
    graph = FactorGraph()
    tags = graph.variable_from(scores)
    graph.add(Sequence(tags, transitions))
    graph.add(Budget(tags[:, 0], 2))
    total = {(a, int(a == 0)): scores[0, a] for a in range(k)}
    for i in range(1, n):
        more: dict[tuple[int, int], float] = {}
        for (a, count), score in total.items():
            for b in range(k):
                key, new = (b, count + (b == 0)), score + transitions[a, b] + scores[i, b]
                more[key] = np.logaddexp(more.get(key, -np.inf), new)
        total = {key: score for key, score in more.items() if key[1] <= 2}
    expected = np.logaddexp.reduce(list(total.values()))
    np.testing.assert_allclose(graph.gibbs().log_partition, [expected], rtol=1e-13)


# ---------------------------------------------------------------- components


def triangles(scores: FloatArray, tables: FloatArray) -> tuple[FactorGraph, Any]:
    """Return (n, 3, k) blocks, those of a row connected by tables."""
    graph = FactorGraph()
    x = graph.variable_from(scores)
    for edge, (i, j) in enumerate(((0, 1), (1, 2), (2, 0))):
        graph.add(Dense([x[:, i], x[:, j]], tables[edge]))
    return graph, x


def test_batches_are_independent() -> None:
    rng = np.random.default_rng(5)
    scores, tables = rng.standard_normal((50, 3, 3)), rng.standard_normal((3, 50, 3, 3))
    graph, x = triangles(scores, tables)
    gibbs = graph.gibbs()
    for r in (0, 17, 49):
        one, y = triangles(scores[r : r + 1], tables[:, r : r + 1])
        assert gibbs.log_partition[r] == one.gibbs().log_partition[0]
        np.testing.assert_array_equal(gibbs.value_of(x[r]), one.gibbs().value_of(y[0]))
    np.testing.assert_array_equal(gibbs.component_of(x[:, 0, 0]), np.arange(50))


def test_ragged_and_empty_batches() -> None:
    rng, lengths = np.random.default_rng(6), [4, 0, 3, 4]
    scores = rng.standard_normal((4, 4))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(AtMostOne(u, lengths=lengths))
    graph.add(Budget(u, 2, lengths=lengths))
    graph.add(Pair(u[:, 0], u[:, 1], 0.5))
    expected = []
    for r, n in enumerate(lengths):
        own = scores[r, : max(n, 2)]
        single = np.append(0.0, own) if n else [0.0, *own, own.sum() + 0.5]
        expected.append(np.logaddexp.reduce(single))
    np.testing.assert_allclose(graph.gibbs().log_partition, expected, rtol=1e-13)
    graph, x = triangles(np.zeros((0, 3, 2)), np.zeros((3, 0, 2, 2)))
    assert graph.gibbs().log_partition.shape == (0,)
    assert graph.gibbs().value_of(x).shape == (0, 3, 2)


def test_trees_and_cycles_side_by_side() -> None:
    """A parse without a dynamic program hangs on a cycle; another component, and padding."""
    rng = np.random.default_rng(7)
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal(13))
    graph.add(DepTree(u[:4].reshape(2, 2)))
    graph.add(Dense([u[3:5], u[5:7]], rng.standard_normal((2, 2))))
    graph.add(Dense([u[3:5], u[5:7]], rng.standard_normal((2, 2))))
    graph.add(Pair(u[6], u[7], 1.0))
    graph.add(Or(u[8:10]))
    graph.add(Xor(u[8:11]))
    gibbs = check(graph)
    assert len(gibbs.log_partition) == 2
    assert gibbs.component_of(u[[0, 7, 8, 12]]).tolist() == [0, 0, 1, -1]


def test_evidence_breaks_cycles() -> None:
    rng = np.random.default_rng(8)
    graph, x = triangles(rng.standard_normal((1, 3, 3)), rng.standard_normal((3, 1, 3, 3)))
    given = graph.condition([(x[0, 1], [0, 1, 0])])
    eta, tables = graph.flat_scores().reshape(3, 3), [f.table[0] for f in graph.factors]
    joint = eta[0][:, None] + eta[2] + tables[0][:, 1, None] + tables[1][1] + tables[2].T
    gibbs = given.graph.gibbs()
    assert gibbs.log_partition.sum() == pytest.approx(np.logaddexp.reduce(joint.ravel()), abs=1e-12)
    p = np.exp(joint - np.logaddexp.reduce(joint.ravel()))
    np.testing.assert_allclose(gibbs.value_of(given.of(x[0, 0])), p.sum(axis=1), atol=1e-12)


def test_contradictions_have_no_assignments() -> None:
    """By the factors alone, or by scores; other components are not affected."""
    graph = FactorGraph()
    u = graph.variable_from([[0.0, 0.0, 0.0], [-np.inf, -np.inf, 0.0], [0.0, 0.0, 0.0]])
    graph.add(Xor(u))
    graph.add(AtMostOne(u[:, :2]))
    graph.add(Xor([u[0, 0], u[0, 1], ~u[0, 2]]))
    graph.add(Or(u[:, :2]))
    graph.add(Nand(u[0, :2]))
    gibbs = graph.gibbs()
    np.testing.assert_allclose(gibbs.log_partition, [-np.inf, -np.inf, math.log(2.0)])
    np.testing.assert_allclose(gibbs.entropy, [0.0, 0.0, math.log(2.0)])
    np.testing.assert_allclose(gibbs.value_of(u), [[0.0] * 3, [0.0] * 3, [0.5, 0.5, 0.0]])
    assert not gibbs.sample(2, seed=0).values[:, :6].any()
    for tangent in gibbs.jvp(np.ones(9))[:2]:
        assert np.isfinite(tangent).all()


def test_scores_that_are_no_numbers_stay_in_their_component() -> None:
    scores = np.zeros((3, 3, 2))
    scores[0, 1, 0], scores[1, 2, 1] = np.nan, np.inf
    graph, x = triangles(scores, np.zeros((3, 3, 2, 2)))
    gibbs = graph.gibbs()
    np.testing.assert_allclose(gibbs.log_partition, [np.nan, np.nan, math.log(8.0)])
    np.testing.assert_allclose(gibbs.value_of(x)[2], 0.5)


def test_threads_share_what_is_built() -> None:
    rng = np.random.default_rng(9)
    graphs = [
        triangles(rng.standard_normal((2, 3, k)), rng.standard_normal((3, 2, k, k)))[0]
        for k in (2, 3, 4, 5) * 4
    ]
    expected = [graph.gibbs().log_partition for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda graph: graph.gibbs().log_partition, graphs))
    np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------- refusals


def test_wide_networks_are_refused_before_they_take_memory() -> None:
    graph = FactorGraph()
    x = graph.variable((40, 40, 2))
    graph.add(Potts(x[:, :-1], x[:, 1:], 0.0))
    graph.add(Potts(x[:-1], x[1:], 0.0))
    words = r"tables over up to 41 multi-state variables, .*2\.2e\+12 joint states, .*GiB of memory"
    with pytest.raises(ValueError, match=words):
        graph.gibbs()


def test_types_without_dynamic_programs_must_be_in_trees() -> None:
    graph = FactorGraph()
    u = graph.variable(5)
    graph.add(Xor(u[:2]))
    graph.add(DepTree(u[1:].reshape(2, 2)))
    graph.add(Pair(u[2], u[3], 1.0))
    words = (
        r"cycle: factor 0 of (DepTree|Pair).* variable [23], .* variable [23], and back; factor 0 "
        r"of DepTree\(.*\) has no dynamic program"
    )
    with pytest.raises(ValueError, match=words):
        graph.gibbs()


@pytest.mark.parametrize("masked", [False, True])
def test_additionals_that_steps_share_are_counted_in_cycles(masked: bool) -> None:
    rng, graph = np.random.default_rng(5), FactorGraph()
    tags = graph.variable_from(rng.standard_normal(8)).reshape(4, 2)
    distances, transitions = rng.standard_normal(3), rng.standard_normal((2, 2))
    if masked:
        distances[2] = transitions[1, 0] = -np.inf
    graph.add(SequenceDistance(tags, distances, rng.standard_normal(1)))
    graph.add(Budget(tags[:, 0], 2))
    graph.add(Sequence(tags, transitions, final=rng.standard_normal(2)))
    gibbs = check(graph)
    samples = gibbs.sample(3, seed=1)
    for values, distance, steps in zip(samples.values, *samples.additionals[::2], strict=True):
        assert distance.sum() == 5.0  # the first state, three steps and the last state
        path = values.reshape(4, 2).argmax(axis=1)
        expected = np.bincount(2 * path[:-1] + path[1:], minlength=4)
        np.testing.assert_array_equal(steps[2:6], expected)


class Twice(HypergraphFactor):
    """An item of which every derivation is used twice, with an additional."""

    def __init__(self, variables: Any) -> None:
        super().__init__(variables, np.zeros(1))

    @classmethod
    def hypergraph(cls, row: Any, build: Any) -> str:
        build.edge("counted", additionals=[0])
        for slot in range(2):
            build.edge("goal", ["counted", "counted"], slots=[slot])
        return "goal"

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: int) -> tuple[FloatArray, FloatArray]:
        return np.eye(2)[y], np.full(1, 2.0)


def test_hyperedges_that_count_twice_must_be_in_trees() -> None:
    graph = FactorGraph()
    u = graph.variable(2)
    graph.add(Twice(u))
    graph.add(Budget(u, 2))
    with pytest.raises(
        ValueError, match=r"of Twice\(.*can use a hyperedge with additionals several"
    ):
        graph.gibbs()


def test_branching_programs_with_too_many_choices_are_named() -> None:
    graph = FactorGraph()
    u = graph.variable((12, 12))
    graph.add(DepTree(u, projective=True))
    graph.add(DepTree(u, projective=True))
    with pytest.raises(ValueError, match="of DepTree.* shares 144 variables .* choices for them"):
        graph.gibbs()


@pytest.mark.parametrize("size", [60, 200])
@pytest.mark.parametrize("kind", [Alignment, BinaryTree])
def test_large_factors_that_share_all_variables_are_refused(kind: Any, size: int) -> None:
    """A table of hyperedges and shared slots would take 50 GiB, and paths of slots a minute."""
    graph = FactorGraph()
    u = graph.variable((size, size))
    graph.add(kind(u))
    graph.add(kind(u))
    with pytest.raises(ValueError, match="gibbs: .* (share|need tables|cycles through)"):
        graph.gibbs()


def test_cycles_of_too_many_variables_are_refused_before_programs_are_built() -> None:
    """The dynamic program of 200 by 200 grammatical dependencies took half a minute."""
    graph = FactorGraph()
    u = graph.variable((200, 200))
    graph.add(DMVTree(u, np.zeros((200, 2, 2, 2))))
    graph.add(AtMostOne(u, axis=0))
    with pytest.raises(ValueError, match="201 factors .* share 40000 variables; expected at most"):
        graph.gibbs()


def test_cycles_of_too_many_nodes_are_refused_before_they_are_ordered() -> None:
    """Cuts of a budget are nodes, too: an order of all of them took ten seconds."""
    graph = FactorGraph()
    u = graph.variable((200, 22))
    graph.add(Sequence(u, np.zeros((22, 22))))
    graph.add(AtMostOne(u, axis=0))
    with pytest.raises(ValueError, match=r"cycles through \d+ multi-state variables; expected at"):
        graph.gibbs()


def test_chains_of_too_many_nodes_are_refused_before_their_paths_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The million paths of 200 words in spans took seven seconds."""
    monkeypatch.setattr(factor_pieces._Chain, "paths", None)
    graph = FactorGraph()
    u = graph.variable((200, 22))
    graph.add(SequenceSpans(u, np.zeros((22, 22)), 3, 2, 2))
    graph.add(AtMostOne(u, axis=0))
    with pytest.raises(ValueError, match=r"cycles through \d+ multi-state variables; expected at"):
        graph.gibbs()


@pytest.mark.parametrize("kind", [Budget, TopK])
@pytest.mark.parametrize("exact", [False, True])
def test_large_subsets_in_cycles_are_refused_before_programs_are_built(
    kind: Any, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten million hyperedges of a budget of half the variables took 20 seconds."""
    monkeypatch.setattr(kind, "hypergraph", None)
    graph = FactorGraph()
    u = graph.variable(4_800)
    graph.add(AtMostOne(u[100:800]))
    graph.add(kind(u, 2_400, exact))
    with pytest.raises(ValueError, match=f"gibbs: .* of {kind.__name__}.* shares 700 variables"):
        graph.gibbs()


@pytest.mark.parametrize("kind", [Budget, TopK])
def test_paths_of_subsets_are_at_least_the_bound(kind: Any) -> None:
    """Each hyperedge with a slot is on a path, and no path has two."""
    graph = FactorGraph()
    for n in range(1, 7):
        for exact in (False, True):
            most = np.arange(n + 1)
            factor = kind(graph.variable((n + 1, n)), most, exact)
            hypergraphs, which = factor.hypergraphs()
            switched = np.array([(h.edges.entries < n).sum() for h in hypergraphs])[which]
            bounds = factor.min_paths()
            assert bounds[:n].tolist() == switched[:n].tolist()
            assert bounds[n] == 0  # every size is allowed


@pytest.mark.parametrize("seed", range(12))
def test_nodes_that_are_counted_first_are_nodes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count may miss nodes, but never refuses a graph that has fewer."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    steps, n = np.zeros((3, 3)), int(rng.integers(3, 7))
    u = graph.variable((n, 3))
    least, most = int(rng.integers(1, 3)), int(rng.integers(1, n + 1))
    n_counted = 0
    kinds: list[HypergraphFactor] = [
        SequenceBudget(u, steps, most),
        SequenceSpans(u, steps, most, least, int(rng.integers(1, 4))),
        Budget(u.reshape(-1), most),
    ]
    for factor in kinds:
        (hypergraph,), _ = factor.hypergraphs()
        shared = rng.random(hypergraph.arity) < 0.8
        monkeypatch.setattr(factor_pieces, "MAX_NODES", -1)
        with pytest.raises(ValueError, match="multi-state variables") as caught:
            factor_pieces.pieces_of_slots(hypergraph, shared)
        counted = int(str(caught.value).partition("cycles through ")[2].split()[0])
        monkeypatch.setattr(factor_pieces, "MAX_NODES", counted)
        pieces = factor_pieces.pieces_of_slots(hypergraph, shared)
        assert pieces is not None
        around = [
            p for p, x in enumerate(pieces) if len(x.slots) and min(x.n_before, x.n_after) > 1
        ]
        n_counted += counted
        assert counted <= len(around) + len({c for p in around for c in (p, p + 1)})
    assert n_counted > 0


class AllOrNone(HypergraphFactor):
    """All variables of a row are on, or none."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> bool:
        return bool(eta_u.sum() > 0.0)

    def vertex(self, y: bool) -> tuple[Any, Any]:
        return np.full(self.event_shape, float(y)), np.empty(0)

    @classmethod
    def hypergraph(cls, row: Any, build: Any) -> int:
        build.edge(0)
        build.edge(0, slots=list(range(row.event_shape[0])))
        return 0


def test_tables_list_only_what_factors_allow() -> None:
    """A table over 1100 nodes, whose product of states overflows, has two rows."""
    n, rng = 1100, np.random.default_rng(10)
    graph = FactorGraph()
    u = graph.variable_from(0.1 * rng.standard_normal((2, n)))
    graph.add(AllOrNone(u[0]))
    graph.add(AllOrNone(u[0, ::-1]))
    graph.add(Pair(u[0], u[1], 0.2))
    eta = graph.flat_scores().reshape(2, n)
    off = np.logaddexp(0.0, eta[1]).sum()
    on = (eta[0] + np.logaddexp(0.0, eta[1] + 0.2)).sum()
    np.testing.assert_allclose(graph.gibbs().log_partition, [np.logaddexp(off, on)], rtol=1e-13)


def test_no_nodes_have_an_order() -> None:
    """The kernels would read outside of their arrays."""
    empty = np.empty(0, dtype=np.int64)
    assert cheapest_order(empty, np.empty((0, 0), dtype=np.bool_), 1.0).cost == 0.0
