"""The marginals of factor graphs as a function of their scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import FloatArray
from lpsmap_jax.additionals import AdditionalScores
from lpsmap_jax.call import Call, Factors, check_by_name, check_solver, read_call
from lpsmap_jax.gradients import Differentiated, cotangents, dense, differentiated, values_of
from lpsmap_jax.host import Arrays, call_on_host
from lpsmap_jax.instances import Instances, leading_axes


def sparse_map(factors: Factors, **options: Any) -> Callable[..., Any]:
    """Return the function from scores to marginals of LP-SparseMAP, for factors from a function.

    The marginals are ``argmax_mu <scores, mu> + <additional scores, nu> - 1/2 ||mu||^2`` over the
    local polytope of the factors (Niculae & Martins 2020, Eq. 10); for a factor alone in its
    component, over the convex hull of its structures (Niculae et al. 2018).

    The returned function, ``marginals(scores, /, **arguments)``, is pure. It works under `jax.jit`,
    `jax.vmap` and `jax.grad`. Its derivatives are of first order and in reverse mode; the backward
    pass solves again.

    Parameters
    ----------
    factors
        Called with the variables and the keyword arguments of the call; returns a factor or
        several, which may interact. Every factor type is such a function: ``DepTree``. It is called
        on the host, in every solve and for each instance of `jax.vmap`, with NumPy arrays in the
        place of JAX arrays: floating-point numbers are float64. It must be pure, and must not close
        over JAX arrays.
    options
        Options of `FactorGraph.solve`, such as ``tol`` and ``temperature``.

    Returns
    -------
    callable
        Takes scores and arguments, and returns marginals. Scores are a floating-point array of any
        shape, or a tree of arrays: blocks of variables, which `factors` gets in the same tree.
        Batch axes are those of the factors. Arguments are trees whose arrays may be traced, such as
        lengths and masks. Floating-point arrays that the function passes to its factors as scores
        of additionals, whole or in parts, have gradients. Marginals have the structure, shapes and
        dtypes of the scores. They are zero for variables in no factor, such as padding, and in
        infeasible components; their scores have gradients of zero.

    Raises
    ------
    TypeError
        If `factors` is not a function, or an option is unknown or has a wrong type. In a call: if
        the scores are not floating-point arrays, or if `factors` closes over scores of additionals.
    ValueError
        If an option is out of range. In a call: as `FactorGraph.add`; and in the backward pass, if
        an array has a gradient that is used for anything but scores of additionals.
    NotImplementedError
        If a second derivative is taken.

    Warns
    -----
    ConvergenceWarning
        In a call, if components were not solved.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from lpsmap import Xor
    >>> from lpsmap_jax import sparse_map
    >>> sparsemax = sparse_map(Xor)
    >>> scores = jnp.array([[0.3, 0.1, -1.0], [0.0, 2.0, 0.0]])
    >>> jax.jit(sparsemax)(scores).round(3)
    Array([[0.6, 0.4, 0. ],
           [0. , 1. , 0. ]], dtype=float32)
    >>> jax.grad(lambda scores: sparsemax(scores)[0, 0])(scores)
    Array([[ 0.5, -0.5,  0. ],
           [ 0. ,  0. ,  0. ]], dtype=float32)
    """
    check_solver("sparse_map", factors, options)

    def marginals(scores: Any, /, *others: Any, **arguments: Any) -> Any:
        check_by_name("sparse_map", factors, others)
        call, inputs = read_call("sparse_map", factors, options, scores, arguments)
        return jax.tree.unflatten(call.blocks, _marginals(call, inputs))

    return marginals


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _marginals(call: Call, inputs: Arrays) -> Arrays:
    return call_on_host(partial(_solve, call), call.scores, *inputs)


def _forward(call: Call, inputs: Any) -> tuple[Arrays, Any]:
    values = values_of(inputs)
    return _marginals(call, values), (differentiated(call, inputs), values)


def _backward(call: Call, residuals: tuple[Differentiated, Arrays], gradients: Any) -> Any:
    wanted, inputs = residuals
    function = partial(_pull_back, call, wanted.positions)
    results = [call.inputs[i] for i in wanted.positions]
    found = call_on_host(function, results, *map(dense, gradients), *inputs)
    return (cotangents(call, wanted, found),)


_marginals.defvjp(_forward, _backward, symbolic_zeros=True)


def _solve(call: Call, *arrays: NDArray[Any]) -> list[FloatArray]:
    """Return the marginals of every block."""
    axes = leading_axes(arrays, call.inputs[0].shape)
    solved = Instances(call, arrays, axes)
    blocks = solved.blocks(np.where(solved.kept, solved.solution.values, 0.0))
    return [x.reshape(axes + x.shape[1:]) for x in blocks]


def _pull_back(call: Call, wanted: Sequence[int], *arrays: NDArray[Any]) -> list[FloatArray]:
    """Return the gradients with respect to wanted inputs.

    Parameters
    ----------
    call
        The call.
    wanted
        The positions of all blocks and of the arguments with gradients.
    arrays
        The gradients with respect to the marginals of every block, then the inputs.
    """
    n, shape = call.n_blocks, call.inputs[0].shape
    gradients, inputs = arrays[:n], arrays[n:]
    axes, all_axes = leading_axes(inputs, shape), leading_axes(arrays, shape)
    solved = Instances(call, inputs, axes)
    scores = AdditionalScores(solved, wanted[n:])
    results = [np.empty(all_axes + call.inputs[i].shape) for i in wanted]
    whole = [
        np.broadcast_to(x, all_axes + like.shape)
        for x, like in zip(gradients, call.scores, strict=True)
    ]
    # gradients alone may be mapped, as in jax.jacrev: one solution serves all of them
    repeats = [m if size == 1 else 1 for size, m in zip(axes, all_axes, strict=True)]
    for number in np.ndindex(*repeats):
        at = tuple(
            slice(i, i + 1) if size == 1 else slice(None)
            for i, size in zip(number, axes, strict=True)
        )
        found = _product(solved, scores, [x[at] for x in whole])
        for result, part in zip(results, found, strict=True):
            result[at] = part.reshape(result[at].shape)
    return results


def _product(
    solved: Instances, scores: AdditionalScores, gradients: Sequence[FloatArray]
) -> list[FloatArray]:
    """Return the product of the Jacobian's transpose with gradients."""
    vector = np.where(solved.kept, solved.flat(gradients), 0.0)
    product, additionals = solved.solution.vjp(vector)
    return [*solved.blocks(np.where(solved.kept, product, 0.0)), *scores.totals(additionals)]
