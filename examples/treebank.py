"""Sparse distributions of dependency trees over the real sentences of a treebank.

`python examples/treebank.py table` solves every sentence under several sets of constraints, and
prints the number of trees in each solution; `figure` draws one sentence with its trees; `best`
finds the best tree of every sentence, with scores for neighbours with a common head. The scores are
those of a random model (see `parsing.bilinear`), as before training.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from lpsmap import ConvergenceWarning, FactorGraph, plot, solve_many
from lpsmap_decode import Assignment, Outcome
from lpsmap_search import TaggedSentence, read_conllu
from parsing.bilinear import Bilinear
from parsing.trees import Constraints, sibling_graph, solve_trees

DATA = Path(__file__).resolve().parents[2] / "shared/data/ud/en_ewt/dev.conllu.gz"

console = Console()


@dataclass
class Tally:
    """Counts over the sentences of a treebank."""

    constraints: Constraints
    trees: list[int] = field(default_factory=list)
    """For every sentence, the number of trees of positive probability."""
    unsolved: list[TaggedSentence] = field(default_factory=list)
    seconds: float = 0.0

    def cells(self) -> list[str]:
        """A row of the table."""
        counts = np.array(self.trees)
        return [
            str(self.constraints),
            f"{len(counts) - len(self.unsolved)} of {len(counts)}",
            f"{np.median(counts):g}",
            f"{np.quantile(counts, 0.95):g}",
            f"{counts.max()}",
            f"{(counts == 1).mean():.0%}",
            f"{self.seconds:.1f}",
        ]


HEADINGS = ("trees", "solved", "median", "95 %", "most", "only one", "seconds")


def batches(sentences: Sequence[TaggedSentence], size: int) -> list[list[TaggedSentence]]:
    """Batches of sentences of about equal length."""
    ordered = iter(sorted(sentences, key=len))
    return list(iter(lambda: list(itertools.islice(ordered, size)), []))


def survey(
    parts: Sequence[Sequence[TaggedSentence]], model: Bilinear, constraints: Constraints, tol: float
) -> Tally:
    """Solve all batches; unsolved sentences are collected instead of a warning."""
    tally = Tally(constraints)
    hidden = not console.is_terminal
    for part in track(parts, str(constraints), console=console, transient=True, disable=hidden):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution, trees = solve_trees(part, model, constraints, tol)
        tally.seconds += time.perf_counter() - start
        tally.trees += [len(found) for found in solution.structures(trees)]
        tally.unsolved += [part[sentence] for sentence in solution.failed]
    return tally


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table for the README."""
    lines = [HEADINGS, ["---"] * len(HEADINGS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def all_constraints(budget: int) -> list[Constraints]:
    """Every choice of projectivity, root and budget."""
    choices = itertools.product((True, False), (False, True), (None, budget))
    return [Constraints(*choice) for choice in choices]


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command."""
    positive = click.FloatRange(min=0, min_open=True)
    options = [
        click.option("--data", type=click.Path(dir_okay=False, path_type=Path), default=DATA,
                     show_default="../shared/data/ud/en_ewt/dev.conllu.gz, beside the repository",
                     help="A CoNLL-U file, compressed or not."),
        click.option("--seed", type=int, default=0, help="Seed of the random model."),
        click.option("--scale", type=positive, default=4.0,
                     help="Standard deviation of the scores; larger values give fewer trees."),
        click.option("--longest", type=click.IntRange(min=1), default=75,
                     help="Longer sentences are skipped."),
        click.option("--budget", type=click.IntRange(min=0), default=5,
                     help="Maximum number of dependents of a word, if limited."),
    ]  # fmt: skip
    return reduce(lambda inner, option: option(inner), options[::-1], command)


def sentences_of(data: Path, longest: int) -> list[TaggedSentence]:
    """The sentences of a file; a missing or broken one ends the command."""
    try:
        found = list(read_conllu(data, max_words=longest, punctuation=True))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not found:
        raise click.ClickException(f"{data}: no sentences of up to {longest} words.")
    return found


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Sparse distributions of dependency trees over the sentences of a treebank."""


@main.command()
@shared_options
@click.option("--tol", type=click.FloatRange(min=0, min_open=True), default=1e-6)
@click.option("--batch", type=click.IntRange(min=1), default=64, help="Sentences in a graph.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown.")
def table(
    data: Path,
    seed: int,
    scale: float,
    longest: int,
    budget: int,
    tol: float,
    batch: int,
    as_markdown: bool,
) -> None:
    """Solve all sentences under every set of constraints; count the trees of the solutions."""
    sentences, model = sentences_of(data, longest), Bilinear(seed, scale)
    parts = batches(sentences, batch)
    tallies = []
    for constraints in all_constraints(budget):
        solve_trees(parts[0], model, constraints, tol)  # loads kernels
        tallies.append(survey(parts, model, constraints, tol))
    if as_markdown:
        click.echo(markdown([tally.cells() for tally in tallies]))
    else:
        console.print(rich_table(tallies, f"{len(sentences)} sentences of {data}"))
    for tally in tallies:
        for sentence in tally.unsolved:
            console.print(f"not solved, {tally.constraints}: {' '.join(sentence.words)}")


def rich_table(tallies: Sequence[Tally], title: str) -> Table:
    """The table for a terminal."""
    shown = Table(title=title)
    for heading in HEADINGS:
        shown.add_column(heading, justify="left" if heading == "trees" else "right")
    for tally in tallies:
        shown.add_row(*tally.cells())
    return shown


@main.command()
@shared_options
@click.option("--siblings", type=click.FloatRange(min=0), default=1.0,
              help="Standard deviation of the scores of neighbours under one head.")  # fmt: skip
@click.option("--max-time", type=click.FloatRange(min=0, min_open=True), default=300.0,
              help="Seconds for a sentence.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), show_default="this process alone",
              help="Processes.")  # fmt: skip
def best(
    data: Path,
    seed: int,
    scale: float,
    longest: int,
    budget: int,
    siblings: float,
    max_time: float,
    workers: int | None,
) -> None:
    """Find the best tree of every sentence, and prove it.

    Seconds are the processor time of all workers.
    """
    sentences = sorted(sentences_of(data, longest), key=len)
    title = f"{len(sentences)} sentences: single root, at most {budget} dependents"
    shown = Table(title=title)
    headings = "trees", "proved", "by the relaxation", "nodes", "longest", "seconds", "a second"
    for heading in headings:
        shown.add_column(heading, justify="left" if heading == "trees" else "right")
    for projective in (False, True):
        constraints = Constraints(projective, single_root=True, budget=budget)
        build = partial(best_graph, seed, scale, constraints, siblings)
        solved = partial(solve_many, build=build, extract=nodes_of, task="map", threads=1)
        deque(solved(sentences[:5]), maxlen=0)  # loads kernels
        begin, kind = processor_seconds(), "projective" if projective else "non-projective"
        outcomes: list[Outcome] = []
        with (
            warnings.catch_warnings(),
            Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)
            stream = solved(sentences, workers, max_time=max_time)
            outcomes += bar.track(stream, len(sentences), description=kind)
        shown.add_row(kind, *summary(outcomes, processor_seconds() - begin))
        for outcome in outcomes:
            if not outcome.ok:
                words = " ".join(sentences[outcome.index].words)
                console.print(f"not proved, {kind}: {words} {outcome.traceback}")
    console.print(shown)


def best_graph(
    seed: int, scale: float, constraints: Constraints, siblings: float, sentence: TaggedSentence
) -> FactorGraph:
    """Return the graph of a sentence's trees, built in the worker."""
    return sibling_graph(sentence, model_of(seed, scale), constraints, siblings)


@lru_cache(maxsize=1)
def model_of(seed: int, scale: float) -> Bilinear:
    """Return a model, sampled once per process rather than sent with every sentence."""
    return Bilinear(seed, scale)


def nodes_of(graph: FactorGraph, found: Assignment) -> int:
    """Return the number of nodes of a search."""
    return int(found.n_nodes.sum())


def processor_seconds() -> float:
    """Return the processor time of this process and of its finished children."""
    return sum(os.times()[:4])


def summary(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """Return the cells of a row about the best trees."""
    n = len(outcomes)
    at_once = sum(outcome.ok and not outcome.extracted for outcome in outcomes)
    return [
        f"{sum(outcome.ok for outcome in outcomes)} of {n}",
        f"{at_once / n:.1%}",
        f"{sum(outcome.extracted or 0 for outcome in outcomes)}",
        f"{max(outcome.seconds for outcome in outcomes):.1f} s",
        f"{seconds:.0f}",
        f"{n / seconds:.0f}",
    ]


@main.command()
@shared_options
@click.option(
    "--trees",
    "count",
    type=click.IntRange(min=1),
    default=3,
    help="Number of trees in the solution of the sentence.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("build/treebank.png"))  # fmt: skip
def figure(
    data: Path, seed: int, scale: float, longest: int, budget: int, count: int, out: Path
) -> None:
    """Draw the first sentence of 6 to 9 words with the given number of likely trees."""
    short = [s for s in sentences_of(data, min(longest, 9)) if len(s) >= 6]
    constraints = Constraints(projective=True, single_root=True, budget=budget)
    solution, trees = solve_trees(short, Bilinear(seed, scale), constraints)
    for sentence, found in zip(short, solution.structures(trees), strict=True):
        if len(found) == count and found[-1].probability >= 0.1:
            out.parent.mkdir(parents=True, exist_ok=True)
            axes = plot.arcs(found, sentence.words)
            axes.figure.savefig(out, dpi=130, bbox_inches="tight")
            console.print(f"{out}: {' '.join(sentence.words)}", found, sep="\n")
            return
    raise click.ClickException(f"{data}: no sentence of 6 to 9 words has {count} likely trees.")


if __name__ == "__main__":
    main()
