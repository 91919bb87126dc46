"""Few factors of a component that contradict each other: an irreducible infeasible set.

A deletion filter (Chinneck & Dravnieks 1991) leaves out factors as long as the others are proved
infeasible, and keeps those without which an assignment is found. Three proofs are tried in turn.
Propagation asks the factors' oracles for every open variable whether a structure has the value 0,
or 1 (generalised arc consistency), and LP-MAP has no scores; both name the factors that they use.
Then follows the exact search. What a few nodes do not decide is tried again with more as long as
time is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from lpsmap_core import CompiledEngine, Deadline, Options, SolvedGraph, Status
from lpsmap_core.api import (
    BoolArray,
    Bucket,
    ByteArray,
    FloatArray,
    IntArray,
    Part,
    Watch,
    best_feasible,
    part_of_buckets,
    ranges,
)
from lpsmap_decode.exact.component_copies import copies_of
from lpsmap_decode.exact.component_search import space_of
from lpsmap_decode.heuristics.propagation import OPEN
from lpsmap_decode.search import Search

__all__ = ["contradicting_factors"]

FIRST_NODES = 200
"""Nodes of a first attempt to decide whether factors contradict each other."""

MORE_NODES = 8
"""Factor by which the next attempt has more nodes."""

LP_ITERATIONS = 480
"""Iterations of LP-MAP in a proof: four tests of infeasibility."""

GAP = 1e-6
"""Gap of the search: all assignments score 0, so that the first ends it."""

MAX_QUERIED = 2_000_000
"""Slots in a call of a bucket's oracles, which asks for each slot of its rows."""

HELD = 1e-9
"""Difference of a value from 0 or 1 that is rounding."""

Core = frozenset[int]


class _Undecided(Exception):
    """Neither a proof nor an assignment was found within the limits."""


