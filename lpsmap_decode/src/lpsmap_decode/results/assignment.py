"""The result of decoding: an assignment of all variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NoReturn

import numpy as np

from lpsmap_core import Distributions, Factor, Variables
from lpsmap_core.api import (
    BoolArray,
    Contradictions,
    FloatArray,
    IntArray,
    Layout,
    ReducedContradictions,
    ScoredGraph,
    Vertices,
    cached_property,
    explain_contradictions,
    reduced_contradictions,
    slot_values,
    structure_scores,
    warn_unsolved,
)
from lpsmap_decode.results.score_units import is_proved, score_units

OWN_SEARCH = "lpsmap"
"""Name of the search of ``lpsmap-decode`` itself."""


@dataclass
class Assignment:
    """An assignment of a factor graph's variables, with an upper bound of the best score.

    Attributes
    ----------
    values
        (n_variables,) zeros and ones, in the graph's flat order of variables; NaN in components
        without an assignment.
    additionals
        For every declaration, in the order of addition, the (n_factors, n_additionals) additionals
        of its structures.
    score
        (n_components,) ``<eta, x> + sum_f <eta_f, n_f>``; ``-inf`` where no assignment was found.
    bound
        (n_components,) upper bound of the score of any assignment; ``-inf`` where the constraints
        are infeasible, NaN where a score is NaN or ``+inf``.
    n_nodes
        (n_components,) nodes of the search; 0 where the relaxation was sufficient.
    gap
        A bound within ``gap * max(unit, abs(score))`` of the score is a proof.
    solver, reason
        The solver, and the reason for it: the decoder's own search, ``"lpsmap"``, or a plugin.
    interrupted
        Whether Ctrl-C ended the search.
    """

    layout: Layout
    factors: Sequence[Factor]
    scores: FloatArray
    additional_scores: Sequence[FloatArray]
    values: FloatArray
    additionals: list[FloatArray]
    score: FloatArray
    bound: FloatArray
    n_nodes: IntArray
    gap: float
    solver: str = OWN_SEARCH
    reason: str = "continues from marginals"
    interrupted: bool = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Assignment refers to its graph's layout, and cannot be pickled or copied; expected "
            "its arrays (values, additionals, score, bound), or the graph. Decode the graph again "
            "after loading it."
        )

    @property
    def found(self) -> BoolArray:
        """For each component, whether it has a feasible assignment."""
        return self.score > -np.inf

    @property
    def proved(self) -> BoolArray:
        """For each component, whether its assignment is proved the best, or it is infeasible."""
        return is_proved(self.score, self.bound, self.gap, self.unit)

    @cached_property
    def unit(self) -> FloatArray:
        """For each component, 1, or a power of two up to its largest score if that is smaller."""
        return score_units(self.layout.part, *self.graph.of_part())

    @property
    def graph(self) -> ScoredGraph:
        """The layout with the scores, as of a `Solution`."""
        scores = self.scores, self.additional_scores, np.isnan(self.bound)
        return ScoredGraph(self.layout, self.factors, *scores)

    @cached_property
    def _reduced_contradictions(self) -> ReducedContradictions:
        none: dict[int, list[tuple[int, int]]] = {
            c: [] for c in np.flatnonzero(np.isneginf(self.bound)).tolist()
        }
        return reduced_contradictions(self.graph, none)

    @property
    def contradictions(self) -> Contradictions:
        """For each component without an assignment, factors that contradict each other.

        As `Solution.contradictions`, but no zeros and ones satisfy all of them.
        """
        return self._reduced_contradictions.factors

    @property
    def explanation(self) -> str:
        """Sentences with the names of `contradictions`, see `FactorGraph.add`."""
        found, ended = self._reduced_contradictions
        return explain_contradictions(found, self.factors, ended)

    @property
    def ok(self) -> bool:
        """Whether all components have an assignment that is proved the best."""
        return bool((self.found & self.proved).all())

    @property
    def total(self) -> float:
        """The score of the whole graph, variables in no factor included."""
        return float(self.score.sum()) + self.free_score

    @property
    def free_score(self) -> float:
        """The score of the variables in no factor."""
        alone = (self.layout.component < 0) & (self.values > 0.0)
        return float(self.scores[alone].sum())

    def value_of(self, variables: Variables) -> FloatArray:
        """Return the values of a view of the graph's variables."""
        chosen = self.values[variables.index]
        return np.where(variables.negated, 1.0 - chosen, chosen)

    def structures(self, factor: Factor) -> Distributions:
        """Return the structure of every factor of a declaration, with probability 1.

        Raises
        ------
        ValueError
            If the factor does not belong to the graph.
        """
        position = next((i for i, other in enumerate(self.factors) if other is factor), None)
        if position is None:
            raise ValueError(
                f"structures: {factor!r} is not a factor of the decoded graph; expected a factor "
                "that graph.add returned."
            )
        index = slot_values(factor, factor.variables.index)
        negated = slot_values(factor, factor.variables.negated)
        slots = np.where(negated, 1.0 - self.values[index], self.values[index])
        vertices = _one_structure_each(factor, slots, self.additionals[position])
        scores = structure_scores(
            vertices, factor.offsets, self.scores[index], negated, self.additional_scores[position]
        )
        return Distributions(factor, vertices, scores, len(self.values))

    def warn_unproved(self) -> None:
        """Warn once about all components whose assignment is not proved to be the best."""
        if self.ok:
            return
        n, none, bad = len(self.score), ~self.found, np.isnan(self.bound)
        allowed = ~(np.isneginf(self.bound) | bad)
        mend = "raise max_time or max_nodes"
        if self.interrupted:
            mend = "Ctrl-C ended the search; run it again"
        elif self.solver == OWN_SEARCH and find_spec("highspy") is None:
            mend = "install highspy, another solver, or raise max_time or max_nodes"
        words, details = [], []
        for count, said in (
            (bad.sum(), "have a score that is NaN or +inf, and NaN values."),
            (
                (none & ~allowed & ~bad).sum(),
                "have constraints that no zeros and ones satisfy; Assignment.explanation names "
                "them.",
            ),
            ((none & allowed).sum(), f"have no assignment yet: {mend}."),
            (
                (~none & ~self.proved).sum(),
                f"have an assignment that is not proved the best: {mend}, or accept it; "
                "Assignment.bound is an upper bound of the best score.",
            ),
        ):
            if count:
                words.append(f"Components {said}")
                details.append(f"{count} of {n} components {said}")
        warn_unsolved(words, details)

    def __repr__(self) -> str:
        proved, found = int((self.found & self.proved).sum()), int(self.found.sum())
        n_infeasible = int(np.isneginf(self.bound).sum())
        first = f"{n_infeasible} INFEASIBLE, " if n_infeasible else ""
        return (
            f"Assignment({first}score {self.total:.6g}; of {len(self.score)} components {found} "
            f"with an assignment, {proved} of them proved the best)"
        )


