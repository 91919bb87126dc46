"""The components of a part that core's engine solves on the host, beside those on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status
from lpsmap_core.api import BoolArray, FloatArray, Part
from lpsmap_torch.function import symmetric
from lpsmap_torch.tensors import numbers, tensor_of


class HostShare:
    """The solution of some components by core's engine; only their numbers are copied to the host.

    Scores are those of the part's variables, then of its additionals, on their device.
    """

    def __init__(self, part: Part, components: BoolArray, scores: Tensor, options: Options) -> None:
        self.components, self._part, self._options = components, part, options
        of_numbers = part.component_of_numbers
        self._places = np.flatnonzero(components[of_numbers])
        self._index = torch.from_numpy(self._places).to(scores.device)
        own = self._on_host(scores[self._index])
        self.bad = np.zeros(part.n_components, dtype=bool)
        self.bad[of_numbers[~(own < np.inf)]] = True
        self._is_bad = self.bad[of_numbers]
        eta, eta_v = self._split(np.where(self._is_bad, 0.0, own))
        skip = ~components | self.bad
        self.solved: SolvedGraph = CompiledEngine().solve(part, eta, eta_v, skip, options)

    def values_into(self, numbers: Tensor) -> Tensor:
        """Return numbers of the part with the marginals of these components."""
        found = np.concatenate([self.solved.marginals(), self.solved.additionals()])
        found = np.where(self._is_bad, np.nan, found)[self._places]
        own = tensor_of(found, numbers.dtype, numbers.device)
        return numbers.index_put((self._index,), own)

    def products_into(self, numbers: Tensor, d: Tensor) -> Tensor:
        """Return numbers of the part with these components' products; autograd can follow."""
        product = symmetric(self.multiplied, d[self._index])
        return numbers.index_put((self._index,), product)

    def multiplied(self, d: Tensor) -> Tensor:
        """Return the product of the Jacobian with a vector on the numbers of these components."""
        whole = self._on_host(d)
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
        flags: BoolArray = self.components & (self.solved.status() == Status.INFEASIBLE)
        return flags

    def _on_host(self, own: Tensor) -> FloatArray:
        """Return numbers of the part, given those of these components, and zeros for the others."""
        whole = np.zeros(self._part.n_variables + self._part.n_additionals)
        whole[self._places] = numbers(own)
        return whole

    def _split(self, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
        n = self._part.n_variables
        return numbers[:n].copy(), numbers[n:].copy()
