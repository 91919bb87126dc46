"""One factor's plain Python oracle on flat scores, and the vertices that it returns."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.local.active.oracle_results import vertex_numbers
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import row_values, row_view
from lpsmap_core.testing.draws import random_scores
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

ORACLE_ROUNDING = 1e-10
"""Allowed distance from the best score, as a multiple of the summed magnitudes of scores."""

OWN_ARRAYS = {"additionals", "keep", "lengths", "offsets"}
"""Arrays of `Factor` itself."""


class BestStructure(NamedTuple):
    """A result of an oracle: the label of a structure, and its flat 0/1 numbers."""

    label: Hashable
    m: FloatArray
    n: FloatArray

    @property
    def vertex(self) -> FloatArray:
        """Variables and additionals in one array."""
        return np.concatenate([self.m, self.n])

    def score(self, eta_u: FloatArray, eta_v: FloatArray) -> float:
        """Return ``<eta_u, m> + <eta_v, n>``."""
        return float(eta_u @ self.m + eta_v @ self.n)


class Oracle:
    """``solve_map`` and ``vertex`` of factor `i` of a declaration, on flat arrays.

    Attributes
    ----------
    row
        The view of the factor on which the methods are called.
    arity, n_additionals
        Numbers of its scores.
    name
        Name of the factor in messages.
    """

    def __init__(self, factor: Factor, i: int) -> None:
        self.factor, self.i = factor, i
        self.row: Any = row_view(factor, i)
        self.arity = int(np.diff(factor.offsets)[i])
        self.n_additionals = factor.n_additionals
        self.name = f"factor {i} of {factor!r}"

    @property
    def size(self) -> int:
        """Number of all scores: of variables, then of additionals."""
        return self.arity + self.n_additionals

    def shaped(self, eta_u: FloatArray) -> FloatArray:
        """Return a copy of flat scores in the shape that ``solve_map`` takes."""
        return row_values(self.factor, self.i, eta_u.copy())

    def answer(
        self, eta_u: FloatArray, eta_v: FloatArray
    ) -> tuple[Hashable, npt.ArrayLike, npt.ArrayLike]:
        """Return a label, variables and additionals as ``solve_map`` and ``vertex`` return them."""
        try:
            label = self.row.solve_map(self.shaped(eta_u), eta_v.copy())
            m, n = self.row.vertex(label)
            return label, m, n
        except ValueError as error:
            advice = shared_arrays(self.factor)
            if not advice or "shape" not in str(error):
                raise
            raise broken(
                "solve_map and vertex get one row, because all rows share the attributes that are "
                "not registered",
                f"ValueError: {error}",
                advice,
                self.name,
            ) from error

    def __call__(self, eta_u: FloatArray, eta_v: FloatArray) -> BestStructure:
        """Return the best structure."""
        label, *vertex = self.answer(eta_u, eta_v)
        m, n = (vertex_numbers(self.row, part).flatten() for part in vertex)
        return BestStructure(label, m, n)

    def of(self, scores: FloatArray) -> BestStructure:
        """Return the best structure for all scores in one array."""
        return self(scores[: self.arity], scores[self.arity :])

    def beaten_by(self, vertex: FloatArray) -> FloatArray | None:
        """Return the best vertex for scores that select a vertex, if that scores less.

        The scores are 1 where a variable is on and -1 elsewhere, and less for additionals, which
        can be counts. No structure scores more than the best one.
        """
        scores = np.where(vertex > 0.0, 1.0, -1.0)
        scores[self.arity :] /= 4.0 * max(1.0, self.n_additionals, vertex[self.arity :].sum())
        best = self.of(scores).vertex
        allowed = ORACLE_ROUNDING * np.abs(scores).sum()
        return best if scores @ best < scores @ vertex - allowed else None

    def where(self, scores: FloatArray) -> str:
        """Describe the factor and the scores for a message."""
        eta_u, eta_v = scores[: self.arity], scores[self.arity :]
        also = f", eta_v = {eta_v.tolist()}" if self.n_additionals else ""
        return f"{self.name}, eta_u = {eta_u.tolist()}{also}"


def shared_arrays(factor: Factor) -> str:
    """Return advice about plain attributes that are arrays of all rows; empty if there are none."""
    expected, batch = {*OWN_ARRAYS, *factor._parameters.names}, factor.batch_shape
    names = [
        f"self.{name}"
        for name, value in vars(factor).items()
        if name not in expected and isinstance(value, np.ndarray) and value.ndim and batch
        if batch == value.shape[: len(batch)] or len(value) == factor.n_factors
    ]
    if not names:
        return ""
    return f"register data that differ by row with self.per_factor, such as {', '.join(names)}"


def oracles_of(factor: Factor) -> list[Oracle]:
    """Return the oracles of all factors of a declaration."""
    return [Oracle(factor, i) for i in range(factor.n_factors)]


def queries(
    factor: Factor, rng: np.random.Generator, draws: int
) -> Iterator[tuple[Oracle, FloatArray]]:
    """Yield the oracle of every factor of a declaration with each of `draws` random scores."""
    for oracle in oracles_of(factor):
        for scores in random_scores(rng, draws, oracle.size):
            yield oracle, scores


def vertices_seen(oracle: Oracle, rng: np.random.Generator, draws: int) -> FloatArray:
    """Return (V, size) distinct vertices that an oracle returns for many different scores.

    For a small factor these are nearly all vertices. Scores are drawn from a normal distribution,
    with ties, with small scores of variables or of additionals, and around known vertices.
    """
    scores = rng.standard_normal((4 * draws, oracle.size))
    scores[1::4] = np.sign(scores[1::4]) + 0.01 * rng.standard_normal(scores[1::4].shape)
    scores[2::4, : oracle.arity] *= 0.05
    scores[3::4, oracle.arity :] *= 0.05
    seen = {tuple(oracle.of(x).vertex) for x in scores}
    vertices = np.array(sorted(seen))
    if vertices.shape[1] == oracle.size:
        centres = vertices[rng.integers(len(vertices), size=2 * draws)]
        noise = rng.standard_normal(centres.shape)
        seen |= {tuple(oracle.of(x).vertex) for x in 2.0 * centres - 1.0 + 1.2 * noise}
    return np.array(sorted(seen))
