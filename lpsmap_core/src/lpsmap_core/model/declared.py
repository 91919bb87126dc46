"""Declarations of a graph: variables with scores, and factors over them."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_shape, kind_of, real_numbers
from lpsmap_core.model.labels import set_label
from lpsmap_core.model.memory_limit import (
    DECLARATION_BYTES,
    LINK_BYTES,
    VARIABLE_BYTES,
    reserve_memory,
)
from lpsmap_core.model.names import check_own_attributes
from lpsmap_core.model.registration import check_registered, check_same_parameters
from lpsmap_core.model.variables import Variables
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["DeclaredGraph"]

AnyFactor = TypeVar("AnyFactor", bound=Factor)


class DeclaredGraph(abc.ABC):
    """Variables with scores, and factors over them. Subclasses implement the solves."""

    refuses_non_finite: bool = True
    """Whether NaN or +inf scores in every component raise an error instead of a warning."""

    def __init__(self) -> None:
        self._factors: list[Factor] = []
        self._scores: list[Any] = []
        self._additionals: list[Any] = []
        self._ids: set[int] = set()
        self._first_of: dict[type[Factor], Factor] = {}
        self._n_variables = 0

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "copy: two graphs cannot share their variables; expected copy.deepcopy. Copy views and "
            "factors together with the graph: copy.deepcopy((graph, u))."
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ids": set()}

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The declarations, in the order in which they were added."""
        return tuple(self._factors)

    @property
    def n_variables(self) -> int:
        """Number of binary variables."""
        return self._n_variables

    @property
    def blocks(self) -> list[Variables]:
        """All variables, as the calls of `variable_from` returned them."""
        views, end = [], 0
        for scores in self._scores:
            shape = tuple(scores.shape)
            span = slice(end, end := end + math.prod(shape))
            index = np.arange(span.start, span.stop).reshape(shape)
            views.append(Variables(self, index, np.zeros(shape, dtype=bool), span))
        return views

    @property
    def variables(self) -> list[Variables]:
        """All variables: `blocks`, by the name that the earlier library had for them."""
        return self.blocks

    def variable_from(self, scores: Any) -> Variables:
        """Create variables with given scores.

        Parameters
        ----------
        scores
            Real numbers of any shape. ``-inf`` forbids a variable.

        Returns
        -------
        Variables
            Variables of the same shape.

        Raises
        ------
        TypeError
            If the scores are not real numbers.
        """
        array = self._as_scores("variable_from: scores", scores)
        shape = tuple(array.shape)
        reserve_memory(DECLARATION_BYTES + VARIABLE_BYTES * math.prod(shape), "variables")
        span = slice(self._n_variables, self._n_variables + math.prod(shape))
        index = np.arange(span.start, span.stop).reshape(shape)
        self._scores.append(array)
        self._n_variables = span.stop
        self._declaration_changed()
        return Variables(self, index, np.zeros(shape, dtype=bool), span)

    def variable(self, shape: int | tuple[int, ...] = ()) -> Variables:
        """Create variables of a given shape with scores of zero.

        Raises
        ------
        TypeError
            If `shape` does not consist of integers.
        ValueError
            If a size is negative.
        """
        return self.variable_from(np.zeros(checked_shape("variable: shape", shape)))

    def add(self, factor: AnyFactor, name: str | Sequence[str] | None = None) -> AnyFactor:
        """Add a declaration of factors to the graph and return it.

        Parameters
        ----------
        factor
            The declaration.
        name
            Its name in messages about contradictions. The index of a factor follows, or replaces
            fields, one for each batch axis: ``"row {}, digit {}"``. Or a text for each factor.

        Raises
        ------
        TypeError
            If `factor` is not a Factor, if its attributes differ from its registered parameters, if
            it registers other parameters than the graph's declarations of the same type, if this
            graph would lose the gradients of its additionals' scores, or if `name` is not text.
        ValueError
            If its variables belong to another graph, if it was added before, or if `name` does not
            fit its factors.
        """
        if not isinstance(factor, Factor):
            raise TypeError(f"add: got {kind_of(factor)}; expected a Factor such as Xor(u).")
        if not isinstance(vars(factor).get("variables"), Variables):
            raise TypeError(
                f"add: the {type(factor).__name__} has no variables; expected its __init__ to call "
                "super().__init__(variables)."
            )
        if factor.variables.graph is not self:
            raise ValueError(
                f"add: {factor!r} is over variables of another graph; make its variables with this "
                "graph's variable_from."
            )
        if len(self._ids) != len(self._factors):  # this graph comes from a pickle
            self._ids = {id(other) for other in self._factors}
        if id(factor) in self._ids:
            raise ValueError(f"add: {factor!r} was added before; declare it once.")
        check_own_attributes(factor)
        check_registered(factor)
        check_same_parameters(factor, self._first_of.get(type(factor), factor))
        n_numbers = factor.n_factors * factor.n_additionals
        n_bytes = DECLARATION_BYTES + LINK_BYTES * factor.variables.size + 8 * n_numbers
        reserve_memory(n_bytes, "links of factors")
        scores = factor.additionals
        if scores is not None:
            scores = self._as_scores(f"add: additionals of {factor!r}", scores)
        if name is not None:
            set_label(factor, name)
        self._ids.add(id(factor))
        self._first_of.setdefault(type(factor), factor)
        self._factors.append(factor)
        self._additionals.append(scores)
        self._declaration_changed()
        return factor

    def rescore(self, what: Variables | Factor, scores: Any) -> None:
        """Replace scores; the next solve reuses the other state of the graph.

        Parameters
        ----------
        what
            Variables as `variable_from` returned them, or a factor of this graph with additionals.
        scores
            New scores of the variables, or of the factor's additionals, in the same shape as before
            (for a factor, the shape of its attribute ``additionals``).

        Raises
        ------
        TypeError
            If the scores are not real numbers, or `what` is neither variables nor a factor.
        ValueError
            If the shape differs, or if `what` is a part of a block, a factor without additionals,
            or does not belong to this graph.
        """
        if not isinstance(what, (Variables, Factor)):
            raise TypeError(
                f"rescore: what is {kind_of(what)}; expected Variables as variable_from "
                "returned them, or a Factor of this graph."
            )
        array = self._as_scores("rescore: scores", scores)
        if isinstance(what, Variables):
            stored, number = self._scores, self._block(what)
        else:
            stored, number = self._additionals, self._number(what, "rescore")
        old = stored[number]
        if old is None or tuple(np.shape(old)) != tuple(array.shape):
            expected = "a factor with additionals" if old is None else f"{tuple(np.shape(old))}"
            raise ValueError(
                f"rescore: got scores of shape {tuple(array.shape)}; expected {expected}. Build "
                "another graph for another shape."
            )
        stored[number] = array
        self._scores_changed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._n_variables} variables, {len(self.factors)} factors)"

    # ---------------------------------------------------------------- for adapters

    def _as_scores(self, name: str, scores: Any) -> Any:
        """Return scores in the form that this graph stores: an array of real numbers."""
        return real_numbers(name, scores)

    def _numbers(self, array: Any) -> FloatArray:
        """Return stored scores or additionals as float64 numbers on the host."""
        return np.asarray(array, dtype=np.float64)

    def _forbid(self, scores: Any, flags: BoolArray) -> Any:
        """Return stored scores with the flagged ones set to -inf."""
        return np.where(flags, -np.inf, scores)

    def flat_scores(self) -> FloatArray:
        """Return a flat copy of the scores of all variables."""
        blocks = [self._numbers(scores).reshape(-1) for scores in self._scores]
        return blocks[0].copy() if len(blocks) == 1 else np.concatenate([np.empty(0), *blocks])

    def additional_scores(self, factor: Factor) -> FloatArray:
        """Return a copy of the (n_factors, n_additionals) scores of a declaration's additionals.

        Scores of `rescore` replace those of the declaration. The declaration need not be added.
        """
        stored = {id(f): scores for f, scores in zip(self.factors, self._additionals, strict=True)}
        return self._flat_additionals(factor, stored.get(id(factor), factor.additionals))

    def _flat_additionals(self, factor: Factor, scores: Any) -> FloatArray:
        shape = factor.n_factors, factor.n_additionals
        return np.empty(shape) if scores is None else self._numbers(scores).reshape(shape).copy()

    def _flat(self) -> tuple[FloatArray, list[FloatArray]]:
        """Return the scores of all variables, and of every declaration's additionals."""
        scores = self.flat_scores()
        return scores, list(map(self._flat_additionals, self.factors, self._additionals))

    # ---------------------------------------------------------------- for subclasses

    @abc.abstractmethod
    def value_of(self, variables: Variables) -> Any:
        """Return the marginals of a view."""

    @abc.abstractmethod
    def additionals_of(self, factor: Factor) -> Any:
        """Return the marginals of a declaration's additionals."""

    @abc.abstractmethod
    def _declaration_changed(self) -> None:
        """Discard all state derived from the variables and factors."""

    @abc.abstractmethod
    def _scores_changed(self) -> None:
        """Discard all state derived from the scores."""

    # ---------------------------------------------------------------- checks

    def _size(self) -> int:
        """Return the total number of the factors' variables and additionals."""
        return sum(int(f.offsets[-1]) + f.n_factors * f.n_additionals for f in self._factors)

    def _number(self, factor: Factor, verb: str) -> int:
        for number, other in enumerate(self.factors):
            if factor is other:
                return number
        raise ValueError(f"{verb}: {factor!r} is not in this graph; expected one of its factors.")

    def _check_own(self, variables: Variables) -> None:
        if not isinstance(variables, Variables):
            raise TypeError(f"value_of: got {kind_of(variables)}; expected Variables.")
        if variables.graph is not self:
            raise ValueError(
                f"value_of: {variables!r} belong to another graph; use Variables.value instead."
            )

    def _block(self, variables: Variables) -> int:
        """Return the number of the block that variables cover."""
        first = 0
        for number, block in enumerate(self._scores):
            shape = tuple(block.shape)
            span = slice(first, first + math.prod(shape))
            if variables.graph is self and variables.span == span and variables.shape == shape:
                return number
            first = span.stop
        raise ValueError(
            f"rescore: got variables of shape {variables.shape} that are not a block of this "
            "graph; pass the Variables that variable_from returned, not a part of them."
        )
