"""Hypergraphs: what is refused, what is left out, and that every pass sees all derivations."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from lpsmap_core import FactorGraph, Scores
from lpsmap_core.api import row_view
from lpsmap_core.testing.tensor_oracles import check_tensor_oracle
from lpsmap_dynamic import (
    Beliefs,
    DynamicProgram,
    Hypergraph,
    HypergraphBuilder,
    HypergraphFactor,
    Row,
    hypergraph_cache,
)
from lpsmap_dynamic.best_derivation import best_derivations
from lpsmap_dynamic.derivations import _room
from lpsmap_dynamic.inside_outside import beliefs_of
from lpsmap_dynamic.k_best import k_best_of
from lpsmap_factors_struct import Sequence
from lpsmap_jit.interrupts import Watch


class Listed(DynamicProgram):
    """Derivations by listed hyperedges: rows of head, two tails (-1 for none) and an additional."""

    calls = 0

    def __init__(self, variables: Any, additionals: Any, edges: Any) -> None:
        super().__init__(variables, additionals)
        self.edges = self.integers("edges", edges, per_factor=isinstance(edges, tuple))

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the last head."""
        Listed.calls += 1
        edges = row.integers.reshape(-1, 4)
        for head, left, right, additional in edges.tolist():
            build.edge(head, [x for x in (left, right) if x >= 0], additionals=[additional])
        return int(edges[-1, 0])


class Chooser(DynamicProgram):
    """One state a position: as many hyperedges as slots."""

    variables_ndim = 2

    def __init__(self, variables: Any, flavour: Any = 0.0, **options: Any) -> None:
        super().__init__(variables, **options)
        self.flavour = self.per_factor("flavour", flavour)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> tuple[int, int]:
        """Return the last position."""
        length, n_states = row.event_shape
        build.edge((0, 0))
        for t, s in itertools.product(range(length), range(n_states)):
            build.edge((t + 1, 0), [(t, 0)], [(t, s)])
        return length, 0


def random_edges(rng: np.random.Generator) -> np.ndarray:
    """Draw hyperedges over a handful of items, each with an additional of its own or shared."""
    rows = []
    for head in range(5):
        for _ in range(rng.integers(1, 4)):
            tails = [rng.integers(-1, head) if head else -1 for _ in range(2)]
            rows.append([head, *tails, rng.integers(6)])
    order = rng.permutation(len(rows) - 1)
    return np.array([rows[i] for i in order] + [rows[-1]])


def derivations(edges: np.ndarray, item: int) -> Iterator[np.ndarray]:
    """Yield the counts of additionals of every derivation, by the definition."""
    for head, left, right, additional in edges.tolist():
        if head == item:
            own = np.eye(6)[additional]
            parts = [
                list(derivations(edges, x)) if x >= 0 else [np.zeros(6)] for x in (left, right)
            ]
            for a, b in itertools.product(*parts):
                yield own + a + b


@pytest.mark.parametrize("seed", range(12))
def test_passes_see_every_derivation(seed: int) -> None:
    """Twelve random hypergraphs; derivations with equal counts are still different ones."""
    rng = np.random.default_rng(seed)
    edges = tuple(random_edges(rng) for _ in range(3))
    eta_v = rng.standard_normal((3, 6))
    graph = FactorGraph()
    listed = graph.add(Listed(graph.variable((3, 1)), eta_v, edges))
    gibbs = graph.gibbs(listed)
    for r in range(3):
        counts = np.array(list(derivations(edges[r], int(edges[r][-1, 0]))))
        scores = counts @ eta_v[r]
        weights = np.exp(scores - scores.max())
        assert gibbs.count()[r] == len(counts)
        log_z = scores.max() + np.log(weights.sum())
        np.testing.assert_allclose(gibbs.log_partition[r], log_z, atol=1e-12)
        p = weights / weights.sum()
        np.testing.assert_allclose(gibbs.additionals[r], p @ counts, atol=1e-12)
        np.testing.assert_allclose(gibbs.entropy[r], -(p * np.log(p)).sum(), atol=1e-12)
        k = min(len(counts) + 1, 50)
        np.testing.assert_allclose(gibbs.k_best(k)[r].scores, np.sort(scores)[::-1][:k], atol=1e-12)
        row = row_view(listed, r)
        _, best = row.vertex(row.solve_map(np.zeros(1), eta_v[r]))
        np.testing.assert_allclose(best @ eta_v[r], scores.max(), atol=1e-12)


