"""A layer for any factor type."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Distributions, Factor, Variables
from lpsmap_torch.layers.layer import OPTIONS, Layer, Lengths, Mask
from lpsmap_torch.layers.layer_graph import Declarations, Tied

__all__ = ["SparseMAP"]


class SparseMAP(Layer):
    """SparseMAP with a factor type of your choice (Niculae et al. 2018).

    The marginals are ``argmax_mu <scores, mu> - 1/2 ||mu||^2`` over the convex hull of the
    structures of the type, with one factor per instance of the batch.

    Parameters
    ----------
    factor_type
        The type, such as ``lpsmap.DepTree``. A type with additionals must accept their flat scores
        as the argument ``additionals``, like `Sequence`.
    event_ndim
        The number of axes of the scores of an instance; None for the default of the type.
    max_iter, max_inner_iter, tol, step_size, adapt, relaxation, threads, engine
        As in `FactorGraph.solve`.
    temperature
        A positive number by which all scores are divided, or a tensor or parameter, with a
        gradient: one element, or a shape that broadcasts to the batch. Also an attribute, which can
        change between calls.
    options
        Further arguments of the type, the same for all instances.

    Raises
    ------
    TypeError
        If `factor_type` is not a factor type.
    ValueError
        If an ``axis`` among the options is not negative, or an option is out of range.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import Xor
    >>> from lpsmap_torch.layers import SparseMAP
    >>> sparsemax = SparseMAP(Xor)
    >>> sparsemax(torch.tensor([[0.3, 0.1, -1.0], [0.0, 2.0, 0.0]]))
    tensor([[0.6000, 0.4000, 0.0000],
            [0.0000, 1.0000, 0.0000]])
    """

    solved_by: ClassVar[tuple[str, ...]] = ("factor_type", "event_ndim", "options")

    def __init__(
        self,
        factor_type: type[Factor],
        *,
        event_ndim: int | None = None,
        **options: Any,
    ) -> None:
        names = *OPTIONS, "temperature"
        of_solves = {name: options.pop(name) for name in names if name in options}
        super().__init__(**of_solves)
        if not (isinstance(factor_type, type) and issubclass(factor_type, Factor)):
            raise TypeError(
                f"SparseMAP: factor_type is {factor_type!r}; expected a factor type, such as "
                "lpsmap.DepTree."
            )
        if options.get("axis", -1) >= 0:
            raise ValueError(
                f"SparseMAP: axis is {options['axis']}; expected a negative one, since the batch "
                "comes first."
            )
        self.factor_type, self.options = factor_type, options
        self.event_ndim = factor_type.variables_ndim if event_ndim is None else event_ndim
        self.mask_ndim = self.event_ndim
        # types with length_axes have one length for all of these axes
        self.most_lengths = self.event_ndim if factor_type.length_axes is None else 1

    def forward(
        self,
        scores: Tensor,
        additionals: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the marginals.

        Parameters
        ----------
        scores
            The scores, batch first.
        additionals
            Scores of the additionals, for types that have them: flat on the last axis, and the same
            for all instances or with leading batch axes.
        lengths, mask
            As in the factor type, as tensors. In lengths, axes of the batch may be 1, and the last
            ones may be omitted; lengths then apply to all entries.

        Returns
        -------
        Tensor
            Like the scores; zeros in the padding.
        """
        return self._marginals(scores, additionals, lengths, mask)

    def structures(
        self,
        scores: Tensor,
        additionals: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Distributions:
        """Return a sparse distribution over structures whose mean is the marginals.

        Parameters
        ----------
        scores, additionals, lengths, mask
            As in `forward`.
        """
        return self._structures(scores, additionals, lengths, mask)

    def declare(self, u: Variables, lengths: Lengths, mask: Mask, n_weights: int) -> Declarations:
        """Return the factors, one per instance."""
        split = u.ndim - self.event_ndim
        there = _there(u.shape[:split], lengths, mask)
        view, rows = u, None
        # some types need a variable in each factor; and with several batch axes, one length per
        # instance could be read as two lengths for several instances
        if not there.all() or (lengths is not None and split > 1):
            rows = np.flatnonzero(there)
            view = u.reshape(-1, *u.shape[split:])[rows]
            lengths = None if lengths is None else lengths.reshape(there.size, -1)[rows]
            mask = None if mask is None else mask.reshape(-1, *u.shape[split:])[rows]
            if lengths is not None and lengths.shape[1] == 1:
                lengths = lengths[:, 0]
        if view.size == 0 and u.size:
            return Declarations([])
        given: dict[str, Any] = {"lengths": lengths, "mask": mask}
        given = {name: value for name, value in given.items() if value is not None}
        if n_weights:
            given["additionals"] = np.zeros((*view.shape[: view.ndim - self.event_ndim], n_weights))
        factor = self.factor_type(view, **self.options, **given)
        tied = (Tied(factor, np.arange(n_weights), rows),) if n_weights else ()
        return Declarations([factor], tied=tied)

    def _own_repr(self) -> dict[str, Any]:
        name = self.factor_type.__name__
        return {"factor_type": _Name(name), **self.options}


def _there(batch: tuple[int, ...], lengths: Lengths, mask: Mask) -> NDArray[np.bool_]:
    """Return flags of instances with any variable."""
    there = np.ones(batch, dtype=bool)
    if lengths is not None:
        there &= (lengths.reshape(*batch, -1) != 0).all(axis=-1)
    if mask is not None:
        there &= mask.any(axis=tuple(range(len(batch), mask.ndim)))
    return there


class _Name(str):
    """A string whose repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)
