"""Latent trees under valency constraints: the ListOps experiment of Niculae & Martins (2020).

`python examples/listops.py demo` trains on generated expressions for a few minutes; `experiment`
runs at full size and records its measurements; `report` prints them as a table.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from valency.batches import Corpus
from valency.expressions import OPERATORS, Expression, generate, read_test_set
from valency.figure import draw
from valency.model import Inference, Structure
from valency.training import Measured, Point, Run, Scores, Settings, measure, train

PAPER = {  # test accuracy and F1 in Table 2
    Structure.LEFT_TO_RIGHT: Scores(28.07, 17.43),
    Structure.TREE: Scores(68.74, 69.12),
    Structure.TREE_BUDGET: Scores(82.75, 82.95),
}

console = Console()


def make_corpora(
    train_size: int,
    valid_size: int,
    test_size: int,
    max_tokens: int,
    data: Path | None,
) -> tuple[Corpus, Corpus, Corpus]:
    """Distinct training, validation and test expressions; deterministic.

    The test expressions are the published ones if `data` is the folder that holds them.
    """
    test = read_test_set(data, max_tokens) if data else []
    missing = 0 if data else test_size
    drawn = generate(train_size + valid_size + missing, 0, exclude=test, max_tokens=max_tokens)
    held_out = drawn[train_size:]
    parts = drawn[:train_size], held_out[:valid_size], test + held_out[valid_size:]
    train_set, valid_set, test_set = map(Corpus, parts)
    return train_set, valid_set, test_set


def make_settings(structure: str, seed: int, options: dict[str, Any]) -> Settings:
    """Settings of a run from the command line's options."""
    return Settings(
        Structure(structure),
        seed,
        epochs=options["epochs"],
        minutes=options["minutes"],
        learning_rate=options["lr"],
        evaluations_per_epoch=options["evaluations"],
        score_decay=options["score_decay"],
        curriculum=options["curriculum"],
        budget_on_root=options["budget_on_root"],
        inference=Inference(
            options["max_iter"],
            options["max_inner_iter"],
            options["tol"],
            options["threads"],
        ),
    )


