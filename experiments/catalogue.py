"""All experiments, by name."""

from __future__ import annotations

from experiments import dependency, multilabel
from experiments.runs import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (dependency.EXPERIMENT, multilabel.EXPERIMENT)
}
