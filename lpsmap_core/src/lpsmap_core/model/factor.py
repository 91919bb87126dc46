"""The Factor protocol: a declaration of one or many factors over binary variables."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.face_codes import face_jvp, face_jvp_kernel
from lpsmap_core.kernels.records import Factors, LocalSolution
from lpsmap_core.model.inheritance import disinherit
from lpsmap_core.model.inputs import (
    MAX_COUNT,
    broadcast,
    checked_scores,
    checked_shape,
    finite_numbers,
    integer_array,
    n_additionals,
    whole_numbers,
)
from lpsmap_core.model.lengths import checked_lengths, checked_mask, within_lengths
from lpsmap_core.model.linear_constraints import LinearConstraints
from lpsmap_core.model.parameters import Parameters
from lpsmap_core.model.tensor_oracle import TensorOracle
from lpsmap_core.model.variables import Variables, as_variables
from lpsmap_jit.arrays import FloatArray, IntArray


class Factor(abc.ABC):
    """A declaration of one or many factors of a type.

    A factor type needs two methods, a MAP oracle and its vertices; the generic active set does the
    rest (Niculae et al. 2018, appendix A.2). Compiled oracles and closed forms for a whole bucket
    are optional overrides, which must agree with the two methods. A subclass that overrides one of
    the two inherits no optional override.

    With scores ``a`` of its variables, scores ``eta_v`` of its additionals and scaled variables
    ``delta * z = M p``, ``v = N p``, a factor's local problem is (Niculae & Martins 2020,
    Algorithm 1, line 8)::

        minimise 1/2 ||z - a||^2 - <eta_v, v>   over p in the simplex of its structures

    Parameters
    ----------
    variables
        Variables of shape ``batch_shape + event_shape``, where the event takes the last
        `variables_ndim` axes; or a sequence of views, which are stacked on the last axis. Each
        entry of the batch is a factor.
    additionals
        Scores of the factor's additionals: an array (NumPy, torch, or of any array-API library) of
        shape ``batch_shape + anything``, stored unchanged; or None.
    lengths
        Integers of shape ``batch_shape``: factor ``b`` covers the leading block ``[:lengths[b]]``
        of its event axes (all of them, or those named in `length_axes`). With a last axis added,
        ``batch_shape + (k,)``, one length for each of those `k` axes. Variables beyond are
        free if they are in no other factor.
    mask
        Booleans that broadcast to ``variables.shape``: the entries that take part. Others are free
        if they are in no other factor.

    Raises
    ------
    TypeError
        If `variables` are not Variables, or an argument that must be numeric is not.
    ValueError
        If shapes disagree, or a length is negative or beyond the event axes.
    """

    variables_ndim: int = 1
    """Number of trailing axes of the variables that one factor covers."""

    length_axes: ClassVar[tuple[int, ...] | None] = None
    """Which event axes `lengths` cuts, counted from the first event axis; None cuts all of them."""

    map_kernel: ClassVar[Callable[..., None] | None] = None
    """Compiled MAP oracle for many factors (level 2)."""

    projection_kernel: ClassVar[Callable[..., None] | None] = None
    """Compiled closed-form solution of many local problems (level 3)."""

    jvp_kernel: ClassVar[Callable[..., None] | None] = staticmethod(face_jvp_kernel)
    """Compiled product of many local Jacobians with vectors (level 3); by default by face codes."""

    gibbs: ClassVar[Callable[..., Any] | None] = None
    """Class for `FactorGraph.gibbs`, such as ``lpsmap_dynamic.Gibbs``; needs `log_partition`."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Checks of the conformance kit that the type cannot pass, each with a reason."""

    projection_iterates: ClassVar[bool] = False
    """Whether the closed form iterates. ``max_inner_iter`` then selects the active set instead, and
    the branch `UNSOLVED` reports a factor whose kernel ended without the solution."""

    _generic: bool = False
    """Whether the active set solves a declaration, whose factors the closed form does not cover."""

    _flipped: npt.NDArray[np.bool_] | None = None
    """Entries of `variables` that the type negated; see `slots.flipped_slots`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        disinherit(cls, Factor)

    def __init__(
        self,
        variables: Variables | Sequence[Variables],
        additionals: Any = None,
        *,
        lengths: npt.ArrayLike | None = None,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        name = type(self).__name__
        self._parameters = Parameters()
        self.variables = as_variables(variables, f"{name}: variables").without_ownership()
        ndim = self.variables_ndim
        if self.variables.ndim < ndim:
            raise ValueError(
                f"{name}: variables has shape {self.variables.shape}; expected at least {ndim} "
                f"axes; the last {ndim} belong to one factor. Add axes by indexing or reshape."
            )
        split = self.variables.ndim - ndim
        self.batch_shape: tuple[int, ...] = self.variables.shape[:split]
        self.event_shape: tuple[int, ...] = self.variables.shape[split:]
        self.n_factors: int = math.prod(self.batch_shape)
        self._masked = mask is not None
        self.lengths, self.keep = self._covered(lengths, mask)
        self.offsets: IntArray = (
            np.arange(self.n_factors + 1, dtype=np.int64) * math.prod(self.event_shape)
            if self.keep is None
            else np.append(0, np.cumsum(self.keep.sum(axis=tuple(range(split, self.keep.ndim)))))
        )
        self.additionals = checked_scores(f"{name}: additionals", additionals)
        self.n_additionals: int = n_additionals(name, self.additionals, self.batch_shape)
        self.variables.graph.declared(self)

    @property
    def additionals_value(self) -> Any:
        """Marginals of the additionals, like their scores; see `FactorGraph.additionals_of`."""
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
        For a declaration of many factors, ``self`` is a view of one factor. An attribute that
        `per_factor` or `counts` registered is a number (or an array, if registered with a shape),
        that of `integers` is this factor's array, and that of `per_link` has the shape of `eta_u`.
        ``self.event_shape`` is also the shape of `eta_u`, with `lengths` and `mask` applied.
        """

    @abc.abstractmethod
    def vertex(self, y: Any) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return the 0/1 variables and additionals of structure `y`, shaped as in `solve_map`."""

    def decode(self, variables: FloatArray, additionals: FloatArray) -> dict[str, Any]:
        """Return a structure in the terms of its domain, as plain Python numbers and lists.

        Parameters
        ----------
        variables, additionals
            0/1 numbers of one structure: in the factor's event shape, cut to its `lengths` and with
            zeros where a mask excludes entries; and flat.

        Returns
        -------
        dict
            For example ``{"heads": [1, -1, 1]}``. The default is ``{"on": [...]}``, the positions
            of the variables that are 1, as numbers or as lists of indices.
        """
        places = np.argwhere(np.asarray(variables) > 0.5)
        return {"on": (places[:, 0] if places.shape[1] == 1 else places).tolist()}

    def _drawings(self, decoded: dict[str, Any], words: Sequence[str] | None) -> dict[str, str]:
        """Return entries of `decode` as SVG, for the words of a sentence or their positions."""
        return {}

    @classmethod
    def examples(cls) -> Sequence[Factor]:
        """Return small declarations of the type, on which the kit tests it.

        For example a single factor, a batch with different parameters, rows of different lengths,
        with and without additionals; at most a dozen variables per factor. The scores are free.
        """
        return []

    # ---------------------------------------------------------------- many factors, overrides

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the maximum number of nonzeros in a vertex of each factor (level 2).

        Parameters
        ----------
        factors
            The record that kernels get: offsets and parameters of all F factors.
        """
        return np.diff(factors.offsets) + np.diff(factors.additional_offsets)

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
            (F, P) numbers that `per_factor` and `counts` registered, in the order of registration.
        link_parameter
            (F, K) numbers that `per_link` registered, or None.
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

        The Jacobian on a face is symmetric, so the same product serves both directions. The default
        computes it from the face codes: override it, and `jvp_kernel`, for a type with additionals,
        or if the codes do not determine how its slots move.

        Parameters
        ----------
        solution
            The result of `solve_sparsemap`; only its `face` and `branch` are used.
        d_u, d_v
            (F, K) and (F, A) the vector.
        delta, parameters, link_parameter
            As in `solve_sparsemap`.

        Returns
        -------
        tuple
            (F, K) and (F, A) the product.

        Raises
        ------
        NotImplementedError
            If there are additionals, which face codes do not cover.
        """
        if d_v.shape[1]:
            raise NotImplementedError(f"{cls.__name__} has additionals; expected a jvp method.")
        return face_jvp(solution, d_u, delta, link_parameter), d_v

    @classmethod
    def local_solver(cls) -> type[Any] | None:
        """Return the type's own ``lpsmap_core.LocalSolver``, or None.

        It is preferred to kernels of the same class. A subclass with a kernel of its own does not
        inherit it.
        """
        return None

    def unused(self) -> tuple[npt.NDArray[np.bool_] | None, npt.NDArray[np.bool_] | None]:
        """Return flags of the entries that are off in all structures; their scores have no effect.

        Returns
        -------
        slots
            Of ``variables.shape``, or None if all variables are used. An unused variable is 0 for
            every score, so its score may be NaN.
        additionals
            (n_factors, n_additionals), or None if all additionals are used.
        """
        return None, None

    def linear_constraints(self) -> LinearConstraints | None:
        """Return linear constraints that describe the structures of all factors exactly, or None.

        Their solutions between 0 and 1 are the convex hull of the structures. They constrain slots:
        core applies negation. `lpsmap_core.bounded_sums` creates constraints on sums. Every solve
        calls this method; ``LinearConstraints.deferred`` defers constraints that are slow to build.
        """
        return None

    def tensor_oracle(self) -> TensorOracle | None:
        """Return an oracle for batches on any device, with the scores of `solve_map`, or None."""
        return None

    def log_partition(self) -> Any:
        """Return sums over the structures of this declaration's factors.

        An object with the methods of ``lpsmap_dynamic.LogPartition``; see `inference`.
        """
        return self.inference()

    def inference(self) -> Any:
        """Return sums over the structures of this declaration's factors, samples, and k best.

        An object with the methods of ``lpsmap_dynamic.Inference``.

        Raises
        ------
        TypeError
            If the type has no inference; ``lpsmap_dynamic.DynamicProgram`` provides it.
        """
        raise TypeError(
            f"{type(self).__name__} has no inference over its structures; expected a "
            "DynamicProgram of lpsmap-dynamic, or a type with log_partition() for sums, or "
            "inference() for all."
        )

    # ---------------------------------------------------------------- parameters

    def per_factor(
        self, name: str, value: npt.ArrayLike, *, shape: int | tuple[int, ...] = ()
    ) -> FloatArray:
        """Register numbers for every factor, to be stored as the attribute `name`.

        ``self.k = self.per_factor("k", k)`` suffices: row views get a number as this attribute, and
        kernels a column of `Factors.parameters`, in the order of registration.

        Parameters
        ----------
        name
            The attribute's name.
        value
            A number, or an array that broadcasts to ``batch_shape + shape``.
        shape
            Shape of one factor's numbers, for a table instead of a number. Row views get an array
            of this shape, and kernels a column for each of its entries.

        Returns
        -------
        FloatArray
            Of shape ``(n_factors, *shape)``.

        Raises
        ------
        TypeError
            If `value` does not hold real numbers, or the name is registered already.
        ValueError
            If it does not broadcast to ``batch_shape + shape`` or is not finite.
        """
        owner = type(self).__name__
        row_shape = () if shape == () else checked_shape(f"{owner}: shape of {name}", shape)
        self._parameters.register(owner, "per_factor", name, row_shape)
        numbers = finite_numbers(f"{owner}: {name}", value, self.batch_shape + row_shape)
        return numbers.reshape(self.n_factors, *row_shape)

    def counts(self, name: str, value: npt.ArrayLike) -> IntArray:
        """Register a whole number for every factor, to be stored as the attribute `name`.

        Larger numbers than 2^62 are capped there. Clip them to a meaningful maximum, for example by
        ``self.k = np.minimum(self.counts("k", k), n)``: kernels compute with them.

        Parameters
        ----------
        name
            The attribute's name.
        value
            A number of 0 or more, or an array of them that broadcasts to ``batch_shape``.

        Returns
        -------
        IntArray
            Of shape ``(n_factors,)``.

        Raises
        ------
        TypeError
            If `value` does not hold numbers, or the name is registered already.
        ValueError
            If it does not broadcast to ``batch_shape``, or holds a fraction or a negative number.
        """
        self._parameters.register(type(self).__name__, "counts", name)
        if type(value) is int and value >= 0:  # the common case
            return np.full(self.n_factors, min(value, MAX_COUNT))
        name = f"{type(self).__name__}: {name}"
        numbers = broadcast(name, whole_numbers(name, value), self.batch_shape).reshape(-1)
        wrong = np.flatnonzero((numbers < 0) | (numbers != np.rint(numbers)))
        if wrong.size:
            i = int(wrong[0])
            raise ValueError(
                f"{name} of {self._name_of(i)} is {numbers[i]:g}; expected a whole number, 0 or "
                "more."
            )
        return numbers.astype(np.int64)

    def per_link(self, name: str, value: npt.ArrayLike) -> FloatArray:
        """Register a number for every entry of the variables, to be stored as the attribute `name`.

        Row views get an array of their event shape, and kernels `Factors.link_parameter`.

        Parameters
        ----------
        name
            The attribute's name.
        value
            A number, or an array that broadcasts to ``variables.shape``. Entries that `lengths` or
            `mask` excludes are not validated.

        Returns
        -------
        FloatArray
            Of shape ``variables.shape``.

        Raises
        ------
        TypeError
            If `value` does not hold real numbers, or another parameter of this kind is registered.
        ValueError
            If it does not broadcast to ``variables.shape`` or is not finite.
        """
        self._parameters.register(type(self).__name__, "per_link", name)
        name = f"{type(self).__name__}: {name}"
        return finite_numbers(name, value, self.variables.shape, self.keep)

    def integers(
        self, name: str, value: Any, *, per_factor: bool = False
    ) -> IntArray | tuple[IntArray, ...]:
        """Register an array of integers, such as edges, to be stored as the attribute `name`.

        Row views get this factor's array, and kernels get it, flat, in `Factors.integers`.

        Parameters
        ----------
        name
            The attribute's name.
        value
            Whole numbers of any shape, shared by all factors.
        per_factor
            Whether `value` is a sequence of arrays, one for each factor.

        Returns
        -------
        IntArray or tuple of IntArray
            The array, or one for each factor.

        Raises
        ------
        TypeError
            If they are not numbers, or another parameter of this kind is registered.
        ValueError
            If a number is a fraction, or if there is not an array for each factor.
        """
        self._parameters.register(type(self).__name__, "integers", name)
        name = f"{type(self).__name__}: {name}"
        if not per_factor:
            return integer_array(name, value)
        if len(value) != self.n_factors:
            raise ValueError(f"{name} has {len(value)} arrays; expected one for each factor.")
        return tuple(integer_array(name, array) for array in value)

    # ---------------------------------------------------------------- for packs and for core

    def _kernel_numbers(self, name: str) -> Any:
        """Return the numbers of a registered parameter that kernels get."""
        return getattr(self, name)

    def _kernel_integers(self) -> tuple[Sequence[IntArray], IntArray]:
        """Return the arrays of integers that kernels get, and the position of each factor's."""
        name = self._parameters.integers
        arrays = () if name is None else getattr(self, name)
        if isinstance(arrays, np.ndarray):
            return [arrays], np.zeros(self.n_factors, dtype=np.int64)
        return arrays, np.arange(len(arrays))

    def _name_of(self, i: int) -> str:
        """Return the name of factor `i` in errors."""
        return f"factor {i}"

    def __repr__(self) -> str:
        many = f"{self.n_factors} factors " if self.batch_shape else ""
        return f"{type(self).__name__}({many}over variables of shape {self.variables.shape})"

    def _cut_axes(self) -> tuple[int, ...]:
        return tuple(range(self.variables_ndim)) if self.length_axes is None else self.length_axes

    def _covered(
        self, lengths: npt.ArrayLike | None, mask: npt.ArrayLike | None
    ) -> tuple[IntArray | None, npt.NDArray[np.bool_] | None]:
        """Return one length for every factor and cut axis, and flags of the entries in use."""
        name, split, axes = type(self).__name__, len(self.batch_shape), self._cut_axes()
        shape, keep, checked = self.variables.shape, None, None
        if lengths is not None:
            checked = checked_lengths(name, lengths, shape, split, axes, self.length_axes)
            keep = within_lengths(checked, shape, split, axes)
        if mask is not None:
            flags = checked_mask(name, mask, shape)
            keep = flags if keep is None else keep & flags
        return checked, keep