def train_shown(settings: Settings, train_set: Corpus, valid_set: Corpus) -> Run:
    """`train`, with a progress bar that shows the latest validation scores.

    Without a terminal, it prints a line for every evaluation.
    """
    columns = (
        TextColumn(f"{settings.structure.value:<13} seed {settings.seed}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=1.0)
        latest: Point | None = None

        def show(done: float, point: Point | None) -> None:
            nonlocal latest
            text = f"validation F1 {point.validation.f1:.1f}" if point else ""
            progress.update(task, completed=done, description=text)
            if point is not latest and point and not console.is_terminal:
                console.print(f"{point.epoch:.2f} epochs, {point.seconds:.0f} s, {text}")
            latest = point

        return train(settings, train_set, valid_set, show)


def record(run: Run, test: Measured, options: dict[str, Any]) -> dict[str, Any]:
    """The record of a run, for JSON."""
    return {
        "settings": asdict(run.settings),
        "options": {name: str(value) for name, value in options.items()},
        "epochs": run.curve[-1].epoch,
        "seconds": run.curve[-1].seconds,
        "validation": asdict(run.best.validation),
        "test": asdict(test.scores),
        "test without the root": asdict(test.without_root),
        "test attachment recall": test.recall,
        "curve": [asdict(point) for point in run.curve],
    }


def markdown(records: list[dict[str, Any]]) -> str:
    """Table of mean and sample standard deviation over seeds, a line per structure."""
    runs = defaultdict(list)
    for one in records:
        runs[Structure(one["settings"]["structure"])].append(one)

    def cell(structure: Structure, split: str, name: str) -> str:
        values = [one[split][name] for one in runs[structure]]
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        return f"{mean(values):.1f}{spread}"

    lines = [
        "| structure | seeds | epochs | minutes a run | validation accuracy | validation F1"
        " | test accuracy | test F1 | the paper's test accuracy / F1 |",
        "|" + "---|" * 9,
    ]
    for structure in (structure for structure in Structure if structure in runs):
        paper = PAPER.get(structure)
        cells = [
            structure.value,
            str(len(runs[structure])),
            f"{mean(one['epochs'] for one in runs[structure]):.1f}",
            f"{mean(one['seconds'] for one in runs[structure]) / 60:.1f}",
            *(cell(structure, s, m) for s in ("validation", "test") for m in ("accuracy", "f1")),
            f"{paper.accuracy:.1f} / {paper.f1:.1f}" if paper else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pick_examples(corpus: Corpus, count: int = 3) -> list[Expression]:
    """The first few expressions that are nested and short enough to be drawn."""
    fitting = (
        expression
        for expression in corpus.expressions
        if 9 <= len(expression) <= 15 and sum(token in OPERATORS for token in expression) > 1
    )
    return list(islice(fitting, count))


def shared_options(
    *,
    epochs: float | None,
    sizes: tuple[int, int, int],
    max_tokens: int,
    curriculum: tuple[int, ...],
    lr: float,
    evaluations: int,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of both `demo` and `experiment`, with the defaults of one of them."""
    latent = "Limit of the solver's "
    positive = click.FloatRange(min=0, min_open=True)
    count = click.IntRange(min=1)
    folder = click.Path(file_okay=False, path_type=Path)
    options = [
        click.option("--structure", "structures", multiple=True,
                     type=click.Choice([structure.value for structure in Structure]),
                     default=[structure.value for structure in PAPER], show_default=True),
        click.option("--epochs", type=positive, default=epochs, help="Number of epochs."),
        click.option("--minutes", type=positive, help="Time limit for each structure and seed."),
        click.option("--train-size", type=count, default=sizes[0]),
        click.option("--valid-size", type=count, default=sizes[1]),
        click.option("--test-size", type=count, default=sizes[2], help="Not used with --data."),
        click.option("--max-tokens", type=click.IntRange(min=4), default=max_tokens,
                     help="Longer expressions are dropped."),
        click.option("--curriculum", type=click.IntRange(min=4), multiple=True,
                     default=curriculum,
                     help="Maximum lengths in equal parts of the training."),
        click.option("--budget-on-root/--free-root", default=True,
                     help="Whether the budget also applies to the root."),
        click.option("--data", type=folder,
                     help="Test on test_d20s.tsv.gz of this folder instead."),
        click.option("--lr", type=positive, default=lr, help="Learning rate (the paper: 1e-4)."),
        click.option("--score-decay", type=click.FloatRange(min=0), default=Settings.score_decay,
                     help="Weight of the mean square of arc scores in the loss."),
        click.option("--evaluations", type=count, default=evaluations,
                     help="Evaluations on the validation set per epoch."),
        click.option("--max-iter", type=count, default=Inference.max_iter, help=latent + "loop."),
        click.option("--max-inner-iter", type=count, help=latent + "active sets."),
        click.option("--tol", type=positive, default=Inference.tol, help=latent + "residuals."),
        click.option("--threads", type=count, help="Threads of the solver; all cores by default."),
        click.option("--out", type=folder, default=Path("build/listops")),
    ]  # fmt: skip
    return lambda command: reduce(lambda inner, option: option(inner), options[::-1], command)


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Latent trees under valency constraints, on ListOps (Niculae & Martins 2020, section 5.1)."""
    # The network is too small for threads, and those of torch would busy-wait on the solver's
    # cores.
    torch.set_num_threads(1)


@main.command()
@click.option("--seed", type=int, default=0)
@shared_options(
    epochs=6, sizes=(8000, 500, 1500), max_tokens=40, curriculum=(20, 40), lr=2e-3, evaluations=1
)
def demo(structures: tuple[str, ...], seed: int, out: Path, **options: Any) -> None:
    """Train on generated expressions for a few minutes; print a table, draw curves and trees."""
    train_set, valid_set, test_set = corpora_of(options)
    kind = f"expressions of up to {options['max_tokens']} tokens"
    table = Table(title=f"Trained on {len(train_set)}, tested on {len(test_set)} {kind}; 1 seed")
    headings = ("accuracy %", "F1 %", "mean root %", "gold arcs %", "epochs", "seconds")
    table.add_column("structure", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    runs = []
    for structure in structures:
        run = train_shown(make_settings(structure, seed, options), train_set, valid_set)
        test, last = measure(run.model, test_set), run.curve[-1]
        numbers = (test.scores.accuracy, test.scores.f1, test.without_root.accuracy, test.recall)
        table.add_row(structure, *(f"{x:.1f}" for x in (*numbers, last.epoch, last.seconds)))
        runs.append(run)
    figure = out / "listops.png"
    draw(runs, pick_examples(test_set), figure)
    console.print(table)
    console.print(
        "Mean root: the accuracy if all tokens of an expression hung from its root equally."
    )
    console.print(f"Learning curves and induced trees: {figure}")


@main.command()
@click.option("--seed", "seeds", type=int, multiple=True, default=[0])
@shared_options(
    epochs=None,
    sizes=(70446, 10000, 8933),
    max_tokens=100,
    curriculum=(),
    lr=1e-4,
    evaluations=1,
)
def experiment(
    structures: tuple[str, ...], seeds: tuple[int, ...], out: Path, **options: Any
) -> None:
    """Train at full size; write the measurements of every structure and seed to a file."""
    if options["epochs"] is None and options["minutes"] is None:
        raise click.UsageError("Training has no limit: give --minutes or --epochs.")
    train_set, valid_set, test_set = corpora_of(options)
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for structure in structures:
            run = train_shown(make_settings(structure, seed, options), train_set, valid_set)
            test = measure(run.model, test_set)
            path = out / f"{structure}-{seed}.json"
            path.write_text(json.dumps(record(run, test, options), indent=1) + "\n")
            console.print(
                f"{path}: test accuracy {test.scores.accuracy:.2f}, F1 {test.scores.f1:.2f}"
            )


def corpora_of(options: dict[str, Any]) -> tuple[Corpus, Corpus, Corpus]:
    """`make_corpora` with the command line's options; a missing file ends the command."""
    names = ("train_size", "valid_size", "test_size", "max_tokens", "data")
    try:
        return make_corpora(**{name: options[name] for name in names})
    except (FileNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(folder: Path) -> None:
    """Print the measurements in FOLDER as a Markdown table."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise click.ClickException(f"{folder}: no .json files there; `experiment` writes them.")
    click.echo(markdown([json.loads(path.read_text()) for path in paths]))


if __name__ == "__main__":
    main()