# -------------------------------------------------------------------- what is refused


def built(*edges: Any, goal: Any = "goal") -> Any:
    build = HypergraphBuilder((2, 3), n_additionals=2)
    for edge in edges:
        build.edge(*edge)
    return build.finish(goal)


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([("goal", ["a"]), ("a", ["b"]), ("b", ["a"])], "is needed to derive itself"),
        ([("goal", ["goal"])], "item 'goal' is needed to derive itself"),
        ([("goal", ["a"])], "item 'a' is not the head of a hyperedge"),
        ([("other", [])], "the goal 'goal' is not an item"),
        ([("goal", ["a", "b", "c"])], "has 3 tails; expected at most two"),
        ([("goal", [], [(2, 0)])], r"slot \(2, 0\) is out of range; .* in shape \(2, 3\)"),
        ([("goal", [], [6])], "slot 6 is out of range"),
        ([("goal", [], [(0, 1, 1)])], r"slot \(0, 1, 1\) is out of range"),
        ([("goal", [], [-1])], "slot -1 is out of range"),
        (
            [("goal", [], (0, 2))],
            r"slots is \(0, 2\), which is ambiguous: one slot of 2 axes or 2 slots",
        ),
        ([("goal", [], (0, 2))], r"slots; write \[\(0, 2\)\] or \[0, 2\]"),
        ([("goal", [], [1.5])], "slot 1.5 is out of range"),
        ([("goal", [], [(0, 0.5)])], r"slot \(0, 0.5\) is out of range"),
        ([("goal", [], [[0, 2]])], r"slot \[0, 2\] is out of range; .* or a tuple"),
        ([("goal", [], ["x"])], "slot 'x' is out of range"),
        ([("goal", [], np.array([[0, 2]]))], r"slot array\(\[0, 2\]\) is out of range"),
        ([("goal", [], [], [2])], "additional 2 is out of range; expected 0 to 1"),
        ([("goal", [], [], [0.5])], "additional 0.5 is out of range"),
        ([("goal", [], [0, (0, 0)])], "item 'goal' can switch on slot 0 twice"),
        ([("a", [], [5]), ("goal", ["a", "a"])], "item 'goal' can switch on slot 5 twice"),
        ([("a", [], [5]), ("b", ["a"]), ("b", [], [1]), ("goal", ["b"], [5])], "on slot 5 twice"),
    ],
)
def test_bad_hypergraphs_are_refused(edges: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        built(*edges)


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        (("goal", "ab"), r"tails is 'ab'; expected a list, such as \['ab'\]"),
        (("goal", 1), r"tails is 1; expected a list, such as \[1\]"),
        (("goal", [], 1), r"slots is 1; expected a list, such as \[1\]"),
        (("goal", [], [], 1), r"additionals is 1; expected a list, such as \[1\]"),
        ((["goal"],), r"item \['goal'\] is not hashable; expected a hashable name"),
        (("goal", [["a"]]), r"item \['a'\] is not hashable"),
    ],
)
def test_what_is_no_list_or_no_name_is_refused(edge: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        built(edge)


def test_two_slots_may_be_a_tuple_where_it_is_no_index() -> None:
    """Indices of two axes in a tuple, more slots than axes, and slots of one axis."""
    assert built(("goal", [], ((0, 1), (1, 2)))).edges.entries.tolist() == [1, 5]
    assert built(("goal", [], (0, 1, 2))).edges.entries.tolist() == [0, 1, 2]
    build = HypergraphBuilder((4,))
    build.edge("goal", slots=(0, np.int64(2)))
    assert build.finish("goal").used.tolist() == [True, False, True, False]


def test_whole_floats_are_numbers() -> None:
    """As in self.integers; a parameter is a float."""
    assert built(("goal", [], [np.float64(3.0)], [1.0])).edges.entries.tolist() == [3, 7]
    build = HypergraphBuilder((3,))
    build.edges([0.0], slots=[2.0])
    assert build.finish(0).edges.entries.tolist() == [2]


def test_factors_without_additionals_say_so() -> None:
    build = HypergraphBuilder((4,))
    with pytest.raises(
        ValueError, match="edge: additional 3 is out of range; .* the factor has none"
    ):
        build.edge("goal", additionals=[3])
    with pytest.raises(
        ValueError, match="edges: additional 3 is out of range; .* the factor has none"
    ):
        build.edges([0], additionals=[3])


def test_what_is_no_parameter_is_named() -> None:
    with pytest.raises(KeyError, match=r"row\['foo'\] is no parameter; expected 'flavour'"):
        Row((2,), 0, (("flavour", 7.0),))["foo"]
    with pytest.raises(KeyError, match="expected none, as the type registers none"):
        Row((2,))["foo"]


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        ({"slots": [6, 0]}, ValueError, "slot 6 is out of range; expected 0 to 5"),
        ({"additionals": [-1, 0]}, ValueError, "additional -1 is out of range; expected 0 to 1"),
        ({"tails": [[1, 2, 3]] * 2}, ValueError, "got 3 tails; expected at most two"),
        ({"tails": [0]}, ValueError, r"tails has shape \(1,\); expected \(2,\) or \(2, k\)"),
        ({"slots": 0}, ValueError, r"slots has shape \(\); expected \(2,\) or \(2, k\)"),
        ({"slots": [0, 1, 2, 3]}, ValueError, r"slots has shape \(4,\); expected \(2,\)"),
        ({"tails": [0, 1.5]}, ValueError, "tails holds 1.5; expected integers"),
        ({"heads": [0, 1.5]}, ValueError, "heads holds 1.5; expected integers"),
        ({"slots": [0, np.nan]}, ValueError, "slots holds nan; expected integers"),
        ({"slots": [[0], [1, 2]]}, ValueError, "slots is not an array of numbers"),
        ({"heads": ["x", "y"]}, TypeError, "heads has dtype <U1; expected integers"),
    ],
)
def test_bad_arrays_are_refused(arrays: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"edges: {words}"):
        HypergraphBuilder((2, 3), n_additionals=2).edges(**{"heads": [0, 1]} | arrays)


