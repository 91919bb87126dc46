"""What is reproduced of the experiments on natural language inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.nli.model import Alignment, Architecture
from experiments.nli.report import CORPUS_NAMES, PRINTED, PRINTED_NONZERO, PRINTED_TRANSITION
from experiments.pages import Outcome, Verdict
from experiments.records import Record
from experiments.statistics import interval, seeds

__all__ = ["verdicts"]


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Return the outcome for the tables and figures of both papers."""
    complete = [r for r in records if r.complete and r.settings["patience"] is None]
    scores = [
        interval(values(complete, corpus, Alignment.LP_SEQUENCE, "transition")).mean
        for corpus in CORPUS_NAMES
    ]
    printed = PRINTED_TRANSITION.values()
    return [
        *(accuracy(complete, corpus, Architecture.DECOMPOSABLE) for corpus in CORPUS_NAMES),
        Verdict(
            "LP-SparseMAP, Figure 4, and the transition scores",
            Outcome.NOT,
            f"The learned scores are {scores[0]:.2f} and {scores[1]:.2f}, printed "
            f"{' and '.join(map(str, printed))}; to the eye, the drawn alignments show no "
            "continuity, which is not measured.",
        ),
        *(accuracy(complete, corpus, Architecture.ESIM) for corpus in CORPUS_NAMES),
        nonzero(complete),
        Verdict(
            "SparseMAP, Figure 5",
            Outcome.NEAR,
            "The same kinds of alignments, of networks that are far less accurate. "
            + overlaid([r for r in complete if r.settings["network"] == Architecture.ESIM.value]),
        ),
    ]


def overlaid(records: Sequence[Record]) -> str:
    """Return in words whether structures are drawn over the alignments, and of which corpora."""
    there = {
        CORPUS_NAMES[r.settings["corpus"]]
        for r in records
        if any("structures" in one for one in r.result.get("alignments", []))
    }
    if not there:
        return "The records have no structures to draw over them."
    return f"Their structures are drawn over those of {' and '.join(sorted(there))}."


def values(
    records: Sequence[Record],
    corpus: str,
    alignment: Alignment,
    measure: str,
    network: Architecture = Architecture.DECOMPOSABLE,
) -> list[float]:
    """Return a measure of all seeds, in the paper's regime if there is one."""
    found = [
        r
        for r in records
        if (r.settings["corpus"], r.settings["network"], r.settings["alignment"])
        == (corpus, network.value, alignment.value)
    ]
    of_paper = [r for r in found if r.settings["regime"] == "paper"]
    return [r.result["test"][measure] for r in of_paper or found]


def accuracy(records: Sequence[Record], corpus: str, network: Architecture) -> Verdict:
    """Return the outcome for the accuracies of a network on a corpus."""
    printed = PRINTED[corpus, network.value]
    alignments = [one for one in Alignment if one.value in printed]
    found = {
        one.value: interval(values(records, corpus, one, "accuracy", network)) for one in alignments
    }
    numbers = [len(values(records, corpus, one, "accuracy", network)) for one in alignments]
    fewest, most = min(numbers), max(numbers)
    n = seeds(most) if fewest == most else f"{fewest} to {seeds(most)}"
    table = (
        "LP-SparseMAP, Table 3" if network is Architecture.DECOMPOSABLE else "SparseMAP, Table 2"
    )
    return Verdict(
        f"{table}: {CORPUS_NAMES[corpus]}",
        Outcome.NOT,
        "Sizes: 3 to 5 % of the training pairs, learned embeddings. In "
        f"{n}, {first_and_others({name: one.mean for name, one in found.items()})}; printed: "
        f"{first_and_others(printed)}.",
    )


def first_and_others(scores: Mapping[str, float]) -> str:
    """Return the best score in words, and the range of the others."""
    (name, best), *others = sorted(scores.items(), key=lambda one: -one[1])
    return f"{name} has {best:.2f} and the others {others[-1][1]:.2f} to {others[0][1]:.2f}"


def nonzero(records: Sequence[Record]) -> Verdict:
    """Return the outcome for the nonzero weights of ESIM's alignments."""
    pairs = []
    for corpus, network in PRINTED_NONZERO:
        for alignment in (Alignment.SEQUENCE, Alignment.MATCHING):
            share = interval(values(records, corpus, alignment, "nonzero", Architecture(network)))
            printed = PRINTED_NONZERO[corpus, network][alignment.value]
            pairs.append(f"{share.mean:.1f} ({printed})")
    return Verdict(
        "SparseMAP, Table 2: nonzero weights",
        Outcome.NEAR,
        f"Percent of the pairs of words, printed in brackets: {', '.join(pairs)}. The embeddings' "
        "initial deviation was chosen among two for sparse alignments, and the networks are far "
        "less accurate.",
    )
