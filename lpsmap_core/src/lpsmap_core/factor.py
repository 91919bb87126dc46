"""The Factor protocol: a declaration of one or many factors over binary variables."""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.variables import Variables, as_variables

__all__ = ["FREE", "LOWER", "TIED", "UPPER", "Factor", "LocalSolution", "override_level"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FREE, LOWER, UPPER, TIED = 0, 1, 2, 3
"""Face codes of a variable slot: between its bounds, at 0, at its upper bound, tied to others."""


class LocalSolution(NamedTuple):
    """Local solutions of a bucket: ``F`` factors of ``K`` slots and ``A`` additionals.

    Attributes
    ----------
    z
        (F, K) floats, scaled marginals in ``[0, 1 / delta]``.
    v
        (F, A) floats, marginals of the additionals.
    face
        (F, K) int8, the face code of every slot (`FREE`, `LOWER`, `UPPER`, `TIED`).
    branch
        (F,) int8, private to the factor type: which case of its closed form holds.
    """

    z: Any
    v: Any
    face: Any
    branch: Any


class Factor(abc.ABC):
    """One declaration that stands for one or many factors of a type.

    A factor type needs two methods, a MAP oracle and its vertices; the generic active set does the
    rest (Niculae et al. 2018, appendix A.2). Compiled oracles and closed forms for a whole bucket
    are optional overrides, which must agree with the two methods.

    With scores ``a`` of its variables, scores ``eta_v`` of its additionals and scaled variables
    ``delta * z = M p``, ``v = N p``, a factor's local problem is (Niculae & Martins 2020,
    Algorithm 1, line 7)::

        minimise 1/2 ||z - a||^2 - <eta_v, v>   over p in the simplex of its structures

    Parameters
    ----------
    variables
        Variables of shape ``batch_shape + event_shape``, where the event takes the last
        `variables_ndim` axes; or a sequence of views, which are stacked on the last axis. Every
        entry of the batch is a factor.
    additionals
        Scores of the factor's additionals: an array (NumPy, torch, or of any array-API library) of
        shape ``batch_shape + anything``, kept as it is; or None.
    lengths
        Integers of shape ``batch_shape``: factor ``b`` covers the leading block ``[:lengths[b]]``
        of its event axes (all of them, or those named in `length_axes`). With a last axis added,
        ``batch_shape + (k,)``, one for each of those `k` axes.
    mask
        Booleans that broadcast to ``variables.shape``: the entries that take part.

    Raises
    ------
    TypeError
        If `variables` are not Variables.
    ValueError
        If shapes disagree, or a length is negative or beyond the event axes.

    Notes
    -----
    Factors are immutable once made: whatever a solution or a gradient needs lives on the solution.
    """

    variables_ndim: int = 1
    """Number of trailing axes of the variables that one factor covers."""

    length_axes: ClassVar[tuple[int, ...] | None] = None
    """Which event axes `lengths` cuts, counted from the first event axis; None cuts all of them."""

    row_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that hold one number for every factor."""

    link_parameter: ClassVar[str | None] = None
    """Name of the attribute that holds one number for every variable slot."""

    flipped: npt.NDArray[np.bool_] | None = None
    """Entries of `variables` that the type has negated itself, as ``Nand`` makes an ``Or``. Its
    structures are shown in the sense of the variables that it was given."""

    map_kernel: ClassVar[Callable[..., None] | None] = None
    """Compiled MAP oracle for many factors (level 2)."""

    projection_kernel: ClassVar[Callable[..., None] | None] = None
    """Compiled closed-form solution of many local problems (level 3)."""

    jvp_kernel: ClassVar[Callable[..., None] | None] = None
    """Compiled product of many local Jacobians with vectors (level 3)."""

    iterates: ClassVar[bool] = False
    """Whether the compiled closed form is an iteration, of a length that depends on the scores.

    A user who limits the iterations of local problems (``max_inner_iter``) asks for approximate
    solutions at a bounded price: then the active set, which gives them, is used in its place.
    """

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Checks of the conformance kit that the type cannot pass, each with the reason in words."""

    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        additionals: Any = None,
        *,
        lengths: npt.ArrayLike | None = None,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        name = type(self).__name__
        self.variables = as_variables(variables, f"{name}: variables").without_ownership()
        ndim = self.variables_ndim
        if self.variables.ndim < ndim:
            raise ValueError(
                f"{name}: variables has shape {self.variables.shape}; expected at least {ndim} "
                f"axes, of which the last {ndim} are one factor's. Add the missing axes by "
                "indexing or reshape."
            )
        split = self.variables.ndim - ndim
        self.batch_shape: tuple[int, ...] = self.variables.shape[:split]
        self.event_shape: tuple[int, ...] = self.variables.shape[split:]
        self.n_factors: int = math.prod(self.batch_shape)
        self.lengths = None if lengths is None else self._checked_lengths(lengths)
        self._masked = mask is not None
        self.keep = self._kept_entries(mask)
        self.offsets: IntArray = (
            np.arange(self.n_factors + 1, dtype=np.int64) * math.prod(self.event_shape)
            if self.keep is None
            else _offsets(self.keep.sum(axis=tuple(range(split, self.keep.ndim))).reshape(-1))
        )
        listed = additionals is not None and not hasattr(additionals, "shape")
        self.additionals = np.asarray(additionals, dtype=np.float64) if listed else additionals
        self.n_additionals = self._count_additionals()

    @property
    def additionals_value(self) -> Any:
        """Marginals of the additionals in the graph's latest solution, shaped like their scores.

        For ``TorchFactorGraph`` a tensor with gradients. See `FactorGraph.additionals_of`.
        """
        return self.variables.graph.additionals_of(self)

    # ---------------------------------------------------------------- one factor, plain Python

    @abc.abstractmethod
    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Hashable:
        """Return the best-scoring structure of one factor, any hashable label.

        Parameters
        ----------
        eta_u
            Scores of the variables, in the factor's event shape (one axis if a mask is used).
        eta_v
            Scores of the additionals, flat.

        Notes
        -----
        For a declaration of many factors, ``self`` is here the view of one: the attributes named in
        `row_parameters` are numbers, the one named in `link_parameter` has the shape of `eta_u`,
        and so has ``self.event_shape``, whatever `lengths` and `mask` leave of this row.
        """

    @abc.abstractmethod
    def vertex(self, y: Any) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return the 0/1 variables and additionals of structure `y`, shaped as in `solve_map`."""

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return a structure in the words of its field, as plain Python numbers and lists.

        Parameters
        ----------
        variables, additionals
            0/1 numbers of one structure, in the factor's event shape as far as its `lengths` reach,
            with zeros where a mask leaves entries out; and flat.

        Returns
        -------
        dict
            Such as ``{"heads": [1, -1, 1]}``; here ``{"on": [...]}``, the positions of the
            variables that are 1, as numbers or as lists of indices.
        """
        places = np.argwhere(np.asarray(variables) > 0.5)
        return {"on": (places[:, 0] if places.shape[1] == 1 else places).tolist()}

    @classmethod
    def examples(cls) -> Sequence[Factor]:
        """Return small declarations of the type, on which the conformance kit can hold it.

        Such as one factor alone, a batch of different parameters, rows of different lengths, with
        and without additionals; of at most a dozen variables a factor. The kit declares them again
        over graphs of its own with scores of its own, so that any scores will do here, and nobody
        needs to keep the graph. See `lpsmap_core.testing`.
        """
        return []

    # ---------------------------------------------------------------- many factors, overrides

    @classmethod
    def vertex_sizes(
        cls, offsets: IntArray, additional_offsets: IntArray, parameters: FloatArray
    ) -> IntArray:
        """Return for each factor the largest number of nonzeros in a vertex (level 2).

        Parameters
        ----------
        offsets, additional_offsets
            (F + 1,) where each factor's slots and additionals begin and end.
        parameters
            (F, P) the row parameters, in the order of `row_parameters`.
        """
        return np.diff(offsets) + np.diff(additional_offsets)

    @classmethod
    def solve_sparsemap(
        cls,
        a: Any,
        eta_v: Any,
        delta: Any,
        parameters: Any,
        link_parameter: Any,
    ) -> LocalSolution:
        """Solve the local problems of ``F`` factors of equal arity in array-API code (level 3).

        Parameters
        ----------
        a, delta
            (F, K) scores and scales (``delta[f, k]`` is the square root of a degree).
        eta_v
            (F, A) scores of the additionals.
        parameters
            (F, P) the row parameters, in the order of `row_parameters`.
        link_parameter
            (F, K) the link parameter, or None.
        """
        raise NotImplementedError

    @classmethod
    def jvp(
        cls,
        solution: LocalSolution,
        d_u: Any,
        d_v: Any,
        delta: Any,
        parameters: Any,
        link_parameter: Any,
    ) -> tuple[Any, Any]:
        """Multiply the local Jacobians of ``(z, v)`` in ``(a, eta_v)`` with a vector (level 3).

        The Jacobian on a face is symmetric, so that the same product serves both directions.

        Parameters
        ----------
        solution
            What `solve_sparsemap` returned; only its `face` and `branch` count.
        d_u, d_v
            (F, K) and (F, A) the vector.
        delta, parameters, link_parameter
            As in `solve_sparsemap`.

        Returns
        -------
        tuple
            (F, K) and (F, A) the product.
        """
        raise NotImplementedError

    # ---------------------------------------------------------------- helpers for factor types

    def per_factor(self, name: str, value: npt.ArrayLike) -> FloatArray:
        """Return `value` broadcast to one number for every factor, as a flat array.

        Parameters
        ----------
        name
            What an error calls it.
        value
            A number, or an array that broadcasts to ``batch_shape``.

        Raises
        ------
        ValueError
            If `value` does not broadcast to ``batch_shape`` or is not finite.
        """
        numbers: FloatArray = self._broadcast(name, value, self.batch_shape)
        return numbers.reshape(-1)

    def per_link(self, name: str, value: npt.ArrayLike) -> FloatArray:
        """Return `value` broadcast to one number for every entry of the variables.

        Parameters
        ----------
        name
            What an error calls it.
        value
            A number, or an array that broadcasts to ``variables.shape``.

        Raises
        ------
        ValueError
            If `value` does not broadcast to ``variables.shape`` or is not finite.
        """
        numbers: FloatArray = self._broadcast(name, value, self.variables.shape)
        return numbers

    def row(self, i: int) -> Factor:
        """Return the view of factor `i` on which the plain Python methods are called."""
        view = copy.copy(self)
        view.event_shape = self._row_shape(i)
        for name in self.row_parameters:
            setattr(view, name, getattr(self, name)[i].item())
        if self.link_parameter is not None:
            links = self.links(getattr(self, self.link_parameter))
            setattr(view, self.link_parameter, self.shaped(i, links[self.slots_of(i)]))
        return view

    def links(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return those of `values`, of ``variables.shape``, that take part, flat by factor."""
        return values.reshape(-1) if self.keep is None else values[self.keep]

    def slots_of(self, i: int) -> slice:
        """Return where factor `i` lies in the flat list of this declaration's slots."""
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def shaped(self, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return `values`, factor `i`'s slots, in its event shape (flat if a mask is used)."""
        return values.reshape(self._row_shape(i))

    def placed(self, i: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return `values` of factor `i` as `shaped` does, but with a mask at their places too."""
        if not self._masked or self.keep is None:
            return self.shaped(i, values)
        event = np.zeros(self.event_shape, dtype=values.dtype)
        event[self.keep.reshape(self.n_factors, *self.event_shape)[i]] = values
        return event

    def __repr__(self) -> str:
        many = f"{self.n_factors} factors " if self.batch_shape else ""
        return f"{type(self).__name__}({many}over variables of shape {self.variables.shape})"

    # ---------------------------------------------------------------- checks

    def _row_shape(self, i: int) -> tuple[int, ...]:
        """Return the shape in which factor `i` sees its slots."""
        if self._masked:
            return (int(self.offsets[i + 1] - self.offsets[i]),)
        shape = list(self.event_shape)
        if self.lengths is not None:
            for axis, length in zip(self._cut_axes(), self.lengths[i], strict=True):
                shape[axis] = int(length)
        return tuple(shape)

    def _cut_axes(self) -> tuple[int, ...]:
        return tuple(range(self.variables_ndim)) if self.length_axes is None else self.length_axes

    def _checked_lengths(self, lengths: npt.ArrayLike) -> IntArray:
        """Return one length for every factor and cut axis."""
        name, axes = type(self).__name__, self._cut_axes()
        longest = np.array([self.event_shape[axis] for axis in axes])
        array = np.asarray(lengths)
        if array.dtype.kind not in "iu":
            raise ValueError(
                f"{name}: lengths has dtype {array.dtype}; expected integers. Convert it first."
            )
        if array.shape not in (self.batch_shape, (*self.batch_shape, len(axes))):
            raise ValueError(
                f"{name}: lengths has shape {array.shape}; expected {self.batch_shape}, one for "
                "every factor of the declaration"
                + (f", or {(*self.batch_shape, len(axes))}." if len(axes) > 1 else ".")
            )
        if array.shape == self.batch_shape:
            array = array[..., None]
        array = np.broadcast_to(array, (*self.batch_shape, len(axes)))
        array = array.reshape(self.n_factors, len(axes)).astype(np.int64)
        wrong = np.argwhere((array < 0) | (array > longest))
        if wrong.size:
            b, k = wrong[0]
            raise ValueError(
                f"{name}: lengths[{b}] is {array[b, k]}; expected 0 to {longest[k]}, the length of "
                "the event axes."
            )
        return array

    def _kept_entries(self, mask: npt.ArrayLike | None) -> npt.NDArray[np.bool_] | None:
        if mask is None and self.lengths is None:
            return None
        keep = np.ones(self.variables.shape, dtype=bool)
        if mask is not None:
            array = np.asarray(mask)
            if array.dtype != bool:
                raise ValueError(
                    f"{type(self).__name__}: mask has dtype {array.dtype}; expected booleans, true "
                    "where a variable takes part."
                )
            keep &= self._broadcast("mask", array, self.variables.shape)
        if self.lengths is not None:
            for axis, lengths in zip(self._cut_axes(), self.lengths.T, strict=True):
                shape = [1] * self.variables.ndim
                shape[len(self.batch_shape) + axis] = -1
                limit = lengths.reshape(self.batch_shape + (1,) * self.variables_ndim)
                keep &= np.arange(self.event_shape[axis]).reshape(shape) < limit
        return keep

    def _count_additionals(self) -> int:
        """Check the additionals' leading axes; return how many additionals each factor has."""
        if self.additionals is None:
            return 0
        shape = tuple(getattr(self.additionals, "shape", ()))
        batch = len(self.batch_shape)
        if shape[:batch] != self.batch_shape:
            raise ValueError(
                f"{type(self).__name__}: additionals has shape {shape}; expected it to start with "
                f"the batch shape {self.batch_shape}. Broadcast it first."
            )
        return math.prod(shape[batch:])

    def _broadcast(self, name: str, value: npt.ArrayLike, shape: tuple[int, ...]) -> Any:
        array = np.asarray(value)
        if array.dtype != bool:
            array = array.astype(np.float64)
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{type(self).__name__}: {name} holds a value that is not finite; expected "
                    "finite numbers."
                )
        try:
            return np.ascontiguousarray(np.broadcast_to(array, shape))
        except ValueError:
            raise ValueError(
                f"{type(self).__name__}: {name} has shape {array.shape}; expected one that "
                f"broadcasts to {shape}."
            ) from None


def override_level(factor_type: type[Factor]) -> Literal[1, 2, 3]:
    """Return a factor type's level of override: 1 oracle, 2 compiled oracle, 3 closed form."""
    if factor_type.projection_kernel is not None or has_array_code(factor_type):
        return 3
    return 1 if factor_type.map_kernel is None else 2


def has_array_code(factor_type: type[Factor]) -> bool:
    """Whether a factor type overrides ``solve_sparsemap`` in array-API code."""
    return factor_type.solve_sparsemap.__func__ is not Factor.solve_sparsemap.__func__  # type: ignore[attr-defined]


def _offsets(counts: IntArray) -> IntArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
