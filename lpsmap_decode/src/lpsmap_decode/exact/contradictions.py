"""Few factors of a component that contradict each other: an irreducible infeasible set.

A deletion filter (Chinneck & Dravnieks 1991) leaves out factors as long as the others are proved
infeasible. Three proofs are tried in turn, and each names the factors that it uses: propagation,
which asks the factors' oracles for every open variable whether a structure has the value 0, or 1
(generalised arc consistency); LP-MAP without scores; and branching on variables with propagation,
where the factors of both branches join. A proof that takes too long counts as none: the result then
contradicts itself, but may not be irreducible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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

MOST_NODES = 200
"""Branches that a proof may take."""

LP_ITERATIONS = 480
"""Iterations of LP-MAP in a proof: four tests of infeasibility."""

MOST_QUERIED = 2_000_000
"""Slots in the calls of a bucket's oracles up to which every open variable is asked for."""

HELD = 1e-9
"""Difference of a value from 0 or 1 that is rounding."""

OPEN = -1
"""The value of a variable that is not decided."""

BACKGROUND, DECISION = -1, -2
"""Reasons for values that no factor implies: a score of ``-inf``, and branching."""

Core = frozenset[int]


class _Refuted(NamedTuple):
    """A proof: contradicting factors, and the branching variables on which it depends."""

    factors: Core
    decisions: frozenset[int]


class _Undecided(Exception):
    """Neither a proof nor an assignment was found within the limits."""


class _Values:
    """The values of a component's variables, with the order and the reasons of their decisions."""

    def __init__(self, value: ByteArray, order: IntArray, reason: IntArray) -> None:
        self.value, self.order, self.reason = value, order, reason

    def copy(self) -> _Values:
        return _Values(self.value.copy(), self.order.copy(), self.reason.copy())

    def decide(self, variable: int, value: int, reason: int) -> None:
        self.value[variable], self.reason[variable] = value, reason
        self.order[variable] = self.order.max() + 1


def contradicting_factors(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    component: int,
    known: Sequence[tuple[int, int]],
    deadline: Deadline,
) -> list[tuple[int, int]]:
    """Return (bucket, row) of few factors of a component that no assignment satisfies together.

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
    """
    problem = _Component(part, eta, eta_v, component, deadline)
    numbers = {place: i for i, place in enumerate(problem.places)}
    everything = frozenset(range(len(numbers)))
    given = frozenset(numbers[place] for place in known)
    core = (problem.refute(given) if given else None) or problem.refute(everything)
    if core is None:
        return sorted(known) or problem.places
    size = len(core) // 2
    while size and not deadline.passed:
        left = sorted(core)
        for begin in range(0, len(left), size):
            chunk = core.intersection(left[begin : begin + size])
            smaller = problem.refute(core - chunk) if chunk and not deadline.passed else None
            core = core if smaller is None else smaller
        size = min(size, len(core)) // 2
    return [problem.places[i] for i in sorted(core)]


