"""Dependency parsing with losses (Niculae et al. 2018, section 5.1)."""

from __future__ import annotations

from experiments.dependency import report, rows, verdicts
from experiments.runs import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(rows.NAME, rows.rows, report.report, verdicts=verdicts.verdicts)
