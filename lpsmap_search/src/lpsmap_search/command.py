"""The command ``lpsmap induce``: a grammar from a tagged corpus."""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click

from lpsmap_core.api import memory_limit
from lpsmap_decode.command.models import errors_as_messages
from lpsmap_decode.command.pictures import check_writable, plotting_module, save_picture
from lpsmap_decode.command.shared_options import (
    NumberRange,
    check_options_apply,
    is_terminal,
    memory_option,
)
from lpsmap_search.conllu import read_conllu
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
from lpsmap_search.tagged_sentence import TaggedSentence
from lpsmap_search.viterbi import viterbi

TABLE, JSON = "table", "json"

NOT_PROVED = 3
"""Exit code of a search without a proof."""

FIRST_PARSES = 6
"""Default number of trees in a plot."""

PAUSE = 1.0
"""Minimum seconds between two progress messages."""


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--method",
    type=click.Choice([SEARCH, *METHODS]),
    default=SEARCH,
    show_default=True,
    help="Branch and bound to a proved optimum, or expectation maximisation over the best trees, "
    "all trees, or a sparse distribution over trees.",
)
@click.option(
    "--max-words",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Skip longer sentences; removed punctuation does not count.",
)
@click.option(
    "--min-words",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Skip shorter sentences.",
)
@click.option(
    "--sentences",
    type=click.IntRange(1),
    help="Number of sentences to use, from the first.  [default: all]",
)
@click.option("--punctuation", is_flag=True, help="Keep punctuation.")
@click.option(
    "--constraints",
    type=click.Choice(["none", "universal"]),
    default="none",
    show_default=True,
    help="Whether a share of all arcs must follow the universal rules.",
)
@click.option(
    "--share",
    type=NumberRange(0.0, 1.0),
    default=0.75,
    show_default=True,
    help="With --constraints universal: the share of arcs.",
)
@click.option(
    "--max-time",
    type=NumberRange(0.0, min_open=True),
    help="Seconds of training.  [default: no limit]",
)
@click.option(
    "--gap",
    type=NumberRange(0.0),
    default=0.01,
    show_default=True,
    help="With --method search: relative gap between objective and bound at which the search "
    "stops.",
)
@click.option(
    "--relaxation",
    type=click.Choice(list(RELAXATIONS)),
    default="lagrangian",
    show_default=True,
    help="With --method search: the relaxation that bounds a box.",
)
@click.option(
    "--restarts",
    type=click.IntRange(1),
    help="Restarts of expectation maximisation, also of the first phase of a search.  [default: as "
    "many as the time allows, without a limit 10; a search chooses the number]",
)
@click.option(
    "--smoothing",
    type=NumberRange(0.0),
    help="Constant added to all counts in expectation maximisation.  [default: 0.1 with --method "
    "soft-em, otherwise 1]",
)
@click.option(
    "--temperature",
    type=NumberRange(0.0, min_open=True),
    default=1.0,
    show_default=True,
    help="With --method sparsemap-em: temperature of the distribution over trees.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random numbers."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --method search: number of worker processes.",
)
@click.option(
    "--checkpoint",
    type=FILE,
    help="With --method search: file to which the search is saved, and from which it is resumed.",
)
@click.option("--out", type=FILE, help="File for the grammar as JSON.")
@click.option(
    "--output",
    "form",
    type=click.Choice([TABLE, JSON]),
    help="Output format.  [default: table on a terminal, else json]",
)
@click.option(
    "--parses", type=click.IntRange(0), help="Number of sentences whose trees are printed."
)
@click.option(
    "--draw", type=FILE, help=f"File for a plot of trees, of --parses sentences or {FIRST_PARSES}."
)
@click.option(
    "--trace",
    type=FILE,
    help="File for a plot of the objective over time, and of the bound if there is one.",
)
@memory_option
@click.option("-q", "--quiet", is_flag=True, help="Print no progress messages.")
def induce(corpus: Path, **options: Any) -> None:
    """Induce a dependency grammar from the tags in CORPUS.

    CORPUS is a CoNLL-U file, plain or compressed (.gz). The dependency model with valence is
    trained on its universal tags, without punctuation; its heads, if any, are used only to compute
    the accuracy.

    A search ends when the gap between objective and bound is small enough: then no parameters and
    trees are more likely. After a time limit or Ctrl-C, the best result so far and its bound are
    printed. A bound of 0 is void: it says only that probabilities are at most one. Proofs are
    possible for short sentences over few tags.

    JSON contains the status (PROVED, or FOUND without a proof), the objective, the bound, the gap
    relative to the objective, nodes and seconds; null marks values that the method does not have.

    The exit code is 0, or 3 if a search ended without a proof. It is 1 if a file cannot be read,
    used for training or written, and 2 for a usage error.
    """
    arguments = SimpleNamespace(**options)
    _check(arguments)
    pictures = {"--draw": arguments.draw, "--trace": arguments.trace}
    figures = plotting_module("lpsmap_search.figures", pictures)
    with errors_as_messages():
        sentences = _read(corpus, arguments)
        tagged = tag_corpus(sentences)
        narration = _ProgressPrinter(not arguments.quiet and is_terminal(sys.stderr))
        narration.begin(corpus, tagged)
        induced = induce_by(tagged, arguments.method, _options(arguments, tagged), narration.hear)
    narration.end(induced)
    answer = Report(sentences, tagged, induced)
    kept = _write_grammar(arguments.out, answer)
    form = arguments.form or (TABLE if is_terminal(sys.stdout) else JSON)
    n_parses, encoding = arguments.parses or 0, getattr(sys.stdout, "encoding", None)
    click.echo(answer.text(n_parses, encoding) if form == TABLE else answer.json(n_parses))
    if kept is not None:
        raise click.ClickException(f"--out {arguments.out}: {kept}")
    if figures is not None:
        _draw(figures, arguments, answer)
    if induced.certified is not None and not induced.is_proved:
        raise SystemExit(NOT_PROVED)


