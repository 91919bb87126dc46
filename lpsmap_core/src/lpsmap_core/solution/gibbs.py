"""Gibbs distributions of factors: their interface, and their construction."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.factor import Factor
from lpsmap_core.solution.distribution import Distributions
from lpsmap_jit.arrays import FloatArray

__all__ = ["GibbsDistributions", "gibbs_of"]


class GibbsDistributions(Protocol):
    """The result of `FactorGraph.gibbs`: each structure has the probability ``exp(score) / Z``.

    The factor type names the class by `Factor.gibbs`. ``lpsmap_dynamic.Gibbs`` works for all types
    with `Factor.log_partition`.
    """

    @property
    def log_partition(self) -> Any:
        """``(*batch_shape,)`` the log-partition functions, ``log Z``."""

    @property
    def entropy(self) -> Any:
        """``(*batch_shape,)`` entropies of the distributions, in nats."""

    @property
    def marginals(self) -> Any:
        """Probabilities that variables are on, in the shape and with the negations of the view."""

    @property
    def additionals(self) -> Any:
        """Expected counts of the additionals, in the shape of their scores."""

    def jvp(
        self, d_scores: npt.ArrayLike, d_additionals: npt.ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the changes of log-partition functions, marginals and additionals.

        The direction is a change of the scores: `d_scores` of the graph's variables, and
        `d_additionals` of the factor's additionals.
        """

    def sample(self, n: int = 1, seed: Any = None) -> Distributions:
        """Draw `n` independent structures of every factor, by a `seed` or a generator."""

    def k_best(self, k: int) -> Distributions:
        """Return the `k` likeliest structures of every factor, the likeliest first."""

    def log_probability(self, variables: Any, additionals: Any = None) -> Any:
        """Return the log-probabilities of the structures with `variables` and `additionals`."""

    def count(self) -> npt.NDArray[np.object_]:
        """Return the ``(*batch_shape,)`` numbers of structures that are not forbidden."""


def gibbs_of(factor: Factor, scores: FloatArray, additionals: FloatArray) -> GibbsDistributions:
    """Return the Gibbs distributions of a declaration's factors, of the class its type names.

    Parameters
    ----------
    factor
        The declaration.
    scores
        (n_variables,) scores of the graph's variables.
    additionals
        (n_factors, n_additionals) scores of the factors' additionals.

    Raises
    ------
    TypeError
        If the type cannot sum over structures, or has no class for these distributions.
    """
    make = type(factor).gibbs
    if make is None:
        factor.log_partition()  # raises an error for a type without sums
        raise TypeError(
            f"{type(factor).__name__} has sums over its structures, but its attribute gibbs is "
            "None; expected a class of distributions. Run pip install lpsmap-dynamic, and set "
            "gibbs = lpsmap_dynamic.Gibbs in the class."
        )
    made: GibbsDistributions = make(factor, scores, additionals)
    return made
