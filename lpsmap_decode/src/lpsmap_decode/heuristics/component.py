"""A component, and the best assignment of it so far."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, ByteArray, FloatArray, Part, Watch, cached_property
from lpsmap_decode.heuristics.propagation import OPEN, Domain, fix_all, new_domain, probe
from lpsmap_decode.heuristics.rows import Rows, rows_of
from lpsmap_decode.results.assignment_score import score_assignment

__all__ = ["Component"]

MAX_PROBED = 20_000
"""Maximum number of columns to probe, which takes the propagation of both values of each."""


class Component:
    """A component, and the best assignment of it so far.

    Parameters
    ----------
    part
        A part of this one component.
    eta, eta_v
        Scores of its variables and additionals; ``-inf`` forbids.
    means
        Marginals of its variables, from a relaxation.
    """

    def __init__(self, part: Part, eta: FloatArray, eta_v: FloatArray, means: FloatArray) -> None:
        self.part, self.eta, self.eta_v, self.means = part, eta, eta_v, means
        self.chosen: BoolArray = np.zeros(part.n_variables, dtype=bool)
        """The best assignment; meaningless while `score` is ``-inf``."""
        self.additionals: FloatArray = np.zeros(len(eta_v))
        self.score = -np.inf
        self.highest = np.inf
        """An upper bound on the score of all assignments."""

    @property
    def found(self) -> bool:
        """Whether there is an assignment."""
        return self.score > -np.inf

    def offer(self, chosen: BoolArray) -> bool:
        """Keep an assignment if it is better, and allowed by the factors themselves."""
        with Watch():  # oracles that the time limit cuts short would allow anything
            scores, v = score_assignment(self.part, self.eta, self.eta_v, chosen)
        better = bool(scores[0] > self.score)
        if better:
            self.chosen, self.additionals, self.score = chosen.copy(), v, float(scores[0])
        return better

    @property
    def exhausted(self) -> bool:
        """Whether no other assignment is better."""
        return self.highest < np.inf

    @property
    def values(self) -> FloatArray:
        """The best assignment, as values of all columns."""
        return np.concatenate([np.where(self.chosen, 1.0, 0.0), self.additionals])

    @cached_property
    def gains(self) -> FloatArray:
        """For each column of the rows its score, 0 where it is forbidden."""
        n_columns = len(self.rows.first_of_column) - 1
        gains = np.concatenate([self.eta, self.eta_v])[:n_columns]
        return np.where(np.isneginf(gains), 0.0, gains)

    @cached_property
    def forbidden(self) -> BoolArray:
        """For each column of the rows whether it is forbidden."""
        return np.isneginf(np.concatenate([self.eta, self.eta_v]))[: len(self.gains)]

    @cached_property
    def described(self) -> tuple[Rows, BoolArray]:
        """The rows of the component, and for each factor whether they describe it."""
        return rows_of(self.part, self.eta, self.eta_v)

    @property
    def rows(self) -> Rows:
        """The rows of the component."""
        return self.described[0]

    @cached_property
    def implied(self) -> ByteArray:
        """For each column of the rows its value in all assignments, or `OPEN` where unknown."""
        rows, value = self.rows, np.where(self.forbidden, 0, OPEN).astype(np.int8)
        if len(value) > MAX_PROBED:
            return value
        rows.low[-1], domain = -np.inf, new_domain(rows)
        fix_all(rows, domain, value)
        if not probe(rows, domain):
            self.highest = -np.inf
        return domain.value

    def domain(self, least: float = -np.inf) -> Domain:
        """Return the domain of all columns, whose scores must add up to `least`."""
        implied = self.implied
        self.rows.low[-1] = least
        domain = new_domain(self.rows)
        fix_all(self.rows, domain, implied)
        return domain

    @cached_property
    def is_linear(self) -> bool:
        """Whether rows describe all factors."""
        return bool(self.described[1].all())
