"""The SparseMAP loss of factor graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lpsmap_core.api import FloatArray
from lpsmap_dynamic import check_root, compare_maxima
from lpsmap_jax.additionals import AdditionalScores
from lpsmap_jax.call import Call, Factors, check_by_name, check_solver, read_call
from lpsmap_jax.gradients import cotangents, differentiated
from lpsmap_jax.host import Arrays, ArrayType, call_on_host
from lpsmap_jax.instances import Instances, leading_axes, rows_of
from lpsmap_jax.labels import labels_given, read_additionals, read_target


def sparse_map_loss(factors: Factors, **options: Any) -> Callable[..., jax.Array]:
    """Return the SparseMAP loss as a function of scores and labels, for factors from a function.

    This is a Fenchel-Young loss (Blondel et al. 2020; Niculae et al. 2018, section 4; Niculae &
    Martins 2020, Eq. 16). With scores eta, structure y, and the maximum over all marginals mu and
    additionals nu that the factors allow, it is::

        max  <eta, [mu, nu]> - 1/2 ||mu||^2   -   (<eta, [y, n_y]> - 1/2 ||y||^2)

    It is convex in the scores, nonnegative, and zero if and only if y is the solution. Its gradient
    is ``mu - y``, ``nu - n_y``, and needs no second solve. If only a part of y is labelled, the
    second term is the maximum over all marginals that agree with it.

    The returned function, ``loss(scores, target, /, **arguments)``, is pure. It works under
    `jax.jit`, `jax.vmap` and `jax.grad`. Its derivatives are of first order and in reverse mode.

    Parameters
    ----------
    factors, options
        As for `sparse_map`. With a temperature T, the quadratic terms are ``T/2 ||mu||^2``.

    Returns
    -------
    callable
        Takes scores, a target and arguments, and returns a scalar: the loss of the whole graph,
        which is the sum over the items of a batch. `jax.vmap` gives the losses of items. It has the
        dtype of the scores, and at least that of float32. Scores and arguments are those of
        `sparse_map`. The target has the structure of the scores, and for each block of scores
        either labels in its shape: 0, 1, or NaN for unlabelled variables; or marginals, for all
        variables in factors; then ``target_additionals`` are those of the additionals, an array
        for every factor declaration with additionals, in a list if several. Or integers without the
        last axis: the position on it that is on, -1 for a row of which nothing is on, such as one
        without a partner in a matching, and -100 for unlabelled rows. In rows of `DepTree`, heads,
        -1 for the root, or with ``root="self"`` in the call the word itself.
        Targets of variables in no factor are ignored; a row that is on there only is refused. The
        target has no gradient.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As for `sparse_map`. In a call, `ValueError` also if the shapes of the target do not fit, a
        label is invalid, or no structure agrees with the labels.
    ImportError
        In a call with unlabelled variables, if ``lpsmap-decode`` is not installed.

    Warns
    -----
    ConvergenceWarning
        In a call, if components were not solved.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from lpsmap import DepTree
    >>> from lpsmap_jax import sparse_map_loss
    >>> loss = sparse_map_loss(DepTree)
    >>> scores = jnp.zeros((2, 3, 3))  # the diagonal is the root's
    >>> heads = jnp.array([[-1, 0, 1], [1, -1, -100]])  # the second sentence has two words
    >>> jax.grad(loss)(scores, heads, lengths=jnp.array([3, 2]))[1].round(3)
    Array([[ 0.5, -0.5,  0. ],
           [ 0.5, -0.5,  0. ],
           [ 0. ,  0. ,  0. ]], dtype=float32)
    """
    check_solver("sparse_map_loss", factors, options)

    def loss(
        scores: Any,
        target: Any,
        /,
        *others: Any,
        target_additionals: Any = None,
        root: int | str = -1,
        **arguments: Any,
    ) -> jax.Array:
        check_by_name("sparse_map_loss", factors, others)
        check_root(root)
        call, inputs = read_call("sparse_map_loss", factors, options, scores, arguments)
        labels = read_target("sparse_map_loss", call, target)
        additionals = read_additionals("sparse_map_loss", target_additionals)
        found: jax.Array = _loss(call, root, inputs, (*labels, *additionals))
        return found

    return loss


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _loss(call: Call, root: int | str, inputs: Arrays, labels: Arrays) -> jax.Array:
    return call_on_host(partial(_evaluate, call, root, None), [_scalar(call)], *inputs, *labels)[0]


def _forward(call: Call, root: int | str, inputs: Any, labels: Any) -> tuple[jax.Array, Any]:
    wanted = differentiated(call, inputs)
    arrays = [x.value for x in (*inputs, *labels)]
    slopes = [call.inputs[i] for i in wanted.positions]
    function = partial(_evaluate, call, root, wanted.positions)
    value, *found = call_on_host(function, [_scalar(call), *slopes], *arrays)
    return value, (wanted, tuple(found), (None,) * len(labels))


def _backward(call: Call, root: int | str, residuals: Any, gradient: jax.Array) -> Any:
    wanted, slopes, of_labels = residuals
    found = tuple((gradient * slope).astype(slope.dtype) for slope in slopes)
    return cotangents(call, wanted, found), of_labels


_loss.defvjp(_forward, _backward, symbolic_zeros=True)


def _scalar(call: Call) -> ArrayType:
    """Return the shape and the dtype of the loss; float16 would overflow."""
    dtypes = [block.dtype for block in call.scores]
    return ArrayType((), jnp.result_type(jnp.float32, *dtypes))


def _evaluate(
    call: Call, root: int | str, wanted: Sequence[int] | None, *arrays: NDArray[Any]
) -> list[FloatArray]:
    """Return the losses of all instances, and their gradients with respect to wanted inputs.

    Parameters
    ----------
    call, root
        The call, and the head of a root in targets.
    wanted
        The positions of all blocks and of the arguments with gradients; None for losses only.
    arrays
        The inputs of the call, the labels of every block, and the additionals of the target.
    """
    axes = leading_axes(arrays, call.inputs[0].shape)
    n, n_blocks = len(call.inputs), call.n_blocks
    inputs = arrays[:n]
    solved = Instances(call, inputs, axes)
    n_leading = len(axes)
    own = [rows_of(x, axes, x.shape[n_leading:]) for x in arrays[n:]]
    labels = labels_given(solved, own[:n_blocks], own[n_blocks:], root)
    solution = solved.solution
    compared = compare_maxima(
        solved.graph, solution, labels, lambda graph: graph.solve(**call.options)
    )
    values = compared.values.reshape(axes)
    if wanted is None:
        return [values]
    mu = np.where(solved.inside, solution.values - compared.given.mu, 0.0)
    nu = [a - b for a, b in zip(solution.additionals, compared.given.nu, strict=True)]
    scores = AdditionalScores(solved, wanted[call.n_blocks :])
    slopes = [*solved.blocks(mu), *scores.totals(nu)]
    return [values, *(x.reshape(axes + x.shape[1:]) for x in slopes)]
