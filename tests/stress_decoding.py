"""Decode random graphs for a time, and hold every assignment against enumeration.

``python tests/stress_decoding.py --minutes 30`` draws the graphs of `stress_graphs`: all installed
factor types, masks from -1e4 to the smallest number, negations, ties, duplicates, contradictions,
at scales from 1e-300 to 1e300. The judges share no code with the library: `rules` says what factors
allow and score, and the allowed assignments of a component are joined factor by factor. Held to
them are LP-MAP's bound and status, the exact search, what is rounded, the k best, searches that are
cut short, graphs given evidence, other scores, and HiGHS where it is installed, also in threads.
Exit code and ``--only SEED`` are as for `stress`; every twentieth graph is large, and judged by
`stress_large`.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console

from lpsmap import FactorGraph, Solution, Status
from lpsmap_core.api import flipped_slots, slots_of
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_decode import Assignment, solve_many
from lpsmap_decode.results.score_units import score_units
from rules import RULES
from stress import checked_large, describe, reports, run
from stress_graphs import Piece, StressGraph, draw_graph
from stress_judging import Report, components_of
from stress_large import EVERY, wrong_assignments

__all__ = ["checked", "describe"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

MAX_SLOTS, MAX_ROWS = 12, 100_000
"""Variables of a factor whose assignments are all tried; assignments of a component."""

ROUNDING = 1e-11
"""Of sums, in units of the largest score that an assignment holds."""

SMALLEST = 1e-289
"""Sums are not told apart that differ by less: the loop takes numbers below 1e-290 for zeros."""

OF_MIXTURES = 1e-13
"""Of their bounds besides: they come of marginals, which are numbers around 1."""

LARGEST = float(np.finfo(np.float64).max)

GAP = 1e-8


class Table(NamedTuple):
    """Some assignments of some variables, and what each scores."""

    variables: IntArray
    on: BoolArray
    """(n_assignments, n_variables)"""
    score: npt.NDArray[np.longdouble]
    size: npt.NDArray[np.longdouble]
    """Likewise, the sum of the magnitudes of the scores that it holds."""


# -------------------------------------------------------------------- judging


def factor_tables(piece: Piece) -> list[Table]:
    """Return what the factors of a declaration allow."""
    template, graph = piece.template, FactorGraph()
    u = graph.variable_from(np.zeros(template.size))
    off = np.zeros(template.size, dtype=bool)
    factor = template.declare(u, np.arange(template.size), off, piece.eta_v)
    turned = np.zeros(int(factor.offsets[-1]), dtype=bool)
    if (
        template.of_example and flipped_slots(factor) is not None
    ):  # whose slots are those that a type made
        turned = flipped_slots(factor)
    found = []
    for row, oracle, eta_v in zip(template.rows, oracles_of(factor), piece.eta_v, strict=True):
        rule, k = RULES.get(template.kind), len(row.places)
        as_given = turned[slots_of(factor, oracle.i)]
        if rule is None or k > MAX_SLOTS:
            whole, wide = np.isin(row.m, (0.0, 1.0)).all(axis=1), eta_v.astype(np.longdouble)
            of_rows = [(n * np.where(n > 0.0, wide, 0.0)).sum() for n in row.n[whole]]
            slots, which = np.unique(row.m[whole] > 0.5, axis=0, return_inverse=True)
            mine = np.full(len(slots), -np.inf, dtype=np.longdouble)
            np.maximum.at(mine, which.reshape(-1), np.array(of_rows, dtype=np.longdouble))
            scores = list(mine)
        else:
            every = (np.arange(2**k)[:, None] >> np.arange(k)) % 2 == 1
            pairs = [(x, rule(oracle.row, oracle.shaped(x ^ as_given), eta_v)) for x in every]
            scores = [np.longdouble(score) for _, score in pairs if score is not None]
            slots = np.array([x for x, score in pairs if score is not None], dtype=bool)
            slots = slots.reshape(len(scores), k)
        kept = np.array([score > -np.inf for score in scores], dtype=bool)
        score = np.array(scores, dtype=np.longdouble)[kept]
        size = np.full(len(score), np.abs(eta_v[np.isfinite(eta_v)]).sum(dtype=np.longdouble))
        on = slots[kept] != piece.negated[row.places]
        found.append(_of_distinct(piece.variables[row.places], on, score, size))
    return found


def _of_distinct(
    variables: IntArray,
    on: BoolArray,
    score: npt.NDArray[np.longdouble],
    size: npt.NDArray[np.longdouble],
) -> Table:
    """Return a table in which every variable is one column."""
    distinct, first, which = np.unique(variables, return_index=True, return_inverse=True)
    agree = (on == on[:, first][:, which]).all(axis=1)
    return Table(distinct, on[agree][:, first], score[agree], size[agree])


def joined(one: Table, other: Table) -> Table | None:
    """Return the assignments that two tables agree on; None if there are too many."""
    shared, mine, its = np.intersect1d(one.variables, other.variables, return_indices=True)
    weights = 1 << np.arange(len(shared))
    keys, its_keys = one.on[:, mine] @ weights, other.on[:, its] @ weights
    order = np.argsort(its_keys, kind="stable")
    first = np.searchsorted(its_keys[order], keys)
    count = np.searchsorted(its_keys[order], keys, side="right") - first
    if count.sum() > MAX_ROWS:
        return None
    left = np.repeat(np.arange(len(keys)), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    right = order[np.repeat(first, count) + within]
    new = np.setdiff1d(np.arange(len(other.variables)), its)
    return Table(
        np.concatenate([one.variables, other.variables[new]]),
        np.hstack([one.on[left], other.on[right][:, new]]),
        one.score[left] + other.score[right],
        one.size[left] + other.size[right],
    )


def allowed_assignments(tables: list[Table], eta: FloatArray) -> Table | None:
    """Return all allowed assignments of a component, the best first; None if there are too many."""
    found, left = tables[0], tables[1:]
    while left:
        shared = [len(np.intersect1d(found.variables, table.variables)) for table in left]
        further = joined(found, left.pop(int(np.argmax(shared))))
        if further is None:
            return None
        found = further
    order = np.argsort(found.variables)
    variables, on = found.variables[order], found.on[:, order]
    on_scores = np.where(on, eta[variables], 0.0).astype(np.longdouble)
    kept = (on_scores > -np.inf).all(axis=1)
    score = (found.score + on_scores.sum(axis=1))[kept]
    size = (found.size + np.abs(on_scores).sum(axis=1))[kept]
    best = np.argsort(-score, kind="stable")
    return Table(variables, on[kept][best], score[best], size[best])


class Judge:
    """Knows all allowed assignments of a graph's components, where they are not too many."""

    def __init__(self, graph: StressGraph) -> None:
        seen = graph.masked(graph.mask)
        components = components_of(len(seen.eta), graph.enumerated())
        tables = [table for piece in seen.pieces for table in factor_tables(piece)]
        self.components: list[Table | None] = [
            allowed_assignments([tables[i] for i in component.numbers], seen.eta)
            for component in components
        ]
        held = [v for component in components for v in component.variables]
        self.free = np.setdiff1d(np.arange(len(seen.eta)), held)
        self.eta, self.wrong, self.doubt = seen.eta, list[str](), 0.0

    def note(self, what: str, component: int, words: str) -> None:
        """Note that something is wrong."""
        self.wrong.append(f"{what}, component {component}: {words}")

    def assignment(self, what: str, found: Assignment, rank: int = 0) -> None:
        """Judge an assignment of the whole graph; of `rank` j the j-th best."""
        free = found.values[self.free]
        if not (((free > 0.0) == (self.eta[self.free] > 0.0)) | (self.eta[self.free] == 0.0)).all():
            self.note(what, -1, "a variable of no factor has not its best value")
        for c, table in enumerate(self.components):
            if table is not None:
                self._component(what, found, rank, c, table)

    def _component(self, what: str, found: Assignment, rank: int, c: int, table: Table) -> None:
        score, bound, proved = found.score[c], found.bound[c], found.proved[c]
        if rank >= len(table.score):
            if score > -np.inf:
                self.note(what, c, f"got {score}, where there are {len(table.score)} assignments")
            return
        best, slack, unit = _clipped(table.score[rank]), _rounding(table), found.unit[c]
        least = best - found.gap * max(unit, abs(best)) - slack
        if rank == 0 and bound < best - slack - unit * self.doubt:
            self.note(what, c, f"bound {bound} is below the best, {best}")
        if score == -np.inf:
            if proved:
                self.note(what, c, f"claims that nothing is allowed; {best} is")
            return
        values = found.values[table.variables]
        (own,) = np.nonzero((table.on == values).all(axis=1))
        if not len(own):
            self.note(what, c, f"{values} is not allowed")
            return
        if abs(_clipped(table.score[own[0]]) - score) > slack:
            self.note(what, c, f"scores {table.score[own[0]]}, claimed {score}")
        if proved and score < least:
            self.note(what, c, f"{score} is called the best; {best} is")

    def relaxation(self, what: str, found: Solution) -> None:
        """Judge LP-MAP: its bound, its status, and values that are whole."""
        units = score_units(found.layout.part, *found.graph.of_part())
        for c, table in enumerate(self.components):
            if table is None:
                continue
            status, values = found.status[c], found.values[table.variables]
            if status is Status.INFEASIBLE and len(table.score):
                self.note(what, c, f"is said to be contradictory; {table.score[0]} is allowed")
            if not len(table.score):
                continue
            best, slack = _clipped(table.score[0]), _rounding(table)
            bound = found.objective[c] + found.gap[c]
            if np.isfinite(bound) and status is not Status.INFEASIBLE:
                # copies that nearly agree make the objective as doubtful as the tolerance
                doubt = 1e-5 * max(units[c], _clipped(table.size.max())) if not found.ok else 0.0
                if bound < best - max(slack, doubt, 2e-6 * max(units[c], abs(best))):
                    self.note(what, c, f"bound {bound} is below the best, {best} ({status.name})")
            if status in (Status.SOLVED, Status.CONVERGED):
                if not ((values > -1e-6) & (values < 1.0 + 1e-6)).all():
                    self.note(what, c, f"values {values}")
                elif np.isin(values, (0.0, 1.0)).all() and not _holds(table, values):
                    self.note(what, c, f"{values} is not allowed ({status.name})")


