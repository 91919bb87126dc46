"""Table 2 and Figure 3 of the LP-SparseMAP paper, beside the printed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.listops.rows import ESCAPED, LATENT, Study
from experiments.pages import PALETTE, by, commits, picture, styled, table
from experiments.records import Record
from experiments.statistics import difference, interval
from valency.model import Structure

__all__ = ["report"]

PRINTED = {"left-to-right": (28.07, 17.43), "tree": (68.74, 69.12), "tree+budget": (82.75, 82.95)}
"""Test accuracy and F1, Table 2."""

PRINTED_VALIDATION = {
    "left-to-right": (28.14, 17.54),
    "tree": (68.23, 68.74),
    "tree+budget": (82.35, 82.59),
}
"""Validation accuracy and F1, Table 2."""

EPOCHS_SHOWN = (1, 3, 10)
"""The epochs, beside the last, after which the structures are compared."""

MEASURES = ("accuracy", "f1", "accuracy with a mean root", "attachment recall")


def report(records: Sequence[Record], folder: Path) -> str:
    """Return the section of the page; figures are written to the folder."""
    studies = by(records, lambda r: Study(r.settings["study"]))
    of_table = studies.get(Study.TABLE, [])
    parts = [
        "## Latent trees on ListOps",
        "Valency of operators on the published test file, expressions of up to 100 tokens at full "
        "size (LP-SparseMAP, Table 2). A row that did not end has its best validation score in "
        "brackets.",
        table_of(of_table),
        commits(of_table),
        order(of_table),
        curves(of_table, folder, "listops.png", "LP-SparseMAP, Figure 3"),
    ]
    if Study.COLD in studies:
        parts += [
            "In the paper's regime, from the start on all lengths, learning rate 1e-4, 10 x 10 "
            "iterations. Rows that ended at different numbers of steps are not comparable; the "
            "table *after the same steps* is:",
            table_of(studies[Study.COLD]),
            commits(studies[Study.COLD]),
            table_of_equal_steps(studies[Study.COLD]),
            curves(studies[Study.COLD], folder, "listops-cold.png", "The paper's regime"),
        ]
    if Study.ESCAPE in studies:
        parts += [
            f"Seeds with a test accuracy above {ESCAPED:.0f}, where labels that do not use the "
            "tree have 25, after the same number of steps:",
            table_of_escapes(studies[Study.ESCAPE]),
            commits(studies[Study.ESCAPE]),
        ]
    return "\n\n".join(part for part in parts if part)


def table_of(records: Sequence[Record]) -> str:
    """Return a row for every structure, beside the printed one."""
    lines = []
    groups = by(records, lambda r: str(r.settings["structure"]))
    for structure in (s.value for s in Structure if s.value in groups):
        some = groups[structure]
        results = [r.result for r in some if r.complete]
        n = max(len(results), 1)
        cells = [str(interval([one["test"][m] for one in results])) for m in MEASURES if results]
        if not results:
            known = {
                key: max(p[name] for r in some for p in r.result.get("curve", [{name: 0.0}]))
                for key, name in (("accuracy", "accuracy"), ("f1", "dev"))
            }
            cells = [f"({known['accuracy']:.2f})", f"({known['f1']:.2f})", "–", "–"]
        best = [max(r.result["curve"], key=lambda p: p["dev"]) for r in some if r.complete]
        validation = [f"{interval([p[key] for p in best])}" for key in ("accuracy", "dev") if best]
        lines.append(
            [
                structure,
                len(results),
                *cells,
                printed_pair(PRINTED, structure),
                " / ".join(validation),
                printed_pair(PRINTED_VALIDATION, structure),
                f"{sum(one['steps_per_second'] for one in results) / n:.2f}",
                f"{sum(one['curve'][-1]['seconds'] for one in results) / 60 / n:.1f}",
            ]
        )
    headings = ["structure", "seeds", *MEASURES, "printed accuracy / F1"]
    headings += ["validation accuracy / F1", "printed", "steps/s", "minutes"]
    return table(headings, lines) if lines else ""


def printed_pair(printed: Mapping[str, tuple[float, float]], structure: str) -> str:
    """Return a printed accuracy and F1."""
    return " / ".join(f"{x:.2f}" for x in printed.get(structure, ()))


def order(records: Sequence[Record]) -> str:
    """Return the differences between trees with and without budgets, paired by seed."""
    tests = {
        (r.settings["structure"], r.settings["seed"]): r.result["test"]
        for r in records
        if r.complete
    }
    tree, budget = (structure.value for structure in LATENT)
    seeds = [seed for structure, seed in tests if structure == tree and (budget, seed) in tests]
    if not seeds:
        return ""
    cells = []
    for measure in ("accuracy", "f1"):
        ours = [[tests[structure, seed][measure] for seed in seeds] for structure in (budget, tree)]
        cells.append(f"{measure} {difference(*ours)}")
    return (
        f"Tree+budget less tree, paired over {len(seeds)} seeds: {', '.join(cells)} (printed: "
        "accuracy +14.01, f1 +13.83)."
    )


def equal_steps(records: Sequence[Record]) -> dict[int, dict[int, tuple[float, float]]]:
    """Return the validation accuracies of tree and tree+budget after the same steps, by seed.

    Runs that did not end count, too: a run is the same, however long it will be.
    """
    curves = {
        (r.settings["structure"], r.settings["seed"]): {
            point["steps"]: point["accuracy"] for point in r.result.get("curve", [])
        }
        for r in records
    }
    tree, budget = (structure.value for structure in LATENT)
    found = {}
    for seed in sorted({seed for _, seed in curves}):
        first, second = (curves.get((structure, seed), {}) for structure in (tree, budget))
        both = {steps: (first[steps], second[steps]) for steps in sorted(first) if steps in second}
        both.pop(0, None)
        if both:
            found[seed] = both
    return found


def table_of_equal_steps(records: Sequence[Record]) -> str:
    """Return the validation accuracies after the same steps, early and late in the training."""
    lines = []
    for seed, both in equal_steps(records).items():
        steps = list(both)
        shown = [steps[k - 1] for k in EPOCHS_SHOWN if k < len(steps)] + steps[-1:]
        lines += [[seed, f"{n:,}", *(f"{x:.1f}" for x in both[n])] for n in shown]
    if not lines:
        return ""
    headings = ["seed", "steps", *(f"validation accuracy, {s.value}" for s in LATENT)]
    return "After the same steps:\n\n" + table(headings, lines)


def table_of_escapes(records: Sequence[Record]) -> str:
    """Return the number of seeds that escape, for every regime and structure."""
    lines = []
    for (regime, structure), some in by(
        records, lambda r: (r.settings["regime"], r.settings["structure"])
    ).items():
        found = [r.result["test"]["accuracy"] for r in some if r.complete]
        escaped = sum(accuracy > ESCAPED for accuracy in found)
        shown = ", ".join(f"{accuracy:.1f}" for accuracy in found)
        lines.append([regime, structure, f"{escaped} of {len(found)}", shown])
    return table(["regime", "structure", "escaped", "test accuracies"], lines)


def curves(records: Sequence[Record], folder: Path, name: str, title: str) -> str:
    """Return the figure of validation scores along the training."""
    some = [r for r in records if r.result.get("curve")]
    if not some:
        return ""
    colours = dict(zip((s.value for s in Structure), PALETTE, strict=False))
    with styled():
        figure = Figure(figsize=(9, 3))
        for axes, (key, label) in zip(
            figure.subplots(1, 2), (("accuracy", "accuracy"), ("dev", "F1")), strict=True
        ):
            for structure, group in by(some, lambda r: str(r.settings["structure"])).items():
                for i, record in enumerate(group):
                    points = record.result["curve"]
                    axes.plot(
                        [point["steps"] for point in points],
                        [point[key] for point in points],
                        color=colours[structure],
                        label=None if i else structure,
                        alpha=0.8,
                    )
            axes.set(xlabel="steps", ylabel=f"validation {label}", ylim=(0, 100))
        axes.legend(frameon=False)
    return picture(figure, folder, name, f"{title}: validation along the training, every seed")