def contradicting_factors(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    component: int,
    known: Sequence[tuple[int, int]],
    deadline: Deadline,
) -> tuple[list[tuple[int, int]], bool]:
    """Return (bucket, row) of factors of a component that no assignment satisfies together.

    Parameters
    ----------
    part
        The part.
    eta, eta_v
        Scores of its variables, and of the additionals of all buckets; ``-inf`` forbids.
    component
        Number of a component without an assignment.
    known
        Factors that may contradict each other, such as those of a solver's proof.
    deadline
        When to stop; the factors found by then are returned: at first `known`, or all factors of
        the component.

    Returns
    -------
    places, irreducible
        The factors, and whether each of them was found to be necessary.
    """
    problem = _Component(part, eta, eta_v, component, deadline)
    numbers = {place: i for i, place in enumerate(problem.places)}
    core = problem.first_core(frozenset(numbers[place] for place in known))
    if core is None:
        return sorted(known) or problem.places, False
    necessary, n_nodes, size = frozenset[int](), FIRST_NODES, max(1, len(core) // 2)
    while not core <= necessary and not deadline.passed:
        left = sorted(core - necessary)
        for begin in range(0, len(left), size):
            chunk = core.intersection(left[begin : begin + size])
            if not chunk:
                continue
            try:
                smaller = problem.refute(core - chunk, n_nodes)
            except _Undecided:
                continue
            if smaller is not None:
                core = smaller
            elif len(chunk) == 1:
                necessary |= chunk
        n_nodes *= 1 if size > 1 else MORE_NODES
        size = max(1, min(size, len(core)) // 2)
    return [problem.places[i] for i in sorted(core)], core <= necessary


class _Component:
    """The factors of a component, numbered over all buckets, and its variables."""

    def __init__(
        self, part: Part, eta: FloatArray, eta_v: FloatArray, component: int, deadline: Deadline
    ) -> None:
        self.places = [
            (b, row)
            for b, bucket in enumerate(part.buckets)
            for row in np.flatnonzero(bucket.component == component).tolist()
        ]
        alone, self._deadline = copies_of(part, component, 1), deadline
        self._eta = eta[slice(*part.first_variable[component : component + 2].tolist())]
        own = np.isneginf(eta_v[part.additional_component == component])
        self._buckets, self._begin = alone.buckets, alone.spans.first_factor
        self._forbidden = [own[alone.additionals_of(b)] for b in range(len(alone.buckets))]
        self._variables = [
            v for bucket in self._buckets for v in np.split(bucket.variable, bucket.offsets[1:-1])
        ]
        self._factors: dict[int, list[int]] = {}
        for i, variables in enumerate(self._variables):
            for v in dict.fromkeys(variables.tolist()):
                self._factors.setdefault(v, []).append(i)
        self._satisfiable: list[Core] = []

    def first_core(self, known: Core) -> Core | None:
        """Return contradicting factors, if possible known ones; None without a proof."""
        everything = frozenset(range(len(self.places)))
        for chosen, n_nodes in ((known, FIRST_NODES), (everything, None)):
            with suppress(_Undecided):
                core = self.refute(chosen, n_nodes)
                if core is not None:
                    return core
        return None

    def refute(self, chosen: Core, n_nodes: int | None) -> Core | None:
        """Return factors among the chosen ones that contradict each other; None if none do.

        Raises
        ------
        _Undecided
            If `n_nodes`, or the time, do not suffice.
        """
        undecided = None
        for connected in self._connected(chosen):
            try:
                core = self._refute_connected(connected, n_nodes)
                if core is not None:
                    return core
            except _Undecided as error:
                undecided = error
        if undecided is not None:
            raise undecided
        return None

    def _connected(self, chosen: Core) -> Iterator[Core]:
        """Yield the subsets of factors that variables connect."""
        left = set(chosen)
        while left:
            part, queue = set[int](), [min(left)]
            while queue:
                i = queue.pop()
                if i in left:
                    left.remove(i)
                    part.add(i)
                    for v in self._variables[i].tolist():
                        queue += [j for j in self._factors[v] if j in left]
            yield frozenset(part)

    def _refute_connected(self, chosen: Core, n_nodes: int | None) -> Core | None:
        """Return the same for factors that share variables with each other.

        The factors that the engine names are solved again, since they need not suffice.
        """
        if any(chosen <= others for others in self._satisfiable):
            return None
        core = self._propagated(chosen)
        if core is not None:
            return core
        part, eta, eta_v, numbers = self._alone(chosen)
        solved, named = self._relaxed(part, eta, eta_v, numbers)
        if named is not None:
            if named == chosen:
                return named
            again = (self._relaxed(*self._alone(core)) for core in self._connected(named))
            smaller = (core for _, core in again)
            return next((named & core for core in smaller if core is not None), chosen)
        with Watch(within=self._deadline):
            space, root = space_of(part, 0, eta, eta_v, GAP, 1, solved.end)
            found = Search[Any, BoolArray](root, GAP).run(
                space, max_nodes=n_nodes, deadline=self._deadline
            )
        if found.interrupted:
            raise KeyboardInterrupt
        if found.answer is not None:
            self._satisfiable.append(chosen)
            return None
        if found.bound > -np.inf:
            raise _Undecided
        return chosen

    def _propagated(self, chosen: Core) -> Core | None:
        """Return the factors by which propagation leaves one without structures, or None."""
        value, dirty = np.where(np.isneginf(self._eta), 0, OPEN).astype(np.int8), sorted(chosen)
        reason: dict[int, tuple[int, list[int]]] = {}
        while dirty:
            later: set[int] = set()
            for i, answer in zip(dirty, self._answers(dirty, value), strict=True):
                own = self._variables[i].tolist()
                known = [v for v in own if v in reason]
                if answer is None:
                    return frozenset(_causes(i, known, reason))
                for variable, decided in answer:
                    if value[variable] == OPEN:
                        value[variable], reason[variable] = decided, (i, known)
                        later.update(self._factors[variable])
            dirty = sorted(later & chosen)
        return None

    def _answers(self, factors: list[int], value: ByteArray) -> list[list[tuple[int, int]] | None]:
        """Return the (variable, value) that each factor implies; None if it has no structures."""
        answers: list[list[tuple[int, int]] | None] = []
        asked = np.array(factors)  # in order, as the factors of the buckets are
        for b in np.unique(np.searchsorted(self._begin, asked, side="right") - 1):
            lo, hi = self._begin[b : b + 2]
            rows = asked[(lo <= asked) & (asked < hi)] - lo
            arity = self._buckets[b].offsets[rows + 1] - self._buckets[b].offsets[rows]
            piece = np.cumsum(arity**2) // MAX_QUERIED
            for chosen in np.split(rows, np.flatnonzero(np.diff(piece)) + 1):
                if self._deadline.passed:
                    raise _Undecided
                answers += self._ask(b, chosen, value)
        return answers

    def _ask(self, b: int, rows: IntArray, value: ByteArray) -> list[list[tuple[int, int]] | None]:
        """Return the answers of rows of a bucket by their oracles."""
        bucket = self._buckets[b].select(rows)
        forbidden = self._forbidden[b][ranges(self._buckets[b].additional_offsets, rows)]
        variable = bucket.variable
        known = value[variable]
        on = (known == 1) != bucket.negated
        forced = np.where(known == OPEN, 0.0, np.where(on, np.inf, -np.inf))
        w, possible = _structures(bucket, forced, forbidden)
        answers: list[list[tuple[int, int]] | None] = [[] if each else None for each in possible]
        arity = np.diff(bucket.offsets)
        owner = np.repeat(np.arange(len(rows)), arity)
        (slots,) = np.nonzero((known == OPEN) & (possible & (arity**2 <= MAX_QUERIED))[owner])
        if not slots.size:
            return answers
        # one copy of the factor for every open slot, which gets the other value
        owner = owner[slots]
        copies = bucket.select(owner)
        asked = forced[ranges(bucket.offsets, owner)]
        at = copies.offsets[:-1] + slots - bucket.offsets[owner]
        asked[at] = np.where(w[slots] > 0.5, -np.inf, np.inf)
        own = forbidden[ranges(bucket.additional_offsets, owner)]
        _, possible = _structures(copies, asked, own)
        for slot, row in zip(slots[~possible].tolist(), owner[~possible].tolist(), strict=True):
            answer = answers[row]
            assert answer is not None
            answer.append((int(variable[slot]), int((w[slot] > 0.5) != bucket.negated[slot])))
        return answers

    def _alone(self, chosen: Core) -> tuple[Part, FloatArray, FloatArray, list[IntArray]]:
        """Return factors as a part with zero scores, and by bucket their numbers."""
        numbers, buckets, forbidden = [], [], [np.empty(0, dtype=bool)]
        for b, bucket in enumerate(self._buckets):
            lo, hi = self._begin[b : b + 2]
            rows = np.array(sorted(i - lo for i in chosen if lo <= i < hi), dtype=np.int64)
            if rows.size:
                numbers.append(lo + rows)
                buckets.append(bucket.select(rows))
                forbidden.append(self._forbidden[b][ranges(bucket.additional_offsets, rows)])
        variables = np.unique(np.concatenate([bucket.variable for bucket in buckets]))
        buckets = [
            replace(
                bucket,
                variable=np.searchsorted(variables, bucket.variable),
                component=np.zeros(bucket.n_factors, dtype=np.int64),
            )
            for bucket in buckets
        ]
        part = part_of_buckets(buckets, np.zeros(len(variables), dtype=np.int64), 1)
        eta = np.where(np.isneginf(self._eta[variables]), -np.inf, 0.0)
        return part, eta, np.where(np.concatenate(forbidden), -np.inf, 0.0), numbers

    def _relaxed(
        self, part: Part, eta: FloatArray, eta_v: FloatArray, numbers: list[IntArray]
    ) -> tuple[SolvedGraph, Core | None]:
        """Return the relaxation of a part, and the factors that the engine names if infeasible."""
        if self._deadline.passed:
            raise _Undecided
        options = Options(max_iter=LP_ITERATIONS, quadratic=0.0, threads=1)
        none: BoolArray = np.zeros(1, dtype=bool)
        with Watch(within=self._deadline):
            solved = CompiledEngine().solve(part, eta, eta_v, none, options)
        if solved.status()[0] is not Status.INFEASIBLE:
            return solved, None
        return solved, frozenset(int(numbers[b][row]) for b, row in solved.contradictions()[0])


def _causes(factor: int, known: list[int], reason: dict[int, tuple[int, list[int]]]) -> set[int]:
    """Return a factor and those that decided its known variables, directly or not."""
    causes, queue = {factor}, list(known)
    seen = set(queue)
    while queue:
        by, earlier = reason[queue.pop()]
        causes.add(by)
        queue += set(earlier) - seen
        seen.update(earlier)
    return causes


def _structures(
    bucket: Bucket, forced: FloatArray, forbidden: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Return structures with forced values, and for each factor whether it has one."""
    w, n = best_feasible(bucket, forced, np.zeros(bucket.n_additionals), forbidden)
    wrong = np.isinf(forced) & (np.abs(w - (forced > 0.0)) > HELD)
    held = forbidden & (n > HELD)
    return w, bucket.sums(np.where(wrong, 1.0, 0.0), np.where(held, 1.0, 0.0)) == 0.0