def _clipped(score: np.longdouble) -> float:
    """Return a sum as float64 has it; what overflows is the largest number."""
    return float(np.clip(score, -LARGEST, LARGEST))


def _rounding(table: Table) -> float:
    """Return how far sums of scores may be off."""
    return max(ROUNDING * _clipped(table.size.max()), SMALLEST)


def _holds(table: Table, values: FloatArray) -> bool:
    return bool((table.on == values).all(axis=1).any())


# -------------------------------------------------------------------- asking


def check_graph(graph: StressGraph, judge: Judge, rng: np.random.Generator) -> list[Status]:
    """Decode a graph in all ways, and judge what comes of it; return LP-MAP's statuses."""
    built = graph.build()
    judge.assignment("exact", built.solve_map(exact=True, threads=1, solver="lpsmap"))
    relaxed = built.solve_map(threads=1)
    judge.relaxation("relaxed", relaxed)
    judge.assignment("decoded", relaxed.decode(max_nodes=100))
    judge.doubt = OF_MIXTURES
    judge.assignment("rounded mixture", built.solve(threads=1).decode(max_nodes=100))
    judge.doubt = 0.0
    judge.assignment("max_time", built.solve_map(exact=True, max_time=1e-9, threads=1))
    judge.assignment("max_nodes", built.solve_map(exact=True, max_nodes=1, threads=1))
    ranked = built.k_best(int(rng.integers(1, 5)), by_component=True, threads=1, max_time=5.0)
    check_the_best(judge, ranked)
    check_evidence(judge, built, rng)
    if importlib.util.find_spec("highspy"):
        judge.assignment("auto", built.solve_map(exact=True, threads=1))
        check_highs(judge, graph, rng)
    return relaxed.status.tolist()


