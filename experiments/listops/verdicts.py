"""What is reproduced of the experiment on ListOps."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.listops.report import equal_steps
from experiments.listops.rows import LATENT, Study
from experiments.pages import Outcome, Verdict
from experiments.records import Record
from experiments.statistics import difference, interval, seeds
from valency.model import Structure

__all__ = ["verdicts"]


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Return the outcome for Table 2 and Figure 3."""
    tree, budget = (accuracies(records, Study.TABLE, structure) for structure in LATENT)
    chain = of_study(records, Study.TABLE, Structure.LEFT_TO_RIGHT)
    accuracy, f1 = (
        interval([run.result["test"][measure] for run in chain]) for measure in ("accuracy", "f1")
    )
    why = (
        f"Trained by a curriculum, tree and tree+budget reach {interval(tree)} and "
        f"{interval(budget)} (printed 68.74 and 82.75), and the 14 points between them are "
        f"{difference(budget, tree)}; in the paper's regime, {after_the_same_steps(records)}."
    )
    return [
        Verdict("LP-SparseMAP, Table 2: tree, tree+budget", Outcome.NOT, why),
        Verdict(
            "LP-SparseMAP, Table 2: left-to-right",
            Outcome.NOT,
            f"Accuracy {accuracy} and F1 {f1} are those of the most frequent label, all that a "
            "chain of heads with one modifier each can tell here. The printed 28.07 / 17.43 is "
            "that of four arguments for the first operator of an expression, and two for all "
            "others.",
        ),
        Verdict(
            "LP-SparseMAP, Figure 3",
            Outcome.NOT,
            "Gold trees reach 100 at once and the chain's curve is flat, as printed; the curves of "
            "tree and tree+budget do not separate.",
        ),
    ]


def after_the_same_steps(records: Sequence[Record]) -> str:
    """Return in words how the cold runs compare after the most steps that all seeds have made."""
    found = equal_steps([r for r in records if r.settings["study"] == Study.COLD.value])
    if not found:
        return "no run has a record"
    steps = max(set.intersection(*(set(both) for both in found.values())))
    ahead = [both[steps][1] - both[steps][0] for both in found.values()]
    return (
        f"after {steps:,} steps of both, tree+budget less tree is "
        f"{', '.join(f'{gain:+.1f}' for gain in ahead)} on the validation set in "
        f"{seeds(len(ahead))}"
    )


def accuracies(records: Sequence[Record], study: Study, structure: Structure) -> list[float]:
    """Return the test accuracies of the seeds of a structure."""
    return [run.result["test"]["accuracy"] for run in of_study(records, study, structure)]


def of_study(records: Sequence[Record], study: Study, structure: Structure) -> list[Record]:
    """Return the complete records of a structure in a study."""
    return [
        record
        for record in records
        if record.complete
        and record.settings["study"] == study.value
        and record.settings["structure"] == structure.value
    ]
