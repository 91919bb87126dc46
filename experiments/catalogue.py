"""All experiments, by name."""

from __future__ import annotations

from experiments import dependency, estimators, listops, multilabel, nli
from experiments.runs import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        listops.EXPERIMENT,
        dependency.EXPERIMENT,
        multilabel.EXPERIMENT,
        nli.EXPERIMENT,
        estimators.EXPERIMENT,
    )
}