def test_slots_beyond_a_word_of_bits_are_checked() -> None:
    build = HypergraphBuilder((200,))
    build.edges([0], slots=[150])
    build.edges([1], [[0, 0]])
    with pytest.raises(ValueError, match="item 1 can switch on slot 150 twice"):
        build.finish(1)


def test_derivations_of_exponential_size_are_refused() -> None:
    build = HypergraphBuilder(())
    build.edge(0)
    for i in range(40):
        build.edge(i + 1, [i, i])
    with pytest.raises(ValueError, match="more than two billion hyperedges"):
        build.finish(40)


def test_what_the_goal_does_not_need_is_left_out() -> None:
    edges = [("goal", ["a"], [0]), ("a",), ("aside", ["a"], [1]), ("aside", ["goal"], [2])]
    found = built(*edges)
    assert (found.n_items, found.n_edges) == (2, 2)
    assert found.used.tolist() == [True] + 7 * [False]
    assert repr(found) == "Hypergraph(2 items, 2 hyperedges)"


def test_items_may_be_used_before_they_are_derived() -> None:
    found = built(("goal", ["a", "b"]), ("b", ["a"], [1]), ("b", [], [2]), ("a",))
    assert found.n_structures == 2
    assert found.n_items == 3


def test_counts_are_exact_beyond_64_bits() -> None:
    build = HypergraphBuilder((100, 10))
    for t in range(100):
        build.edges(np.full(10, t + 1), np.full(10, t), 10 * t + np.arange(10))
    build.edge(0)
    assert build.finish(100).n_structures == 10**100