def check_highs(judge: Judge, graph: StressGraph, rng: np.random.Generator) -> None:
    """Judge what HiGHS says of graphs that it can solve, sometimes in threads."""
    options: dict[str, Any] = {"solver": "highs", "max_time": 10.0, "threads": 1}
    try:
        judge.assignment("highs", graph.build().solve_map(exact=True, **options))
    except ValueError as refused:
        if "cannot solve the graph" not in str(refused):
            raise
        return
    if rng.random() < 0.2:
        pool = ThreadPoolExecutor(2)
        options |= {"task": "map", "batch_size": 1, "extract": lambda graph, found: found}
        for outcome in solve_many([graph.build() for _ in range(3)], pool, **options):
            if outcome.error is not None:
                raise outcome.error
            judge.assignment("highs in threads", outcome.extracted)


def check_the_best(judge: Judge, ranked: list[Assignment]) -> None:
    """Judge the k best: each by itself, in order, and no two the same."""
    for j, found in enumerate(ranked):
        judge.assignment(f"number {j}", found, rank=j)
    for c, table in enumerate(judge.components):
        if table is None:
            continue
        met = [one.values[table.variables].tobytes() for one in ranked if one.found[c]]
        if len(set(met)) < len(met):
            judge.note("the k best", c, "one comes twice")
        missing = min(len(table.score), len(ranked)) > len(met)
        if missing and ranked[0].proved[c] and np.isneginf([one.bound[c] for one in ranked]).any():
            judge.note("the k best", c, f"{len(met)} of {len(table.score)} are said to be all")