ONLY_WITH = {
    "gap": ("method", (SEARCH,)),
    "relaxation": ("method", (SEARCH,)),
    "workers": ("method", (SEARCH,)),
    "checkpoint": ("method", (SEARCH,)),
    "smoothing": ("method", ("em", "soft-em", "sparsemap-em")),
    "temperature": ("method", ("sparsemap-em",)),
    "share": ("constraints", ("universal",)),
}
"""Options that apply only with certain values of another option."""


def _check(arguments: SimpleNamespace) -> None:
    """Validate options and output files before the training."""
    check_options_apply(ONLY_WITH)
    if arguments.min_words > arguments.max_words:
        raise click.UsageError(
            f"--min-words: got {arguments.min_words}; expected at most --max-words, "
            f"{arguments.max_words}."
        )
    for option, path in (("--out", arguments.out), ("--checkpoint", arguments.checkpoint)):
        if path is not None:
            check_writable(option, path)


def _read(path: Path, arguments: SimpleNamespace) -> list[TaggedSentence]:
    corpus = read_conllu(path, max_words=arguments.max_words, punctuation=arguments.punctuation)
    long_enough = (sentence for sentence in corpus if len(sentence) >= arguments.min_words)
    with memory_limit(arguments.max_memory):
        sentences = list(itertools.islice(long_enough, arguments.sentences))
    if not sentences:
        raise ValueError(
            f"{path}: got no sentences of {arguments.min_words} to {arguments.max_words} words; "
            "expected at least one. Change --min-words and --max-words, or keep --punctuation."
        )
    return sentences


def _options(arguments: SimpleNamespace, corpus: Corpus) -> Options:
    more = {
        "relaxation": arguments.relaxation,
        "checkpoint": arguments.checkpoint,
        "executor": None if arguments.workers == 1 else arguments.workers,
    }
    return Options(
        arguments.max_time,
        arguments.gap,
        arguments.restarts,
        arguments.seed,
        arguments.smoothing,
        arguments.temperature,
        None if arguments.constraints == "none" else _universal(corpus, arguments.share),
        more,
    )


def _universal(corpus: Corpus, share: float) -> CountConstraint:
    """Return the constraint of the universal rules.

    Raises
    ------
    ValueError
        If the tags are not universal, or no trees reach the share.
    """
    model = corpus.model
    assert isinstance(model, DependencyModelWithValence)
    unknown = [tag for tag in model.tags if tag not in UNIVERSAL_TAGS]
    if unknown:
        raise ValueError(
            f"--constraints universal: got the tag {unknown[0]!r}; expected the universal tags, "
            f"which the rules require: {', '.join(UNIVERSAL_TAGS)}."
        )
    rules = universal_rules(corpus, 0.0)
    lengths = [len(sentence) for sentence in corpus.sentences]
    most = viterbi(corpus, rules.weights)[0] / float(corpus.multiplicity @ lengths)
    if share > most:
        raise ValueError(
            f"--share: got {share}; expected at most {math.floor(1e4 * most) / 1e4}, the maximum "
            "for trees of these sentences. Lower it, or exclude fragments with --min-words."
        )
    return universal_rules(corpus, share)


def _write_grammar(out: Path | None, answer: Report) -> OSError | None:
    """Write the grammar; return any error, since the answer is still to be printed."""
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


def _draw(figures: ModuleType, arguments: SimpleNamespace, answer: Report) -> None:
    if arguments.trace is not None:
        rows = [moment[:3] for moment in answer.induced.history]
        save_picture("--trace", figures.bounds(rows).figure, arguments.trace)
    if arguments.draw is not None:
        n = arguments.parses or FIRST_PARSES
        drawing = figures.trees(answer.sentences[:n], answer.trees[:n])
        save_picture("--draw", drawing, arguments.draw)


class _ProgressPrinter:
    """Prints the progress of the training on a terminal."""

    def __init__(self, aloud: bool) -> None:
        self._aloud, self._said = aloud, -math.inf

    def begin(self, path: Path, corpus: Corpus) -> None:
        """Print a summary of the corpus."""
        self._say(
            f"{path}: {corpus.n_sentences} sentences, {len(corpus.sentences)} of them different; "
            f"{corpus.model.n_parameters} parameters"
        )

    def hear(self, moment: Moment, n: int) -> None:
        """Print better results from time to time."""
        if time.monotonic() - self._said < PAUSE:
            return
        self._said = time.monotonic()
        bounded = math.isfinite(moment.bound)
        bound = f"bound {moment.bound:.6f},  " if bounded else ""
        what = "boxes" if bounded else "steps"
        self._say(f"best {moment.objective:.6f}, {bound}{n} {what}, {moment.seconds:.1f} s")

    def end(self, induced: Induced) -> None:
        """Print how the training ended."""
        if induced.interrupted:
            self._say("Ctrl-C ended the training; this is the best result so far.")

    def _say(self, words: str) -> None:
        if self._aloud:
            click.echo(words, err=True)