def test_arrays_and_single_edges_are_the_same() -> None:
    one, many = HypergraphBuilder((2, 3), 2), HypergraphBuilder((2, 3), 2)
    for i in range(3):
        one.edge(i, [] if i == 0 else [i - 1], [(1, i)], [1])
    many.edges([0, 1, 2], [-1, 0, 1], [3, 4, 5], [1, 1, 1])
    many.edges([])
    assert 1 in one and 7 not in one
    np.testing.assert_array_equal(one.finish(2).code, many.finish(2).code)


# -------------------------------------------------------------------- what is shared


def test_equal_rows_share_a_hypergraph() -> None:
    graph, edges = FactorGraph(), np.array([[0, -1, -1, 0], [1, 0, -1, 1]])
    Listed.calls = 0
    for seed in range(3):
        scores = np.random.default_rng(seed).standard_normal((2, 6))
        listed = Listed(graph.variable((2, 2)), scores, edges.copy())
        (found,), which = listed.hypergraphs()
        assert which.tolist() == [0, 0]
        assert found is listed.hypergraph_of(Row.of_view(row_view(listed, 1)))
    assert Listed.calls == 1


def test_rows_differ_by_lengths_and_parameters() -> None:
    graph = FactorGraph()
    lengths = [[2, 3], [2, 3], [1, 3], [2, 3]]
    chosen = Chooser(graph.variable((4, 2, 3)), [0, 0, 0, 1], lengths=lengths)
    found, which = chosen.hypergraphs()
    assert len(found) == 3
    assert which[0] == which[1] and len(set(which[1:].tolist())) == 3
    rows = [Row.of_view(row_view(chosen, i)) for i in range(4)]
    assert rows[0] == rows[1] and rows[3]["flavour"] == 1.0
    assert graph.gibbs(graph.add(chosen)).count().tolist() == [9, 9, 3, 9]


def test_old_hypergraphs_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypergraph_cache, "MAX_BYTES", 1)
    row, other = Row((2, 2), 0, (("flavour", 7.0),)), Row((2, 3), 0, (("flavour", 7.0),))
    first = Chooser.hypergraph_of(row)
    assert Chooser.hypergraph_of(row) is first  # the latest one stays, however large
    Chooser.hypergraph_of(other)
    assert Chooser.hypergraph_of(row) is not first


def test_threads_build_at_once_and_get_the_first() -> None:
    """A lock held meanwhile would stay locked in a process that is forked then."""
    cache = hypergraph_cache.HypergraphCache[Hypergraph]()
    whole, together = Chooser.hypergraph_of(Row((2, 2), 0, ())), threading.Barrier(2, timeout=20)

    def build() -> Hypergraph:
        together.wait()
        return copy.copy(whole)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: cache.get("key", build), range(2))
    assert first is second is cache.get("key", build)


def test_masks_give_flat_slots() -> None:
    class Flat(Chooser):
        variables_ndim = 1

        @classmethod
        def hypergraph(cls, row: Row, build: HypergraphBuilder) -> str:
            (n,) = row.event_shape
            for i in range(n):
                build.edge("goal", slots=[i])
            return "goal"

    graph = FactorGraph()
    scores = np.arange(6.0).reshape(2, 3)
    mask = np.array([[True, False, True], [True, True, True]])
    gibbs = graph.gibbs(graph.add(Flat(graph.variable_from(scores), mask=mask)))
    exponentials = np.where(mask, np.exp(scores), 0.0)
    np.testing.assert_allclose(gibbs.log_partition, np.log(exponentials.sum(axis=1)))
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(gibbs.marginals, expected, atol=1e-15)


# -------------------------------------------------------------------- what follows


def test_entries_without_hyperedge_are_unused() -> None:
    graph = FactorGraph()
    edges = np.array([[0, -1, -1, 2], [1, 0, -1, 4]])
    listed = graph.add(Listed(graph.variable((2, 3)), np.full((2, 6), np.nan), edges))
    slots, additionals = listed.unused()
    assert slots is not None and slots.all()
    assert additionals is not None
    assert (~additionals).nonzero()[1].tolist() == [2, 4, 2, 4]