def check_evidence(judge: Judge, graph: FactorGraph, rng: np.random.Generator) -> None:
    """Tell the graph some variables of an assignment, and judge what is best then."""
    known = np.full(len(judge.eta), np.nan)
    for table in judge.components:
        if table is not None and len(table.score):
            told = rng.random(len(table.variables)) < 0.3
            row = table.on[rng.integers(len(table.score))]
            known[table.variables[told]] = row[told]
    u = graph.blocks[0]
    given = graph.condition([(u, known)])
    found = given.graph.solve_map(exact=True, threads=1, solver="lpsmap")
    values = np.asarray(given.of(u).value)
    for c, table in enumerate(judge.components):
        if table is None or not len(table.score):
            continue
        told, mine = known[table.variables], values[table.variables]
        agree = (np.isnan(told) | (table.on == told)).all(axis=1)
        (own,) = np.nonzero(agree & (table.on == mine).all(axis=1))
        best = table.score[agree][0]
        # The gap is relative to the score of the graph that is left, in which what is told has no
        # score, but a mask may have become unavoidable.
        held = float(judge.eta[table.variables][told == 1.0].sum())
        magnitude = max(abs(_clipped(table.score[0])), abs(_clipped(best - held)))
        slack = GAP * max(1.0, magnitude) + _rounding(table)
        if not len(own) and (found.ok or not np.isnan(mine).any()):
            judge.note("given evidence", c, f"{mine} is not allowed, given {told}")
        elif found.ok and len(own) and table.score[own[0]] < best - slack:
            judge.note("given evidence", c, f"{table.score[own[0]]} is not the best, {best}")


# -------------------------------------------------------------------- the run


def any_checked(seed: int) -> Report:
    """Check the graph of a seed, which may be large."""
    if seed % EVERY == EVERY - 1:
        return checked_large(seed, wrong_assignments)
    return checked(seed)


def checked(seed: int) -> Report:
    """Check the graph of a seed; whatever it raises is a failure, too."""
    graph = draw_graph(seed, extreme=True)
    report = Report(seed, graph.scale, f"{graph.head}, {', '.join(graph.kinds)}", set(graph.kinds))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judge = Judge(graph)
            statuses = check_graph(graph, judge, np.random.default_rng([seed, 2]))
        report.wrong += judge.wrong
        report.statuses += [status.name for status in statuses]
        report.unjudged += sum(table is None for table in judge.components)
    except Exception as error:
        report.wrong.append(f"{type(error).__name__}: {error}")
    return report


@click.command(context_settings={"show_default": True})
@click.option("--minutes", type=float, default=30.0, help="How long to go on.")
@click.option("--seed", type=int, default=0, help="Seed of the first graph.")
@click.option("--only", type=int, help="Check the graph of this seed alone, in this process.")
@click.option("--patience", type=float, default=120.0, help="Seconds a graph may take.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes that solve.")
def main(minutes: float, seed: int, only: int | None, patience: float, workers: int) -> None:
    """Decode random graphs for a time, and hold every assignment against enumeration."""
    if only is not None:
        found = iter([any_checked(only)])
    else:
        found = reports(iter(range(seed, sys.maxsize)), workers, patience, any_checked)
    summary = run(found, minutes)
    summary.print(Console(width=150))
    sys.exit(1 if summary.wrong else 0)


if __name__ == "__main__":
    main()
