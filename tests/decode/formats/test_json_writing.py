"""Graphs written as JSON are the same graphs when they are read."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpsmap
from damages import check_damaged
from lpsmap_core import Factor, FactorGraph, hookimpl
from lpsmap_core.api import parameters_of, slot_values
from lpsmap_core.plugins.registry import installed, registered
from lpsmap_core.testing.graphs import declared_again
from lpsmap_decode import FileFormatError, NamedGraph
from lpsmap_decode.formats.files import read_graph, write_graph
from random_graphs import KINDS, random_graph

OWN = {
    name: registration.value
    for name, registration in installed().factors.items()
    if registration.plugin.distribution
    in ("lpsmap-factors-logic", "lpsmap-factors-struct", "lpsmap-search")
}


def assert_same(named, again):
    """Assert that two graphs are equal in all that an engine sees."""
    graph, other = named.graph, again.graph
    np.testing.assert_array_equal(graph.flat_scores(), other.flat_scores())
    assert len(graph.factors) == len(other.factors)
    for a, b in zip(graph.factors, other.factors, strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(a.offsets, b.offsets)
        for name in ("index", "negated"):
            mine, theirs = getattr(a.variables, name), getattr(b.variables, name)
            np.testing.assert_array_equal(slot_values(a, mine), slot_values(b, theirs))
        np.testing.assert_array_equal(graph.additional_scores(a), other.additional_scores(b))
        for name in parameters_of(a).names:
            np.testing.assert_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_type_is_written(tmp_path, rng, name):
    for factor in OWN[name].examples():
        n = int(factor.offsets[-1])
        additionals = rng.normal(size=(1, factor.n_factors, factor.n_additionals))
        graph = declared_again(factor, rng.normal(size=(1, n)), additionals).graph
        named = NamedGraph(graph, {})
        write_graph(named, tmp_path / "one.json")
        assert_same(named, read_graph(tmp_path / "one.json"))


def test_whole_graphs(tmp_path, rng):
    for i in range(20):
        graph, u, _ = random_graph(rng, kinds=[k for k in KINDS if k != "Polytope"]).build()
        named, path = NamedGraph(graph, {"u": u}), tmp_path / f"{i}.json"
        write_graph(named, path)
        again = read_graph(path)
        assert list(again.variables) == ["u"]
        assert_same(named, again)


scores = st.one_of(st.floats(allow_nan=False), st.just(-np.inf))


@given(st.lists(scores, min_size=4, max_size=4), st.integers(0, 3), st.booleans())
def test_numbers_survive(tmp_path_factory, numbers, budget, force):
    graph = FactorGraph()
    u = graph.variable_from(np.array(numbers).reshape(2, 2))
    graph.add(lpsmap.Budget(~u, [budget % 3, 1], force_budget=[force, False]))
    graph.add(lpsmap.Pair(u[0], ~u[1], numbers[:2]))
    graph.add(lpsmap.Dense([u[0], u[1]], np.stack([numbers[2:], numbers[:2]])))
    named, folder = NamedGraph(graph, {"u": u}), tmp_path_factory.mktemp("json")
    write_graph(named, folder / "g.json")
    again = read_graph(folder / "g.json")
    assert again.variables["u"].shape == (2, 2)
    assert_same(named, again)


def large(rng):
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(40, 40)))
    graph.add(lpsmap.Xor(u))
    graph.add(lpsmap.Dense([u[:-1], u[1:]], rng.normal(size=(39, 40, 40))))
    return NamedGraph(graph, {"u": u})


@pytest.mark.parametrize("name", ["large.json", "large.json.gz"])
def test_large_arrays_lie_beside(tmp_path, rng, name):
    named = large(rng)
    write_graph(named, tmp_path / name)
    assert (tmp_path / "large.npz").stat().st_size > 39 * 40 * 40 * 8
    assert (tmp_path / name).stat().st_size < 1000
    assert_same(named, read_graph(tmp_path / name))


def test_rescored_graphs_are_written_as_they_are(tmp_path, rng):
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(5, 3)))
    chain = graph.add(lpsmap.Sequence(u, np.zeros((3, 3))))
    graph.rescore(u, rng.normal(size=(5, 3)))
    graph.rescore(chain, rng.normal(size=chain.additionals.shape))
    named = NamedGraph(graph, {"u": u})
    write_graph(named, tmp_path / "g.json")
    assert_same(named, read_graph(tmp_path / "g.json"))


class Secretive(Factor):
    """A type that keeps what it was given to itself."""

    def __init__(self, variables, secret):
        super().__init__(variables)
        self._secret = secret

    def solve_map(self, eta_u, eta_v):
        return 0

    def vertex(self, y):
        return np.zeros(self.event_shape), np.empty(0)


def test_what_cannot_be_written_is_refused_and_nothing_written(tmp_path, rng):
    graph = FactorGraph()
    u = graph.variable((2, 3))
    path = tmp_path / "g.json"
    for named, words in (
        (NamedGraph(graph, {"u": u[0], "v": u[0]}), "the variables 'v' are not a contiguous block"),
        (NamedGraph(graph, {"u": ~u}), "the variables 'u' are not a contiguous block"),
        (NamedGraph(graph, {"u": u.T}), "the variables 'u' are not a contiguous block"),
    ):
        with pytest.raises(FileFormatError, match=words):
            write_graph(named, path)
    graph.add(Secretive(u, 3))
    with pytest.raises(FileFormatError, match="cannot be written: .*Secretive"):
        write_graph(NamedGraph(graph, {}), path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileFormatError, match="written as WCNF. Choose another suffix"):
        write_graph(NamedGraph(graph, {}), tmp_path / "g.wcnf")


class Hidden(Secretive):
    """Its registered parameter has another name than the argument."""

    def __init__(self, variables, secret=0):
        super().__init__(variables, secret)
        self.known = self.counts("known", secret)


def test_arguments_that_are_no_attributes_are_named(tmp_path):
    class Plugin:
        lpsmap_api_version = 3

        @hookimpl
        def lpsmap_factors(self):
            return [Hidden]

    graph = FactorGraph()
    graph.add(Hidden(graph.variable((2, 3)), 3))
    with registered(Plugin()):
        with pytest.raises(FileFormatError, match="Hidden.* of its constructor, such as secret. "):
            write_graph(NamedGraph(graph, {}), tmp_path / "g.json")
        Hidden.arguments = lambda self: {"secret": self.known}
        write_graph(NamedGraph(graph, {}), tmp_path / "g.json")


def test_a_graph_without_names_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"named: got .*FactorGraph.*; expected a NamedGraph"):
        write_graph(FactorGraph(), tmp_path / "graph.json")
    assert not list(tmp_path.iterdir())


def test_variables_without_names_get_some(tmp_path, rng):
    graph = FactorGraph()
    graph.variable_from(rng.normal(size=2))
    u = graph.variable_from(rng.normal(size=(2, 2)))
    graph.variable_from(rng.normal(size=3))
    write_graph(NamedGraph(graph, {"u": u}), tmp_path / "g.json")
    again = read_graph(tmp_path / "g.json")
    assert {k: v.shape for k, v in again.variables.items()} == {
        "unnamed0": (2,),
        "u": (2, 2),
        "unnamed1": (3,),
    }
    np.testing.assert_array_equal(again.graph.flat_scores(), graph.flat_scores())


def test_a_name_given_to_other_variables_is_kept(tmp_path):
    graph = FactorGraph()
    graph.variable_from([1.0, 2.0])
    u = graph.variable_from([3.0])
    write_graph(NamedGraph(graph, {"unnamed0": u}), tmp_path / "g.json")
    again = read_graph(tmp_path / "g.json")
    assert list(again.variables) == ["unnamed1", "unnamed0"]
    np.testing.assert_array_equal(again.graph.flat_scores(), [1.0, 2.0, 3.0])


GOOD = {
    "variables": {"u": [[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]},
    "factors": [
        {"type": "Xor", "over": [{"index": [[0, 1], [3, 4]], "negated": [[True, False]] * 2}]},
        {"type": "Dense", "over": [["u[0]", "u[1]"]], "table": {"array": "t"}},
        {"type": "AtMostOne", "over": ["~u[:, 1:]"], "axis": 0},
    ],
    "arrays": "t.npz",
}


def test_damaged_files(tmp_path):
    np.savez(tmp_path / "t.npz", t=np.zeros((3, 3)))
    check_damaged(tmp_path, ".json", json.dumps(GOOD))


def test_damaged_arrays(tmp_path, rng):
    path, beside = tmp_path / "g.json", tmp_path / "t.npz"
    path.write_text(json.dumps(GOOD))
    np.savez(beside, t=np.zeros((3, 3)))
    good = beside.read_bytes()
    read_graph(path)
    for i in range(100):
        data = bytearray(good)
        at = rng.integers(len(data))
        data[at : at + 3] = rng.bytes(3)
        beside.write_bytes(bytes(data[: rng.integers(len(data))] if i % 3 == 0 else data))
        try:
            read_graph(path)
        except FileFormatError as error:
            assert str(error).startswith(str(path))
    header = b"\x93NUMPY\x01\x00v\x00" + (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    )
    with zipfile.ZipFile(beside, "w") as whole:
        whole.writestr("t.npy", header)
    with pytest.raises(FileFormatError, match=r"has shape \(1000000000000,\)"):
        read_graph(path)
    np.savez_compressed(beside, t=np.zeros((1000, 1000)))
    with pytest.raises(FileFormatError, match="it is compressed or truncated"):
        read_graph(path)
    np.savez(beside, t=np.array([{}], dtype=object))
    with pytest.raises(FileFormatError, match="expected arrays of numbers"):
        read_graph(path)
    for name, words in (("../t.npz", "a file name without a folder"), (3, "expected a string")):
        path.write_text(json.dumps({**GOOD, "arrays": name}))
        with pytest.raises(FileFormatError, match=words):
            read_graph(path)
    path.write_text(json.dumps({**GOOD, "arrays": "missing.npz"}))
    with pytest.raises(OSError, match=r"arrays: missing.npz cannot be read \(No such"):
        read_graph(path)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ({"index": [6]}, "index goes from 6 to 6; expected positions in the list of 6 variables"),
        ({"index": [-1]}, "index goes from -1"),
        ({"index": [0.5]}, "index holds 0.5; expected whole numbers"),
        ({"negated": [True]}, "got a view with"),
        ({"index": [0], "color": 3}, "got a view with"),
        ({"index": {"array": "x"}}, "there is no array 'x'"),
        ({"index": {"list": "x"}}, "expected numbers, or"),
        ({"index": [0], "negated": ["x"]}, "expected True or False"),
    ],
)
def test_views_by_places_are_checked(tmp_path, view, words):
    content = {"variables": {"u": [0.0] * 6}, "factors": [{"type": "Xor", "over": [view]}]}
    (tmp_path / "g.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=words):
        read_graph(tmp_path / "g.json")
