"""Table 1 and Figures 3 and 4 of the SparseMAP paper, beside the printed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Curve

from experiments.dependency.losses import Loss
from experiments.dependency.rows import ABLATIONS
from experiments.pace import table_of_pace
from experiments.pages import INK, PALETTE, by, commits, picture, styled, table
from experiments.records import Record
from experiments.statistics import difference, interval, mean_or_best, span

__all__ = ["report"]

PRINTED = {
    "en": {"svm": 87.02, "crf": 86.74, "sparsemap": 86.90, "m-sparsemap": 87.34},
    "vi": {"svm": 69.42, "crf": 69.10, "sparsemap": 69.71, "m-sparsemap": 70.87},
}

CERTAIN = 0.999
"""Minimum weight of an arc that is drawn as common to all trees, since weights are rounded."""

LANGUAGES = {"en": "English", "vi": "Vietnamese"}


def report(records: Sequence[Record], folder: Path) -> str:
    """Return the section of the page; figures are written to the folder."""
    trials = [record for record in records if record.settings["trial_rate"] is not None]
    own = [record for record in records if record not in trials]
    ablated = {name: [r for r in own if f"-{name}-" in r.row] for name in ABLATIONS}
    own = [record for record in own if not any(record in some for some in ablated.values())]
    first_order = [record for record in own if record.settings["structure"] == "arcs"]
    parts = [
        "## Dependency parsing",
        "Unlabelled attachment on test, all words counted (SparseMAP, Table 1). A row that did not "
        "end has its best dev score in brackets.",
        table_of_losses(first_order),
        commits(first_order),
        orders(first_order),
        table_of_trials(trials),
        commits(trials),
        table_of_ablations(first_order, ablated),
        commits([record for some in ablated.values() for record in some]),
        table_of_further(own),
        commits([record for record in own if record not in first_order]),
        *table_of_pace(
            first_order,
            lambda r: f"{LANGUAGES[r.settings['language']]}, {r.settings['loss']}",
        ),
        *sparsity_figures(first_order, folder),
        *parse_figures(first_order, folder),
    ]
    return "\n\n".join(part for part in parts if part)


def table_of_losses(records: Sequence[Record]) -> str:
    """Return Table 1 for the languages at hand, with speed and the chosen rate."""
    lines = []
    groups = by(records, lambda r: (r.settings["language"], r.settings["loss"]))
    for language in LANGUAGES:
        for loss in Loss:
            some = groups.get((language, loss.value), [])
            if some:
                complete = [r.result for r in some if r.complete]
                lines.append(
                    [
                        LANGUAGES[language],
                        loss.value,
                        len(complete),
                        mean_or_best(some, "uas"),
                        span([one["test"]["uas"] for one in complete]),
                        f"{PRINTED[language][loss.value]:.2f}",
                        interval([one["dev"] for one in complete]) if complete else "",
                        mean_or_best(some, "uas_without_punctuation"),
                        ", ".join(sorted({f"{one['learning_rate']:g}" for one in complete})),
                        *speed(complete),
                    ]
                )
    headings = ["language", "loss", "seeds", "test UAS", "range", "printed", "best dev UAS"]
    return table([*headings, "without punctuation", "rate", "steps/s", "minutes"], lines)


def speed(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return steps a second and minutes of training of a run, in the mean."""
    if not results:
        return ["–", "–"]
    n = len(results)
    minutes = sum(one["curve"][-1]["seconds"] for one in results) / 60 / n
    return [f"{sum(one['steps_per_second'] for one in results) / n:.1f}", f"{minutes:.1f}"]


def orders(records: Sequence[Record]) -> str:
    """Return the differences of every loss from the CRF, paired by seed."""
    lines = []
    groups = by(
        [record for record in records if record.complete],
        lambda r: (r.settings["language"], r.settings["loss"]),
    )
    for (language, loss), some in groups.items():
        others = {r.settings["seed"]: r for r in groups.get((language, Loss.CRF.value), [])}
        pairs = [
            (r.result["test"]["uas"], others[r.settings["seed"]].result["test"]["uas"])
            for r in some
            if r.settings["seed"] in others
        ]
        if loss != Loss.CRF.value and pairs:
            mean = difference(*zip(*pairs, strict=True))
            printed = PRINTED[language][loss] - PRINTED[language][Loss.CRF.value]
            lines.append([LANGUAGES[language], loss, len(pairs), mean, f"{printed:+.2f}"])
    if not lines:
        return ""
    return table(["language", "loss", "seeds", "UAS above the CRF's", "printed"], lines)


