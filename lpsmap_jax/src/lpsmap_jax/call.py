"""The static part of a call: all that JAX does not trace."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from lpsmap_core import Factor, FactorGraph
from lpsmap_core.api import kind_of
from lpsmap_dynamic import check_accepted, check_solve_options
from lpsmap_jax.host import Arrays, ArrayType

Factors: TypeAlias = Callable[..., Factor | Sequence[Factor]]
"""A function that returns factors over variables, like a factor type: ``factors(u,
**arguments)``."""


@dataclass(frozen=True, eq=False)
class Call:
    """The function of a call, its options, and the structure of its arrays.

    The arrays of a call, its inputs, are the blocks of scores, followed by the arrays among the
    arguments of the function.
    """

    factors: Factors
    options: Mapping[str, Any]
    """The options of `FactorGraph.solve`."""
    blocks: PyTreeDef
    """The structure of the scores."""
    arguments: PyTreeDef
    """The structure of the keyword arguments."""
    leaves: tuple[Any, ...]
    """The leaves of the arguments; `ARRAY` for arrays."""
    names: tuple[str, ...]
    """The names of the arrays among the arguments."""
    inputs: tuple[ArrayType, ...]
    """The shapes and dtypes of the inputs."""

    @property
    def n_blocks(self) -> int:
        """The number of blocks of scores."""
        return len(self.inputs) - len(self.names)

    @property
    def scores(self) -> tuple[ArrayType, ...]:
        """The shapes and dtypes of the blocks."""
        return self.inputs[: self.n_blocks]

    @property
    def sizes(self) -> list[int]:
        """The numbers of variables of the blocks."""
        return [math.prod(block.shape) for block in self.scores]

    def declare(self, views: Sequence[Any], arrays: Sequence[Any]) -> list[Factor]:
        """Return the factors of one instance.

        Parameters
        ----------
        views
            The variables of every block.
        arrays
            The arrays among the arguments, as NumPy arrays.
        """
        given = iter(arrays)
        leaves = [next(given) if leaf is ARRAY else leaf for leaf in self.leaves]
        u = jax.tree.unflatten(self.blocks, views)
        made: Any = self.factors(u, **jax.tree.unflatten(self.arguments, leaves))
        return list(made) if isinstance(made, (list, tuple)) else [made]


class _Array:
    """The mark of a leaf that is an array."""


ARRAY = _Array()


def check_solver(name: str, factors: Any, options: Mapping[str, Any]) -> None:
    """Validate a function of variables and the options of a solver."""
    if not callable(factors):
        raise TypeError(
            f"{name}: factors is {kind_of(factors)}; expected a factor type, such as "
            "lpsmap.DepTree, or a function of variables that returns factors."
        )
    known = inspect.signature(FactorGraph.solve).parameters
    for unknown in sorted(options.keys() - known.keys()):
        raise TypeError(
            f"{name}: got {unknown}={options[unknown]!r:.40}; expected options of "
            "FactorGraph.solve, such as tol. Give arguments of factors to every call by name."
        )
    check_solve_options(options)


def check_by_name(name: str, factors: Any, others: Sequence[Any]) -> None:
    """Refuse arguments of a call without names."""
    if others:
        names = list(inspect.signature(factors).parameters)[1:]
        raise TypeError(
            f"{name}: got {len(others)} arguments more by position; expected arguments of the "
            f"factors by name, such as {names[0] if names else 'lengths'}=."
        )


def read_scores(name: str, scores: Any) -> tuple[Arrays, PyTreeDef]:
    """Return the blocks of scores and their structure."""
    leaves, tree = jax.tree.flatten(scores)
    for leaf in leaves or [scores]:
        if not isinstance(leaf, (jax.Array, np.ndarray)) or not jnp.issubdtype(
            leaf.dtype, jnp.floating
        ):
            got = f"dtype {leaf.dtype}" if hasattr(leaf, "dtype") else kind_of(leaf)
            raise TypeError(
                f"{name}: scores: got {got}; expected an array of floating-point numbers, or a "
                "tree of such arrays. Use jnp.asarray(scores, float)."
            )
    return tuple(map(jnp.asarray, leaves)), tree


def read_call(
    name: str,
    factors: Factors,
    options: Mapping[str, Any],
    scores: Any,
    arguments: Mapping[str, Any],
) -> tuple[Call, Arrays]:
    """Return the static part of a call, and its inputs.

    Parameters
    ----------
    name
        The function of this package, for error messages.
    factors, options
        Those of `Call`.
    scores, arguments
        Trees of arrays; the arguments may have other leaves, too.
    """
    blocks, tree = read_scores(name, scores)
    check_accepted(factors, arguments)
    found, arguments_tree = jax.tree_util.tree_flatten_with_path(dict(arguments))
    arrays = [(path, leaf) for path, leaf in found if isinstance(leaf, jax.Array)]
    inputs = (*blocks, *(leaf for _, leaf in arrays))
    call = Call(
        factors,
        options,
        tree,
        arguments_tree,
        tuple(ARRAY if isinstance(leaf, jax.Array) else leaf for _, leaf in found),
        tuple(_name(path) for path, _ in arrays),
        tuple(ArrayType(x.shape, x.dtype) for x in inputs),
    )
    return call, inputs


def _name(path: Any) -> str:
    """Return the name of a leaf among the keyword arguments, as in Python."""
    key, *rest = path
    return f"{key.key}{jax.tree_util.keystr(tuple(rest))}"
