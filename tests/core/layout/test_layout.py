"""Layouts: the flat arrays say what the declarations do, whatever their order and their lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Pair, Sequence, Xor
from lpsmap_core.api import parameters_of, slot_values, slots_of
from lpsmap_core.layout.layout import Bucket, Layout, Part, build_layout


def anything(rng: np.random.Generator) -> FactorGraph:
    """Return a graph of a few declarations: negated, masked, shuffled, empty, of one type or many.

    Some of its variables are in no factor, and some of its factors cover no variable.
    """
    graph, batch, n = FactorGraph(), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    spans = [graph.variable_from(rng.standard_normal((batch, n, n))) for _ in range(2)]
    for kind in rng.integers(9, size=rng.integers(6)):
        u = spans[rng.integers(2)]
        if kind == 0:
            graph.add(Xor(u, lengths=rng.integers(1, n + 1, (batch, n))))
        elif kind == 1:
            graph.add(AtMostOne(~u, axis=1))
        elif kind == 2:
            graph.add(AtMostOne(u[rng.permutation(batch)], mask=rng.random(u.shape) < 0.7))
        elif kind == 3:
            graph.add(Budget(u.reshape(batch, -1), rng.integers(1, 4, batch)))
        elif kind == 4:
            graph.add(Pair(u[:, 0, 0], spans[0][:, -1, -1], rng.standard_normal(batch)))
        elif kind == 5:
            graph.add(DepTree(u, lengths=rng.integers(1, n + 1, batch)))
        elif kind == 6:
            graph.add(AtMostOne(u[:0, 0]))
        elif kind == 7:
            graph.add(AtMostOne(u.reshape(-1)[::2]))  # not contiguous
        else:
            graph.add(Sequence(u, rng.standard_normal((batch, n - 1, n, n))))
    return graph


@pytest.fixture(params=range(60))
def graph(request: pytest.FixtureRequest) -> FactorGraph:
    return anything(np.random.default_rng(request.param))


def slots(bucket: Bucket, f: int, negated: bool = False) -> list[int]:
    values = bucket.negated if negated else bucket.variable
    return [int(x) for x in values[bucket.offsets[f] : bucket.offsets[f + 1]]]


def components(graph: FactorGraph, layout: Layout) -> list[int]:
    """Return every variable's component, found by spreading the smallest number of each."""
    label = list(range(graph.n_variables))
    groups = [slots(b, f) for b in layout.buckets for f in range(b.n_factors)]
    for _ in label:
        for group in groups:
            for v in group:
                label[v] = min(label[w] for w in group)
    covered = {v for group in groups for v in group}
    roots = sorted({label[v] for v in covered})
    return [roots.index(label[v]) if v in covered else -1 for v in range(graph.n_variables)]


def test_buckets_hold_the_declarations_in_their_order(graph: FactorGraph) -> None:
    layout = build_layout(graph.n_variables, graph.factors)
    assert [b.type for b in layout.buckets] == list(dict.fromkeys(map(type, graph.factors)))
    for bucket in layout.buckets:
        assert list(bucket.declarations) == [d for d in graph.factors if type(d) is bucket.type]
        rows = [(d, i) for d in bucket.declarations for i in range(d.n_factors)]
        assert bucket.n_factors == len(rows)
        for f, (d, i) in enumerate(rows):
            assert bucket.declarations[bucket.declaration[f]] is d
            assert bucket.row[f] == i
            assert slots(bucket, f) == list(slot_values(d, d.variables.index)[slots_of(d, i)])
            assert slots(bucket, f, True) == list(
                slot_values(d, d.variables.negated)[slots_of(d, i)]
            )
            assert np.diff(bucket.additional_offsets)[f] == d.n_additionals
            given = [getattr(d, name)[i] for name in parameters_of(d).rows]
            assert bucket.factors.parameters[f].tolist() == given


def test_components_are_numbered_by_their_first_variables(graph: FactorGraph) -> None:
    layout = build_layout(graph.n_variables, graph.factors)
    expected = components(graph, layout)
    assert layout.component.tolist() == expected
    assert layout.n_components == max(expected, default=-1) + 1
    for bucket in layout.buckets:
        for f in range(bucket.n_factors):
            found = {expected[v] for v in slots(bucket, f)} or {-1}
            assert found == {bucket.component[f]}


