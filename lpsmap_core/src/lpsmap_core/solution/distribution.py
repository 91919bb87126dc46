"""The sparse distributions over structures of a solution, in readable form."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.local.vertices import Vertices, WeightMap
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import real_numbers
from lpsmap_core.model.slots import flipped_slots, placed_values, row_view, slot_values, slots_of
from lpsmap_core.solution.table_rendering import html_table, text_table
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.cached_property import cached_property

MAX_LINES = 20
"""Number of structures shown for a declaration of many factors."""


@dataclass(frozen=True)
class Structure:
    """One structure of a factor's sparse distribution.

    Attributes
    ----------
    probability
        Its weight, in (0, 1].
    score
        The sum of the scores of its variables and additionals; ``-inf`` if one is forbidden.
    variables
        Its 0/1 variables in the factor's event shape, within the factor's `lengths`. They refer to
        the view that was passed to the factor: for ``Xor(~u)``, a 1 means that ``~u`` is on. (A
        knapsack's structures can have one fractional variable.)
    additionals
        Its additionals, in the shape of one factor's scores.
    decoded
        The structure in domain terms, see `Factor.decode`: ``{"heads": [1, -1, 1]}``.
    """

    probability: float
    score: float
    variables: FloatArray
    additionals: FloatArray
    decoded: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return probability, score and decoded form as plain Python objects."""
        return {"probability": self.probability, "score": self.score, **self.decoded}


class Distribution:
    """One factor's structures with their probabilities, the likeliest first.

    A sequence of `Structure`, which prints as a table. It is created by indexing `Distributions`:
    the one of factor `number` of `whole`.
    """

    def __init__(self, whole: Distributions, number: int) -> None:
        self._whole = whole
        self._number = number
        self._range = slice(*whole.starts[number : number + 2].tolist())

    @property
    def probabilities(self) -> Any:
        """(k,) probabilities, with sum 1; tensors with gradients in torch."""
        padded = self._whole.probabilities
        return padded.reshape(len(self._whole), -1)[self._number, : len(self)]

    @property
    def scores(self) -> FloatArray:
        """(k,) scores of the structures, see `Structure`."""
        return self._whole.flat_scores[self._range]

    @cached_property
    def variables(self) -> FloatArray:
        """``(k, *event_shape)`` variables of the structures, see `Structure`."""
        factor, slots = self._whole.factor, slots_of(self._whole.factor, self._number)
        local = self._dense[:, : slots.stop - slots.start]
        flipped = flipped_slots(factor)
        if flipped is not None:
            local = np.where(flipped[slots], 1.0 - local, local)
        if not len(local):
            return np.zeros((0, *factor.event_shape))
        return np.array([placed_values(factor, self._number, m) for m in local])

    @property
    def additionals(self) -> FloatArray:
        """(k, ...) additionals of the structures, in the shape of one factor's scores."""
        n = self._whole.factor.n_additionals
        flat = self._dense[:, self._dense.shape[1] - n :]
        return flat.reshape(len(self), *self._whole.additional_shape)

    @cached_property
    def _dense(self) -> FloatArray:
        """(k, arity + additionals) structures in the kernels' layout."""
        factor, vertices = self._whole.factor, self._whole.vertices
        slots = slots_of(factor, self._number)
        dense = np.zeros((len(self), slots.stop - slots.start + factor.n_additionals))
        offsets = vertices.offsets[self._range.start : self._range.stop + 1]
        rows = np.repeat(np.arange(len(self)), np.diff(offsets))
        entries = slice(offsets[0], offsets[-1])
        dense[rows, vertices.entry[entries]] = vertices.value[entries]
        return dense

    def __len__(self) -> int:
        return int(self._range.stop - self._range.start)

    def __getitem__(self, i: int) -> Structure:
        i = range(len(self))[i]
        view = row_view(self._whole.factor, self._number)
        return Structure(
            probability=float(self._whole.vertices.probability[self._range][i]),
            score=float(self.scores[i]),
            variables=self.variables[i],
            additionals=self.additionals[i],
            decoded=view.decode(self.variables[i], np.ravel(self.additionals[i])),
        )

    def __iter__(self) -> Iterator[Structure]:
        return (self[i] for i in range(len(self)))

    def to_dict(self) -> dict[str, Any]:
        """Return the factor's type and its structures as plain Python objects, for JSON."""
        name = type(self._whole.factor).__name__
        return {"factor": name, "structures": [structure.to_dict() for structure in self]}

    def to_html(self, words: Sequence[str] | None = None) -> str:
        """Return an HTML table of the structures, with drawings of trees.

        Parameters
        ----------
        words
            The words of the sentence, for drawings. Default: their positions.
        """
        rows = []
        for structure in self:
            row = {name: html.escape(cell) for name, cell in _cells(structure).items()}
            rows.append(row | self._whole.factor._drawings(structure.decoded, words))
        return html_table(rows, NUMBERS, self._title)

    def _repr_html_(self) -> str:
        return self.to_html()

    @property
    def _title(self) -> str:
        return f"{type(self._whole.factor).__name__}: {_count(len(self))}"

    def __repr__(self) -> str:
        return f"{self._title}\n{text_table([_cells(s) for s in self], NUMBERS)}"


class Distributions:
    """The sparse distributions over structures of all factors of a declaration.

    A sequence of `Distribution`, one for every factor, which prints as a table. It can also be
    indexed by the declaration's batch shape, ``structures[2, 5]``. For losses over a whole batch,
    padded arrays hold the structures of all factors::

        (structures.probabilities * loss(structures.variables)).sum()

    With `TorchFactorGraph.structures` these are tensors, and the probabilities have gradients.

    Parameters
    ----------
    factor
        The declaration.
    vertices
        Its structures, sorted by factor.
    scores
        One score for every structure.
    n_variables
        Number of variables of the graph.

    Attributes
    ----------
    counts
        ``(*batch_shape,)`` number of structures of each factor. It is 0 for a factor without
        variables, and in a component with scores that are not finite.
    probabilities
        ``(*batch_shape, K)`` with K the largest count: the likeliest first, padded with zeros.

    Notes
    -----
    If several distributions have the same marginals, the probabilities are those of the structures
    that the active set found. All of them are positive. Structures that are merely tied with these
    are omitted, and at a tie the derivative is the one along the listed structures.
    """

    def __init__(
        self, factor: Factor, vertices: Vertices, scores: FloatArray, n_variables: int
    ) -> None:
        self.factor = factor
        self.vertices = vertices
        self.flat_scores = scores
        self.starts = np.searchsorted(vertices.owner, np.arange(factor.n_factors + 1))
        self.counts: IntArray = np.diff(self.starts).reshape(factor.batch_shape)
        self.most = int(self.counts.max(initial=0))
        self.probabilities: Any = self.padded(vertices.probability)
        self._convert: Callable[[FloatArray], Any] = np.asarray
        self._map = WeightMap(
            vertices,
            factor.offsets,
            slot_values(factor, factor.variables.index),
            np.where(slot_values(factor, factor.variables.negated), -1.0, 1.0),
            n_variables,
        )

    # ---------------------------------------------------------------- one factor

    def __len__(self) -> int:
        return self.factor.n_factors

    def __getitem__(self, key: int | tuple[int, ...]) -> Distribution:
        # indexing an array provides NumPy's semantics, including negative indices and errors
        shape = self.factor.batch_shape if isinstance(key, tuple) else (len(self),)
        index = np.arange(len(self)).reshape(shape)[key]
        if index.ndim:
            raise TypeError(
                f"index {key!r} selects {index.size} factors; expected the index of one. Iterate "
                "over several."
            )
        return Distribution(self, int(index))

    def __iter__(self) -> Iterator[Distribution]:
        return (self[i] for i in range(len(self)))

    # ---------------------------------------------------------------- all factors, padded

    @property
    def additional_shape(self) -> tuple[int, ...]:
        """The shape of one factor's additionals."""
        if self.factor.additionals is None:
            return (0,)
        return tuple(self.factor.additionals.shape)[len(self.factor.batch_shape) :]

    @property
    def scores(self) -> Any:
        """``(*batch_shape, K)`` scores of the structures, see `Structure`; zeros in the padding."""
        return self._convert(self.padded(self.flat_scores))

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """``(*batch_shape, K)`` which entries are structures, not padding."""
        return np.arange(self.most) < self.counts[..., None]

    @cached_property
    def variables(self) -> Any:
        """``(*batch_shape, K, *event_shape)`` the structures' variables, see `Structure`.

        Zeros beyond a factor's `lengths`, outside its mask, and in the padding.
        """
        factor, event = self.factor, int(np.prod(self.factor.event_shape))
        structure, entry, value = self.vertices.of_variables(np.diff(factor.offsets))
        if factor.keep is None:
            place = entry
        else:
            slot = factor.offsets[self.vertices.owner[structure]] + entry
            place = np.nonzero(factor.keep.reshape(len(self), event))[1][slot]
        dense = np.zeros((len(self.vertices.owner), event))
        dense[structure, place] = value
        if factor._flipped is not None:
            flipped = factor._flipped if factor.keep is None else factor._flipped & factor.keep
            flipped = flipped.reshape(len(self), event)[self.vertices.owner]
            dense = np.where(flipped, 1.0 - dense, dense)
        return self._convert(self.padded(dense.reshape(len(dense), *factor.event_shape)))

    @cached_property
    def additionals(self) -> Any:
        """``(*batch_shape, K, ...)`` the structures' additionals; zeros in the padding."""
        structure, entry, value = self.vertices.of_additionals(np.diff(self.factor.offsets))
        dense = np.zeros((len(self.vertices.owner), self.factor.n_additionals))
        dense[structure, entry] = value
        return self._convert(self.padded(dense.reshape(len(dense), *self.additional_shape)))

    def padded(self, values: npt.NDArray[Any]) -> FloatArray:
        """Return (S, ...) `values` of all structures as ``(*batch_shape, K, ...)``, zero-padded."""
        out = np.zeros((len(self), self.most, *values.shape[1:]))
        out[self.vertices.owner, self._rank] = values
        return out.reshape(*self.factor.batch_shape, *out.shape[1:])

    def pull_back(self, d_probabilities: npt.ArrayLike) -> FloatArray:
        """Return the gradient in all marginals for a gradient in the probabilities.

        On fixed faces, the probabilities are an affine function of the marginals. The gradient of a
        loss of the probabilities in the scores is thus
        ``solution.vjp(structures.pull_back(gradient))``.

        Parameters
        ----------
        d_probabilities
            ``(*batch_shape, K)``; entries of the padding are ignored.

        Returns
        -------
        ndarray
            (n_variables,)

        Raises
        ------
        TypeError
            If the gradient does not consist of real numbers.
        ValueError
            If it has a wrong shape.
        """
        d = real_numbers("pull_back: d_probabilities", d_probabilities).astype(np.float64)
        if d.size != len(self) * self.most:
            raise ValueError(
                f"pull_back: d_probabilities has shape {d.shape}; expected "
                f"{(*self.factor.batch_shape, self.most)}, that of the probabilities."
            )
        d = d.reshape(len(self), self.most)
        return self._map.pull_back(d[self.vertices.owner, self._rank])

    def push_forward(self, d_values: npt.ArrayLike) -> FloatArray:
        """Return the change of the probabilities along a change of all marginals.

        The transpose of `pull_back`. Along a change d of the scores, the probabilities change by
        ``structures.push_forward(solution.jvp(d)[0])``.

        Parameters
        ----------
        d_values
            (n_variables,)

        Returns
        -------
        ndarray
            ``(*batch_shape, K)``

        Raises
        ------
        TypeError
            If the change does not consist of real numbers.
        ValueError
            If the number of entries is not the number of variables.
        """
        d = real_numbers("push_forward: d_values", d_values).astype(np.float64).reshape(-1)
        if d.size != self._map.n_variables:
            raise ValueError(
                f"push_forward: d_values has {d.size} numbers; expected {self._map.n_variables}, "
                "one for each variable of the graph."
            )
        return self.padded(self._map.push_forward(d))

    def with_arrays(
        self, probabilities: Any, convert: Callable[[FloatArray], Any]
    ) -> Distributions:
        """Return the same distributions with arrays of another library.

        Parameters
        ----------
        probabilities
            The padded probabilities.
        convert
            Converts NumPy arrays, for the other padded arrays.
        """
        n_variables = self._map.n_variables
        other = type(self)(self.factor, self.vertices, self.flat_scores, n_variables)
        other.probabilities, other._convert = probabilities, convert
        return other

    @cached_property
    def _rank(self) -> IntArray:
        """For every structure, its rank within its factor."""
        return np.arange(len(self.vertices.owner)) - self.starts[self.vertices.owner]

    # ---------------------------------------------------------------- output

    def to_dict(self) -> dict[str, Any]:
        """Return every factor's structures as plain Python objects, for JSON."""
        name, factors = type(self.factor).__name__, [entry.to_dict() for entry in self]
        return {"factor": name, "distributions": [entry["structures"] for entry in factors]}

    def _repr_html_(self) -> str:
        shown = self._shown()
        parts = [self[i]._repr_html_() for i in range(shown)]
        if shown < len(self):
            parts.append(f"<p>... and {len(self) - shown} more</p>")
        return "\n".join(parts)

    def _shown(self) -> int:
        """Return the number of factors that fit into a table."""
        return max(1, int(np.searchsorted(self.starts[1:], MAX_LINES, side="right")))

    def __repr__(self) -> str:
        if not self.factor.batch_shape:
            return repr(self[0])
        shown = min(self._shown(), len(self))
        title = f"{self.factor!r}: {_count(len(self.vertices.owner))}"
        rows = []
        for number in range(shown):
            index = ", ".join(map(str, np.unravel_index(number, self.factor.batch_shape)))
            cells = [_cells(structure) for structure in self[number]] or [{"probability": "none"}]
            rows += [{"factor": index if i == 0 else "", **c} for i, c in enumerate(cells)]
        rest = f"\n... and {len(self) - shown} more" if shown < len(self) else ""
        return f"{title}\n{text_table(rows, NUMBERS)}{rest}"


NUMBERS = ("probability", "score")


def _cells(structure: Structure) -> dict[str, str]:
    decoded = {name: str(value) for name, value in structure.decoded.items()}
    numbers = (f"{structure.probability:.3f}", f"{structure.score:.3f}")
    return {**dict(zip(NUMBERS, numbers, strict=True)), **decoded}


def _count(n: int) -> str:
    return "1 structure" if n == 1 else f"{n} structures"
