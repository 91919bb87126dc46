"""Which inputs of a call have gradients, and those gradients as JAX exchanges them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from lpsmap_jax.call import Call
from lpsmap_jax.host import Arrays


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Differentiated:
    """The inputs with gradients, by their positions; not traced by JAX.

    These are all blocks of scores, followed by arguments.
    """

    positions: tuple[int, ...]

    def tree_flatten(self) -> tuple[tuple[()], tuple[int, ...]]:
        """Return no arrays, and the positions."""
        return (), self.positions

    @classmethod
    def tree_unflatten(cls, positions: tuple[int, ...], arrays: tuple[()]) -> Differentiated:
        """Return the same from its parts."""
        return cls(positions)


def differentiated(call: Call, inputs: Any) -> Differentiated:
    """Return which inputs have gradients.

    Parameters
    ----------
    call
        The call.
    inputs
        Its inputs, as a custom derivative gets them with ``symbolic_zeros=True``.
    """
    arguments = (
        i
        for i in range(call.n_blocks, len(call.inputs))
        if inputs[i].perturbed and jnp.issubdtype(call.inputs[i].dtype, jnp.floating)
    )
    return Differentiated((*range(call.n_blocks), *arguments))


def values_of(inputs: Any) -> Arrays:
    """Return the values of inputs, to be kept for the backward pass."""
    # a NumPy array can change before that
    return tuple(x.value if isinstance(x.value, jax.Array) else jnp.array(x.value) for x in inputs)


def cotangents(call: Call, wanted: Differentiated, found: Arrays) -> tuple[Any, ...]:
    """Return a gradient or None for every input, given the gradients that there are."""
    gradients = dict(zip(wanted.positions, found, strict=True))
    return tuple(map(gradients.get, range(len(call.inputs))))


def dense(gradient: Any) -> jax.Array:
    """Return a gradient as an array."""
    if isinstance(gradient, SymbolicZero):
        return jnp.zeros(gradient.shape, gradient.dtype)
    found: jax.Array = gradient
    return found
