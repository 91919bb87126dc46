"""The best assignment after some seconds, beside HiGHS and CP-SAT on the same programs.

``python benchmarks/incumbents.py`` prints, for each graph, the relative gap between the best score
of any solver and the score that each solver has after each time limit, and the seconds it took.
Every solver has one thread. ``*`` is a proof, ``-`` no assignment; HiGHS and CP-SAT need linear
constraints, and ``/`` is a graph without them. CP-SAT runs in an interpreter of its own that has
ortools, ``--cp-sat PYTHON``: its wheel and that of highspy have conflicting symbols.
"""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track

import lpsmap as lp
from lpsmap_decode.formats.files import read_graph
from map_peers import programs_of
from measured import DOCS, markdown, origin

RNG = np.random.default_rng


def knapsacks(n: int, seed: int = 0) -> lp.FactorGraph:
    """Return a knapsack for each row and each column of a square."""
    rng, graph = RNG(seed), lp.FactorGraph()
    u = graph.variable_from(rng.random((n, n)))
    costs = rng.random((2, n, n))
    graph.add(lp.Knapsack(u, costs[0], costs[0].sum(1) / 3))
    graph.add(lp.Knapsack(u.T, costs[1], costs[1].sum(1) / 3))
    return graph


def matching_with_budget(n: int = 400) -> lp.FactorGraph:
    """Return a matching of which some arcs have a budget."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal((n, n)))
    graph.add(lp.Matching(u))
    graph.add(lp.Budget(u[rng.random((n, n)) < 0.5], n // 4))
    return graph


def implications(n: int = 3000, m: int = 20_000) -> lp.FactorGraph:
    """Return random implications."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal(n))
    graph.add(lp.Imply(u[rng.integers(0, n, (m, 2))]))
    return graph


