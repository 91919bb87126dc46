"""Viterbi training to a proved optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lpsmap_core import Deadline, Search, SearchProgress
from lpsmap_search.arrays import FloatArray
from lpsmap_search.checks import checked_count, checked_number, checked_time
from lpsmap_search.constraints import CountConstraint, checked_constraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.lagrangian_space import LagrangianSpace
from lpsmap_search.local_search import restarts

__all__ = ["Certified", "global_search"]

ROUNDING = 1e-9
"""By how much a bound may miss the gap."""


@dataclass(frozen=True)
class Certified:
    """The best parameters that were found, and what no parameters exceed."""

    parameters: FloatArray
    """(M,) probabilities of greatest likelihood for the counts."""
    counts: FloatArray
    """(M,) of the best structures under them."""
    objective: float
    """Their joint log-likelihood."""
    bound: float
    """No parameters and structures have a higher joint log-likelihood."""
    n_nodes: int
    """Boxes that were bounded."""
    seconds: float
    """How long it took, local search included."""
    proved: bool
    """Whether the bound is within the gap asked for. Else the bound holds, but proves no more than
    it says."""
    interrupted: bool
    """Whether Ctrl-C ended the search."""

    @property
    def gap(self) -> float:
        """``bound - objective``."""
        return self.bound - self.objective

    @property
    def is_void(self) -> bool:
        """Whether the bound says no more than that probabilities are at most one."""
        return self.bound >= 0.0 > self.objective


def global_search(
    corpus: Corpus,
    *,
    gap: float = 0.01,
    max_time: float | None = None,
    max_nodes: int | None = None,
    n_restarts: int = 20,
    seed: int = 0,
    constraint: CountConstraint | None = None,
    report: Callable[[SearchProgress], None] | None = None,
) -> Certified:
    """Find the parameters and structures of greatest joint likelihood, with a proof.

    Viterbi training maximises ``sum_m f_m log p_m`` over structures with counts f and parameters p.
    Branch and bound over boxes of parameters (Gormley & Eisner 2013), each bounded by a Lagrangian
    relaxation whose oracle is the Viterbi algorithm, see `lpsmap_search.lagrangian`. Every
    relaxation meets structures, which are incumbents. The search is exponential in the worst case.

    Parameters
    ----------
    corpus
        The sentences.
    gap
        The search ends once the bound is within ``gap * max(1, abs(objective))`` of the objective.
    max_time
        Limit of the seconds, or None. What is found by then, or by Ctrl-C, has its bound.
    max_nodes
        Limit of the boxes, or None.
    n_restarts
        Of Viterbi EM, for the first incumbent.
    seed
        Of its random numbers.
    constraint
        What the counts of the structures have to satisfy, such as `universal_rules`, or None. Its
        multiplier joins the others: every bound holds for all structures that satisfy it, also for
        unequal ones of equal sentences, but no bound may come as near as `gap`, since the best
        mixture of structures can be better than any of them. Then the search ends unproved.
    report
        Called now and then with the objective, the bound, the number of nodes and the seconds.

    Raises
    ------
    ValueError
        If an option is out of range, or no structures satisfy the constraint.
    """
    gap = checked_number("gap", gap)
    max_nodes = None if max_nodes is None else checked_count("max_nodes", max_nodes)
    limit = checked_time(max_time)
    deadline = Deadline(limit)
    if constraint is not None:
        constraint = checked_constraint(corpus, constraint)
    begin = restarts(
        corpus,
        n_restarts=n_restarts,
        smoothing=0.1,
        max_time=limit,
        seed=seed,
        constraint=constraint,
    )
    space = LagrangianSpace(corpus, gap, constraint=constraint)
    search = Search(space.root(), gap, (begin.objective, begin.counts), bound=0.0)
    found = search.run(space, max_nodes=max_nodes, deadline=deadline, report=report)
    counts = np.asarray(found.answer)
    return Certified(
        corpus.model.normalised(counts),
        counts,
        found.score,
        found.bound,
        found.n_nodes,
        found.seconds,
        found.finished and found.bound <= found.score + gap * max(1.0, abs(found.score)) + ROUNDING,
        found.interrupted,
    )
