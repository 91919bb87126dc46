"""The solution of a layer with all that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lpsmap_core import Distributions
from lpsmap_torch.layers.estimates import Estimated

__all__ = ["LayerSolution", "solution_of"]


@dataclass(frozen=True, eq=False)
class LayerSolution:
    """The result of a call of a layer with ``return_solution=True``, from a single solve.

    `lpsmap_torch.losses.sparsemap_loss` takes it, for the SparseMAP loss of the same solve.

    Attributes
    ----------
    marginals
        Like the scores: what the layer returns without ``return_solution``.
    additionals
        Marginals of the additionals: of a layer, summed by the parameters that score them, in
        their shape with the axes of the batch first, such as expected numbers of transitions. Of a
        function, a list with those of every factor, in the shape of their scores. None without
        additionals.
    objective
        ``(*batch,)`` what the estimator attains, with gradients: the maximum ``<scores, mu> - T/2
        ||mu||^2`` of SparseMAP, the score of the best structure, or for Gibbs marginals and samples
        the log-partition function ``T log Z``. Scores of additionals are included.
    solved
        ``(*batch,)`` flags of the instances whose values can be relied upon: the solve converged,
        or the structure is proved the best.
    """

    marginals: Tensor
    additionals: Tensor | list[Tensor] | None
    objective: Tensor
    solved: Tensor
    estimated: Estimated = field(repr=False)

    def structures(self) -> Distributions:
        """Return the sparse distribution over structures; see `SparseMAP.structures`.

        Raises
        ------
        TypeError
            If the estimator does not solve.
        """
        return self.estimated.structures(self.marginals.dtype)


def solution_of(estimated: Estimated, like: Tensor) -> LayerSolution:
    """Return the solution of an estimate, in the dtype of the scores.

    Parameters
    ----------
    estimated
        The estimate.
    like
        The scores.
    """
    dtype, additionals = like.dtype, estimated.additionals
    if isinstance(additionals, list):
        additionals = [x.to(dtype) for x in additionals]
    elif additionals is not None:
        additionals = additionals.to(dtype)
    objective = estimated.objective.to(torch.promote_types(dtype, torch.float32))
    marginals = estimated.marginals.to(dtype)
    return LayerSolution(marginals, additionals, objective, estimated.solved, estimated)
