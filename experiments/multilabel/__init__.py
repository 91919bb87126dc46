"""Multilabel classification (Niculae & Martins 2020, section 5.3)."""

from __future__ import annotations

from experiments.multilabel.report import report
from experiments.multilabel.rows import NAME, rows
from experiments.runs import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(NAME, rows, report)
