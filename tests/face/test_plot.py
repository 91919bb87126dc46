"""Figures: what is drawn where, and clear errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import matplotlib
import numpy as np
import pytest

from lpsmap import DepTree, Sequence, Xor
from lpsmap_core import Distribution, FactorGraph

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from lpsmap import plot  # noqa: E402


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def tree() -> Distribution:
    """Return two parses of three words: the last hangs from the first or from the second."""
    scores = np.full((3, 3), -5.0)
    scores[1, 1], scores[0, 1], scores[2, 0], scores[2, 1] = 2.0, 2.0, 1.2, 1.0
    graph = FactorGraph()
    factor = graph.add(DepTree(graph.variable_from(scores)))
    graph.solve()
    return graph.structures(factor)[0]


def texts(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_arcs_show_words_and_uncertain_weights() -> None:
    ax = plot.arcs(tree(), ["you", "are", "here"])
    assert [item for item in texts(ax) if item.isalpha()] == ["you", "are", "here"]
    assert sorted(item for item in texts(ax) if not item.isalpha()) == [".40", ".60"]
    assert len(ax.patches) == 4  # two shared arcs, one for each tree
    legend = ax.get_legend()
    assert legend is not None
    assert [item.get_text() for item in legend.get_texts()] == ["0.60", "0.40"]


def test_arcs_draw_into_given_axes() -> None:
    _, ax = plt.subplots()
    assert plot.arcs(tree(), ax=ax) is ax
    assert "2" in texts(ax)


def test_a_lattice_has_a_line_for_every_step() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[1.0, 0.0], [0.3, 0.0], [0.0, 1.0]]))
    factor = graph.add(Sequence(u, np.zeros((2, 2))))
    graph.solve()
    ax = plot.lattice(graph.structures(factor)[0], ["N", "V"], ["a", "b", "c"])
    assert len(ax.lines) == 4
    assert sorted(texts(ax)) == [".35", ".65"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["N", "V"]


def test_an_alignment_outlines_the_structures() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.6, 0.4, 0.0]]))
    factor = graph.add(Xor(u.reshape(3)))
    graph.solve()
    ax = plot.alignment(u.value, columns=["x", "y", "z"])
    assert texts(ax) == [".60", ".40"]
    assert not ax.patches
    with pytest.raises(ValueError, match=r"values has shape \(3,\); expected two axes"):
        plot.alignment(graph.structures(factor)[0])
    assert len(plot.alignment(_matching()).patches) == 4


def _matching() -> Distribution:
    from random_graphs import Polytope

    class Square(Polytope):
        variables_ndim = 2

        def vertex(self, y: int) -> tuple[np.ndarray, np.ndarray]:
            return self.m[y].reshape(2, 2), self.n[y]

    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.6, 0.4], [0.3, 0.5]]))
    factor = graph.add(Square(u, [[1.0, 0, 0, 1], [0, 1.0, 1, 0]]))
    graph.solve()
    return graph.structures(factor)[0]


def test_wrong_structures_and_labels() -> None:
    graph = FactorGraph()
    factor = graph.add(Xor(graph.variable_from(np.zeros(3))))
    graph.solve()
    with pytest.raises(ValueError, match="arcs: got 'Xor: 3 structures'; expected .* 'heads'"):
        plot.arcs(graph.structures(factor)[0])
    with pytest.raises(ValueError, match="lattice: .* 'tags'"):
        plot.lattice(tree())
    with pytest.raises(ValueError, match="words: got 2; expected 3 labels"):
        plot.arcs(tree(), ["a", "b"])


def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import lpsmap.plot"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'pip install "lpsmap[plot]"' in result.stderr
