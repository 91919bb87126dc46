"""Calls of functions on the host, inside any transformation of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import FloatArray

Arrays: TypeAlias = tuple[jax.Array, ...]
HostFunction: TypeAlias = Callable[..., Sequence[FloatArray]]
"""Takes NumPy arrays with the same number of leading axes, one for each `jax.vmap` around the call;
an axis has size 1 where an array is not mapped. Returns float64 arrays that have all leading axes
in full."""


@dataclass(frozen=True)
class ArrayType:
    """The shape and the dtype of an array."""

    shape: tuple[int, ...]
    dtype: Any


def call_on_host(
    function: HostFunction, results: Sequence[ArrayType], *arrays: jax.Array
) -> Arrays:
    """Return the results of a function of NumPy arrays.

    Arrays that JAX does not trace are passed without a callback: JAX would compile it in every
    call, and wrap errors in those of its own.

    Parameters
    ----------
    function
        The function.
    results
        The shapes of its results without leading axes, and the dtypes to which they are rounded.
    arrays
        Its arguments; those of floating-point numbers are converted to float64.
    """

    def on_numpy(*given: Any) -> tuple[NDArray[Any], ...]:
        found = function(*map(_numpy, given))
        return tuple(x.astype(like.dtype) for x, like in zip(found, results, strict=True))

    @jax.custom_jvp
    def call(*given: jax.Array) -> Arrays:
        if not any(isinstance(x, jax.core.Tracer) for x in given):
            return tuple(map(jnp.asarray, on_numpy(*given)))
        types = tuple(results)
        found: Arrays = jax.pure_callback(on_numpy, types, *given, vmap_method="expand_dims")
        return found

    call.defjvp(_refuse)
    found: Arrays = call(*arrays)
    return found


def _numpy(array: Any) -> NDArray[Any]:
    found = np.asarray(array)
    return found if found.dtype.kind in "iub" else found.astype(np.float64)


def _refuse(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        "lpsmap_jax: got a second derivative of a solution; expected first derivatives only. "
        "Apply jax.lax.stop_gradient to the inner gradient."
    )
