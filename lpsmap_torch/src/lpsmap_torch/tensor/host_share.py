"""The components of a part that core's engine solves on the host, beside those on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, Part
from lpsmap_torch.tensor.equations import symmetric
from lpsmap_torch.tensors import numbers_on_host, tensor_of

__all__ = ["HostShare"]


class HostShare:
    """The solution of some components by core's engine; only their numbers are copied to the host.

    Parameters
    ----------
    part
        The part.
    components
        (n_components,) flags of the components.
    numbers
        Scores of the part's variables, then of its additionals, on their device.
    options
        Limits and settings of the solve.
    """

    def __init__(
        self, part: Part, components: BoolArray, numbers: Tensor, options: Options
    ) -> None:
        self.components, self._part, self._options = components, part, options
        of_numbers = part.component_of_numbers
        self._places = np.flatnonzero(components[of_numbers])
        self._index = torch.from_numpy(self._places).to(numbers.device)
        scores = self._whole(numbers)
        bad = ~(scores < np.inf)
        self.bad = np.zeros(part.n_components, dtype=bool)
        self.bad[of_numbers[bad]] = True
        self._is_bad = self.bad[of_numbers]
        eta, eta_v = self._split(np.where(self._is_bad, 0.0, scores))
        skip = ~components | self.bad
        self.solved: SolvedGraph = CompiledEngine().solve(part, eta, eta_v, skip, options)

    def values_into(self, numbers: Tensor) -> Tensor:
        """Return numbers of the part with the marginals of these components."""
        found = np.concatenate([self.solved.marginals(), self.solved.additionals()])
        return self._into(numbers, np.where(self._is_bad, np.nan, found))

    def products_into(self, numbers: Tensor, d: Tensor) -> Tensor:
        """Return numbers of the part with products of the Jacobian of these components.

        Parameters
        ----------
        numbers
            The numbers.
        d
            The vector, for all numbers of the part; autograd can follow.
        """
        product = symmetric(self.multiplied, d[self._index])
        return numbers.index_put((self._index,), product)

    def multiplied(self, d: Tensor) -> Tensor:
        """Return the product of the Jacobian with a vector on the numbers of these components."""
        whole = np.zeros(len(self._is_bad))
        whole[self._places] = numbers_on_host([d])
        finite = np.isfinite(whole)
        scale = np.abs(whole[finite]).max(initial=0.0) or 1.0
        of_numbers = self._part.component_of_numbers
        bad = self.bad.copy()
        bad[of_numbers[~finite]] = True
        eta, eta_v = self._split(np.where(finite, whole / scale, 0.0))
        product = scale * np.concatenate(
            self.solved.multiply(eta, eta_v, self.components & ~bad, self._options.threads)
        )
        product[bad[of_numbers] & self.components[of_numbers]] = np.nan
        return tensor_of(product[self._places], d.dtype, d.device)

    def infeasible(self) -> BoolArray:
        """Return flags of these components that are infeasible."""
        status = self.solved.status().tolist()
        flags: BoolArray = self.components & np.array([s is Status.INFEASIBLE for s in status])
        return flags

    def _whole(self, numbers: Tensor) -> FloatArray:
        whole = np.zeros(len(numbers))
        whole[self._places] = numbers_on_host([numbers[self._index]])
        return whole

    def _split(self, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
        n = self._part.n_variables
        return numbers[:n].copy(), numbers[n:].copy()

    def _into(self, numbers: Tensor, found: FloatArray) -> Tensor:
        own = tensor_of(found[self._places], numbers.dtype, numbers.device)
        return numbers.index_put((self._index,), own)
