"""Search, Viterbi EM and SparseMAP-EM on text: likelihood and accuracy over time.

After Gormley & Eisner (2013, Figure 6): 200 sentences of at most 10 words, universal tags,
punctuation removed, 20 minutes for each method on one core, with and without posterior constraints.

    python benchmarks/global_search_text.py en_ewt-ud-train.conllu

A picture and a record go to build/. Methods in the record are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from lpsmap_search import Corpus, TaggedSentence, figures, read_conllu, universal_rules
from lpsmap_search.induction import (
    Induced,
    Moment,
    Options,
    accuracy,
    induce,
    likelihood,
    tag_corpus,
)
from lpsmap_search.reports import certificate

METHODS = ["search", "em", "sparsemap-em"]
RULES = ", universal rules"

MOST_MOMENTS = 100
"""Maximum number of recorded points of a run."""

PAUSE = 10.0
"""Seconds between two progress messages."""


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="a CoNLL-U file with heads, plain or .gz")
    parser.add_argument("--minutes", type=float, default=20.0, help="for each run (20)")
    parser.add_argument("--sentences", type=int, default=200, help="number of sentences (200)")
    parser.add_argument(
        "--max-words", type=int, default=10, help="maximum words of a sentence (10)"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.65,
        help="share of arcs that follow the universal rules, if constrained (0.65): trees of "
        "English UD cannot reach the three quarters of the paper",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"), help="folder (build)")
    return parser.parse_args()


def settings(asked: argparse.Namespace, corpus: Corpus) -> dict[str, Any]:
    """Return the settings that all runs in a record must share."""
    return {
        "corpus": asked.corpus.name,
        "sentences": corpus.n_sentences,
        "different": len(corpus.sentences),
        "words": int(corpus.multiplicity @ list(map(len, corpus.sentences))),
        "tags": list(corpus.model.tags),
        "minutes": asked.minutes,
        "share": asked.share,
        "seed": asked.seed,
    }


def read_record(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the record so far.

    Raises
    ------
    SystemExit
        If its settings differ.
    """
    if not path.exists():
        return {"settings": expected, "runs": {}}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if record["settings"] != expected:
        sys.exit(f"{path} has other settings. Choose another folder with --out, or delete it.")
    return record


def progress(name: str) -> Any:
    """Return a function that prints the progress of a run."""
    said = -math.inf

    def show(moment: Moment, n: int) -> None:
        nonlocal said
        if moment.seconds >= said + PAUSE:
            said = moment.seconds
            bound = "" if moment.bound == math.inf else f", bound {moment.bound:.1f}"
            print(
                f"  {name}: {moment.seconds:.0f} s, {moment.objective:.2f}{bound}, {n}",
                file=sys.stderr,
            )

    return show


def chosen(moments: Sequence[Moment]) -> list[Moment]:
    """Return moments with parameters, spread over the logarithm of time, and the last one."""
    new = [moment for moment in moments if moment.parameters is not None]
    if len(new) <= MOST_MOMENTS:
        return new
    begin, end = (math.log(max(new[i].seconds, 1e-3)) for i in (0, -1))
    width = max(end - begin, 1e-9) / MOST_MOMENTS
    by_time = {int((math.log(max(m.seconds, 1e-3)) - begin) / width): m for m in new}
    return list(by_time.values())


def described(
    found: Induced, corpus: Corpus, sentences: Sequence[TaggedSentence], options: Options
) -> dict[str, Any]:
    """Return the description of a run for the record."""
    model, constraint = corpus.model, options.constraint
    history = [
        (
            moment.seconds,
            likelihood(corpus, moment.parameters, constraint),
            accuracy(model, sentences, moment.parameters),
        )
        for moment in chosen(found.history)
    ]
    certified = found.certified
    return {
        "objective": found.objective,
        "likelihood": found.likelihood,
        "accuracy": accuracy(model, sentences, found.parameters),
        "certificate": certificate(found),
        "bound": None if certified is None else certified.bound,
        "void": None if certified is None else certified.is_void,
        "nodes": None if certified is None else certified.n_nodes,
        "seconds": found.seconds,
        "history": [*history, (found.seconds, *history[-1][1:])],
    }


def load_kernels(corpus: Corpus, share: float) -> None:
    """Run every method briefly, so that its time does not include compilation."""
    for rules, method in itertools.product((None, universal_rules(corpus, share)), METHODS):
        induce(corpus, method, Options(0.01, n_restarts=1, constraint=rules))


def main() -> None:
    """Run the methods that are not in the record, and draw all."""
    asked = arguments()
    found = read_conllu(asked.corpus, max_words=asked.max_words)
    sentences = list(itertools.islice(found, asked.sentences))
    corpus = tag_corpus(sentences)
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "global_search_text.json"
    record = read_record(path, settings(asked, corpus))
    runs: dict[str, Any] = record["runs"]
    if len(runs) < 2 * len(METHODS):
        load_kernels(corpus, asked.share)
    for rules, method in itertools.product(["", RULES], METHODS):
        name = method + rules
        if name not in runs:
            constraint = universal_rules(corpus, asked.share) if rules else None
            options = Options(60.0 * asked.minutes, seed=asked.seed, constraint=constraint)
            begin = time.process_time()
            run = induce(corpus, method, options, progress(name))
            runs[name] = described(run, corpus, sentences, options)
            runs[name]["processor seconds"] = time.process_time() - begin
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        run = runs[name]
        print(
            f"{name}: likelihood {run['likelihood']:.2f}, accuracy {100 * run['accuracy']:.1f} %, "
            f"{run['seconds']:.0f} s; certificate {run['certificate']}"
        )
    for rules in ("", RULES):
        more = runs["search" + rules]["likelihood"] - runs["em" + rules]["likelihood"]
        print(f"search{rules}: {more:+.2f} against Viterbi EM of the same time")
    axes = figures.training({name: run["history"] for name, run in runs.items()})
    axes[0].figure.savefig(path.with_suffix(".png"), dpi=130)
    print(f"{path} and {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
