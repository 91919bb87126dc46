"""Which inputs of a call have gradients, and those gradients as JAX expects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from lpsmap_jax.call import Call
from lpsmap_jax.host import Arrays

__all__ = ["Wanted", "cotangents", "dense", "values_of", "wanted_arguments"]


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Wanted:
    """The arguments with gradients, by their positions among the inputs; static in JAX."""

    positions: tuple[int, ...]

    def tree_flatten(self) -> tuple[tuple[()], tuple[int, ...]]:
        """Return no arrays, and the positions."""
        return (), self.positions

    @classmethod
    def tree_unflatten(cls, positions: tuple[int, ...], arrays: tuple[()]) -> Wanted:
        """Return the same from its parts."""
        return cls(positions)


def wanted_arguments(call: Call, inputs: Any) -> Wanted:
    """Return which arguments are differentiated.

    Parameters
    ----------
    call
        The call.
    inputs
        Its inputs, as a custom derivative gets them with ``symbolic_zeros=True``.
    """
    return Wanted(
        tuple(
            i
            for i, (x, like) in enumerate(zip(inputs, call.shapes, strict=True))
            if i >= call.n_blocks and x.perturbed and jnp.issubdtype(like.dtype, jnp.floating)
        )
    )


def values_of(inputs: Any) -> Arrays:
    """Return the values of inputs, to be kept for the backward pass."""
    # a NumPy array can change before that
    return tuple(x.value if isinstance(x.value, jax.Array) else jnp.array(x.value) for x in inputs)


def cotangents(call: Call, wanted: Wanted, found: Arrays) -> tuple[jax.Array | None, ...]:
    """Return a gradient or None for every input, given those of all blocks and wanted arguments."""
    gradients: list[jax.Array | None] = [None] * len(call.shapes)
    for i, gradient in zip((*range(call.n_blocks), *wanted.positions), found, strict=True):
        gradients[i] = gradient
    return tuple(gradients)


def dense(gradient: Any) -> jax.Array:
    """Return a gradient as an array."""
    if isinstance(gradient, SymbolicZero):
        return jnp.zeros(gradient.shape, gradient.dtype)
    found: jax.Array = gradient
    return found
