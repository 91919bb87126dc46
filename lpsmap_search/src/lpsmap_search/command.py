"""The command ``lpsmap induce``: a grammar from a tagged corpus."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TextIO

import click
from click.core import ParameterSource

from lpsmap_search.conllu import TaggedSentence, read_conllu
from lpsmap_search.constraints import UNIVERSAL_TAGS, CountConstraint, universal_rules
from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.induction import (
    METHODS,
    SEARCH,
    Induced,
    Moment,
    Options,
    tag_corpus,
)
from lpsmap_search.induction import induce as induce_by
from lpsmap_search.relaxations import RELAXATIONS
from lpsmap_search.reports import Report
from lpsmap_search.viterbi import viterbi

__all__ = ["induce"]

TABLE, JSON = "table", "json"

NOT_PROVED = 3
"""Exit code where a search ended without a proof."""

FIRST_PARSES = 6
"""Sentences of a picture, unless it is said how many."""

PAUSE = 1.0
"""Seconds between two lines for a terminal, at least."""


class _Number(click.FloatRange):
    """A range of numbers, which leaves out NaN and infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default=SEARCH,
    show_default=True,
    help="Branch and bound to a proved optimum, or expectation maximisation: of the best trees, of "
    "all trees, or of a sparse distribution over trees.",
)
@click.option(
    "--max-words",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Longer sentences are left out; punctuation does not count.",
)
@click.option(
    "--min-words",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Shorter sentences are left out.",
)
@click.option(
    "--sentences", type=click.IntRange(1), help="The first so many of them.  [default: all]"
)
@click.option("--punctuation", is_flag=True, help="Keep punctuation.")
@click.option(
    "--constraints",
    type=click.Choice(["none", "universal"]),
    default="none",
    show_default=True,
    help="Whether a share of all arcs has to be among the universal rules.",
)
@click.option(
    "--share",
    type=_Number(0.0, 1.0),
    default=0.75,
    show_default=True,
    help="With --constraints universal: that share.",
)
@click.option(
    "--max-time",
    type=_Number(0.0, min_open=True),
    help="Seconds of training.  [default: no limit]",
)
@click.option(
    "--gap",
    type=_Number(0.0),
    default=0.01,
    show_default=True,
    help="With --method search: how near to the bound is good enough, relative to the objective.",
)
@click.option(
    "--relaxation",
    type=click.Choice(list(RELAXATIONS)),
    default="lagrangian",
    show_default=True,
    help="With --method search: what bounds a box.",
)
@click.option(
    "--restarts",
    type=click.IntRange(1),
    help="Starts of expectation maximisation, which a search begins with, too.  [default: as many "
    "as the time allows, without a limit 10; a search knows when more do not pay]",
)
@click.option(
    "--smoothing",
    type=_Number(0.0),
    default=0.1,
    show_default=True,
    help="Added to all counts by expectation maximisation.",
)
@click.option(
    "--temperature",
    type=_Number(0.0, min_open=True),
    default=1.0,
    show_default=True,
    help="With --method sparsemap-em: how widely trees are spread.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random numbers."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --method search: processes that bound boxes.",
)
@click.option(
    "--checkpoint",
    type=FILE,
    help="With --method search: file in which the search is kept, and from which it goes on.",
)
@click.option("--out", type=FILE, help="File for the grammar, as JSON.")
@click.option(
    "--output",
    "form",
    type=click.Choice([TABLE, JSON]),
    help="Form of the answer.  [default: table on a terminal, else json]",
)
@click.option("--parses", type=click.IntRange(0), help="Print the trees of so many sentences.")
@click.option(
    "--draw", type=FILE, help=f"File for a picture of trees, {FIRST_PARSES} or as --parses says."
)
@click.option(
    "--trace",
    type=FILE,
    help="File for a picture of the objective over time, and of the bound where there is one.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on the way.")
