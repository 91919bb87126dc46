"""Solutions of layers as functions of tensors, for operators: marginals and Jacobian products."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lpsmap_torch.layers.device_marginals import marginals_on_device
from lpsmap_torch.layers.graph_tensors import arrays_of
from lpsmap_torch.layers.layer_graph import LayoutSolution
from lpsmap_torch.layers.solvers import Solver
from lpsmap_torch.operator_autograd import autograd_inside, leaf_like
from lpsmap_torch.tensors import numbers, tensor_of

__all__ = ["SolvedLayer", "solved_on_device", "solved_on_host"]


class SolvedLayer(Protocol):
    """A solution as a function of the scores and parameters of a layer."""

    def marginals(self) -> Tensor:
        """Return the marginals, like the scores."""

    def pull_back(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients of scores and parameters, empty without any, given one of marginals."""

    def push_forward(self, d_scores: Tensor, d_parameters: Tensor | None) -> Tensor:
        """Return the tangent of the marginals, given tangents of scores and parameters."""


def solved_on_host(
    solver: Solver,
    scores: Tensor,
    parameters: Tensor | None,
    lengths: Tensor | None,
    mask: Tensor | None,
) -> SolvedLayer:
    """Return the solution of a layer by arrays on the host, for validated tensors."""
    table = None if parameters is None else numbers(parameters)
    found = solver.solved(numbers(scores), table, *arrays_of(lengths, mask))
    return _OnHost(found, scores, parameters)


def solved_on_device(
    solver: Solver,
    scores: Tensor,
    parameters: Tensor | None,
    lengths: Tensor | None,
    mask: Tensor | None,
) -> SolvedLayer | None:
    """Return the solution of a layer on the device of the scores; None if core solves it."""
    with autograd_inside():
        given = leaf_like(scores), None if parameters is None else leaf_like(parameters)
        found = marginals_on_device(solver, *given, lengths, mask)
    return None if found is None else _OnDevice(found, *given)


class _OnHost:
    """A solution by arrays on the host.

    Parameters
    ----------
    solution
        The solution.
    scores, parameters
        The tensors of the layer, of which only shapes, dtypes and devices are kept.
    """

    def __init__(self, solution: LayoutSolution, scores: Tensor, parameters: Tensor | None) -> None:
        table = scores if parameters is None else parameters
        self._shape = (0,) if parameters is None else table.shape
        self._solution, self._like = solution, (scores.dtype, scores.device)
        self._like_table = table.dtype, table.device

    def marginals(self) -> Tensor:
        """Return the marginals; see `SolvedLayer`."""
        return tensor_of(self._solution.values, *self._like, copy=True)

    def pull_back(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients; see `SolvedLayer`."""
        d_scores, table = self._solution.pull_back(numbers(gradient))
        found = tensor_of(d_scores, *self._like, copy=True)
        if self._shape == (0,):  # there are no parameters
            return found, found.new_empty(0)
        return found, tensor_of(table.reshape(self._shape), *self._like_table, copy=True)

    def push_forward(self, d_scores: Tensor, d_parameters: Tensor | None) -> Tensor:
        """Return the tangent; see `SolvedLayer`."""
        along = None if d_parameters is None else numbers(d_parameters)
        tangent = self._solution.push_forward(numbers(d_scores), along)
        return tensor_of(tangent, *self._like, copy=True)


class _OnDevice:
    """A solution that stays on the device of the scores, by autograd.

    Parameters
    ----------
    marginals
        The marginals as a function of the others.
    scores, parameters
        Leaves.
    """

    def __init__(self, marginals: Tensor, scores: Tensor, parameters: Tensor | None) -> None:
        self._marginals, self._scores, self._parameters = marginals, scores, parameters

    def marginals(self) -> Tensor:
        """Return the marginals; see `SolvedLayer`."""
        return self._marginals.detach().clone(memory_format=torch.contiguous_format)

    def pull_back(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients; see `SolvedLayer`."""
        with autograd_inside():
            d_scores, *rest = self._products(leaf_like(gradient), create_graph=False)
        return d_scores, rest[0] if rest else self._scores.new_empty(0)

    def push_forward(self, d_scores: Tensor, d_parameters: Tensor | None) -> Tensor:
        """Return the tangent: the transpose of the transposed product, which is linear."""
        vectors = [d_scores]
        if self._parameters is not None:
            along = torch.zeros_like(self._parameters) if d_parameters is None else d_parameters
            vectors.append(along)
        with autograd_inside():
            zeros = torch.zeros_like(self._marginals).requires_grad_()
            products = self._products(zeros, create_graph=True)
            (found,) = torch.autograd.grad(products, zeros, vectors, materialize_grads=True)
        return found

    def _products(self, gradient: Tensor, create_graph: bool) -> tuple[Tensor, ...]:
        inputs = [x for x in (self._scores, self._parameters) if x is not None]
        return torch.autograd.grad(
            self._marginals,
            inputs,
            gradient,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
