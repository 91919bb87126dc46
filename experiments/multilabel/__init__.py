"""Multilabel classification (Niculae & Martins 2020, section 5.3)."""

from __future__ import annotations

from experiments.multilabel import report, rows, verdicts
from experiments.runs import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(rows.NAME, rows.rows, report.report, verdicts=verdicts.verdicts)
