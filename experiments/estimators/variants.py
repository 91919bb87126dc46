"""The compared ways of training a latent structure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lpsmap_torch.estimators import (
    MAP,
    Estimator,
    GibbsMarginals,
    PerturbAndMAP,
    Sample,
    SparseMarginals,
)

__all__ = ["ESTIMATORS", "VARIANTS", "Baseline", "Variant"]


class Baseline(str, Enum):
    """The baseline of the score function; `UNUSED` if the variant does not use it."""

    UNUSED = ""
    LEAVE_ONE_OUT = "leave-one-out"
    SELF_CRITICAL = "self-critical"


ESTIMATORS: dict[str, Estimator] = {
    "sparsemap": SparseMarginals(),
    "marginals": GibbsMarginals(),
    "map": MAP("straight-through"),
    "spigot": MAP("spigot", step=64.0),
    "identity": MAP("identity"),
    "perturb": PerturbAndMAP(),
    "sample": Sample(),
}
"""The estimators of layers by name."""


@dataclass(frozen=True)
class Variant:
    """A row of the table.

    Attributes
    ----------
    name
        Its name on the page.
    estimator
        The estimator of the layer in training, one of `ESTIMATORS`. With a baseline, the score
        function takes its place.
    deployed
        The estimator of the trained layer. Networks that train with structures deploy the best one.
    temperature
        The temperature of the layer.
    baseline, samples
        Of the score function: its baseline, and the number of samples of an instance.
    """

    name: str
    estimator: str
    deployed: str = "map"
    temperature: float = 1.0
    baseline: Baseline = Baseline.UNUSED
    samples: int = 0


VARIANTS = (
    Variant("sparsemap", "sparsemap", "sparsemap"),
    Variant("sparsemap, T=0.3", "sparsemap", "sparsemap", temperature=0.3),
    Variant("marginals", "marginals", "marginals"),
    Variant("MAP, straight-through", "map"),
    Variant("MAP, SPIGOT", "spigot"),
    Variant("MAP, identity", "identity"),
    Variant("perturb, straight-through", "perturb"),
    Variant("sample, straight-through", "sample"),
    Variant(
        "score function, leave-one-out (4 samples)",
        "sample",
        baseline=Baseline.LEAVE_ONE_OUT,
        samples=4,
    ),
    Variant(
        "score function, self-critical (1 sample)",
        "sample",
        baseline=Baseline.SELF_CRITICAL,
        samples=1,
    ),
)
