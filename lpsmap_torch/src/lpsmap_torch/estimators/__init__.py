"""Estimators: what a layer returns for its scores, and which gradients it passes on.

Layers take one by their option ``estimator``, by name or as an object of these classes.
"""

from collections.abc import Callable

from lpsmap_torch.estimators.estimator import Estimate, Estimator, SparseMarginals
from lpsmap_torch.estimators.gibbs_marginals import GibbsMarginals
from lpsmap_torch.estimators.map_vertex import MAP
from lpsmap_torch.estimators.samples import PerturbAndMAP, Sample, score_function_loss

__all__ = [
    "MAP",
    "Estimate",
    "Estimator",
    "GibbsMarginals",
    "PerturbAndMAP",
    "Sample",
    "SparseMarginals",
    "score_function_loss",
]

BY_NAME: dict[str, Callable[[], Estimator]] = {
    "sparsemap": SparseMarginals,
    "marginals": GibbsMarginals,
    "map": MAP,
    "sample": Sample,
    "perturb": PerturbAndMAP,
}
"""The estimators that layers take by name."""
