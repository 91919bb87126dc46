"""Reports of a trained grammar, as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from lpsmap_search.corpus import Corpus
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.grammar_text import aligned, arcs_as_text, grammar_json, grammar_rows
from lpsmap_search.induction import Induced, accuracy, trees
from lpsmap_search.tagged_sentence import TaggedSentence


class Report:
    """A report of a result.

    Parameters
    ----------
    sentences
        The sentences that the grammar was induced from.
    corpus
        The corpus of their tags.
    induced
        The result.
    """

    def __init__(self, sentences: list[TaggedSentence], corpus: Corpus, induced: Induced) -> None:
        assert isinstance(corpus.model, DependencyModelWithValence)
        self.sentences, self.model, self.induced = sentences, corpus.model, induced
        self._corpus = corpus
        self.trees = trees(self.model, sentences, induced.parameters)
        self.accuracy = accuracy(self.model, sentences, induced.parameters)

    @property
    def numbers(self) -> dict[str, Any]:
        """The fields of the JSON output, without trees."""
        induced, certified = self.induced, self.induced.certified
        return {
            "status": "PROVED" if induced.is_proved else "FOUND",
            "method": induced.method,
            "objective": induced.objective,
            "bound": None if certified is None else certified.bound,
            "gap": None if certified is None else relative_gap(induced.objective, certified.bound),
            "void": None if certified is None else certified.is_void,
            "nodes": None if certified is None else certified.n_nodes,
            "seconds": induced.seconds,
            "interrupted": induced.interrupted,
            "likelihood": induced.likelihood,
            "accuracy": self.accuracy,
            "sentences": len(self.sentences),
            "words": sum(map(len, self.sentences)),
            "tags": list(self.model.tags),
        }

    @property
    def grammar(self) -> dict[str, Any]:
        """The grammar as written to a file."""
        grammar = grammar_json(self.model, self.induced.parameters, self.induced.counts)
        return {**self.numbers, **grammar}

    def json(self, n_parses: int) -> str:
        """Return the report as JSON, with the heads of the first sentences."""
        parses = {"parses": self.trees[:n_parses]} if n_parses else {}
        return json.dumps({**self.numbers, **parses}, allow_nan=False)

    def text(self, n_parses: int, encoding: str | None = None) -> str:
        """Return the report as tables, with the first trees, for a stream with an encoding."""
        rows = grammar_rows(self.model, self.induced.parameters, self.induced.counts)
        drawn = [
            arcs_as_text(sentence, heads, encoding)
            for sentence, heads in zip(self.sentences[:n_parses], self.trees, strict=False)
        ]
        return "\n\n".join([aligned(self._summary()), aligned(rows, right=(2, 3, 4)), *drawn])

    def _summary(self) -> list[tuple[str, str]]:
        induced, n_words = self.induced, sum(map(len, self.sentences))
        rows = [
            (
                "corpus",
                f"{len(self.sentences)} sentences, {len(self._corpus.sentences)} of them "
                f"different; {n_words} words, {len(self.model.tags)} tags",
            ),
            ("method", f"{induced.method}, {induced.seconds:.2f} s"),
            ("objective", f"{induced.objective:.9g}"),
        ]
        if induced.likelihood != induced.objective:
            rows.append(("likelihood", f"{induced.likelihood:.9g} of the best trees"))
        rows.append(("certificate", certificate(induced)))
        if self.accuracy is not None:
            rows.append(("accuracy", f"{100.0 * self.accuracy:.1f} % of the heads in the file"))
        return rows


def certificate(induced: Induced) -> str:
    """Return a description of the proof."""
    certified = induced.certified
    if certified is None:
        return "none: expectation maximisation ends at a local optimum"
    boxes = f"{certified.n_nodes} boxes"
    if certified.proved:
        gap = 100.0 * relative_gap(certified.objective, certified.bound)
        return f"proved: nothing is more likely than {certified.bound:.9g}, {gap:.2g} %; {boxes}"
    if certified.is_void:
        return (
            f"void: the bound of {max(certified.bound, 0.0):g} says only that probabilities are at "
            f"most one; {boxes}"
        )
    gap = 100.0 * relative_gap(certified.objective, certified.bound)
    return f"open: nothing is more likely than {certified.bound:.9g}, {gap:.3g} % off; {boxes}"


def relative_gap(objective: float, bound: float) -> float:
    """Return the gap of a bound relative to an objective, as in the option ``gap``."""
    return max(bound - objective, 0.0) / max(1.0, abs(objective))
