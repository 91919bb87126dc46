"""All estimators of layers on latent trees and rationales; not a result of a paper."""

from __future__ import annotations

from experiments.estimators import report, rows
from experiments.runs import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(rows.NAME, rows.rows, report.report, report.PAGE)
