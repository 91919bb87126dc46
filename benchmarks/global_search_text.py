"""Searches and expectation maximisation on text: likelihood and accuracy over time.

After Gormley & Eisner (2013, Figure 6): 200 sentences of at most 10 words, universal tags,
punctuation removed, the same time for each method on one core, with and without posterior
constraints. The methods of an ablation differ in one step:

- em: restarts of Viterbi EM from uniform starts, with add-one smoothing as in the paper
- em .1: with smoothing .1
- local: the search's local search, again and again with new seeds, for the whole time
- search without soft EM: the search, without the starts from soft EM
- search: half of the time for local search, the rest for branch and bound

The paper's relaxation, Max.0k, branches from Viterbi EM's result after a tenth of the time; in the
paper it is 45 minutes of 8 hours.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib

matplotlib.use("Agg")

from lpsmap_core import Deadline
from lpsmap_decode import Search, SearchProgress, SearchResult
from lpsmap_search import (
    Corpus,
    TaggedSentence,
    figures,
    read_conllu,
    restarts,
    universal_rules,
)
from lpsmap_search.incumbents import SHARE, Incumbent
from lpsmap_search.induction import (
    ALL_THAT_FIT,
    SEARCH,
    Moment,
    Options,
    accuracy,
    induce,
    likelihood,
    tag_corpus,
)
from lpsmap_search.paper import McCormickOptions, McCormickSpace

sys.path.insert(0, str(Path(__file__).parent))
from measured import origin

RULES = ", universal rules"

FIRST = 45 / 480
"""Share of the time for the first incumbent of the paper's relaxation."""

N_RESTARTS = 20
"""Restarts in each round of local search, the default of a search."""

MAX_MOMENTS = 100
"""Maximum number of recorded points of a run."""

PAUSE = 10.0
"""Seconds between two progress messages."""

Report = Callable[[Moment, int], None]


class Trace:
    """The best counts of a run over time."""

    def __init__(self, corpus: Corpus, report: Report) -> None:
        self._corpus, self._report, self._begin = corpus, report, time.monotonic()
        self.moments: list[Moment] = []

    def __call__(self, found: SearchProgress) -> None:
        """Record better counts."""
        assert isinstance(found, SearchResult)
        is_better = not self.moments or found.score > self.moments[-1].objective
        if not is_better or found.answer is None:
            return
        parameters = self._corpus.model.normalised(found.answer)
        seconds = time.monotonic() - self._begin
        self.moments.append(Moment(seconds, found.score, found.bound, parameters))
        self._report(self.moments[-1], found.n_nodes)


Run = tuple[Sequence[Moment], SearchProgress | None]
"""The history of a run, and its search, if it has one."""


def by_induction(method: str, smoothing: float | None = None) -> Callable[..., Run]:
    """Return a run of a method of `lpsmap induce`."""

    def run(corpus: Corpus, options: Options, report: Report) -> Run:
        found = induce(corpus, method, replace(options, smoothing=smoothing), report)
        if found.certified is None:
            return found.history, None
        return found.history, SearchProgress(
            found.objective, found.certified.bound, found.certified.n_nodes
        )

    return run


def without_soft_em(corpus: Corpus, options: Options, report: Report) -> Run:
    """Search, without the starts from soft EM."""
    with patch.object(Incumbent, "_soften", lambda *_: None):
        return by_induction(SEARCH)(corpus, options, report)


def local(corpus: Corpus, options: Options, report: Report) -> Run:
    """Repeat the local search of a search with new seeds."""
    trace, end = Trace(corpus, report), Deadline(options.max_time)
    for seed in itertools.count(options.seed):
        if end.passed:
            return trace.moments, None
        deadline = Deadline(end.left / SHARE)
        Incumbent(corpus, seed, options.constraint, deadline, trace).found(N_RESTARTS)
    raise AssertionError


