"""Structures in AD3's text format, judged by enumeration in the order of AD3's log-potentials."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lpsmap_decode import FileFormatError, read_graph

Scored = Iterator[tuple[np.ndarray, float]]
"""Assignments of all variables of a factor, with the sums of their log-potentials."""


def sequences(rng, sizes, budget=None):
    """Return the words of a sequence after its variables, and its assignments."""
    ends = [1, *sizes, 1]
    steps = [rng.normal(size=(a, b)) for a, b in itertools.pairwise(ends)]
    words = [len(sizes), *([] if budget is None else [budget]), *sizes]

    def scored() -> Scored:
        for states in np.ndindex(*sizes):
            if budget is None or states.count(0) <= budget:
                path = [0, *states, 0]
                pairs = enumerate(itertools.pairwise(path))
                yield one_hot(sizes, states), sum(steps[t][pair] for t, pair in pairs)

    return [*words, *numbers(steps)], scored


def trees(rng, sizes, parents):
    tables = [rng.normal(size=(sizes[p], k)) for p, k in zip(parents[1:], sizes[1:], strict=True)]

    def scored() -> Scored:
        for states in np.ndindex(*sizes):
            below = enumerate(tables, start=1)
            total = sum(table[states[parents[i]], states[i]] for i, table in below)
            yield one_hot(sizes, states), total

    return [len(sizes), *sizes, *parents, *numbers(tables)], scored


def arborescences(rng, n, arcs):
    words = [n, *(node for arc in arcs for node in arc)]

    def scored() -> Scored:
        for heads in itertools.product(range(n), repeat=n - 1):
            chosen = {(h, m) for m, h in enumerate(heads, start=1)}
            if chosen <= set(arcs) and all(reaches_root(heads, m) for m in range(1, n)):
                yield np.array([float(arc in chosen) for arc in arcs]), 0.0

    return words, scored


def reaches_root(heads, node):
    for _ in heads:
        node = heads[node - 1] if node else 0
    return node == 0


def automata(rng, n):
    potentials = {(m, s): rng.normal() for m in range(n + 1) for s in range(m + 1, n + 2)}

    def scored() -> Scored:
        for on in itertools.product((0.0, 1.0), repeat=n):
            path = [0, *(np.flatnonzero(on) + 1).tolist(), n + 1]
            yield np.array(on), sum(potentials[pair] for pair in itertools.pairwise(path))

    return list(potentials.values()), scored


def numbers(arrays):
    return [float(x) for array in arrays for x in array.ravel()]


def one_hot(sizes, states):
    return np.concatenate([np.eye(k)[s] for k, s in zip(sizes, states, strict=True)])


ALL_ARCS = [(h, m) for h in range(5) for m in range(1, 5) if h != m]
PRUNED = [(4, 3), (3, 4), (2, 4), (1, 2), (2, 1), (0, 3), (0, 1), (3, 2)]
CASES = {
    "sequence": ("SEQUENCE", lambda rng: sequences(rng, [2, 3, 1, 2])),
    "budget": ("SEQUENCE_BUDGET", lambda rng: sequences(rng, [2, 3, 1, 2], 2)),
    "even budget": ("SEQUENCE_BUDGET", lambda rng: sequences(rng, [3, 3, 3], 0)),
    "no limit": ("SEQUENCE_BUDGET", lambda rng: sequences(rng, [2, 2], 9)),
    "tree": ("GENERAL_TREE", lambda rng: trees(rng, [2, 3, 1, 2, 3], [-1, 0, 3, 0, 0])),
    "node": ("GENERAL_TREE", lambda rng: trees(rng, [3], [-1])),
    "arborescence": ("ARBORESCENCE", lambda rng: arborescences(rng, 5, ALL_ARCS)),
    "pruned": (
        "ARBORESCENCE",
        lambda rng: arborescences(rng, 5, PRUNED),
    ),
    "automaton": ("HEAD_AUTOMATON", lambda rng: automata(rng, 4)),
    "one modifier": ("HEAD_AUTOMATON", lambda rng: automata(rng, 1)),
}


def written(folder: Path, *graphs: str) -> Path:
    path = folder / "model.fg"
    path.write_text("\n\n".join(graphs) + "\n")
    return path


def model(kind, words, scores) -> str:
    n = len(scores)
    line = " ".join(map(str, [kind, n, *range(1, n + 1), *words]))
    return "\n".join(map(str, [n, 1, *scores.tolist(), line]))


@pytest.mark.parametrize("case", list(CASES))
def test_the_best_is_that_of_an_enumeration(tmp_path: Path, case: str) -> None:
    kind, make = CASES[case]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        words, scored = make(rng)
        rows = list(scored())
        scores = rng.normal(size=len(rows[0][0]))
        named = read_graph(written(tmp_path, model(kind, words, scores)))
        totals = [scores @ x + behind for x, behind in rows]
        best = int(np.argmax(totals))
        found = named.graph.solve_map(exact=True)
        assert found.ok
        assert found.total == pytest.approx(totals[best], abs=1e-9)
        np.testing.assert_array_equal(named.variables["u"].value, rows[best][0])
        relaxed = named.graph.solve_map()
        assert relaxed.objective.sum() == pytest.approx(totals[best], abs=1e-5)


def test_marginals_of_a_tree_that_is_a_chain_are_those_of_a_sequence(tmp_path: Path) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sizes = [2, 3, 2, 4]
        words, _ = trees(rng, sizes, [-1, 0, 1, 2])
        potentials = words[2 * len(sizes) + 1 :]
        sequence = [4, *sizes, *[0] * sizes[0], *potentials, *[0] * sizes[-1]]
        scores = rng.normal(size=sum(sizes))
        chain, tree = model("SEQUENCE", sequence, scores), model("GENERAL_TREE", words, scores)
        named = read_graph(written(tmp_path, chain, tree))
        assert named.graph.solve(tol=1e-10, max_iter=20_000).ok
        u0, u1 = (u.value for u in named.variables.values())
        np.testing.assert_allclose(u0, u1, atol=1e-7)


def test_graphs_of_a_file_are_separate_parts(tmp_path: Path) -> None:
    one = "2\n1\n1\n2\nXOR 2 1 2\n"
    two = "1\n0\n3\n"
    three = "2\n1\n-1\n-2\nOR 2 1 2"
    named = read_graph(written(tmp_path, one, two, three))
    assert list(named.variables) == ["u0", "u1", "u2"]
    assert named.graph.solve_map(exact=True).total == 4.0
    values = [u.value.tolist() for u in named.variables.values()]
    assert values == [[0.0, 1.0], [1.0], [1.0, 0.0]]
    assert list(read_graph(written(tmp_path, one)).variables) == ["u"]
    with pytest.raises(FileFormatError, match="the file ends; expected the number of factors"):
        read_graph(written(tmp_path, one, "2"))


TREE = "3\n1\n0\n0\n0\nGENERAL_TREE 3 1 2 3 3 1 1 1 -1 0 0 1 2"
ARCS = "2\n1\n0\n0\nARBORESCENCE 2 1 2 3 0 1 1 2"


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (TREE, "-1 0 0", "-1 2 1", "node 1 is not below node 0; expected parents of a tree"),
        (TREE, "-1 0 0", "-1 0 2", "node 2 is not below node 0"),
        (TREE, "-1 0 0", "0 0 0", "got 0; expected the parent of node 0, the root, from -1 to -1"),
        (TREE, "-1 0 0", "-1 0 3", "got 3; expected the parent of node 2, from 0 to 2"),
        (TREE, "3 1 1 1", "3 1 1 2", "nodes have 4 states; expected 3, one for each variable"),
        (TREE, "GENERAL_TREE", "GENERAL_TREE_COUNTS", "type GENERAL_TREE_COUNTS are not supported"),
        (ARCS, "0 1 1 2", "0 1 2 2", "got an arc from node 2 to itself; expected two nodes"),
        (ARCS, "0 1 1 2", "0 1 0 1", "the arc from node 0 to node 1 occurs twice"),
        (ARCS, "0 1 1 2", "0 1 1 3", "got 3; expected the modifier of an arc, from 1 to 2"),
        (
            ARCS,
            "2 3 0",
            "2 9999 0",
            "99980001 as the number of arcs between all nodes is more than",
        ),
        (
            "2\n1\n0\n0\nSEQUENCE_BUDGET 2 1 2 2 1 1 1 0 0 0",
            "",
            "",
            "2 positions have no state but the first; expected at most 1, the budget of first",
        ),
    ],
)
def test_a_wrong_structure_says_where(
    tmp_path: Path, text: str, old: str, new: str, words: str
) -> None:
    assert old in text
    with pytest.raises(FileFormatError, match=words):
        read_graph(written(tmp_path, text.replace(old, new, 1)))