def table_of_trials(records: Sequence[Record]) -> str:
    """Return the best dev UAS of every trial of a learning rate."""
    found = {
        tuple(r.settings[k] for k in ("language", "loss", "trial_rate")): r.result["dev"]
        for r in records
        if r.complete
    }
    if not found:
        return ""
    rates = sorted({rate for *_, rate in found})
    lines = []
    for language, loss in dict.fromkeys((language, loss) for language, loss, _ in found):
        scores = [found.get((language, loss, rate)) for rate in rates]
        best = max(score for score in scores if score is not None)
        cells = ["" if x is None else f"**{x:.2f}**" if x == best else f"{x:.2f}" for x in scores]
        lines.append([LANGUAGES[language], loss, *cells])
    return table(["language", "dev UAS of trials", *(f"{rate:g}" for rate in rates)], lines)


def table_of_ablations(records: Sequence[Record], ablated: Mapping[str, Sequence[Record]]) -> str:
    """Return the table of the Vietnamese parser's ablations, on dev and test."""
    if not any(ablated.values()):
        return ""
    own = ("vi", Loss.SPARSEMAP.value)
    whole = [r for r in records if (r.settings["language"], r.settings["loss"]) == own]
    of_seed = {r.settings["seed"]: r.result["test"]["uas"] for r in whole if r.complete}
    lines = []
    for what, some in [("", whole), *((ABLATIONS[k], some) for k, some in ablated.items())]:
        complete = [r for r in some if r.complete]
        dev = str(interval([r.result["dev"] for r in complete])) if complete else "–"
        pairs = [
            (r.result["test"]["uas"], of_seed[r.settings["seed"]])
            for r in complete
            if what and r.settings["seed"] in of_seed
        ]
        change = str(difference(*zip(*pairs, strict=True))) if pairs else ""
        lines.append([LANGUAGES["vi"], what, len(complete), dev, mean_or_best(some, "uas"), change])
    printed = f"{PRINTED['vi'][Loss.SPARSEMAP.value]:.2f}"
    headings = ["language", "SparseMAP with", "seeds", "best dev UAS"]
    return table([*headings, f"test UAS (printed: {printed})", "change"], lines)


def table_of_further(records: Sequence[Record]) -> str:
    """Return the table of parsers that are not in the paper."""
    lines = []
    for (language, structure), some in by(
        [r for r in records if r.settings["loss"] == Loss.SPARSEMAP.value],
        lambda r: (r.settings["language"], r.settings["structure"]),
    ).items():
        las = mean_or_best(some, "las") if structure == "relations" else ""
        results = [r.result for r in some if r.complete]
        row = [
            LANGUAGES[language],
            structure,
            len(results),
            mean_or_best(some, "uas"),
            las,
            *speed(results),
        ]
        lines.append(row)
    if all(line[1] == "arcs" for line in lines):
        return ""
    headings = ["language", "SparseMAP over", "seeds", "test UAS", "test LAS", "steps/s", "minutes"]
    return table(headings, lines)


def sparsity_figures(records: Sequence[Record], folder: Path) -> list[str]:
    """Return Figure 4 for every language: trees and parents with weight along the training."""
    found = []
    for language, some in by(records, lambda r: str(r.settings["language"])).items():
        curves = {
            r.settings["loss"]: r.result["curve"]
            for r in some
            if r.settings["seed"] == 0 and len(r.result.get("curve", [])) > 1
        }
        if curves:
            caption = (
                f"SparseMAP, Figure 4, on {LANGUAGES[language]}: trees with weight, and parents of "
                "a word with weight, over dev sentences; mean, and the middle half"
            )
            found.append(
                picture(draw_sparsity(curves), folder, f"dependency-{language}.png", caption)
            )
    return found


