"""Evaluations of layers and losses, and products with their Jacobians, inside an operator."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.by_name import Callee
from lpsmap_torch.packed_arguments import unpacked

__all__ = ["Evaluation", "evaluated"]


class Evaluation(NamedTuple):
    """The output of a layer or a loss, and what autograd recorded of it."""

    inputs: list[Tensor]
    output: Tensor

    def multiplied(self, products: Sequence[int], vectors: list[Tensor]) -> list[Tensor]:
        """Return the last of some products with the Jacobian, and with those of the products.

        Parameters
        ----------
        products
            As in `Call`; without any, the output is returned.
        vectors
            The vectors of all products, one after the other.
        """
        inputs, outputs = self.inputs, [self.output]
        with _autograd_inside():
            leaves = iter([_leaf_like(x) for x in vectors])
            for i, n in enumerate(products, 1):
                more = i < len(products)  # the last product has no derivatives
                given = list(itertools.islice(leaves, abs(n)))
                floating = [x for x in inputs if x.is_floating_point()]
                if n > 0:
                    outputs = _pulled_back(outputs, floating, given, more)
                else:  # the transpose of the transposed product, which is linear
                    zeros = [_leaf_like(torch.zeros_like(y)) for y in outputs]
                    pulled = _pulled_back(outputs, floating, zeros, True)
                    outputs = _pulled_back(pulled, zeros, given, more)
                inputs = [*inputs, *given]
        # those of operators share no memory with others
        return [x.detach().clone(memory_format=torch.contiguous_format) for x in outputs]


def evaluated(callee: Callee, arguments: str, inputs: list[Tensor]) -> Evaluation:
    """Return the evaluation of a layer or a loss.

    Parameters
    ----------
    callee, inputs
        The layer or the loss, and its tensors: the scores first.
    arguments
        The structure of the arguments, as `packed` returns it.
    """
    with _autograd_inside():
        leaves = [_leaf_like(x) for x in inputs]
        output = callee._evaluate(leaves[0], **unpacked(arguments, leaves))
    _check_closure(type(callee).__name__, output, leaves)
    return Evaluation(leaves, output)


def _pulled_back(
    outputs: list[Tensor], inputs: list[Tensor], vectors: list[Tensor], create_graph: bool
) -> list[Tensor]:
    """Return the products of vectors with the transposed Jacobian."""
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    ends, starts = zip(*pairs, strict=True)
    return list(
        torch.autograd.grad(
            ends,
            inputs,
            starts,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
    )


def _leaf_like(tensor: Tensor) -> Tensor:
    """Return a tensor with the same values as a leaf of autograd, if it is floating-point."""
    leaf = tensor.clone() if tensor.is_inference() else tensor.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf


@contextlib.contextmanager
def _autograd_inside() -> Iterator[None]:
    """Run with autograd, also of views that change in place, inside an operator."""
    with torch.inference_mode(False):  # restores the excluded keys, and enables gradients
        torch._C._dispatch_tls_set_dispatch_key_excluded(
            torch._C.DispatchKey.ADInplaceOrView, False
        )
        yield


def _check_closure(name: str, value: Tensor, leaves: list[Tensor]) -> None:
    """Validate that a value has gradients to no other tensors than its arguments.

    Raises
    ------
    RuntimeError
        If it has.
    """
    arguments, seen, nodes = {id(x) for x in leaves}, set(), [value.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable") and id(node.variable) not in arguments:
            raise RuntimeError(
                f"{name}: the factors use a tensor with a gradient that is no argument of the "
                "call, so that its gradient would be lost inside torch.compile and transforms of "
                "torch.func. Pass it as a keyword argument, or as a parameter of a layer."
            )
        nodes.extend(before for before, _ in node.next_functions)