def test_the_part_to_be_solved_is_in_the_order_of_components(graph: FactorGraph) -> None:
    layout = build_layout(graph.n_variables, graph.factors)
    part, whole = layout.part, {bucket.type: bucket for bucket in layout.buckets}
    assert sorted(part.variables) == np.flatnonzero(layout.component >= 0).tolist()
    assert part.component.tolist() == layout.component[part.variables].tolist()
    assert (np.diff(part.component) >= 0).all()
    for bucket in part.buckets:
        assert (np.diff(bucket.component) >= 0).all()
        of_type = whole[bucket.type]
        rows = list(zip(of_type.declaration, of_type.row, strict=True))
        chosen = [rows.index(row) for row in zip(bucket.declaration, bucket.row, strict=True)]
        assert sorted(chosen) == np.flatnonzero(of_type.component >= 0).tolist()
        for f, g in enumerate(chosen):
            assert part.variables[slots(bucket, f)].tolist() == slots(of_type, g)
            assert slots(bucket, f, True) == slots(of_type, g, True)
            assert bucket.factors.parameters[f].tolist() == of_type.factors.parameters[g].tolist()


def test_links_and_blocks_say_where_everything_lies(graph: FactorGraph) -> None:
    part: Part = build_layout(graph.n_variables, graph.factors).part
    spans, links, buckets = part.spans, part.links, part.buckets
    variable = [int(v) for bucket in buckets for v in bucket.variable]
    negated = [bool(x) for bucket in buckets for x in bucket.negated]
    assert part.link_variable.tolist() == variable
    assert part.negated.tolist() == negated
    by_variable = sorted(range(len(variable)), key=lambda link: variable[link])
    assert links.order.tolist() == by_variable
    assert links.negated.tolist() == [negated[link] for link in by_variable]
    degree = np.bincount(np.array(variable, dtype=np.int64), minlength=part.n_variables)
    assert np.diff(part.variable_offsets).tolist() == degree.tolist()
    assert part.root_degree.tolist() == np.sqrt(degree).tolist()
    assert part.delta.tolist() == np.sqrt(degree)[part.link_variable].tolist()
    totals = [(b.n_factors, b.n_links, b.n_additionals) for b in buckets]
    starts = np.array([(0, 0, 0), *totals]).cumsum(axis=0)
    assert (
        np.stack([spans.first_factor, spans.first_link, spans.first_additional], 1).tolist()
        == starts.tolist()
    )
    owner = [int(c) for bucket in buckets for c in bucket.component]
    assert spans.component.tolist() == owner
    each = [int(n) for bucket in buckets for n in np.diff(bucket.additional_offsets)]
    assert spans.additional_offsets.tolist() == np.cumsum([0, *each]).tolist()
    for c in range(part.n_components):
        mine = slice(spans.first_variable[c], spans.first_variable[c + 1])
        assert (part.component[mine] == c).all()
        assert part.sizes[c] == degree[mine].sum()
        assert part.direct[c] == (owner.count(c) == 1 and (degree[mine] == 1).all())
        for b, bucket in enumerate(buckets):
            rows = np.arange(spans.first_row[c, b], spans.first_row[c + 1, b])
            assert rows.tolist() == np.flatnonzero(bucket.component == c).tolist()


def test_nothing_is_laid_out_where_nothing_is_declared() -> None:
    graph = FactorGraph()
    graph.variable(3)
    layout = build_layout(3, [])
    assert layout.component.tolist() == [-1, -1, -1]
    assert (layout.n_components, layout.part.n_links, layout.part.buckets) == (0, 0, [])
    assert build_layout(0, []).part.n_variables == 0


def test_a_changed_part_derives_anew() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable((2, 3))))
    part = graph._laid_out().part

    def n_flipped(part: Part) -> int:
        return int(part.negated.sum())

    assert part.derived(n_flipped) == 0
    assert replace(part, negated=~part.negated).derived(n_flipped) == 6
    assert part.derived(n_flipped) == 0
