"""Common parts of the figures of the global search: corpora, relaxations, and records."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from lpsmap_search import Corpus, DependencyModelWithValence, restarts, sampled_sentences
from lpsmap_search import verb_noun_adjective as small_language
from lpsmap_search.box_space import BoxSpace
from lpsmap_search.chord_space import ChordSpace
from lpsmap_search.lagrangian_space import LagrangianSpace
from lpsmap_search.paper import McCormickOptions, McCormickSpace
from measured import origin

FIVE = ["VA", "AANVV", "NV", "ANVN", "NVV"]
"""Five sentences of the small language of verbs, nouns and adjectives."""

EIGHT = [*FIVE, "NVV", "NNV", "NANNVV"]
"""The five sentences and three more."""

MAX_WORDS = 6
"""Maximum length of sampled sentences: the parameters of the language favour short ones."""

PRODUCTS: dict[str, int | str] = {
    "Max.0k": 0,
    "Obj.Filter": "objective",
    "Max.1k": 1_000,
    "Max.10k": 10_000,
    "Max.100k": 100_000,
}
"""The relaxations of Gormley & Eisner (2013), by their names there."""

OURS: dict[str, Callable[[Corpus, float], BoxSpace[Any]]] = {
    "chord": ChordSpace,
    "Lagrangian": LagrangianSpace,
}

NAMES = [*PRODUCTS, *OURS]


def corpus_of(sentences: str, seed: int, max_words: int = MAX_WORDS) -> Corpus:
    """Return the corpus of five, eight, or a number of sampled sentences."""
    fixed = {"five": FIVE, "eight": EIGHT}
    if sentences in fixed:
        return Corpus(DependencyModelWithValence("VNA"), fixed[sentences])
    if not sentences.isdigit() or int(sentences) < 1:
        raise click.BadParameter(f"got {sentences!r}; expected five, eight or a number.")
    model, parameters = small_language()
    rng = np.random.default_rng(seed)
    drawn = sampled_sentences(model, parameters, int(sentences), rng, max_words=max_words)
    return Corpus(model, [sentence.tags for sentence in drawn])


def space_of(name: str, corpus: Corpus, gap: float, polytope: str) -> BoxSpace[Any]:
    """Return the search space of a relaxation, with its kernels compiled."""
    if name in OURS:
        space = OURS[name](corpus, gap)
        space.evaluate([space.root()], 0.0)
        return space
    options = McCormickOptions(products=PRODUCTS[name], polytope=polytope)  # type: ignore[arg-type]
    return McCormickSpace(corpus, gap, options)


def incumbent(corpus: Corpus, n_restarts: int) -> tuple[float, np.ndarray]:
    """Return the best likelihood of Viterbi EM from starts of both kinds, and its counts."""
    found = [
        restarts(corpus, n_restarts=n_restarts, start=start, smoothing=0.1)
        for start in ("uniform", "random")
    ]
    best = max(found, key=lambda trained: trained.objective)
    return best.objective, best.counts


def described(corpus: Corpus) -> dict[str, Any]:
    """Return the description of a corpus, of the run and of the machine for a record."""
    return {
        "sentences": corpus.n_sentences,
        "words": sum(
            int(times) * len(sentence)
            for times, sentence in zip(corpus.multiplicity, corpus.sentences, strict=True)
        ),
        "origin": origin("highspy"),
        "command": " ".join(["python", *sys.argv]),
    }


def save(record: dict[str, Any], out: Path, name: str) -> Path:
    """Write a record, and return the path of its figure."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    return out / f"{name}.png"


def _count_processor_time(context: click.Context, option: click.Parameter, asked: bool) -> None:
    """Count processor time in place of the wall's, if asked."""
    if asked:
        time.monotonic = time.process_time


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options common to all figures."""
    for option in (
        click.option("--out", type=click.Path(path_type=Path), default="build", help="Folder."),
        click.option("--seed", type=int, default=0, help="Seed of sampled sentences."),
        click.option(
            "--polytope",
            type=click.Choice(["hypergraph", "flow"]),
            default="flow",
            help="Polytope of the relaxations of the paper.",
        ),
        click.option("--sentences", default="five", help="five, eight, or how many to draw."),
        click.option(
            "--processor-time",
            is_flag=True,
            expose_value=False,
            callback=_count_processor_time,
            help="Limits and seconds are processor time, for a machine that is shared.",
        ),
    ):
        command = option(command)
    return command


def chosen(only: tuple[str, ...]) -> list[str]:
    """Return the names of the relaxations to compare."""
    unknown = set(only) - set(NAMES)
    if unknown:
        raise click.BadParameter(f"got {', '.join(unknown)}; expected some of {', '.join(NAMES)}.")
    return [name for name in NAMES if not only or name in only]
