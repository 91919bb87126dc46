"""Clauses and counts by python-sat: Glucose (Audemard & Simon 2009) and RC2 (Ignatiev et al. 2019).

Conflict-driven clause learning finds an assignment of the rows, or proves that there is none. RC2
then minimises the weight of violated soft clauses, each of one literal: it collects unsatisfiable
cores, whose weight bounds the score of all assignments at any time.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_decode.solvers.map_solver import Answer, MapSolver, Program, SolverLimits, is_installed

__all__ = ["MaxSatSolver"]

WEIGHT_BITS = 40
"""Weights are integers, the largest of so many bits. The bound allows for their rounding."""

MIN_EXPONENT = -1000
"""Minimum binary exponent of the unit of the weights."""

PAUSE = 0.1
"""Seconds between two interrupts of a call that goes on."""


class MaxSatSolver(MapSolver):
    """Glucose and RC2, through the package python-sat, for programs of clauses and counts.

    They decide tightly constrained programs whose relaxation says little. Where many different
    scores matter, `HighsSolver` proves the best assignment sooner.

    Parameters
    ----------
    until_found
        Whether to stop at the first assignment, or at the proof that there is none.
    """

    name: ClassVar[str] = "maxsat"

    def __init__(self, until_found: bool = False) -> None:
        self._until_found = until_found

    @classmethod
    def missing(cls) -> str | None:
        """Return a message if python-sat is not installed."""
        if is_installed("pysat"):
            return None
        return "python-sat is not installed. Install it with: pip install 'lpsmap-decode[maxsat]'"

    def refuses(self, program: Program) -> str | None:
        """Return a message if a program has rows other than clauses and counts."""
        if program.n_auxiliary:
            return "maxsat supports clauses and counts, but a factor has continuous columns."
        if not np.isin(program.coefficient, (-1.0, 0.0, 1.0)).all():
            return "maxsat supports clauses and counts, but a row has other coefficients than 1."
        return None

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        """Solve a program; the time limit and Ctrl-C end it with the best assignment so far."""
        end = math.inf if limits.seconds is None else time.monotonic() + limits.seconds
        run = _Run(program, self._until_found)
        interrupted = _run_in_thread(run.compute, run.interrupt, end)
        values = None if run.values is None else run.values[: len(program.variables)]
        bound = -math.inf if run.infeasible else run.bound()
        return Answer(values, bound, run.n_cores, interrupted)


class _Run:
    """A program as clauses, and the best assignment and the cost of all cores so far."""

    def __init__(self, program: Program, until_found: bool) -> None:
        self._program, self._until_found = program, until_found
        exponent = math.frexp(float(np.abs(program.scores).max(initial=0.0)))[1]
        self._unit = 2.0 ** max(exponent - WEIGHT_BITS, MIN_EXPONENT)
        self._weights = [round(score / self._unit) for score in program.scores.tolist()]
        self._oracle: Any = None
        self._score = -math.inf
        self.values: FloatArray | None = None
        self.n_cores, self.cost, self.infeasible, self.stopped = 0, 0, False, False

    def compute(self) -> None:
        """Find an assignment, then improve it."""
        from pysat.formula import WCNF
        from pysat.solvers import Glucose4

        hard = list(_clauses(self._program))
        with Glucose4(bootstrap_with=hard) as oracle:
            self._oracle = oracle
            signs = np.where(self._program.scores > 0.0, 1, -1)  # what each score prefers
            oracle.set_phases((signs * np.arange(1, len(signs) + 1)).tolist())
            outcome = None if self.stopped else oracle.solve_limited(expect_interrupt=True)
            self.infeasible = outcome is False
            if outcome:
                self.offer(oracle.get_model())
        if not outcome or self._until_found or self.stopped:
            return
        formula = WCNF()
        formula.extend(hard)
        for column, weight in enumerate(self._weights, 1):
            if weight:
                formula.append([column if weight > 0 else -column], weight=abs(weight))
        if formula.soft:
            with _engine()(formula, self) as engine:
                self._oracle = engine
                model = None if self.stopped else engine.compute(expect_interrupt=True)
                self.cost = engine.cost
                self.offer(model or ())

    def interrupt(self) -> None:
        """End the run, from another thread."""
        self.stopped = True
        if self._oracle is not None:
            self._oracle.interrupt()

    def offer(self, model: Any) -> None:
        """Keep a model if it is better."""
        true = np.array([x for x in model if 0 < x <= len(self._weights)], dtype=np.int64)
        values = np.zeros(len(self._weights))
        values[true - 1] = 1.0
        score = float(self._program.scores @ values)
        if len(model) and score > self._score:
            self.values, self._score = values, score

    def bound(self) -> float:
        """Return an upper bound on all assignments, which allows for the rounding of weights."""
        gains = sum(weight for weight in self._weights if weight > 0)
        rounding = 0.5 * int(np.count_nonzero(self._program.scores))
        return float(self._unit * (gains - self.cost + rounding))


def _run_in_thread(run: Callable[[], None], interrupt: Callable[[], None], end: float) -> bool:
    """Run a function that does not hear of Ctrl-C until a time; return whether Ctrl-C ended it."""
    errors: list[BaseException] = []

    def keep_error() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread, interrupted = threading.Thread(target=keep_error, daemon=True), False
    try:
        thread.start()
        thread.join(None if end == math.inf else max(0.0, end - time.monotonic()))
    except KeyboardInterrupt:
        interrupted = True
        interrupt()  # also if it has not quite started
    while thread.is_alive():
        interrupt()
        thread.join(PAUSE)
    if errors:
        raise errors[0]
    return interrupted


@functools.cache
def _engine() -> Any:
    """Return the class of engines, which needs python-sat."""
    from pysat.examples.rc2 import RC2Stratified

    class Engine(RC2Stratified):  # type: ignore[misc]
        """RC2 that offers the model of each stratum, and counts no core of an interrupted call."""

        def __init__(self, formula: Any, run: _Run) -> None:
            self._run = run
            super().__init__(formula, adapt=True)

        def get_core(self) -> None:
            if self._run.stopped or self.oracle.get_status() is None:
                self.core: Any = []  # ends the loop
                return
            self._run.n_cores += 1
            super().get_core()

        def finish_level(self) -> None:
            self._run.offer(self.oracle.get_model())
            super().finish_level()

    return Engine


def _clauses(program: Program) -> Iterator[list[int]]:
    """Yield clauses over the columns, numbered from 1, and further variables for counts."""
    from pysat.card import CardEnc, EncType

    last = len(program.scores)
    for column in (np.flatnonzero(program.upper <= 0.0) + 1).tolist():
        yield [-column]
    n_rows, there = len(program.low), program.coefficient != 0.0
    row, sign = program.row[there], program.coefficient[there]
    literals = (sign * (program.column[there] + 1)).astype(np.int64)
    begin = np.searchsorted(row, np.arange(n_rows + 1))
    n_negated = np.bincount(row, sign < 0.0, minlength=n_rows)
    for r, (low, high) in enumerate(zip(program.low, program.high, strict=True)):
        own = literals[begin[r] : begin[r + 1]].tolist()
        most = min(float(high + n_negated[r]), float(len(own)))
        least = max(float(low + n_negated[r]), 0.0)
        sides = ((own, math.floor(most)), ([-x for x in own], len(own) - math.ceil(least)))
        for counted, limit in sides:
            if limit < 0:
                yield []
            elif limit == len(counted) - 1:
                yield [-x for x in counted]
            elif limit < len(counted):
                kind = EncType.seqcounter if limit == 1 else EncType.cardnetwrk
                encoded = CardEnc.atmost(counted, limit, top_id=last, encoding=kind)
                last = max(last, encoded.nv)
                yield from encoded.clauses