def by_paper(products: int) -> Callable[..., Run]:
    """Return a search with the paper's relaxation, with a number of products of rows."""

    def run(corpus: Corpus, options: Options, report: Report) -> Run:
        assert options.max_time is not None
        trace, deadline = Trace(corpus, report), Deadline(options.max_time)
        constraint = options.constraint
        start = restarts(
            corpus,
            n_restarts=ALL_THAT_FIT,
            max_time=FIRST * options.max_time,
            seed=options.seed,
            constraint=constraint,
        )
        trace(SearchResult(start.objective, answer=start.counts))
        how = McCormickOptions(products=products, polytope="flow", projection="parse")
        space = McCormickSpace(corpus, options.gap, how, constraint=constraint)
        space.batch = 1
        search: Search[Any, Any] = Search(
            space.root(), options.gap, (start.objective, start.counts), bound=0.0
        )
        return trace.moments, search.run(space, deadline=deadline, report=trace)

    return run


METHODS: dict[str, Callable[..., Run]] = {
    "em": by_induction("em"),
    "em .1": by_induction("em", 0.1),
    "local": local,
    "search without soft EM": without_soft_em,
    "search": by_induction(SEARCH),
    "sparsemap-em": by_induction("sparsemap-em"),
    "Max.0k": by_paper(0),
}

WITH_RULES = ("em", "local", "search", "sparsemap-em", "Max.0k")

NAMES = [*METHODS, *(name + RULES for name in WITH_RULES)]


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
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="times and limits are of the processor, for a machine with other work",
    )
    parser.add_argument("--only", choices=NAMES, action="append", help="a method; again for more")
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
        "time": "processor" if asked.processor_time else "wall",
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
    if len(new) <= MAX_MOMENTS:
        return new
    begin, end = (math.log(max(new[i].seconds, 1e-3)) for i in (0, -1))
    width = max(end - begin, 1e-9) / MAX_MOMENTS
    by_time = {int((math.log(max(m.seconds, 1e-3)) - begin) / width): m for m in new}
    return list(by_time.values())


def described(
    run: Run, corpus: Corpus, sentences: Sequence[TaggedSentence], options: Options
) -> dict[str, Any]:
    """Return the description of a run for the record."""
    moments, search = run
    history = [
        (
            round(moment.seconds, 3),
            likelihood(corpus, moment.parameters, options.constraint),
            accuracy(corpus.model, sentences, moment.parameters),  # type: ignore[arg-type]
        )
        for moment in chosen(moments)
    ]
    found = {"likelihood": history[-1][1], "accuracy": history[-1][2], "history": history}
    if search is None:
        return found
    before = [moment for moment in moments if moment.bound == math.inf or moment.bound >= 0.0]
    return {
        **found,
        "bound": search.bound,
        "nodes": search.n_nodes,
        "before branching": before[-1].objective if before else None,
    }


def load_kernels(corpus: Corpus, share: float) -> None:
    """Run every method briefly, so that its time does not include compilation."""
    for rules, method in itertools.product((None, universal_rules(corpus, share)), METHODS):
        if not method.startswith("Max"):
            METHODS[method](corpus, Options(0.01, n_restarts=1, constraint=rules), lambda *_: None)


def main() -> None:
    """Run the methods that are not in the record, and draw all."""
    asked = arguments()
    if asked.processor_time:
        time.monotonic = time.process_time
    found = read_conllu(asked.corpus, max_words=asked.max_words)
    sentences = list(itertools.islice(found, asked.sentences))
    corpus = tag_corpus(sentences)
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "global_search_text.json"
    record = read_record(path, settings(asked, corpus))
    runs: dict[str, Any] = record["runs"]
    missing = [name for name in asked.only or NAMES if name not in runs]
    if missing:
        load_kernels(corpus, asked.share)
    for name in missing:
        rules = universal_rules(corpus, asked.share) if name.endswith(RULES) else None
        options = Options(60.0 * asked.minutes, seed=asked.seed, constraint=rules)
        begin = time.process_time()
        run = METHODS[name.removesuffix(RULES)](corpus, options, progress(name))
        seconds = round(time.process_time() - begin, 1)
        runs[name] = {
            "origin": origin("highspy"),
            "command": " ".join(["python", *sys.argv]),
            "processor seconds": seconds,
            **described(run, corpus, sentences, options),
        }
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    for name, run in runs.items():
        bound = "" if "bound" not in run else f", bound {run['bound']:.2f}, {run['nodes']} boxes"
        print(f"{name}: {run['likelihood']:.2f}, accuracy {100 * run['accuracy']:.1f} %{bound}")
    axes = figures.training({name: run["history"] for name, run in runs.items()})
    axes[0].figure.savefig(path.with_suffix(".png"), dpi=130)
    print(f"{path} and {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
