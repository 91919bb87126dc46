"""A layer for any factor type, or for the factors that a function returns."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lpsmap_core import Factor, Variables
from lpsmap_core.api import BoolArray, IntArray
from lpsmap_torch.built_graph import (
    BuiltGraph,
    Declarations,
    Factors,
    SharedScores,
    built_by,
)
from lpsmap_torch.layers.checks import Instances, check_scores
from lpsmap_torch.layers.layer import OPTIONS, Layer
from lpsmap_torch.temperature import is_one, of_batch


class SparseMAP(Layer):
    """SparseMAP with a factor type of your choice, or LP-SparseMAP with factors from a function.

    The marginals are ``argmax_mu <scores, mu> - 1/2 ||mu||^2`` over the convex hull of the
    structures of the type, with one factor per instance of the batch (Niculae et al. 2018); or over
    the local polytope of the factors of a function (Niculae & Martins 2020).

    Parameters
    ----------
    factors
        The type, such as ``lpsmap.DepTree``. A type with additionals must accept their flat scores
        as the argument ``additionals``, like `Sequence`. Or a function that is called with the
        variables, in the shape of the scores, and with the keyword arguments of the call; it
        returns a factor or several, which may interact. Tensors among the arguments, such as
        scores of additionals, get gradients. The graph of a function is built in every call, cannot
        be exported, and breaks the graph of torch.compile.
    event_ndim
        The number of axes of the scores of an instance; None for the default of the type, or for
        the axes from `axis` on.
    max_iter, max_inner_iter, tol, dual_tol, step_size, adapt, relaxation, threads
        As in `FactorGraph.solve`.
    backward_tol, backward_max_iter
        As in `FactorGraph.solve`.
    engine
        As in `FactorGraph.solve`. ``"auto"`` solves on the device of the scores if it is not the
        CPU, and linear constraints describe the factors; ``"tensor"`` on the CPU, too.
    temperature
        A positive number by which all scores are divided, those of parameters included. Or a
        tensor, which becomes a buffer, or a parameter, with a gradient: one element, or a shape
        that broadcasts to the batch. Also an attribute, which can change between calls.
    estimator
        What the layer returns: an object of `lpsmap_torch.estimators`, or its name, such as
        ``"map"``; ``"sparsemap"`` by default. Also an attribute.
    options
        Further arguments of the type, the same for all instances.

    Raises
    ------
    TypeError
        If `factors` is neither a factor type nor a function, or the options have a ``dim``.
    ValueError
        If an ``axis`` among the options is not negative, or not among the last `event_ndim` axes,
        or an option is out of range.

    Examples
    --------
    >>> import torch
    >>> from lpsmap import Xor
    >>> from lpsmap_torch.layers import SparseMAP
    >>> sparsemax = SparseMAP(Xor)
    >>> sparsemax(torch.tensor([[0.3, 0.1, -1.0], [0.0, 2.0, 0.0]]))
    tensor([[0.6000, 0.4000, 0.0000],
            [0.0000, 1.0000, 0.0000]])

    A matching in which the first row takes at least one column:

    >>> from lpsmap import AtMostOne, Or
    >>> def build(u):
    ...     return [AtMostOne(u), AtMostOne(u, axis=-2), Or(u[:, 0])]
    >>> SparseMAP(build)(torch.tensor([[[-2.0, -1.0], [0.5, 0.2]]]))
    tensor([[[0.0667, 0.9333],
             [0.5000, 0.0667]]])
    """

    solved_by: ClassVar[tuple[str, ...]] = ("factors", "event_ndim", "options")

    options: Mapping[str, Any]
    """The further arguments of the type; assign new ones to change them."""

    def __init__(
        self,
        factors: type[Factor] | Factors,
        *,
        event_ndim: int | None = None,
        **options: Any,
    ) -> None:
        names = *OPTIONS, "temperature", "estimator"
        of_solves = {name: options.pop(name) for name in names if name in options}
        super().__init__(**of_solves)
        if not callable(factors):
            raise TypeError(
                f"SparseMAP: factors is {factors!r}; expected a factor type, such as "
                "lpsmap.DepTree, or a function of variables that returns factors."
            )
        self.factors, self.options = factors, options
        if self._is_function:
            self.event_ndim = 0 if event_ndim is None else event_ndim
            return
        if "dim" in options:
            raise TypeError(
                f"SparseMAP: dim is {options['dim']!r}; expected no such argument, since factor "
                "types call it axis. Use axis, such as axis=-2."
            )
        if options.get("axis", -1) >= 0:
            raise ValueError(
                f"SparseMAP: axis is {options['axis']}; expected a negative one, since the batch "
                "comes first."
            )
        kind: Any = factors
        least = -options.get("axis", -1)
        if event_ndim is not None and event_ndim < least:
            raise ValueError(
                f"SparseMAP: event_ndim is {event_ndim}; expected {least} or more, since axis is "
                f"{-least}."
            )
        # the labels of arcs or spans are a further axis
        default = kind.variables_ndim + bool(options.get("labelled", False))
        self.event_ndim = max(default, least) if event_ndim is None else event_ndim
        self.mask_ndim = self.event_ndim
        axes = kind.length_axes
        self.max_lengths = self.event_ndim if axes is None else len(axes)
        self.single_length_first = axes is not None

    def forward(
        self,
        scores: Tensor,
        additionals: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        return_solution: bool = False,
        **arguments: Any,
    ) -> Any:
        """Return the marginals, or the values of another estimator.

        Parameters
        ----------
        scores
            The scores, batch first.
        additionals
            Scores of the additionals, for types that have them: flat on the last axis, and the same
            for all instances or with leading batch axes.
        lengths, mask
            As in the factor type, as tensors: one length for every instance, or one for every axis
            that lengths of the type cut, on a last axis. Axes of the batch may be 1, and the last
            ones may be omitted; lengths then apply to all entries.
        return_solution
            Whether to return all results of the solve; it breaks the graph of torch.compile.
        arguments
            Arguments of a function, which gets those above, too, if they are given.

        Returns
        -------
        Tensor or LayerSolution
            Like the scores, zeros in the padding; or the solution that has them.
        """
        inputs = self._inputs(additionals, lengths=lengths, mask=mask, **arguments)
        return self._output(return_solution, scores, inputs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "options":  # solutions are cached by their values, which must not change
            value = MappingProxyType({key: _copied(x) for key, x in value.items()})
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "options": dict(self.options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = MappingProxyType(state["options"])
        super().__setstate__({**state, "options": options})

    @property
    def _is_function(self) -> bool:
        return not (isinstance(self.factors, type) and issubclass(self.factors, Factor))

    def _inputs(self, additionals: Tensor | None = None, **arguments: Any) -> dict[str, Any]:
        """Return parameters, lengths and mask of a call; of a function, its arguments."""
        if self._is_function:
            arguments = {"additionals": additionals, **arguments}
            optional = "additionals", "lengths", "mask"
            return {k: x for k, x in arguments.items() if k not in optional or x is not None}
        lengths, mask = (arguments.pop(name, None) for name in ("lengths", "mask"))
        if arguments:
            name = self.factors.__name__
            raise TypeError(
                f"SparseMAP: unexpected arguments {', '.join(map(repr, arguments))}; expected "
                f"additionals, lengths or mask. Pass other arguments of {name} to SparseMAP, or a "
                "function in its place."
            )
        return {"parameters": additionals, "lengths": lengths, "mask": mask, "limits": None}

    # ---------------------------------------------------------------- graphs of functions

    def _output(self, return_solution: bool, scores: Tensor, inputs: dict[str, Any]) -> Any:
        if not self._is_function:
            return super()._output(return_solution, scores, inputs)
        self._check_exportable()
        return self._eagerly(return_solution, scores, inputs)

    def _build_graph(
        self, scores: Tensor, inputs: dict[str, Any], divides: bool = False
    ) -> BuiltGraph:
        if not self._is_function:
            return super()._build_graph(scores, inputs, divides)
        check_scores(type(self).__name__, scores, self.event_ndim)
        built = built_by(self.factors, scores, {**self.options, **inputs})
        if divides and not is_one(self.temperature):
            built.graph._divide_scores(of_batch("SparseMAP: temperature", self.temperature, ()))
        return built

    # ---------------------------------------------------------------- factors of a type

    def _check_taken(self, arguments: dict[str, Any]) -> None:
        """Validate that the type takes some arguments."""
        taken = inspect.signature(self.factors).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
            return
        for name in arguments:
            if name not in taken:
                fix = " Forbid variables by scores of -inf." if name == "mask" else ""
                raise TypeError(
                    f"SparseMAP: got {name}, which {self.factors.__name__} does not take; expected "
                    f"no {name}.{fix}"
                )

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return the factors, one per instance."""
        split, (lengths, mask, _) = u.ndim - self.event_ndim, instances
        there = _there(u.shape[:split], lengths, mask)
        view, rows = u, None
        # some types need a variable in each factor; and with several batch axes, one length per
        # instance could be read as two lengths for several instances
        if not there.all() or (lengths is not None and split > 1):
            rows, n = np.flatnonzero(there), there.size
            view = u.reshape(n, *u.shape[split:])[rows]
            lengths = None if lengths is None else _of_instances(lengths, there.shape)[rows]
            mask = None if mask is None else mask.reshape(n, *u.shape[split:])[rows]
            if lengths is not None and lengths.shape[1] == 1:
                lengths = lengths[:, 0]
        if view.size == 0 and u.size:
            return Declarations([])
        additionals = None
        if n_parameters:
            additionals = np.zeros((*view.shape[: view.ndim - self.event_ndim], n_parameters))
        arguments = {"lengths": lengths, "mask": mask, "additionals": additionals}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        self._check_taken(arguments)
        factor: Any = self.factors(view, **self.options, **arguments)
        shared = (SharedScores(factor, np.arange(n_parameters), rows),) if n_parameters else ()
        return Declarations([factor], shared=shared)

    def _repr_arguments(self) -> dict[str, Any]:
        name = getattr(self.factors, "__name__", type(self.factors).__name__)
        return {"factors": _Name(name), **self.options}


def _copied(option: Any) -> Any:
    """Return a copy of an array or a list, which the caller may change later."""
    return option.copy() if isinstance(option, (np.ndarray, list)) else option


def _there(
    batch: tuple[int, ...], lengths: IntArray | None, mask: BoolArray | None
) -> NDArray[np.bool_]:
    """Return flags of instances with any variable."""
    there = np.ones(batch, dtype=bool)
    if lengths is not None:
        there &= (_of_instances(lengths, batch) != 0).all(axis=-1).reshape(batch)
    if mask is not None:
        there &= mask.any(axis=tuple(range(len(batch), mask.ndim)))
    return there


def _of_instances(lengths: NDArray[np.int64], batch: tuple[int, ...]) -> NDArray[np.int64]:
    return lengths.reshape(math.prod(batch), math.prod(lengths.shape[len(batch) :]))


class _Name(str):
    """A string whose repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)
