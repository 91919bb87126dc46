"""Best trees of a treebank, by our search and by HiGHS on the flow formulation.

``python benchmarks/trees_milp.py`` takes some sentences of every length from the treebank of
``examples/treebank.py``, with its scores: non-projective trees of a single root, at most five
dependents a word, and extra scores for neighbours under one head. HiGHS solves them as a
mixed-integer program with a unit flow from the root to every word (Martins et al. 2009). Both run
on one thread; times are processor times.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import optimize, sparse

BUDGET, MAX_TIME = 5, 60.0

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its processor time in seconds."""
    begin = time.process_time()
    found = call()
    return found, time.process_time() - begin


class Program:
    """Rows of a mixed-integer program."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[int], list[float], float, float]] = []

    def add(self, columns: Any, values: Any, low: float, high: float) -> None:
        """Add ``low <= values . x[columns] <= high``."""
        columns = np.atleast_1d(columns).tolist()
        self.rows.append((columns, np.broadcast_to(values, len(columns)).tolist(), low, high))

    def best(self, scores: Any, n_whole: int, most: Any) -> float:
        """Return the largest score."""
        at = np.repeat(np.arange(len(self.rows)), [len(r[0]) for r in self.rows])
        columns = np.concatenate([r[0] for r in self.rows]).astype(np.int64)
        values = np.concatenate([r[1] for r in self.rows])
        shape = len(self.rows), len(scores)
        matrix = sparse.csr_matrix((values, (at, columns)), shape=shape)
        limits = optimize.LinearConstraint(
            matrix, [r[2] for r in self.rows], [r[3] for r in self.rows]
        )
        found = optimize.milp(
            -scores,
            constraints=limits,
            integrality=np.arange(len(scores)) < n_whole,
            bounds=optimize.Bounds(0.0, most),
            options={"mip_rel_gap": 1e-8, "time_limit": MAX_TIME},
        )
        return -float(found.fun) if found.status == 0 else np.nan


def flow_formulation(arcs: Any, pairs: tuple[Any, Any, Any], budget: int) -> float:
    """Return the score of the best tree; ``arcs[m, h]`` scores h as the head of m, or m as root.

    Pairs are words, heads, and scores if the word and its right neighbour have that head.
    """
    n = len(arcs)
    number = np.arange(n * n).reshape(n, n)  # of arcs; flows follow, then pairs
    flow = n * n + number
    program = Program()
    for m in range(n):
        program.add(number[m], 1.0, 1.0, 1.0)
        others = [h for h in range(n) if h != m]
        program.add(number[others, m], 1.0, 0.0, budget)
        # every word consumes a unit
        ends = np.append(flow[m], flow[others, m])
        program.add(ends, [*[1.0] * n, *[-1.0] * len(others)], 1.0, 1.0)
        for h in range(n):
            program.add([flow[m, h], number[m, h]], [1.0, -float(n)], -np.inf, 0.0)
    program.add(np.diagonal(number), 1.0, 1.0, 1.0)
    words, heads, of_pairs = pairs
    for i, (word, head) in enumerate(zip(words, heads, strict=True)):
        both = 2 * n * n + i
        program.add([number[word, head], number[word + 1, head], both], [1, 1, -1], -np.inf, 1.0)
        for m in (word, word + 1):
            program.add([both, number[m, head]], [1.0, -1.0], -np.inf, 0.0)
    scores = np.concatenate([arcs.ravel(), np.zeros(n * n), of_pairs])
    most = np.concatenate([np.ones(n * n), np.full(n * n, float(n)), np.ones(len(of_pairs))])
    return program.best(scores, n * n, most)


@click.command(context_settings={"show_default": True})
@click.option("--each", type=int, default=3, help="Sentences of every length that is taken.")
@click.option("--lengths", default="5,10,15,20,25,30", help="Which lengths are taken.")
def main(each: int, lengths: str) -> None:
    """Print a table of times and scores."""
    sys.path.insert(0, str(EXAMPLES))
    from lpsmap_search import read_conllu
    from parsing.bilinear import Bilinear
    from parsing.trees import Constraints, sibling_graph, sibling_scores
    from treebank import DATA

    warnings.simplefilter("ignore")
    model, constraints = Bilinear(0, 4.0), Constraints(single_root=True, budget=BUDGET)
    sentences = list(read_conllu(DATA, punctuation=True))

    def our_way(sentence: Any) -> Any:
        graph = sibling_graph(sentence, model, constraints, 1.0)
        return graph.solve_map(exact=True, solver="lpsmap", max_time=MAX_TIME, threads=1)

    table = Table(title=f"{each} sentences of every length; seconds of one thread")
    for heading in ("words", "ours", "proved", "relaxation tight", "HiGHS", "solved", "equal"):
        table.add_column(heading, justify="right")
    our_way(sentences[0])  # loads kernels
    for length in map(int, lengths.split(",")):
        ours, theirs, rows = 0.0, 0.0, []
        for sentence in [s for s in sentences if len(s) == length][:each]:
            found, seconds = timed(partial(our_way, sentence))
            ours += seconds
            arcs, pairs = model.scores(sentence.words), sibling_scores(sentence, 1.0)
            score, seconds = timed(partial(flow_formulation, arcs, pairs, BUDGET))
            theirs += seconds
            equal = bool(abs(found.total - score) <= 1e-6 * max(1.0, abs(score)))
            tight = bool(found.n_nodes.sum() == 0)
            rows.append((found.ok, tight, not np.isnan(score), equal or np.isnan(score)))
        proved, tight, solved, equal = (str(sum(column)) for column in zip(*rows, strict=True))
        table.add_row(str(length), f"{ours:.2f}", proved, tight, f"{theirs:.2f}", solved, equal)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