def test_unused_goes_by_row() -> None:
    graph = FactorGraph()
    chosen = Chooser(graph.variable((2, 2, 3)), lengths=[[1, 2], [2, 3]])
    slots, _ = chosen.unused()
    assert slots is not None and not slots.any()


def test_ties_go_to_the_first_edge() -> None:
    graph = FactorGraph()
    u = graph.variable((3, 4))
    chosen = graph.add(Chooser(u))
    view = row_view(chosen, 0)
    variables, _ = view.vertex(view.solve_map(np.zeros((3, 4)), np.empty(0)))
    np.testing.assert_array_equal(variables, np.eye(4)[[0, 0, 0]])
    best = graph.gibbs(chosen).k_best(5).variables.argmax(axis=-1)
    assert best.tolist() == graph.gibbs(chosen).k_best(5).variables.argmax(axis=-1).tolist()


def test_declarations_pickle() -> None:
    graph = FactorGraph()
    chosen = graph.add(Chooser(graph.variable((2, 3))))
    loaded_graph, loaded = pickle.loads(pickle.dumps((graph, chosen)))
    assert loaded_graph.gibbs(loaded).count().item() == 9


def test_solutions_follow() -> None:
    """The active set on the derived oracle projects each position onto its simplex."""
    graph, scores = FactorGraph(), np.array([[0.3, 0.1, -1.0], [2.0, 0.0, 0.0]])
    u = graph.variable_from(scores)
    chosen = graph.add(Chooser(u))
    graph.solve()
    np.testing.assert_allclose(u.value, [[0.6, 0.4, 0.0], [1.0, 0.0, 0.0]], atol=1e-9)
    assert graph.structures(chosen)[0][0].decoded == {"on": [[0, 0], [1, 0]]}


@pytest.mark.compiled
def test_long_passes_come_out_in_time() -> None:
    """With no time left, passes over many hyperedges end early, and what they wrote can be read."""
    graph = FactorGraph()
    chosen = graph.add(Chooser(graph.variable((400, 100))))
    inference, n = chosen.inference(), 400 * 100
    scores = Scores(np.zeros(n), np.empty(0))
    rows = np.zeros(1, dtype=np.int64)
    found, room = Beliefs(*np.zeros((2, 1)), np.zeros(n), np.empty(0)), _room(np.array([400]), 1)
    assert np.isclose(inference.beliefs(rows, scores).log_partition, 400 * np.log(100))
    with Watch(max_time=0.0):
        beliefs_of(rows, inference._factors, scores, *found[:4], np.zeros(1))
        best_derivations(rows, inference._factors, scores, room)
        assert room.size[0] == 400 and ((room.entry >= 0) & (room.entry < n)).all()
        k_best_of(rows, inference._factors, scores, 1, room)
    assert found.log_partition[0] == -np.inf and not found.m.any()
    assert room.size[0] == -1


def test_entries_that_derivations_repeat() -> None:
    """Random hyperedges against derivations that are listed; ranges that are apart prove some."""
    rng, found = np.random.default_rng(7), {True: 0, False: 0}
    repeated = {True: 0, False: 0}
    for _ in range(800):
        arity, n_extra = int(rng.integers(1, 7)), int(rng.integers(0, 7))
        build = HypergraphBuilder((arity,), n_extra)
        listed: list[list[tuple[int, ...]]] = [[()]]  # by item; 0 stands for no tail
        for item in range(1, int(rng.integers(2, 7))):
            derivations: list[tuple[int, ...]] = []
            for _ in range(rng.integers(1, 3)):
                tails = rng.integers(0, item, size=2).tolist()
                slots = rng.integers(0, arity, size=rng.integers(0, 3)).tolist()
                size = rng.integers(0, 3) if n_extra else 0
                extra = rng.integers(0, max(n_extra, 1), size=size).tolist()
                build.edge(item, [x for x in tails if x], slots, extra)
                left, right = (listed[x] for x in tails)
                own = (*slots, *(arity + j for j in extra))
                derivations += [(*own, *x, *y) for x in left for y in right]
            listed.append(derivations)
        slots_of, extra_of = (
            [[k for k in entries if (k < arity) == of_slots] for entries in listed[-1]]
            for of_slots in (True, False)
        )
        clear = all(len(set(slots)) == len(slots) for slots in slots_of)
        found[clear] += 1
        if clear:
            hypergraph = build.finish(len(listed) - 1)
            repeats = any(len(set(extra)) < len(extra) for extra in extra_of)
            assert hypergraph.repeats_additionals == repeats
            repeated[repeats] += 1
        else:
            with pytest.raises(ValueError, match="switch on slot .* twice"):
                build.finish(len(listed) - 1)
    assert min(*found.values(), *repeated.values()) > 50


