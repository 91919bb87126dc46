"""Subsets of k elements."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lpsmap_core import Variables
from lpsmap_core.api import checked_count, checked_flag
from lpsmap_torch.built_graph import Declarations, factor_type
from lpsmap_torch.layers.checks import Instances, present
from lpsmap_torch.layers.layer import Layer


class TopK(Layer):
    """Marginals of elements in a sparse mixture of subsets of size k.

    The projection of the scores onto ``{0 <= mu <= 1, sum mu = k}``, or ``<= k`` (Correia et al.
    2020, section 4.2).

    Parameters
    ----------
    k
        The size of the subsets; all elements if there are fewer. A call can set it for every
        instance: ``layer(scores, k=torch.tensor([1, 3]))``.
    exact
        Whether to exclude smaller subsets.
    options
        Those of `FactorGraph.solve` that `SparseMAP` takes, and its `temperature` and `estimator`.

    Notes
    -----
    Scores are ``(..., n)``. Lengths are integers in the shape of the batch. A mask marks the
    elements, and broadcasts to the scores.
    """

    limit: ClassVar[str] = "k"
    solved_by: ClassVar[tuple[str, ...]] = ("k", "exact")

    def __init__(self, k: int, exact: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.k = checked_count("TopK: k", k, least=0)
        self.exact = checked_flag("TopK: exact", exact)

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return one factor per instance."""
        k = self.k if instances.limits is None else instances.limits
        there = present(type(self).__name__, u.shape, instances.lengths, instances.mask)
        sizes = np.minimum(k, there.sum(axis=-1))
        elements = None if there.all() else there
        return Declarations([factor_type("TopK")(u, sizes, self.exact, mask=elements)])

    def _repr_arguments(self) -> dict[str, Any]:
        return {"k": self.k, "exact": self.exact}
