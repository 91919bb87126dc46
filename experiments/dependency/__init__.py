"""Dependency parsing with losses (Niculae et al. 2018, section 5.1)."""

from __future__ import annotations

from experiments.dependency.report import report
from experiments.dependency.rows import NAME, rows
from experiments.runs import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(NAME, rows, report)
