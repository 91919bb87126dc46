"""Few factors of a component that contradict each other: an irreducible infeasible set.

A deletion filter (Chinneck & Dravnieks 1991) leaves out factors as long as the others are proved
infeasible, and keeps those without which an assignment is found. Three proofs are tried in turn,
and each names the factors that it uses: propagation, which asks the factors' oracles for every open
variable whether a structure has the value 0, or 1 (generalised arc consistency); LP-MAP without
scores; and branching with propagation and conflict-directed backjumping (Prosser 1993), which
prefers factors that took part in conflicts (Boussemart et al. 2004). What a few branches do not
decide is tried again with more as long as time is left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from lpsmap_core import CompiledEngine, Deadline, Options, Status
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

__all__ = ["contradicting_factors"]

FIRST_NODES = 200
"""Branches of a first attempt to decide whether factors contradict each other."""

MORE_NODES = 8
"""Factor by which the next attempt has more branches."""

LP_ITERATIONS = 480
"""Iterations of LP-MAP in a proof: four tests of infeasibility."""

MAX_QUERIED = 2_000_000
"""Slots in a call of a bucket's oracles, which asks for each slot of its rows."""

HELD = 1e-9
"""Difference of a value from 0 or 1 that is rounding."""

OPEN = -1
"""The value of a variable that is not decided."""

BACKGROUND, DECISION, REFUTED = -1, -2, -3
"""Reasons for values that no factor implies: a score of ``-inf``, branching, and the refutation of
the other value."""

Core = frozenset[int]


class _Refuted(NamedTuple):
    """A proof: contradicting factors, and the branching variables on which it depends."""

    factors: Core
    decisions: frozenset[int]


class _Undecided(Exception):
    """Neither a proof nor an assignment was found within the limits."""


