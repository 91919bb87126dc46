"""Arrays of binary variables that index like NumPy arrays."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.inputs import booleans, kind_of
from lpsmap_core.model.memory_limit import VIEW_BYTES, reserve_memory
from lpsmap_jit.arrays import BoolArray, IntArray

if TYPE_CHECKING:  # a graph owns its variables
    from lpsmap_core.graph import FactorGraph


class Variables:
    """An n-dimensional view of some of a graph's binary variables.

    `FactorGraph.variable_from` and `FactorGraph.variable` create views, which index like NumPy
    arrays: ``u[:, 0]``, ``u[mask]``, ``u[[2, 0], 1]``, ``u.T``, ``u.reshape(-1)``. ``~u`` are the
    negated variables, ``1 - u``, and ``u ^ mask`` are the variables negated where a mask is true,
    like booleans of NumPy. Views do not copy scores.

    Parameters
    ----------
    graph
        The graph that owns the variables.
    index
        Integer array of any shape: positions in the graph's flat list of variables.
    negated
        Boolean array of the same shape: true for the negated entries, ``1 - u``.
    span
        Range of the graph's list, if `index` is known to be that range, in order, and no entry is
        negated. Views that ``variable_from`` returns have a span.
    """

    __slots__ = ("_graph", "index", "negated", "span")

    __array_ufunc__ = None  # so that NumPy leaves ``mask ^ u`` to `__rxor__`

    def __init__(
        self,
        graph: FactorGraph | weakref.ref[FactorGraph],
        index: IntArray,
        negated: BoolArray,
        span: slice | None = None,
    ) -> None:
        self._graph = graph
        self.index: IntArray = _read_only(index)
        self.negated: BoolArray = _read_only(negated)
        self.span = span

    @property
    def graph(self) -> FactorGraph:
        """The graph that owns the variables."""
        if not isinstance(self._graph, weakref.ref):
            return self._graph
        graph = self._graph()
        if graph is None:
            raise RuntimeError("graph: the graph of these variables is gone; keep a reference.")
        return graph

    def without_ownership(self) -> Variables:
        """Return the same view with a weak reference to the graph.

        Factors hold such views, so a graph and its factors form no reference cycle: a graph that
        goes out of scope frees its arrays at once, without garbage collection.
        """
        return Variables(weakref.ref(self.graph), self.index, self.negated, self.span)

    def refer_to(self, index: IntArray, negated: BoolArray) -> None:
        """Hold other arrays with the same contents, such as parts of larger ones."""
        self.index = _read_only(index.reshape(self.shape))
        self.negated = _read_only(negated.reshape(self.shape))

    # Pickled as state, since a graph's factors refer to their variables. Weak stays weak.
    def __getstate__(self) -> tuple[FactorGraph, bool, IntArray, BoolArray, slice | None]:
        weak = isinstance(self._graph, weakref.ref)
        return self.graph, weak, self.index, self.negated, self.span

    def __setstate__(
        self, state: tuple[FactorGraph, bool, IntArray, BoolArray, slice | None]
    ) -> None:
        graph, weak, index, negated, span = state
        self.__init__(weakref.ref(graph) if weak else graph, index, negated, span)  # type: ignore[misc]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the view."""
        return self.index.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the view."""
        return self.index.ndim

    @property
    def size(self) -> int:
        """Number of entries of the view."""
        return self.index.size

    @property
    def value(self) -> Any:
        """Marginals in [0, 1] from the graph's latest ``solve``, in this view's shape.

        Raises
        ------
        RuntimeError
            If the graph was not solved yet.
        """
        return self.graph.value_of(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "Variables are neither true nor false; expected u.value, their marginals after a "
            "solve, or ~u for their negation."
        )

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Variables]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Variables:
        index = np.asarray(self.index[key])
        if index.size > self.size and not self.negated.any():  # cheaper than indexing
            negated = np.zeros(index.shape, dtype=np.bool_)
        else:
            negated = np.asarray(self.negated[key])
        return Variables(self._graph, index, negated)

    def __invert__(self) -> Variables:
        return Variables(self._graph, self.index, ~self.negated)

    def __xor__(self, mask: npt.ArrayLike) -> Variables:
        """Return the variables negated where a mask is true.

        Parameters
        ----------
        mask
            Booleans whose shape broadcasts with that of the view.

        Raises
        ------
        TypeError
            If the mask does not consist of booleans.
        ValueError
            If the shapes do not broadcast.

        Examples
        --------
        >>> import lpsmap
        >>> u = lpsmap.FactorGraph().variable((2, 3))
        >>> (u ^ [True, False, True]).negated[0].tolist()
        [True, False, True]
        """
        flags = booleans("u ^ mask: mask", mask, "a variable is negated")
        try:
            index, negated, flags = np.broadcast_arrays(self.index, self.negated, flags)
        except ValueError:
            raise ValueError(
                f"u ^ mask: mask has shape {flags.shape}; expected one that broadcasts with "
                f"{self.shape}, the shape of the variables."
            ) from None
        reserve_memory(VIEW_BYTES * index.size, "views that broadcast")
        return Variables(self._graph, index, negated ^ flags)

    __rxor__ = __xor__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "Variables are not numbers and cannot become a NumPy array; expected u.value, their "
            "marginals after a solve, or lpsmap.stack, which joins views."
        )

    def reshape(self, *shape: Any) -> Variables:
        """Return the same variables in another shape, as `numpy.ndarray.reshape`."""
        return Variables(self._graph, self.index.reshape(*shape), self.negated.reshape(*shape))

    def transpose(self, *axes: Any) -> Variables:
        """Return the same variables with permuted axes, as `numpy.ndarray.transpose`."""
        return Variables(self._graph, self.index.transpose(*axes), self.negated.transpose(*axes))

    def moveaxis(self, source: int, destination: int) -> Variables:
        """Return the same variables with axis `source` at `destination`; see `numpy.moveaxis`."""
        order = list(range(self.ndim))
        order.insert(range(self.ndim)[destination], order.pop(source))
        return self.transpose(order)

    @property
    def T(self) -> Variables:  # noqa: N802 - NumPy's name
        """The same variables with reversed axes."""
        return self.transpose()

    def __repr__(self) -> str:
        negated = "some or all negated, " if self.negated.any() else ""
        return f"Variables(shape={self.shape}, {negated}of {self.graph!r})"


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view: compiled code does not validate the indices of a layout again."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def stack(variables: Sequence[Variables]) -> Variables:
    """Broadcast variables to one shape and stack them along a new last axis.

    Parameters
    ----------
    variables
        Views of one graph whose shapes broadcast together.

    Returns
    -------
    Variables
        Of shape ``(*broadcast_shape, len(variables))``.

    Raises
    ------
    TypeError
        If an entry is not a `Variables`.
    ValueError
        If `variables` is empty, if their graphs differ, or if their shapes do not broadcast.
    """
    if not len(variables):
        raise ValueError("stack: got no variables; expected at least one Variables view.")
    for position, view in enumerate(variables):
        if not isinstance(view, Variables):
            raise TypeError(
                f"stack: entry {position} is {kind_of(view)}; expected Variables, "
                "as made by FactorGraph.variable_from or FactorGraph.variable."
            )
        if view.graph is not variables[0].graph:
            raise ValueError(
                f"stack: entry {position} belongs to another graph than entry 0; expected "
                "variables of one graph. Create them with the same graph's variable_from."
            )
    try:
        index = np.broadcast_arrays(*(view.index for view in variables))
    except ValueError:
        shapes = ", ".join(str(view.shape) for view in variables)
        raise ValueError(
            f"stack: shapes {shapes} do not broadcast together; expected equal shapes or axes of "
            "length 1."
        ) from None
    negated = np.broadcast_arrays(*(view.negated for view in variables))
    reserve_memory(VIEW_BYTES * index[0].size * len(index), "views that broadcast")
    return Variables(variables[0].graph, _stacked(index), _stacked(negated))


def _stacked(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Stack arrays along a new last axis in C order, which factors need."""
    out = np.empty((*arrays[0].shape, len(arrays)), dtype=arrays[0].dtype)
    return np.stack(arrays, axis=-1, out=out)


def as_variables(variables: Variables | Sequence[Variables], name: str = "variables") -> Variables:
    """Return a view unchanged, and a sequence of views stacked along a new last axis.

    Parameters
    ----------
    variables
        A view, or a list or tuple of views whose shapes broadcast together.
    name
        Name of the variables in errors.

    Raises
    ------
    TypeError
        If `variables` is neither.
    """
    if isinstance(variables, Variables):
        return variables
    if isinstance(variables, (list, tuple)):
        return stack(variables)
    raise TypeError(
        f"{name}: got {kind_of(variables)}; expected Variables, as made by "
        "FactorGraph.variable_from(scores), or a list of them."
    )