class _Component:
    """The factors of a component, numbered over all buckets, and its variables."""

    def __init__(
        self, part: Part, eta: FloatArray, eta_v: FloatArray, component: int, deadline: Deadline
    ) -> None:
        first, end = (int(v) for v in part.first_variable[component : component + 2])
        self._first, self._deadline = first, deadline
        self.places: list[tuple[int, int]] = []
        self._buckets: list[Bucket] = []
        self._barred: list[BoolArray] = []
        begin = []
        for b, bucket in enumerate(part.buckets):
            rows = np.flatnonzero(bucket.component == component)
            if rows.size:
                begin.append(len(self.places))
                self.places += [(b, row) for row in rows.tolist()]
                self._buckets.append(bucket.select(rows))
                own = eta_v[part.additionals_of(b)][ranges(bucket.additional_offsets, rows)]
                self._barred.append(np.isneginf(own))
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

    def refute(self, chosen: Core) -> Core | None:
        """Return factors among the chosen ones that contradict each other; None without a proof."""
        found = (self._refute_connected(part) for part in self._connected(chosen))
        return next((core for core in found if core is not None), None)

    def _refute_connected(self, chosen: Core) -> Core | None:
        """Return the same for factors that share variables with each other."""
        try:
            values = self._start.copy()
            conflict = self._propagate(values, chosen, chosen)
            if conflict is not None:
                return self._cause(values, conflict).factors
            if len(chosen) == 1 and self._has_distinct_variables(*chosen):
                return None  # its oracle gave a structure
            found = self._refute_relaxed(chosen)
            if found is None:
                refuted = self._branch(values, chosen, [MOST_NODES])
                found = None if refuted is None else refuted.factors
            return found
        except _Undecided:
            return None

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
            if self._deadline.passed:
                raise _Undecided
            later: set[int] = set()
            for b in range(len(self._buckets)):
                lo, hi = self._begin[b : b + 2]
                rows = np.array([i - lo for i in dirty if lo <= i < hi], dtype=np.int64)
                if not rows.size:
                    continue
                conflict, implied = self._ask(b, rows, values.value)
                if conflict is not None:
                    return int(lo) + conflict
                for row, variable, value in implied:
                    if values.value[variable] == OPEN:
                        values.decide(variable, value, int(lo) + row)
                        later.update(self._factors[variable])
            dirty = sorted(later & chosen)
        return None

    def _ask(
        self, b: int, rows: IntArray, value: ByteArray
    ) -> tuple[int | None, list[tuple[int, int, int]]]:
        """Return a row without structures, or the values that rows imply: row, variable, value."""
        bucket = self._buckets[b].select(rows)
        barred = self._barred[b][ranges(self._buckets[b].additional_offsets, rows)]
        variable = bucket.variable - self._first
        known = value[variable]
        open_slots = known == OPEN
        on = (known == 1) != bucket.negated
        forced = np.where(open_slots, 0.0, np.where(on, np.inf, -np.inf))
        w, possible = _structures(bucket, forced, barred)
        if not possible.all():
            return int(rows[np.flatnonzero(~possible)[0]]), []
        (slots,) = open_slots.nonzero()
        owner = np.repeat(np.arange(len(rows)), np.diff(bucket.offsets))[slots]
        arity = np.diff(bucket.offsets)[owner]
        if not slots.size or int(arity.sum()) > MOST_QUERIED:
            return None, []
        # one copy of the factor for every open slot, which gets the other value
        copies, links = bucket.select(owner), ranges(bucket.offsets, owner)
        asked = forced[links]
        at = copies.offsets[:-1] + slots - bucket.offsets[owner]
        asked[at] = np.where(w[slots] > 0.5, -np.inf, np.inf)
        own = barred[ranges(bucket.additional_offsets, owner)]
        _, possible = _structures(copies, asked, own)
        fixed = slots[~possible]
        implied = (w[fixed] > 0.5) != bucket.negated[fixed]
        found = zip(
            rows[owner[~possible]].tolist(),
            variable[fixed].tolist(),
            implied.astype(int).tolist(),
            strict=True,
        )
        return None, list(found)

    def _cause(self, values: _Values, conflict: int) -> _Refuted:
        """Return the factors and the decisions from which a conflict follows."""
        factors, decisions = {conflict}, set()
        queue = [v for v in self._variables[conflict].tolist() if values.value[v] != OPEN]
        seen = set(queue)
        while queue:
            v = queue.pop()
            reason = int(values.reason[v])
            if reason == DECISION:
                decisions.add(v)
            if reason < 0:
                continue
            factors.add(reason)
            for other in self._variables[reason].tolist():
                earlier = values.value[other] != OPEN and values.order[other] < values.order[v]
                if earlier and other not in seen:
                    seen.add(other)
                    queue.append(other)
        return _Refuted(frozenset(factors), frozenset(decisions))

    # ---------------------------------------------------------------- branching

    def _branch(self, values: _Values, chosen: Core, left: list[int]) -> _Refuted | None:
        """Refute values by both values of a variable; return None if an assignment fits.

        `left` counts the branches that may still be taken.
        """
        variable = self._narrowest(values, chosen)
        if variable is None:
            return None
        factors, decisions = frozenset[int](), frozenset[int]()
        for value in (1, 0):
            left[0] -= 1
            if left[0] < 0 or self._deadline.passed:
                raise _Undecided
            below = values.copy()
            below.decide(variable, value, DECISION)
            conflict = self._propagate(below, chosen, chosen.intersection(self._factors[variable]))
            if conflict is not None:
                refuted = self._cause(below, conflict)
            else:
                found = self._branch(below, chosen, left)
                if found is None:
                    return None
                refuted = found
            if variable not in refuted.decisions:
                return refuted
            factors |= refuted.factors
            decisions |= refuted.decisions - {variable}
        return _Refuted(factors, decisions)

    def _narrowest(self, values: _Values, chosen: Core) -> int | None:
        """Return an open variable of the factor with the fewest; None if all are decided."""
        best, fewest = None, len(values.value) + 1
        for i in sorted(chosen):
            variables = self._variables[i]
            still = variables[values.value[variables] == OPEN]
            if 0 < len(still) < fewest:
                best, fewest = int(still[0]), len(still)
        return best

    # ---------------------------------------------------------------- LP-MAP

    def _refute_relaxed(self, chosen: Core) -> Core | None:
        """Return factors whose relaxation is infeasible; None without a proof.

        The factors that the engine names are solved again, since they need not suffice.
        """
        named = self._relaxed(chosen)
        if named is None or named == chosen:
            return named
        smaller = (self._relaxed(part) for part in self._connected(named))
        return next((named & core for core in smaller if core is not None), chosen)

    def _relaxed(self, chosen: Core) -> Core | None:
        """Return the factors that the engine names if their relaxation is infeasible."""
        if self._deadline.passed:
            raise _Undecided
        numbers, buckets, barred = [], [], [np.empty(0, dtype=bool)]
        for b, bucket in enumerate(self._buckets):
            lo, hi = self._begin[b : b + 2]
            rows = np.array(sorted(i - lo for i in chosen if lo <= i < hi), dtype=np.int64)
            if rows.size:
                numbers.append(lo + rows)
                buckets.append(bucket.select(rows))
                barred.append(self._barred[b][ranges(bucket.additional_offsets, rows)])
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
        part = part_of_buckets(buckets, one, 1, variables)
        eta = np.where(np.isneginf(self._eta[variables - self._first]), -np.inf, 0.0)
        eta_v = np.where(np.concatenate(barred), -np.inf, 0.0)
        options = Options(max_iter=LP_ITERATIONS, quadratic=0.0, threads=1)
        with Watch(within=self._deadline):
            solved = CompiledEngine().solve(part, eta, eta_v, np.zeros(1, dtype=bool), options)
        if solved.status()[0] is not Status.INFEASIBLE:
            return None
        return frozenset(int(numbers[b][row]) for b, row in solved.contradictions()[0])


def _structures(
    bucket: Bucket, forced: FloatArray, barred: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Return structures with forced values, and for each factor whether it has one."""
    w, n = best_feasible(bucket, forced, np.zeros(bucket.n_additionals), barred)
    wrong = np.isinf(forced) & (np.abs(w - (forced > 0.0)) > HELD)
    possible = np.ones(bucket.n_factors, dtype=bool)
    possible[np.repeat(np.arange(bucket.n_factors), np.diff(bucket.offsets))[wrong]] = False
    held = barred & (n > HELD)
    owner = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.additional_offsets))
    possible[owner[held]] = False
    return w, possible
