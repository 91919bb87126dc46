"""Natural language inference (Niculae & Martins 2020, section 5.2; Niculae et al. 2018, 5.2)."""

from __future__ import annotations

from experiments.nli import report, rows, verdicts
from experiments.runs import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(rows.NAME, rows.rows, report.report, verdicts=verdicts.verdicts)