def tree_with_budget(n: int = 120) -> lp.FactorGraph:
    """Return a binary tree of which some constituents have a budget."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal((n, n)))
    graph.add(lp.BinaryTree(u))
    above = np.triu(rng.random((n, n)) < 0.5, 1)
    graph.add(lp.Budget(u[above], n // 4))
    return graph


def sequences_with_budget(b: int = 30, n: int = 300, k: int = 20) -> lp.FactorGraph:
    """Return sequences that share a budget for each state."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal((b, n, k)))
    graph.add(lp.Sequence(u, rng.standard_normal((k, k))))
    graph.add(lp.Budget(u.reshape(b * n, k)[:, :5].T, b * n // 40))
    return graph


def tree_with_modifiers(n: int = 150) -> lp.FactorGraph:
    """Return a projective dependency tree in which a head has at most two modifiers."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal((n, n)))
    graph.add(lp.DepTree(u, projective=True))
    graph.add(lp.ModifierBudget(u, 2))
    return graph


def knapsack_with(other: str, n: int = 60) -> lp.FactorGraph:
    """Return a knapsack, and factors of another type on the same variables."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal(n * n).reshape(n, n))
    costs = rng.random(n * n)
    graph.add(lp.Knapsack(u.reshape(-1), costs, costs.sum() / 5))
    if other == "Imply":
        graph.add(lp.Imply(u.reshape(-1)[rng.integers(0, n * n, (3 * n * n, 2))]))
    elif other == "Pair":
        pairs = rng.integers(0, n * n, (2, 2 * n * n))
        pairs = pairs[:, pairs[0] != pairs[1]]
        graph.add(lp.Pair(*(u.reshape(-1)[p] for p in pairs), rng.standard_normal(pairs.shape[1])))
    elif other == "TopK":
        graph.add(lp.TopK(u, n // 6))
        graph.add(lp.TopK(u.T, n // 6))
    else:
        graph.add(lp.HeadAutomaton(u[:, :20], rng.standard_normal((n, 21, 21))))
    return graph


def two_sequences(n: int = 30) -> lp.FactorGraph:
    """Return a sequence of the rows of a square, and one of its columns."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal((n, n)))
    graph.add(lp.Sequence(u, rng.standard_normal((n, n))))
    graph.add(lp.Sequence(u.T, rng.standard_normal((n, n))))
    return graph


def tree_with_matching(n: int = 60) -> lp.FactorGraph:
    """Return a dependency tree in which half of the words have distinct heads in the other half."""
    rng, graph = RNG(0), lp.FactorGraph()
    u = graph.variable_from(rng.standard_normal((n, n)))
    graph.add(lp.DepTree(u))
    graph.add(lp.Matching(u[: n // 2, n // 2 :]))
    return graph


SUDOKUS = (
    "800000000003600000070090200050007000000045700000100030001000068008500010090000400",
    "000000010400000000020000000000050407008000300001090000300400200050100000000806000",
    "100007090030020008009600500005300900010080002600004000300000010040000007007000300",
    "000000000000003085001020000000507000004000100090000000500000073002010000000040009",
    "000000012000035000000600070700000300000400800100000000000120000080000040050000600",
    "850002400720000009004000000000107002305000900040000000000080070017000000000036040",
    "005300000800000020070010500400005300010070006003200080060500009004000030000009700",
    "000000039000001005003050800008090006070002000100400000009080050020000600400700000",
    "100000002090400050006000700050903000000070000000850040700000600030009080002000001",
    "000000012000000003002300400001800005060070800000009000008500000900040500470006000",
)
"""Known as hard: Inkala's of 2012 and 2010, minimal ones of 17 clues, and others."""


def sudoku(clues: str, seed: int = 0) -> lp.FactorGraph:
    """Return a sudoku with random scores, given its clues."""
    graph = lp.FactorGraph()
    u = graph.variable_from(RNG(seed).standard_normal((9, 9, 9)))
    for view in (u, u.transpose(0, 2, 1), u.transpose(1, 2, 0)):
        graph.add(lp.Xor(view))
    boxes = u.reshape(3, 3, 3, 3, 9).transpose(0, 2, 4, 1, 3)
    graph.add(lp.Xor(boxes.reshape(9, 9, 9)))
    digits = np.array([int(c) for c in clues]).reshape(9, 9)
    given = digits > 0
    known = np.eye(9)[np.maximum(digits - 1, 0)]
    return graph.condition([(u[given], known[given])]).graph


def graphs(folder: Path | None) -> dict[str, Callable[[], Any]]:
    """Return functions that build each graph; models of a folder only if there is one."""
    found: dict[str, Callable[[], Any]] = {
        f"knapsacks 10x10, {seed}": (lambda seed=seed: knapsacks(10, seed)) for seed in range(3)
    }
    found |= {
        "knapsacks 200x200": lambda: knapsacks(200),
        "Matching 400x400, Budget": matching_with_budget,
        "20,000 Imply": implications,
        "BinaryTree 120, Budget": tree_with_budget,
        "Sequence 30x300x20, Budget": sequences_with_budget,
        "DepTree 150, ModifierBudget": tree_with_modifiers,
    }
    for other in ("Imply", "Pair", "TopK", "HeadAutomaton"):
        found[f"Knapsack, {other}"] = lambda other=other: knapsack_with(other)
    found |= {"Sequence, Sequence.T": two_sequences, "DepTree, Matching": tree_with_matching}
    found |= {f"sudoku {i}": (lambda clues=clues: sudoku(clues)) for i, clues in enumerate(SUDOKUS)}
    if folder is not None:
        for path in sorted(folder.rglob("*.uai*")):
            if path.name.removesuffix(".gz").endswith(".uai"):
                found[path.name.split(".")[0]] = lambda path=path: read_graph(path).graph
    return found


# -------------------------------------------------------------------- solvers


def by_lpsmap(graph: Any, seconds: float) -> tuple[float, bool, float]:
    """Return the score, whether it is proved, and the seconds."""
    begin = time.perf_counter()
    found = graph.solve_map(exact=True, max_time=seconds, threads=1)
    return found.total, found.ok, time.perf_counter() - begin


def by_highs(graph: Any, seconds: float) -> tuple[float, bool, float]:
    """Return the same of HiGHS, for a connected graph."""
    import highspy

    from lpsmap_decode.solvers.highs import arrays_of
    from lpsmap_decode.solvers.highs_process import model_of

    begin, score, proved = time.perf_counter(), _free(graph), True
    for program in programs_of(graph):
        highs = highspy.Highs()
        highs.silent()
        left = max(seconds - (time.perf_counter() - begin), 0.01)
        for name, value in (("threads", 1), ("time_limit", left), ("mip_rel_gap", 1e-8)):
            highs.setOptionValue(name, value)
        highs.passModel(model_of(arrays_of(program)))
        highs.run()
        feasible = highs.getInfo().primal_solution_status == 2  # noqa: PLR2004 - feasible
        score += highs.getInfo().objective_function_value if feasible else -math.inf
        proved &= highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return score, proved, time.perf_counter() - begin


CP_SAT = """
import pickle, sys
from ortools.sat.python import cp_model
programs, seconds = pickle.load(sys.stdin.buffer)
score, proved, unit = 0.0, True, 1e6
for p in programs:
    model = cp_model.CpModel()
    x = [model.new_bool_var("") if u > 0 else model.new_constant(0) for u in p["upper"]]
    rows = [[] for _ in p["low"]]
    for r, c, a in zip(p["row"], p["column"], p["coefficient"]):
        rows[r].append((x[c], a))
    for entries, low, high in zip(rows, p["low"], p["high"]):
        whole = all(a == int(a) for _, a in entries)
        scale = 1.0 if whole else unit
        columns, weights = [v for v, _ in entries], [round(a * scale) for _, a in entries]
        terms = cp_model.LinearExpr.weighted_sum(columns, weights)
        if high < float("inf"):
            model.add(terms <= int(high * scale // 1))
        if low > -float("inf"):
            model.add(terms >= int(-(-low * scale // 1)))
    model.maximize(cp_model.LinearExpr.weighted_sum(x, [round(s * unit) for s in p["scores"]]))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, seconds
    solver.parameters.linearization_level = 2
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    values = [solver.value(v) for v in x] if found else []
    score += sum(s * v for s, v in zip(p["scores"], values)) if found else -float("inf")
    proved &= status == cp_model.OPTIMAL
pickle.dump((score, proved), sys.stdout.buffer)
"""


def by_cp_sat(python: str, graph: Any, seconds: float) -> tuple[float, bool, float]:
    """Return the same of CP-SAT, whose scores and weights are rounded to a millionth."""
    from lpsmap_decode.solvers.highs import arrays_of

    given = pickle.dumps(([arrays_of(p) for p in programs_of(graph)], seconds))
    begin = time.perf_counter()
    run = subprocess.run([python, "-c", CP_SAT], input=given, capture_output=True, check=True)
    score, proved = pickle.loads(run.stdout)
    return score + _free(graph), proved, time.perf_counter() - begin


def _free(graph: Any) -> float:
    """Return the score of the variables in no factor."""
    alone = graph._laid_out().component < 0
    return float(np.maximum(graph.flat_scores()[alone], 0.0).sum())


def cell(found: tuple[float, bool, float] | None, best: float) -> str:
    """Return the relative gap to the best score."""
    if found is None:
        return "/"
    score, proved, seconds = found
    if score == -math.inf or math.isnan(score):
        return f"- ({seconds:.1f})" if not proved else "infeasible"
    return f"{(best - score) / max(1.0, abs(best)):.1e}{'*' if proved else ''} ({seconds:.1f})"


@click.command(context_settings={"show_default": True})
@click.option("--only", default="", help="Only graphs whose name contains this.")
@click.option("--seconds", default="1,5,30", help="Time limits.")
@click.option("--models", type=click.Path(exists=True, path_type=Path), help="Folder of .uai.")
@click.option("--cp-sat", default="", help="Interpreter with ortools.")
@click.option("--peers/--no-peers", default=True, help="Whether the other solvers run.")
@click.option("--save", is_flag=True, help="Write rows into the documentation's table.")
def main(
    only: str, seconds: str, models: Path | None, cp_sat: str, peers: bool, save: bool
) -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    limits = [float(x) for x in seconds.split(",")]
    solvers: dict[str, Callable[[Any, float], tuple[float, bool, float]]] = {"lpsmap": by_lpsmap}
    if peers:
        solvers["HiGHS"] = by_highs
        if cp_sat:
            solvers["CP-SAT"] = lambda graph, left: by_cp_sat(cp_sat, graph, left)
    headings = ["best", *(f"{s} {x:g} s" for s in solvers for x in limits)]
    rows: list[dict[str, str]] = []
    chosen = {name: make for name, make in graphs(models).items() if only in name}
    for name, make in track(chosen.items(), "solving", console=Console(stderr=True)):
        make().solve_map(exact=True, max_time=0.01)  # loads the kernels
        results: list[tuple[float, bool, float] | None] = []
        for solver, run in solvers.items():
            linear = solver == "lpsmap" or programs_of(make())
            results += [run(make(), x) if linear else None for x in limits]
        best = max((r[0] for r in results if r and not math.isnan(r[0])), default=-math.inf)
        cells = [f"{best:.6f}", *(cell(r, best) for r in results)]
        rows.append({"graph": name} | dict(zip(headings, cells, strict=True)))
    click.echo(markdown(rows))
    if save:
        _save(rows, list(graphs(models)))


def _save(rows: list[dict[str, str]], names: list[str]) -> None:
    """Write rows into the documentation's table, in place of those of the same graphs."""
    path = DOCS / "incumbents.md"
    head, rule, *new = markdown(rows).splitlines()
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else [""]
    lines = {_graph_of(line): line for line in [*(old[2:] if old[0] == head else []), *new]}
    table = [lines[name] for name in names if name in lines]
    text = "\n".join([head, rule, *table])
    path.write_text(f"{text}\n\n{origin('highspy')}", encoding="utf-8")


def _graph_of(line: str) -> str:
    """Return the name in the first cell of a line of a table."""
    return line.strip("| ").split(" | ")[0]


if __name__ == "__main__":
    sys.exit(main())