def draw_sparsity(curves: dict[str, Any]) -> Figure:
    """Draw numbers of trees and of parents against epochs."""
    with styled():
        figure = Figure(figsize=(9, 3))
        for axes, name in zip(figure.subplots(1, 2), ("trees", "parents"), strict=True):
            for colour, (loss, curve) in zip(PALETTE, curves.items(), strict=False):
                epochs = [point["epoch"] for point in curve]
                summary = [point[name] for point in curve]
                axes.plot(epochs, [s[5] for s in summary], color=colour, label=loss)
                low, high = ([s[k] for s in summary] for k in (1, 3))
                axes.fill_between(epochs, low, high, color=colour, alpha=0.12)
            axes.set(xlabel="epoch", ylabel=f"{name} with weight", yscale="log")
        axes.legend(frameon=False)
    return figure


def parse_figures(records: Sequence[Record], folder: Path) -> list[str]:
    """Return Figure 3: ambiguous parses that include the gold one."""
    found = []
    for record in records:
        ambiguous = record.result.get("ambiguous")
        if (
            record.settings["loss"] != Loss.SPARSEMAP.value
            or record.settings["seed"] != 0
            or not ambiguous
        ):
            continue
        language = LANGUAGES[record.settings["language"]]
        text = (
            f"{language}, dev: of {ambiguous['sentences']} sentences {ambiguous['one tree']} have "
            f"one tree; the gold tree has weight in {ambiguous['gold has weight']}, and in "
            f"{ambiguous['gold has weight, and another is the best']} of these another is the best."
        )
        found.append(text)
        if ambiguous["drawn"]:
            caption = (
                f"SparseMAP, Figure 3, on {language}: ambiguous parses, found by a program. Arcs "
                "above are of the gold tree, those below of other trees only; with the weight of "
                "arcs that have less than 1"
            )
            name = f"dependency-{record.settings['language']}-parses.png"
            different = {" ".join(parse["words"]): parse for parse in ambiguous["drawn"]}
            found.append(picture(draw_parses(list(different.values())), folder, name, caption))
    return found


def draw_parses(parses: Sequence[dict[str, Any]]) -> Figure:
    """Draw ambiguous parses below each other."""
    width = max(len(" ".join(parse["words"])) for parse in parses)
    with styled():
        figure = Figure(figsize=(max(6.0, 0.13 * width), 1.9 * len(parses)))
        grid = figure.subplots(len(parses), 1, squeeze=False)
        for axes, parse in zip(grid[:, 0], parses, strict=True):
            draw_parse(axes, parse)
    return figure


def draw_parse(axes: Axes, parse: dict[str, Any]) -> None:
    """Draw the gold tree above a sentence, and the arcs of the others that differ below."""
    words, gold = parse["words"], set(enumerate(parse["gold"]))
    weight: dict[tuple[int, int], float] = {}
    for heads, p in zip(parse["heads"], parse["probabilities"], strict=True):
        for arc in enumerate(heads):
            weight[arc] = weight.get(arc, 0.0) + p
    places, at = [], 0.0
    for word in words:  # spacing by word length
        places.append(at + len(word) / 2)
        at += len(word) + 2
    highest = max(2.0, at)
    for arc, p in weight.items():
        child, head = arc
        start = places[head] if head >= 0 else places[child]
        sign = 1 if arc in gold else -1
        height = sign * (0.25 + abs(start - places[child]) / highest)
        colour = INK if p > CERTAIN else PALETTE[0 if arc in gold else 1]
        if head < 0:
            height = sign * 1.0
        draw_arc(axes, (start, places[child]), height, colour, p)
    for place, word in zip(places, words, strict=True):
        axes.text(place, 0, word, ha="center", va="center")
    axes.set(xlim=(-1, at), ylim=(-1.25, 1.25))
    axes.axis("off")


def draw_arc(
    axes: Axes, ends: tuple[float, float], height: float, colour: str, weight: float
) -> None:
    """Draw an arc from head to modifier, as wide as its weight; the root's is a line."""
    base = 0.14 if height > 0 else -0.14
    start, end = ends
    points = [(start, base), (start, height), (end, height), (end, base)]
    codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
    width = 0.6 + 1.4 * weight
    axes.add_patch(PathPatch(Curve(points, codes), fill=False, edgecolor=colour, linewidth=width))
    axes.plot([end], [base], marker="v" if height > 0 else "^", color=colour, markersize=4)
    if weight < CERTAIN:
        axes.text(
            (start + end) / 2, base + 0.77 * (height - base), f"{weight:.2f}".lstrip("0"),
            ha="center", va="center", fontsize=7, color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
