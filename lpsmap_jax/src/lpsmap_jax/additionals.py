"""Which entries of the arguments of a function score the additionals of its factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import Factor, FactorGraph
from lpsmap_core.api import FloatArray, IntArray, build_layout
from lpsmap_jax.instances import Instances, declared


class AdditionalScores:
    """The scores of additionals as entries of arguments.

    The factors are declared again, with a different number, a mark, in every entry of the
    arguments. Where the score of an additional is a mark, the entry with this mark scores it.

    Parameters
    ----------
    solved
        The graph.
    wanted
        The arguments, by their positions among the inputs.

    Raises
    ------
    ValueError
        If the function computes with the entries of an argument, or uses them for anything but
        scores of additionals.
    """

    def __init__(self, solved: Instances, wanted: Sequence[int]) -> None:
        arrays = [solved.arrays[i] for i in wanted]
        self._shapes = [x.shape for x in arrays]
        self._ends = np.cumsum([x.size for x in arrays])
        self._entries: list[IntArray] = []
        """For every declaration, the entry that scores each additional; the last one if none."""
        if not wanted:
            return
        values = np.concatenate([*(x.reshape(-1) for x in arrays), [np.nan]])
        marks = np.append(_marks(len(values) - 1), np.nan)
        marked = list(solved.arrays)
        for i, own in zip(wanted, self._by_argument(marks), strict=True):
            marked[i] = own
        names = ", ".join(solved.call.names[i - solved.call.n_blocks] for i in wanted)
        graph = _declared_again(solved, marked, names)
        for factor, again in zip(solved.graph.factors, graph.factors, strict=True):
            scores = _scores(again)
            entry = np.searchsorted(marks[:-1], scores)
            is_mark = marks[entry] == scores
            expected = np.where(is_mark, values[entry], scores)
            if not np.array_equal(expected, _scores(factor), equal_nan=True):
                raise ValueError(_message(names))
            self._entries.append(np.where(is_mark, entry, len(marks) - 1))

    def totals(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """Return for every entry the sum of the values of the additionals that it scores.

        Parameters
        ----------
        values
            For every declaration, the (n_factors, n_additionals) values.

        Returns
        -------
        list of array
            Sums in the shape of every argument, the axis of the instances first.
        """
        if not self._shapes:
            return []
        n = int(self._ends[-1]) + 1
        total = np.zeros(n)
        for entry, own in zip(self._entries, values, strict=True):
            total += np.bincount(entry, own.reshape(-1), minlength=n)
        return self._by_argument(total)

    def _by_argument(self, flat: FloatArray) -> list[FloatArray]:
        """Return numbers of all entries by argument."""
        parts = np.split(flat[: self._ends[-1]], self._ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]


def _marks(n: int) -> FloatArray:
    """Return increasing numbers from 1 to 2, which arithmetic does not map to each other."""
    return 1.0 + (np.arange(n) + np.random.default_rng(0).random(n)) / max(n, 1)


def _declared_again(solved: Instances, arrays: Sequence[NDArray[Any]], names: str) -> FactorGraph:
    """Return the graph with other scores of additionals."""
    try:
        graph = declared(solved.call, arrays).graph
    except (TypeError, ValueError) as error:
        raise ValueError(_message(names)) from error
    before = solved.solution.layout.buckets
    after = build_layout(graph.n_variables, graph.factors).buckets
    equal = len(before) == len(after) and all(
        a.type is b.type
        and np.array_equal(a.variable, b.variable)
        and np.array_equal(a.negated, b.negated)
        and all(map(np.array_equal, a.factors, b.factors))
        for a, b in zip(before, after, strict=True)
    )
    if not equal:
        raise ValueError(_message(names))
    return graph


def _scores(factor: Factor) -> FloatArray:
    """Return the flat scores of a declaration's additionals."""
    given = factor.additionals if factor.n_additionals else ()
    return np.asarray(given, dtype=np.float64).reshape(-1)


def _message(names: str) -> str:
    return (
        f"{names}: has a gradient, but the function of variables computes with it, or its factors "
        "depend on it; expected scores of additionals, passed to the factors unchanged. Compute "
        "with JAX before the call, or apply jax.lax.stop_gradient."
    )