def induce(corpus: Path, **given: Any) -> None:
    """Induce a dependency grammar from the tags in CORPUS.

    CORPUS is a CoNLL-U file, plain or compressed (.gz). Its universal tags are what the dependency
    model with valence is trained on, without punctuation; its heads, if it has any, are used for
    nothing but the accuracy.

    A search ends when the bound is near enough: then no parameters and trees are more likely. On
    a limit of time, or Ctrl-C, the best so far and its bound are printed. A bound of 0 is void: it
    says only that probabilities are at most one. Corpora of a few short sentences over few tags can
    be proved.

    JSON has the status (PROVED, or FOUND without a proof), the objective, the bound, the gap
    relative to the objective, nodes and seconds; null stands for what the method does not have.

    The exit code is 0, or 3 if a search ended without a proof. It is 1 if a file cannot be read,
    trained on or written, and 2 if the command is wrong.
    """
    asked = _Asked(**given)
    _check(asked)
    figures = _figures(asked)
    with _told_in_words():
        sentences = _read(corpus, asked)
        tagged = tag_corpus(sentences)
        narration = _Narration(not asked.quiet and _is_terminal(sys.stderr))
        narration.begin(corpus, tagged)
        found = induce_by(tagged, asked.method, _options(asked, tagged), narration.hear)
    narration.end(found)
    answer = Report(sentences, tagged, found)
    kept = _kept(asked.out, answer)
    form = asked.form or (TABLE if _is_terminal(sys.stdout) else JSON)
    n_parses, encoding = asked.parses or 0, getattr(sys.stdout, "encoding", None)
    click.echo(answer.text(n_parses, encoding) if form == TABLE else answer.json(n_parses))
    if kept is not None:
        raise click.ClickException(f"--out {asked.out}: {kept}")
    if figures is not None:
        with _told_in_words():
            _draw(figures, asked, answer)
    if found.certified is not None and not found.is_proved:
        raise SystemExit(NOT_PROVED)


class _Asked(NamedTuple):
    """The options of the command."""

    method: str
    max_words: int
    min_words: int
    sentences: int | None
    punctuation: bool
    constraints: str
    share: float
    max_time: float | None
    gap: float
    relaxation: str
    restarts: int | None
    smoothing: float
    temperature: float
    seed: int
    workers: int
    checkpoint: Path | None
    out: Path | None
    form: str | None
    parses: int | None
    draw: Path | None
    trace: Path | None
    quiet: bool


ONLY_WITH = {
    "gap": ("method", (SEARCH,)),
    "relaxation": ("method", (SEARCH,)),
    "workers": ("method", (SEARCH,)),
    "checkpoint": ("method", (SEARCH,)),
    "smoothing": ("method", ("em", "soft-em", "sparsemap-em")),
    "temperature": ("method", ("sparsemap-em",)),
    "share": ("constraints", ("universal",)),
}
"""Options that mean something with some values of another option alone."""


@contextmanager
def _told_in_words() -> Iterator[None]:
    """End the command with an error's words, which say all, and exit code 1."""
    try:
        yield
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise click.ClickException(str(error)) from error


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _check(asked: _Asked) -> None:
    """Refuse options that mean nothing, and files that cannot be written, before the training."""
    context = click.get_current_context()
    for name, (other, values) in ONLY_WITH.items():
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and getattr(asked, other) not in values:
            raise click.UsageError(
                f"--{name} goes with --{other} {' or '.join(values)}; got --{other} "
                f"{getattr(asked, other)}."
            )
    if asked.min_words > asked.max_words:
        raise click.UsageError(
            f"--min-words: got {asked.min_words}; expected at most --max-words, {asked.max_words}."
        )
    for name in ("out", "draw", "trace", "checkpoint"):
        path: Path | None = getattr(asked, name)
        if path is None:
            continue
        if not path.parent.is_dir():
            raise click.BadParameter(f"{path}: there is no such folder.", param_hint=f"--{name}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise click.BadParameter(f"{path}: may not be written.", param_hint=f"--{name}")


def _figures(asked: _Asked) -> ModuleType | None:
    """Return the module that draws, without a display, if it can draw into the files asked for."""
    pictures = {"--draw": asked.draw, "--trace": asked.trace}
    if not any(pictures.values()):
        return None
    try:
        import matplotlib

        from lpsmap_search import figures
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    matplotlib.use("Agg")
    for name, path in pictures.items():
        try:
            if path is not None:
                figures.check_picture(path)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint=name) from error
    return figures