def test_names_of_a_dynamic_program_are_known_and_slips_of_them_found() -> None:
    graph = FactorGraph()
    slip = type("Slip", (Listed,), {"hypergraph_off": None})
    with pytest.raises(TypeError, match="'hypergraph_off' is unknown to core and resembles 'hyper"):
        graph.add(slip(graph.variable((2, 1)), np.zeros((2, 1)), [[0, -1, -1, 0]]))


class AllOrNone(HypergraphFactor):
    """All variables are on, or none, by an oracle in Python."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> bool:
        """Return whether all are on."""
        return bool(eta_u.sum() > 0.0)

    def vertex(self, y: bool) -> tuple[Any, Any]:
        """Return as many ones or zeros as there are variables."""
        return np.full(self.event_shape, float(y)), np.empty(0)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the only item."""
        build.edge(0)
        build.edge(0, slots=list(range(row.event_shape[0])))
        return 0


class ByKernel(AllOrNone):
    """The same, by the generic oracle."""

    map_kernel = staticmethod(best_derivations)

    def solve_map(self, eta_u: Any, eta_v: Any) -> bool:
        """Return whether all are on."""
        return bool(eta_u.sum() > 0.0)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the only item."""
        return AllOrNone.hypergraph(row, build)


def test_the_generic_oracle_serves_types_with_an_oracle_of_their_own() -> None:
    """Its kernel reads hypergraphs, without which it read outside of an empty array."""
    scores = np.random.default_rng(0).standard_normal((3, 4))
    values = []
    for kind in (AllOrNone, ByKernel):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(kind(u))
        assert graph.solve().ok
        values.append(u.value)
    np.testing.assert_allclose(*values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_tensor_oracles_grow_paths_from_both_ends(seed: int) -> None:
    """Hyperedges skip levels, begin anywhere, and some items have no use."""
    rng = np.random.default_rng(seed)
    edges = [[h, rng.integers(-1, h), -1, rng.integers(6)] for h in range(9) for _ in range(2)]
    edges += [[9, 8, -1, 0], [9, rng.integers(8), -1, 1]]
    graph = FactorGraph()
    listed = Listed(graph.variable((3, 1)), np.zeros((3, 6)), np.array(edges))
    check_tensor_oracle(listed, seed=seed)


def test_both_ends_halve_the_levels_of_a_chain() -> None:
    graph = FactorGraph()
    oracle = Sequence(graph.variable((2, 20, 3)), np.zeros((3, 3))).tensor_oracle()
    assert oracle is not None
    (form,) = oracle.best.args  # type: ignore[attr-defined]
    assert form.has_paths
    assert len(form.levels) <= 20 // 2 + 1
    assert sum(n_chains == 2 for n_chains, _ in form.chains) >= 20 // 2 - 1


def test_items_and_slots_out_of_range_are_refused() -> None:
    build = HypergraphBuilder((2,))
    with pytest.raises(ValueError, match="edges: head -1 is out of range; expected 0 or more"):
        build.edges([0, -1])
    with pytest.raises(ValueError, match="edges: tail -2 is out of range; expected -1 or more"):
        build.edges([1, 2], [0, -2])
    with pytest.raises(ValueError, match=r"edges: heads has shape \(1, 2\); expected \(E,\)"):
        build.edges([[0, 1]])
    for slot in (True, np.True_):
        with pytest.raises(ValueError, match="edge: slot .*True.* is out of range"):
            build.edge("goal", slots=[slot])