def assignment_of(
    graph: ScoredGraph,
    chosen: BoolArray,
    v: FloatArray,
    score: FloatArray,
    bound: FloatArray,
    n_nodes: IntArray,
    gap: float,
) -> Assignment:
    """Return the `Assignment` of a graph, given the flags and additionals of its part."""
    part = graph.layout.part
    values = np.where(graph.scores > 0.0, 1.0, 0.0)  # of variables in no factor
    values[part.variables] = np.where((score > -np.inf)[part.component], chosen, np.nan)
    additionals = part.by_declaration(v, graph.factors)
    of_graph = graph.layout, graph.factors, graph.scores, graph.additional_scores
    return Assignment(*of_graph, values, additionals, score, bound, n_nodes, gap)


def _one_structure_each(factor: Factor, slots: FloatArray, additionals: FloatArray) -> Vertices:
    """Return one structure for every factor whose variables have values."""
    arity, rows = np.diff(factor.offsets), np.arange(factor.n_factors)
    unknown = np.zeros(factor.n_factors, dtype=bool)
    of_slot = np.repeat(rows, arity)
    unknown[of_slot[np.isnan(slots)]] = True
    of_additional, number = (places.reshape(-1) for places in np.indices(additionals.shape))
    owner = np.concatenate([of_slot, of_additional])
    entry = np.concatenate(
        [np.arange(len(slots)) - factor.offsets[of_slot], arity[of_additional] + number]
    )
    value = np.concatenate([slots, additionals.reshape(-1)])
    kept = np.flatnonzero((value != 0.0) & ~unknown[owner])
    kept = kept[np.argsort(owner[kept], kind="stable")]
    known = np.flatnonzero(~unknown)
    return Vertices(
        owner=known,
        probability=np.ones(len(known)),
        offsets=np.searchsorted(owner[kept], np.append(known, factor.n_factors)),
        entry=entry[kept],
        value=value[kept],
    )
