"""Graphs of up to 2,000 slots, and judges of them that enumerate nothing.

A judge is a restricted master problem: a sparse program over the structures that are known, first
those that the library returned. Its multipliers are put to the plain Python oracles of all factors,
which gives an upper bound by duality for any multipliers whatever; the oracles' structures are
added until the bound meets the value. The programs are solved by clarabel and HiGHS.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from lpsmap_core import Solution, Status
from lpsmap_core.api import slot_values, slots_of
from lpsmap_core.testing.oracle import Oracle, oracles_of
from lpsmap_decode import Assignment
from sweep_cases import KINDS, Case, kinds

__all__ = ["EVERY", "Judge", "draw_large", "score_of", "wrong_assignments", "wrong_marginals"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

EVERY = 20
"""Of so many seeds one draws a large graph."""

MAX_SLOTS = 2000

SECONDS = 20.0
"""For which a judge adds structures; then it gives no judgement."""

CLOSE = 1e-6
"""Allowed error of an objective, relative to the scores' magnitude and the square root of their
number, and of marginals: a thousand times what is solved to."""

ROUNDING = 1e-12
"""Of sums with masks, relative to them."""

GAP = 1e-8
"""Of what is called proved, relative to its score."""

FORBIDDEN = 1e4
"""In units of the scores' magnitude, what keeps oracles from variables that are masked."""


def draw_large(seed: int) -> Case:
    """Draw a graph whose first declaration has up to `MAX_SLOTS` slots."""
    rng = np.random.default_rng([seed, 3])
    kind = str(rng.choice(kinds()))
    most = 8
    while np.prod(KINDS[kind].shape(most + 1)) <= MAX_SLOTS and most < 200:
        most += 1
    return Case(kind, int(np.exp(rng.uniform(np.log(6), np.log(most + 1)))), seed)


PRICE = 50.0
"""Likewise, what disagreement costs while too few structures are known."""


class Judged(NamedTuple):
    """What the judge knows of the optimum."""

    value: float
    bound: float
    mu: FloatArray


