"""Weighted MaxSAT in DIMACS files."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damages import check_damaged
from lpsmap_decode import FileFormatError, read_graph

NEW = """c new
h 1 2 0
c in the middle
3 -1 -2 0
1 2 3 -4 0
5 -3 0
2 4 1 0
"""
OLD = """c old
p wcnf 4 5 10
10 1 2 0
3 -1 -2 0
1 2 3 -4 0 5 -3 0
2 4 1 0
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "formula.wcnf"
    path.write_text(text)
    return path


def scores_of(named):
    """Return the scores of all assignments to x, with the best of `violated`."""
    graph, x, violated = named.graph, named.variables["x"], named.variables["violated"]
    scores, found = graph.flat_scores(), {}
    constant = named.variables["constant"].index if "constant" in named.variables else []
    for bits in itertools.product((0.0, 1.0), repeat=x.size):
        value = np.zeros(graph.n_variables)
        value[x.index] = bits
        value[constant] = 1.0
        total = float(scores @ value)
        for factor in graph.factors:
            on = value[factor.variables.index] != factor.variables.negated
            slack = np.isin(factor.variables.index, violated.index)
            for satisfied, own, ids in zip(
                (on & ~slack).any(axis=1), slack, factor.variables.index, strict=True
            ):
                if not satisfied:
                    total += scores[ids[own]].sum() if own.any() else -np.inf
        found[bits] = total
    return found


literals = st.integers(1, 4).flatmap(lambda v: st.sampled_from([v, -v]))
hard = st.tuples(st.none(), st.lists(literals, min_size=1, max_size=4))
soft = st.tuples(st.integers(1, 9), st.lists(literals, max_size=4))


@given(st.lists(hard | soft, max_size=6), st.booleans())
def test_scores_are_minus_the_weight_of_what_is_violated(tmp_path_factory, formula, new):
    lines = [] if new else [f"p wcnf 4 {len(formula)} 1000"]
    for weight, clause in formula:
        first = ("h" if new else "1000") if weight is None else str(weight)
        lines.append(" ".join([first, *map(str, clause), "0"]))
    named = read_graph(written(tmp_path_factory.mktemp("wcnf"), "\n".join(lines)))
    for bits, score in scores_of(named).items():

        def holds(literal, bits=bits):
            at = abs(literal) - 1
            return (bits[at] if at < len(bits) else 0.0) == (literal > 0)

        cost = 0.0
        for weight, clause in formula:
            if not any(map(holds, clause)):
                cost += np.inf if weight is None else weight
        assert score == -cost


def test_old_and_new_headers_are_the_same_formula(tmp_path):
    found = [scores_of(read_graph(written(tmp_path, text))) for text in (OLD, NEW)]
    assert found[0] == found[1]
    soft = scores_of(read_graph(written(tmp_path, OLD.replace("4 5 10", "4 5"))))
    assert np.isfinite(list(soft.values())).all()  # without a top weight nothing must hold


def test_it_solves(tmp_path):
    named = read_graph(written(tmp_path, NEW))
    assert named.graph.solve().ok
    assert named.variables["x"].shape == (4,)


def test_no_clauses(tmp_path):
    for text in ("", "c nothing\n", "p wcnf 0 0 1\n", "h 1 -1 0\n"):
        assert not read_graph(written(tmp_path, text)).graph.factors


def test_the_largest_top_weight(tmp_path):
    text = f"p wcnf 2 2 {2**64 - 1}\n{2**64 - 1} 1 0\n5 -1 2 0\n"
    named = read_graph(written(tmp_path, text))
    assert named.graph.solve_map(exact=True).total == 0.0
    np.testing.assert_array_equal(named.variables["x"].value, [1.0, 1.0])


def test_a_clause_of_the_old_format_that_extends_over_lines_is_a_warning(tmp_path):
    path = written(tmp_path, OLD.replace("-3 0\n", "-3\n0\n").replace("1 2 0\n", "1 2\n0\n"))
    with pytest.warns(UserWarning) as warned:
        found = scores_of(read_graph(path))
    words = "line 3, column 6: the line ends within a clause; expected 0 at its end. The next line"
    assert [words in str(warning.message) for warning in warned] == [True]
    assert found == scores_of(read_graph(written(tmp_path, OLD)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h 1 2", "line 1, column 6: the file ends; expected a literal, or 0 at the end"),
        (
            "h -1 -2\n5 1 0",
            "line 1, column 6: the line ends within a clause; expected 0 at its end",
        ),
        ("5\n1 0", "line 1, column 1: the line ends within a clause"),
        ("c text\n5 1 0 3 2 0", "line 2, column 7: the line continues after the 0 of its clause"),
        (f"p wcnf 1 1 {2**64}\n5 1 0", "got 18446744073709551616; expected the top weight"),
        ("h 0", "a hard clause has no literals and cannot hold"),
        ("x 1 0", "got 'x'; expected the weight of a clause"),
        ("0 1 0", "got 0; expected the weight of a clause, from 1"),
        ("1.5 1 0", "got '1.5'; expected the weight of a clause, a whole number"),
        ("9007199254740993 1 2 0", "expected at most 9007199254740992"),
        ("1 1000000 0", "got 1000000; expected a literal"),
        ("p cnf 1 1\n1 0", "got 'cnf'; expected wcnf"),
        ("p wcnf 1 1 5\n1 2 0", "got 2; expected a literal, .* from -1 to 1"),
        ("p wcnf 1 2 5\n1 1 0", "the file ends after 1 clauses; expected 2"),
        ("p wcnf 1 1 5\nh 1 0", "got 'h'; expected the weight"),
        ("p wcnf 1000000000000 1 5\n1 1 0", "1000000000000 as the number of variables"),
    ],
)
def test_a_wrong_file_says_where(tmp_path, text, words):
    with pytest.raises(FileFormatError, match=words):
        read_graph(written(tmp_path, text))


@pytest.mark.parametrize("good", [OLD, NEW], ids=["old", "new"])
def test_damaged_files(tmp_path, good):
    check_damaged(tmp_path, ".wcnf", good)