def _read(path: Path, asked: _Asked) -> list[TaggedSentence]:
    found = read_conllu(path, max_words=asked.max_words, punctuation=asked.punctuation)
    long_enough = (sentence for sentence in found if len(sentence) >= asked.min_words)
    sentences = list(itertools.islice(long_enough, asked.sentences))
    if not sentences:
        raise ValueError(
            f"{path}: got no sentences of {asked.min_words} to {asked.max_words} words; expected "
            "at least one. Change --min-words and --max-words, or keep --punctuation."
        )
    return sentences


def _options(asked: _Asked, corpus: Corpus) -> Options:
    more = {
        "relaxation": asked.relaxation,
        "checkpoint": asked.checkpoint,
        "executor": None if asked.workers == 1 else asked.workers,
    }
    return Options(
        asked.max_time,
        asked.gap,
        asked.restarts,
        asked.seed,
        asked.smoothing,
        asked.temperature,
        None if asked.constraints == "none" else _universal(corpus, asked.share),
        more,
    )


def _universal(corpus: Corpus, share: float) -> CountConstraint:
    """Return the universal rules.

    Raises
    ------
    ValueError
        If the tags are others, or so large a share is out of reach.
    """
    model = corpus.model
    assert isinstance(model, DependencyModelWithValence)
    unknown = [tag for tag in model.tags if tag not in UNIVERSAL_TAGS]
    if unknown:
        raise ValueError(
            f"--constraints universal: got the tag {unknown[0]!r}; expected the universal tags, "
            f"which the rules are about: {', '.join(UNIVERSAL_TAGS)}."
        )
    rules = universal_rules(corpus, 0.0)
    lengths = [len(sentence) for sentence in corpus.sentences]
    most = viterbi(corpus, rules.weights)[0] / float(corpus.multiplicity @ lengths)
    if share > most:
        raise ValueError(
            f"--share: got {share}; expected at most {math.floor(1e4 * most) / 1e4}, which is what "
            "trees of these sentences reach. Lower it, or leave fragments out with --min-words."
        )
    return universal_rules(corpus, share)


def _kept(out: Path | None, answer: Report) -> OSError | None:
    """Write the grammar; return why it could not be, since the answer is still to be printed."""
    if out is None:
        return None
    try:
        out.write_text(
            json.dumps(answer.grammar, allow_nan=False, ensure_ascii=False, indent=1) + "\n",
            encoding="utf-8",
        )
    except OSError as error:
        return error
    return None


def _draw(figures: ModuleType, asked: _Asked, answer: Report) -> None:
    if asked.trace is not None:
        rows = [moment[:3] for moment in answer.found.history]
        _save(figures.bounds(rows).figure, asked.trace)
    if asked.draw is not None:
        n = asked.parses or FIRST_PARSES
        _save(figures.trees(answer.sentences[:n], answer.trees[:n]), asked.draw)


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise OSError(f"{path}: {error}") from error


class _Narration:
    """Tells a terminal how far the training is."""

    def __init__(self, aloud: bool) -> None:
        self._aloud, self._said = aloud, -math.inf

    def begin(self, path: Path, corpus: Corpus) -> None:
        """Tell of the corpus."""
        self._say(
            f"{path}: {corpus.n_sentences} sentences, {len(corpus.sentences)} of them different; "
            f"{corpus.model.n_parameters} parameters"
        )

    def hear(self, moment: Moment, n: int) -> None:
        """Tell of better results, from time to time."""
        if time.monotonic() - self._said < PAUSE:
            return
        self._said = time.monotonic()
        bounded = math.isfinite(moment.bound)
        bound = f"none above {moment.bound:.6f}, " if bounded else ""
        what = "boxes" if bounded else "steps"
        self._say(f"best {moment.objective:.6f}, {bound}{n} {what}, {moment.seconds:.1f} s")

    def end(self, found: Induced) -> None:
        """Tell how it ended."""
        if found.interrupted:
            self._say("Ctrl-C ended the training; this is the best so far.")

    def _say(self, words: str) -> None:
        if self._aloud:
            click.echo(words, err=True)