@dataclass
class _Values:
    """The values of a component's variables, with the order and the reasons of their decisions."""

    value: ByteArray
    order: IntArray
    reason: IntArray
    trail: list[int] = field(default_factory=list)
    refuted: dict[int, _Refuted] = field(default_factory=dict)

    def copy(self) -> _Values:
        return _Values(self.value.copy(), self.order.copy(), self.reason.copy())

    def decide(self, variable: int, value: int, reason: int) -> None:
        self.trail.append(variable)
        self.value[variable], self.reason[variable] = value, reason
        self.order[variable] = len(self.trail)

    def undo(self, n_kept: int) -> None:
        """Open the variables again that were decided after the first `n_kept`."""
        undone = self.trail[n_kept:]
        self.value[undone] = self.order[undone] = OPEN
        del self.trail[n_kept:]


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
        first, end = (int(v) for v in part.first_variable[component : component + 2])
        self._first, self._deadline = first, deadline
        self.places: list[tuple[int, int]] = []
        self._buckets: list[Bucket] = []
        self._forbidden: list[BoolArray] = []
        begin = []
        for b, bucket in enumerate(part.buckets):
            rows = np.flatnonzero(bucket.component == component)
            if rows.size:
                begin.append(len(self.places))
                self.places += [(b, row) for row in rows.tolist()]
                self._buckets.append(bucket.select(rows))
                own = eta_v[part.additionals_of(b)][ranges(bucket.additional_offsets, rows)]
                self._forbidden.append(np.isneginf(own))
        self._begin = np.array([*begin, len(self.places)])
        self._eta = eta[first:end]
        value = np.where(np.isneginf(self._eta), 0, OPEN).astype(np.int8)
        order = np.where(value == OPEN, OPEN, 0)
        self._start = _Values(value, order, np.full(len(value), BACKGROUND))
        self._variables = [
            v - first
            for bucket in self._buckets
            for v in np.split(bucket.variable, bucket.offsets[1:-1])
        ]
        self._factors: list[list[int]] = [[] for _ in range(end - first)]
        for i, variables in enumerate(self._variables):
            for v in dict.fromkeys(variables.tolist()):
                self._factors[v].append(i)
        self._slots = np.concatenate(self._variables)
        self._owner = np.repeat(np.arange(len(self.places)), [len(v) for v in self._variables])
        self._weight = np.ones(len(self.places))
        self._relaxable: list[Core] = []
        self._known_answers: dict[tuple[int, bytes], list[tuple[int, int]] | None] = {}

    def first_core(self, known: Core) -> Core | None:
        """Return contradicting factors, if possible known ones; None without a proof."""
        everything = frozenset(range(len(self.places)))
        for chosen, n_nodes in ((known, FIRST_NODES), (everything, sys.maxsize)):
            with suppress(_Undecided):
                core = self.refute(chosen, n_nodes)
                if core is not None:
                    return core
        return None

    def refute(self, chosen: Core, n_nodes: int) -> Core | None:
        """Return factors among the chosen ones that contradict each other; None if none do.

        Raises
        ------
        _Undecided
            If `n_nodes` branches, or the time, do not suffice.
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

    def _refute_connected(self, chosen: Core, n_nodes: int) -> Core | None:
        """Return the same for factors that share variables with each other."""
        values = self._start.copy()
        conflict = self._propagate(values, chosen, chosen)
        if conflict is not None:
            return self._cause(values, conflict).factors
        if len(chosen) == 1 and self._has_distinct_variables(*chosen):
            return None  # its oracle gave a structure
        return self._refute_relaxed(chosen) or self._branch(values, chosen, n_nodes)

    def _has_distinct_variables(self, factor: int) -> bool:
        variables = self._variables[factor]
        return len(np.unique(variables)) == len(variables)

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

    # ---------------------------------------------------------------- propagation

    def _propagate(self, values: _Values, chosen: Core, changed: Iterable[int]) -> int | None:
        """Decide the variables that factors imply; return a factor without structures, or None."""
        dirty = sorted(changed)
        while dirty:
            later: set[int] = set()
            for i, answer in zip(dirty, self._answers(dirty, values.value), strict=True):
                if answer is None:
                    return i
                for variable, value in answer:
                    if values.value[variable] == OPEN:
                        values.decide(variable, value, i)
                        later.update(self._factors[variable])
            dirty = sorted(later & chosen)
        return None

    def _answers(self, factors: list[int], value: ByteArray) -> list[list[tuple[int, int]] | None]:
        """Return the (variable, value) that each factor implies; None for one without structures.

        The search comes to the same values of a factor's variables again and again.
        """
        keys = [(i, value[self._variables[i]].tobytes()) for i in factors]
        new = np.array([i for i, _ in (key for key in keys if key not in self._known_answers)])
        for b in np.unique(np.searchsorted(self._begin, new, side="right") - 1) if new.size else ():
            lo, hi = self._begin[b : b + 2]
            rows = new[(lo <= new) & (new < hi)] - lo
            arity = self._buckets[b].offsets[rows + 1] - self._buckets[b].offsets[rows]
            piece = np.cumsum(arity**2) // MAX_QUERIED
            for chosen in np.split(rows, np.flatnonzero(np.diff(piece)) + 1):
                if self._deadline.passed:
                    raise _Undecided
                for row, answer in zip(chosen, self._ask(b, chosen, value), strict=True):
                    i = int(lo + row)
                    key = i, value[self._variables[i]].tobytes()
                    self._known_answers[key] = answer
        return [self._known_answers[key] for key in keys]

    def _ask(self, b: int, rows: IntArray, value: ByteArray) -> list[list[tuple[int, int]] | None]:
        """Return the answers of rows of a bucket by their oracles."""
        bucket = self._buckets[b].select(rows)
        forbidden = self._forbidden[b][ranges(self._buckets[b].additional_offsets, rows)]
        variable = bucket.variable - self._first
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

    def _cause(self, values: _Values, conflict: int) -> _Refuted:
        """Return the factors and the decisions from which a conflict follows."""
        factors, decisions = {conflict}, set()
        queue = [v for v in self._variables[conflict].tolist() if values.value[v] != OPEN]
        seen = set(queue)
        while queue:
            v = queue.pop()
            reason, earlier = int(values.reason[v]), list[int]()
            if reason == DECISION:
                decisions.add(v)
            elif reason == REFUTED:
                factors |= values.refuted[v].factors
                earlier = list(values.refuted[v].decisions)
            elif reason != BACKGROUND:
                factors.add(reason)
                others = self._variables[reason]
                known = (values.value[others] != OPEN) & (values.order[others] < values.order[v])
                earlier = others[known].tolist()
            queue += set(earlier) - seen
            seen.update(earlier)
        return _Refuted(frozenset(factors), frozenset(decisions))

    # ---------------------------------------------------------------- branching

    def _branch(self, values: _Values, chosen: Core, n_nodes: int) -> Core | None:
        """Return factors that a search proves to contradict; None if it finds an assignment.

        After a conflict, the latest decision from which it follows is replaced by the other value,
        and later ones are undone.
        """
        slots = np.isin(self._owner, list(chosen))
        for _ in range(n_nodes):
            if self._deadline.passed:
                break
            variable = self._preferred(values, slots)
            if variable is None:
                return None
            values.decide(variable, 1, DECISION)
            conflict = self._propagate(values, chosen, chosen.intersection(self._factors[variable]))
            while conflict is not None:
                refuted = self._cause(values, conflict)
                self._weight[list(refuted.factors)] += 1.0
                if not refuted.decisions:
                    return refuted.factors
                *earlier, last = sorted(refuted.decisions, key=values.order.__getitem__)
                value = 1 - int(values.value[last])
                values.undo(int(values.order[last]) - 1)
                values.refuted[last] = _Refuted(refuted.factors, frozenset(earlier))
                values.decide(last, value, REFUTED)
                conflict = self._propagate(values, chosen, chosen.intersection(self._factors[last]))
        raise _Undecided

    def _preferred(self, values: _Values, slots: BoolArray) -> int | None:
        """Return an open variable of a factor with few, and many conflicts; None without any."""
        still = slots & (values.value[self._slots] == OPEN)
        n_open = np.bincount(self._owner[still], minlength=len(self.places))
        if not n_open.any():
            return None
        width = np.where(n_open > 0, n_open / self._weight, np.inf)
        return int(self._slots[still & (self._owner == np.argmin(width))][0])

    # ---------------------------------------------------------------- LP-MAP

    def _refute_relaxed(self, chosen: Core) -> Core | None:
        """Return factors whose relaxation is infeasible; None without a proof.

        The factors that the engine names are solved again, since they need not suffice.
        """
        if any(chosen <= relaxable for relaxable in self._relaxable):
            return None
        named = self._relaxed(chosen)
        if named is None or named == chosen:
            return named
        smaller = (self._relaxed(part) for part in self._connected(named))
        return next((named & core for core in smaller if core is not None), chosen)

    def _relaxed(self, chosen: Core) -> Core | None:
        """Return the factors that the engine names if their relaxation is infeasible."""
        if self._deadline.passed:
            raise _Undecided
        numbers, buckets, forbidden = [], [], [np.empty(0, dtype=bool)]
        for b, bucket in enumerate(self._buckets):
            lo, hi = self._begin[b : b + 2]
            rows = np.array(sorted(i - lo for i in chosen if lo <= i < hi), dtype=np.int64)
            if rows.size:
                numbers.append(lo + rows)
                buckets.append(bucket.select(rows))
                forbidden.append(self._forbidden[b][ranges(bucket.additional_offsets, rows)])
        variables = np.unique(np.concatenate([bucket.variable for bucket in buckets]))
        one = np.zeros(len(variables), dtype=np.int64)
        buckets = [
            replace(
                bucket,
                variable=np.searchsorted(variables, bucket.variable),
                component=np.zeros(bucket.n_factors, dtype=np.int64),
            )
            for bucket in buckets
        ]
        part = part_of_buckets(buckets, one, 1)
        eta = np.where(np.isneginf(self._eta[variables - self._first]), -np.inf, 0.0)
        eta_v = np.where(np.concatenate(forbidden), -np.inf, 0.0)
        options = Options(max_iter=LP_ITERATIONS, quadratic=0.0, threads=1)
        with Watch(within=self._deadline):
            solved = CompiledEngine().solve(part, eta, eta_v, np.zeros(1, dtype=bool), options)
        status = solved.status()[0]
        if status.ok:
            self._relaxable.append(chosen)
        if status is not Status.INFEASIBLE:
            return None
        return frozenset(int(numbers[b][row]) for b, row in solved.contradictions()[0])


def _structures(
    bucket: Bucket, forced: FloatArray, forbidden: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Return structures with forced values, and for each factor whether it has one."""
    w, n = best_feasible(bucket, forced, np.zeros(bucket.n_additionals), forbidden)
    wrong = np.isinf(forced) & (np.abs(w - (forced > 0.0)) > HELD)
    possible = np.ones(bucket.n_factors, dtype=bool)
    possible[np.repeat(np.arange(bucket.n_factors), np.diff(bucket.offsets))[wrong]] = False
    held = forbidden & (n > HELD)
    owner = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.additional_offsets))
    possible[owner[held]] = False
    return w, possible