class Judge:
    """Upper and lower bounds of a graph's optimum, with the quadratic term or without."""

    def __init__(self, case: Case) -> None:
        factors = case.graph.factors
        self.given = self.eta = case.eta.reshape(-1)
        self.off = self.eta <= -1e9
        self.eta = np.where(self.off, 0.0, self.eta)
        self.oracles: list[Oracle] = []
        self.variables: list[IntArray] = []
        self.negated: list[BoolArray] = []
        self.extra: list[FloatArray] = []
        for factor in factors:
            places = slot_values(factor, factor.variables.index)
            negated = slot_values(factor, factor.variables.negated)
            scores = np.zeros((factor.n_factors, factor.n_additionals))
            if factor.n_additionals:
                scores = np.asarray(factor.additionals, dtype=np.float64).reshape(scores.shape)
            for i, oracle in enumerate(oracles_of(factor)):
                self.oracles.append(oracle)
                self.variables.append(places[slots_of(factor, i)])
                self.negated.append(negated[slots_of(factor, i)])
                self.extra.append(scores[i])
        numbers = [self.eta, *self.extra]
        self.magnitude = max(1.0, *(float(np.abs(x).max(initial=0.0)) for x in numbers))
        self.slack = CLOSE * self.magnitude * np.sqrt(len(self.eta))
        self.columns: list[list[FloatArray]] = [[] for _ in self.oracles]
        self.known: list[set[bytes]] = [set() for _ in self.oracles]

    def add(self, i: int, m: FloatArray, n: FloatArray) -> bool:
        """Let the program know values of factor `i`'s variables; whether they are new."""
        column = np.concatenate([m, n])
        new = column.tobytes() not in self.known[i] and not m[self.off[self.variables[i]]].any()
        if new:
            self.known[i].add(column.tobytes())
            self.columns[i].append(column)
        return new

    def ask(self, i: int, y: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return factor `i`'s best values for scores of its variables, and what they score."""
        masked = np.where(self.off[self.variables[i]], -FORBIDDEN * self.magnitude, y)
        m, n = self._best(i, masked, self.extra[i])
        return m, n, float(masked @ m + self.extra[i] @ n)

    def near(self, i: int, m: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the best of the values of factor `i` that are nearest to some of 0 and 1."""
        return self._best(i, FORBIDDEN * self.magnitude * (2.0 * m - 1.0), self.extra[i])

    def _best(self, i: int, y: FloatArray, extra: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ask the oracle, whose slots may be negated variables."""
        negated = self.negated[i]
        answer = self.oracles[i](np.where(negated, -y, y), extra)
        return np.where(negated, 1.0 - answer.m, answer.m), answer.n

    def optimum(self, quadratic: bool, enough: float) -> Judged | None:
        """Add structures until value and bound are that near; None if it takes too long."""
        begin, found = time.monotonic(), None
        for i, variables in enumerate(self.variables):
            m, n, _ = self.ask(i, self.eta[variables])
            self.add(i, m, n)
            if not self.columns[i]:
                return None  # it cannot do without what is masked
        while time.monotonic() - begin < SECONDS:
            master = self._master(quadratic)
            if master is None:
                return None
            mu, value, y = master
            left, bound, new = self.eta.copy(), 0.0, False
            for i, variables in enumerate(self.variables):
                np.subtract.at(left, variables, y[i])
                m, n, score = self.ask(i, y[i])
                new |= self.add(i, m, n)
                bound += score
            left[self.off] = 0.0
            bound += 0.5 * float(left @ left) if quadratic else float(np.maximum(left, 0.0).sum())
            if found is None or bound < found.bound:
                found = Judged(value, bound, mu)
            found = found._replace(value=value, mu=mu)
            if found.bound - value <= enough:
                return found
            if not new:
                return None
        return None

    def _master(self, quadratic: bool) -> tuple[FloatArray, float, list[FloatArray]] | None:
        """Solve over the structures that are known; return marginals, value and multipliers.

        Slack on every link, at a price that no multiplier reaches, keeps it feasible at first.
        """
        v = len(self.eta)
        sizes = [len(own) for own in self.variables]
        links = np.concatenate(self.variables)
        blocks = [np.array(own) for own in self.columns]
        weights = sparse.block_diag([b[:, :k].T for b, k in zip(blocks, sizes, strict=True)])
        sums = sparse.block_diag([np.ones((1, len(b))) for b in blocks])
        gains = [b[:, k:] @ e for b, k, e in zip(blocks, sizes, self.extra, strict=True)]
        pick = sparse.csr_array(
            (np.ones(len(links)), (np.arange(len(links)), links)), (len(links), v)
        )
        one = sparse.eye_array(len(links))
        matrix = sparse.block_array(
            [[-pick, weights, one, -one], [None, sums, None, None]], format="csc"
        )
        price = np.full(2 * len(links), PRICE * self.magnitude)
        c = np.concatenate([self.eta, *gains, -price])
        right = np.concatenate([np.zeros(len(links)), np.ones(len(blocks))])
        if quadratic:
            x, y = _quadratic_program(c, matrix, right, v)
        else:
            top = [(0.0, 1.0)] * v + [(0.0, None)] * (len(c) - v)
            result = optimize.linprog(-c, A_eq=matrix, b_eq=right, bounds=top, method="highs")
            if result.status != 0:
                return None
            x, y = result.x, -result.eqlin.marginals
        mu = x[:v]
        value = float(c @ x) - (0.5 * float(mu @ mu) if quadratic else 0.0)
        # what the program violates is worth its multipliers: the value has to be a lower bound
        value -= float(np.abs(y) @ np.abs(matrix @ x - right))
        value += PRICE * self.magnitude * float(np.minimum(x[v:], 0.0).sum())
        # a weight's reduced cost is its gain less <y, m>
        return mu, value, np.split(-y[: len(links)], np.cumsum(sizes)[:-1])


def _quadratic_program(
    c: FloatArray, matrix: sparse.csc_array, right: FloatArray, v: int
) -> tuple[FloatArray, FloatArray]:
    """Maximise ``<c, x> - 1/2 |x_v|^2`` with ``matrix x = right``, and all behind v above 0."""
    settings, n = clarabel.DefaultSettings(), len(c)
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    signs = sparse.hstack([sparse.csc_array((n - v, v)), -sparse.eye_array(n - v)])
    result = clarabel.DefaultSolver(
        sparse.csc_matrix(sparse.diags_array(np.where(np.arange(n) < v, 1.0, 0.0))),
        -c,
        sparse.csc_matrix(sparse.vstack([matrix, signs])),
        np.concatenate([right, np.zeros(n - v)]),
        [clarabel.ZeroConeT(len(right)), clarabel.NonnegativeConeT(n - v)],
        settings,
    ).solve()
    return np.array(result.x), np.array(result.z)[: len(right)]


# -------------------------------------------------------------------- judging


def wrong_marginals(case: Case) -> tuple[list[str], list[str], int]:
    """Return what is wrong about a solve, the statuses, and how much could not be judged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = case.graph.solve(tol=1e-8, max_iter=20_000, max_time=SECONDS, threads=1)
        statuses = [status.name for status in solution.status]
        if not solution.ok or case.state == "scaled up":
            return [], statuses, 1
        judge = Judge(case)
        _learn(judge, case, solution)
    found = judge.optimum(True, judge.slack * 1e-2)
    if found is None:
        return [], statuses, 1
    wrong, value = [], float(solution.objective.sum())
    values = np.where(judge.off, 0.0, solution.values)
    free = np.setdiff1d(np.arange(len(values)), np.concatenate(judge.variables))
    mu = found.mu.copy()
    mu[free], values[free] = 0.0, 0.0
    value += _free_value(judge, free)
    if not found.value - judge.slack <= value <= found.bound + judge.slack:
        wrong.append(f"the objective is {value}, the optimum {found.value} to {found.bound}")
    # strong concavity bounds the judge's own error
    doubt = np.sqrt(2.0 * max(found.bound - found.value, 0.0))
    error = float(np.linalg.norm(mu - values))
    allowed = CLOSE * np.sqrt(len(mu)) + doubt
    if error > allowed + float(solution.error_bound.sum()):
        wrong.append(f"marginals are {error:.1e} off, the bound allows {allowed:.1e}")
    return wrong, statuses, 0


def _free_value(judge: Judge, free: IntArray) -> float:
    """Return what variables of no factor add to the bound; components' objectives lack it."""
    return float(0.5 * judge.eta[free] @ judge.eta[free])


def _learn(judge: Judge, case: Case, solution: Solution) -> None:
    """Tell the judge the structures that a solution uses; what is no structure is not known.

    A structure of zeros and ones is the best for scores of 1 where it is on and -1 elsewhere.
    """
    number = 0
    for factor in case.graph.factors:
        for distribution in solution.structures(factor):
            arity = judge.oracles[number].arity
            for structure in distribution:
                m = np.asarray(structure.variables, dtype=np.float64).reshape(-1)
                if len(m) == arity and np.isin(m, (0.0, 1.0)).all():
                    near, n = judge.near(number, m)
                    if (near == m).all():
                        judge.add(number, near, n)
            number += 1


def wrong_assignments(case: Case) -> tuple[list[str], list[str], int]:
    """Return what is wrong about LP-MAP, the exact search, decoding and the k best."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        relaxed = case.graph.solve_map(max_time=SECONDS, threads=1)
        assert isinstance(relaxed, Solution)
        asked = {
            "exact": case.graph.solve_map(exact=True, max_time=5.0, threads=1, solver="lpsmap"),
            "decoded": relaxed.decode(max_time=5.0, threads=1),
        }
        ranked = case.graph.k_best(3, max_time=5.0, threads=1)
    asked |= {f"number {j}": found for j, found in enumerate(ranked)}
    judge, statuses = Judge(case), [status.name for status in relaxed.status]
    wrong, best = [], -np.inf
    whole: dict[str, float] = {}
    for name, found in asked.items():
        assert isinstance(found, Assignment)
        if not np.isfinite(found.score).all():
            continue
        score, allowed = score_of(judge, found.values)
        if not allowed:
            wrong.append(f"{name} is not allowed")
        elif abs(score - found.total) > judge.slack + ROUNDING * abs(score):
            wrong.append(f"{name} scores {score}, claimed {found.total}")
        whole[name] = score
        best = max(best, score)
    # where a mask is unavoidable, it is what gaps are relative to
    slack = judge.slack + (GAP * abs(best) if np.isfinite(best) else 0.0)
    for name in ("exact", "decoded"):
        found = asked[name]
        bound = float(found.bound.sum()) + found.free_score
        if bound < best - slack:
            wrong.append(f"{name}: the bound {bound} is below an assignment of {best}")
        if found.proved.all() and name in whole and whole[name] < best - slack:
            wrong.append(f"{name}: {whole[name]} is called the best; {best} is better")
    if case.kind == "Permutation" or case.state == "scaled up":
        return wrong, statuses, 1
    optimum = judge.optimum(False, 0.1 * judge.slack)
    if optimum is None:
        return wrong, statuses, 1
    if best > optimum.bound + judge.slack:
        wrong.append(f"an assignment of {best} is above the relaxation's optimum {optimum.bound}")
    if all(status in (Status.SOLVED, Status.CONVERGED) for status in relaxed.status):
        value = float(relaxed.objective.sum())
        bound = value + float(relaxed.gap.sum())
        free = np.setdiff1d(np.arange(len(judge.eta)), np.concatenate(judge.variables))
        least = optimum.value - float(np.maximum(judge.eta[free], 0.0).sum())
        if bound < least - judge.slack:
            wrong.append(f"LP-MAP's bound {bound} is below its optimum {least}")
    return wrong, statuses, 0


def score_of(judge: Judge, values: FloatArray) -> tuple[float, bool]:
    """Return what an assignment scores by the oracles, and whether all factors allow it."""
    on = values > 0.0
    score = float(judge.given[on].sum())
    allowed = score > -np.inf
    for i, variables in enumerate(judge.variables):
        m = values[variables]
        near, n = judge.near(i, m)
        allowed &= bool((near == m).all())
        score += float(judge.extra[i] @ n)
    return score, allowed
