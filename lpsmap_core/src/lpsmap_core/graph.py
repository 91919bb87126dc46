"""The factor graph: variables, factors, solve."""

from __future__ import annotations

import logging
import math
from typing import Any, NoReturn, TypeVar

import numpy as np

from lpsmap_core.engine.choice import AUTO, choose_engine
from lpsmap_core.engine.options import Options, checked_options, threads_or_default
from lpsmap_core.engine.warm_start import CachedStart
from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.interrupts import Watch
from lpsmap_core.layout.layout import Layout, build_layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_shape, count, flag, real_numbers
from lpsmap_core.model.unused import forget_unused
from lpsmap_core.model.variables import Variables
from lpsmap_core.solution.distribution import Distributions
from lpsmap_core.solution.gibbs import Gibbs
from lpsmap_core.solution.plan import Plan, make_plan
from lpsmap_core.solution.report import report
from lpsmap_core.solution.solution import Solution, checked_start
from lpsmap_core.solution.solve import solve

__all__ = ["FactorGraph"]

AnyFactor = TypeVar("AnyFactor", bound=Factor)

logger = logging.getLogger("lpsmap")


class FactorGraph:
    """A factor graph over binary variables, solved by LP-SparseMAP.

    ``solve`` maximises, over marginals ``mu`` in [0, 1] of the variables and a distribution ``p_f``
    over each factor's structures that agrees with them (Niculae & Martins 2020, Eq. 10)::

        <eta, mu> + sum_f <eta_f, N_f p_f> - 1/2 ||mu||^2

    A mini-batch is one graph: its instances are connected components, which are solved together and
    judged one by one.

    A graph pickles with its variables and factors, unsolved. A factor pickles with its graph, but
    does not keep it: pickle ``(graph, factor)`` where the other side needs both. Like every pickle,
    it is code to whoever loads it: load none from people that you would not run code of.

    Examples
    --------
    >>> import numpy as np
    >>> from lpsmap import AtMostOne, FactorGraph, Xor
    >>> graph = FactorGraph()
    >>> u = graph.variable_from(np.array([[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]))
    >>> _ = graph.add(Xor(u))  # one of every row
    >>> _ = graph.add(AtMostOne(u, axis=0))  # at most one of every column
    >>> solution = graph.solve()
    >>> u.value.round(3)
    array([[0.575, 0.425, 0.   ],
           [0.425, 0.575, 0.   ]])
    """

    def __init__(self) -> None:
        self._factors: list[Factor] = []
        self.solution: Solution | None = None
        self._scores: list[Any] = []
        self._additionals: list[Any] = []
        self._ids: set[int] = set()
        self._n_variables = 0
        self._layout: Layout | None = None

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "copy: two graphs cannot share their variables; expected copy.deepcopy, and to copy "
            "views and factors with the graph: copy.deepcopy((graph, u))."
        )

    def __getstate__(self) -> dict[str, Any]:
        # a solution holds addresses of this process
        return {**vars(self), "_ids": set(), "_layout": None, "solution": None}

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The declarations, in the order in which they were added."""
        return tuple(self._factors)

    @property
    def n_variables(self) -> int:
        """Number of binary variables."""
        return self._n_variables

    def variable_from(self, scores: Any) -> Variables:
        """Make variables with given scores.

        Parameters
        ----------
        scores
            Real numbers of any shape. ``-inf`` forbids a variable.

        Returns
        -------
        Variables
            Of the same shape.

        Raises
        ------
        TypeError
            If the scores are not real numbers.
        """
        array = self._as_scores("variable_from: scores", scores)
        shape = tuple(array.shape)
        span = slice(self._n_variables, self._n_variables + math.prod(shape))
        index = np.arange(span.start, span.stop).reshape(shape)
        self._scores.append(array)
        self._n_variables = span.stop
        self._forget()
        return Variables(self, index, np.zeros(shape, dtype=bool), span)

    def variable(self, shape: int | tuple[int, ...] = ()) -> Variables:
        """Make variables with scores of zero, of a given shape.

        Raises
        ------
        TypeError
            If `shape` does not consist of integers.
        ValueError
            If one is negative.
        """
        return self.variable_from(np.zeros(checked_shape("variable: shape", shape)))

    def add(self, factor: AnyFactor) -> AnyFactor:
        """Add a declaration of factors to the graph and return it.

        Raises
        ------
        TypeError
            If `factor` is not a Factor, or its additionals' scores are none for this graph: tensors
            with gradients in a graph that would lose them.
        ValueError
            If it is over another graph's variables, or was added before.
        """
        if not isinstance(factor, Factor):
            raise TypeError(
                f"add: got a {type(factor).__name__}; expected a Factor such as Xor(u)."
            )
        if "variables" not in vars(factor):
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
        scores = factor.additionals
        if scores is not None:
            scores = self._as_scores(f"add: additionals of {factor!r}", scores)
        self._ids.add(id(factor))
        self._factors.append(factor)
        self._additionals.append(scores)
        self._forget()
        return factor

    def rescore(self, what: Variables | Factor, scores: Any) -> None:
        """Replace scores; the next solve keeps all else that it knows of the graph.

        Parameters
        ----------
        what
            Variables as `variable_from` returned them, or a factor of this graph with additionals.
        scores
            Their new scores, or the new scores of the factor's additionals, of the same shape as
            before (for a factor, that of its attribute ``additionals``).

        Raises
        ------
        TypeError
            If the scores are not real numbers, or `what` is neither variables nor a factor.
        ValueError
            If the shape differs, or `what` is not such variables or such a factor of this graph.
        """
        if not isinstance(what, (Factor, Variables)):
            raise TypeError(
                f"rescore: what is a {type(what).__name__}; expected Variables as variable_from "
                "returned them, or a Factor of this graph."
            )
        array = self._as_scores("rescore: scores", scores)
        if isinstance(what, Factor):
            kept, number = self._additionals, self._number(what, "rescore")
        else:
            kept, number = self._scores, self._block(what)
        old = kept[number]
        if old is None or tuple(np.shape(old)) != tuple(array.shape):
            expected = "a factor with additionals" if old is None else f"{tuple(np.shape(old))}"
            raise ValueError(
                f"rescore: got scores of shape {tuple(array.shape)}; expected {expected}. Build "
                "another graph for another shape."
            )
        kept[number] = array
        self.solution = None

    def solve(
        self,
        max_iter: int = 1000,
        max_inner_iter: int | None = None,
        tol: float = 1e-6,
        step_size: float | None = None,
        adapt: bool = True,
        verbose: int = 0,
        threads: int | None = None,
        trace: bool = False,
        max_time: float | None = None,
        warm_start: Solution | CachedStart | None = None,
        engine: str = AUTO,
    ) -> Solution:
        """Solve the graph; afterwards ``u.value`` holds the marginals of its variables.

        Parameters
        ----------
        max_iter
            Limit of the outer iterations, at least 1. A component of a single factor needs one.
        max_inner_iter
            Limit of the active set's iterations for a factor in one outer iteration. None: 1000 for
            a factor that is alone in its component, and otherwise as many as agreement takes,
            spread over the outer iterations.
        tol
            A component has converged when the copies of each of its variables agree with their mean
            within `tol`, and are the exact local solutions for scores that differ by no more than
            `tol` from those given, nor by more than the rounding of the largest score. Both hold
            for every variable, whatever the size of the graph. ``solution.error_bound`` bounds what
            this means for the marginals.
        step_size
            First step size of ADMM (the papers' gamma); None chooses by the scale of the scores.
        adapt
            Whether to balance the step size of each component on the way.
        verbose
            With 1 or more, progress goes to the logger ``lpsmap`` at level INFO.
        threads
            Threads among which the components are spread; None for ``LPSMAP_THREADS`` or all cores.
            Results do not depend on it.
        trace
            Whether to keep the residuals of every outer iteration, as ``solution.trace``.
        max_time
            Limit of the time in seconds, also of that within one factor; None for no limit. What
            is not solved by then has status ``TIME_LIMIT`` and the values that it got to: zeros
            where it was not looked at.
        warm_start
            Where to start from: a solution of this graph, or of one that differs in scores and
            parameters alone; or ``cache.at(u, keys)`` of a `WarmStartCache`, for examples that come
            back in other batches. Values and gradients do not depend on it beyond `tol`.
        engine
            Name of the engine that solves; ``"auto"`` leaves the choice to the library, see `plan`.
            Plugins offer others.

        Returns
        -------
        Solution
            Also kept as ``self.solution``.

        Raises
        ------
        TypeError
            If an option is of another type than it should be; numbers of NumPy, and arrays and
            tensors that hold one number, are numbers. Or if the warm start is none.
        ValueError
            If an option is out of range, if no component has finite scores, if the warm start is of
            another graph, or if there is no such engine, or it refuses the graph.

        Warns
        -----
        ConvergenceWarning
            Once, if components were not solved; their status says why.
        """
        options = checked_options(
            max_iter=max_iter,
            max_inner_iter=max_inner_iter,
            tol=tol,
            step_size=step_size,
            adapt=adapt,
            trace=trace,
            max_time=max_time,
            threads=threads,
        )
        verbose = count("verbose", verbose, least=0)
        layout = self._laid_out()
        scores = self.flat_scores()
        additionals = list(map(self._flat_additionals, self.factors, self._additionals))
        additionals = forget_unused(self.factors, scores, additionals)
        chosen = choose_engine(engine, layout.part, options).engine
        warm = None if warm_start is None else self._own_start(warm_start).start_for(layout)
        with Watch(options.max_time):
            solution = solve(chosen, layout, self.factors, scores, additionals, options, warm)
        self.solution = solution
        if isinstance(warm_start, CachedStart):
            warm_start.keep(layout, solution.solved)
        report(solution, scores, [tuple(block.shape) for block in self._scores])
        if verbose:
            logger.info(
                "%r; outer iterations: most %d; largest residuals: %.2e primal, %.2e dual",
                solution,
                solution.iterations.max(initial=0),
                solution.primal_residual.max(initial=0.0),
                solution.dual_residual.max(initial=0.0),
            )
        return solution

    def plan(self, threads: int | None = None, limited: bool = False, engine: str = AUTO) -> Plan:
        """Say how the graph would be solved, without solving it.

        Parameters
        ----------
        threads
            As for `solve`.
        limited
            Whether `solve` will be given `max_inner_iter`, which not all closed forms can obey.
        engine
            As for `solve`.

        Returns
        -------
        Plan
            The engine and why it is this one, components, factors and their solvers, threads and
            memory; prints as tables.

        Raises
        ------
        TypeError
            If an option is of another type than it should be.
        ValueError
            If `threads` is out of range, or there is no such engine, or it refuses the graph.
        """
        layout = self._laid_out()
        options = Options(threads=threads_or_default(threads))
        choice = choose_engine(engine, layout.part, options)
        return make_plan(layout, choice, options.threads, flag("limited", limited))

    def value_of(self, variables: Variables) -> Any:
        """Return the marginals of a view; see `Variables.value`."""
        self._check_own(variables)
        values = self._solved("value").values
        if variables.span is not None:
            return values[variables.span].copy().reshape(variables.shape)
        chosen = values[variables.index]
        return np.where(variables.negated, 1.0 - chosen, chosen)

    def additionals_of(self, factor: Factor) -> Any:
        """Return the marginals of a declaration's additionals, in the shape of their scores.

        Raises
        ------
        RuntimeError
            If the graph was not solved yet.
        ValueError
            If the factor is not of this graph.
        """
        position = self._position(factor)
        values = self._solved("additionals_of").additionals[position]
        return values.reshape(np.shape(factor.additionals) if factor.n_additionals else (0,))

    def structures(self, factor: Factor) -> Distributions:
        """Return the sparse distributions over a declaration's structures.

        See `Solution.structures`, for the latest solution.

        Raises
        ------
        RuntimeError
            If the graph was not solved yet.
        ValueError
            If the factor is not of this graph.
        """
        solution = self._solved("structures")
        self._number(factor, "structures")
        return solution.structures(factor)

    def gibbs(self, factor: Factor) -> Gibbs:
        """Return the Gibbs distributions of a declaration's factors, each by itself.

        Log-partition functions, marginals, entropies, samples, the k best structures and their
        number, for the latest scores. Nothing has to be solved.

        Raises
        ------
        TypeError
            If the type sums over no structures.
        ValueError
            If the factor is not of this graph, or has a variable twice.
        """
        self._number(factor, "gibbs")
        return Gibbs(factor, self.flat_scores(), self.additional_scores(factor))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._n_variables} variables, {len(self.factors)} factors)"

    # ---------------------------------------------------------------- for adapters

    def _as_scores(self, name: str, scores: Any) -> Any:
        """Return scores as this graph keeps them: an array of real numbers."""
        return real_numbers(name, scores)

    def _numbers(self, array: Any) -> FloatArray:
        """Return kept scores or additionals as float64 numbers on the host."""
        return np.asarray(array, dtype=np.float64)

    def flat_scores(self) -> FloatArray:
        """Return the scores of all variables, flat."""
        blocks = [self._numbers(scores).reshape(-1) for scores in self._scores]
        return blocks[0].copy() if len(blocks) == 1 else np.concatenate([np.empty(0), *blocks])

    def additional_scores(self, factor: Factor) -> FloatArray:
        """Return the (n_factors, n_additionals) scores of a declaration's additionals.

        Those of `rescore` if there are, and those that it was declared with if it was not added.
        """
        kept = {id(f): scores for f, scores in zip(self.factors, self._additionals, strict=True)}
        return self._flat_additionals(factor, kept.get(id(factor), factor.additionals))

    def _flat_additionals(self, factor: Factor, scores: Any) -> FloatArray:
        if scores is None:
            return np.empty((factor.n_factors, 0))
        return self._numbers(scores).reshape(factor.n_factors, factor.n_additionals)

    def _forget(self) -> None:
        self._layout = None
        self.solution = None

    # ---------------------------------------------------------------- checks

    def _solved(self, verb: str) -> Solution:
        if self.solution is None:
            raise RuntimeError(
                f"{verb}: the graph was not solved since it last changed; call graph.solve() first."
            )
        return self.solution

    def _check_own(self, variables: Variables) -> None:
        if not isinstance(variables, Variables):
            raise TypeError(f"value_of: got a {type(variables).__name__}; expected Variables.")
        if variables.graph is not self:
            raise ValueError(
                f"value_of: {variables!r} are another graph's; ask that graph, or use their value."
            )

    def _own_start(self, warm_start: Any) -> Solution | CachedStart:
        start = checked_start(warm_start)
        if isinstance(start, CachedStart) and start.variables.graph is not self:
            raise ValueError(
                "warm_start: the cache is at variables of another graph; expected cache.at(u, "
                "keys) with variables of the graph to be solved."
            )
        return start

    def _position(self, factor: Factor) -> int:
        self._solved("additionals_of")
        return self._number(factor, "additionals_of")

    def _number(self, factor: Factor, verb: str) -> int:
        for number, other in enumerate(self.factors):
            if factor is other:
                return number
        raise ValueError(f"{verb}: {factor!r} is not of this graph; pass what add returned.")

    def _block(self, variables: Variables) -> int:
        """Return the number of the block of scores that variables were made with."""
        first = 0
        for number, block in enumerate(self._scores):
            shape = tuple(block.shape)
            span = slice(first, first + math.prod(shape))
            if variables.graph is self and variables.span == span and variables.shape == shape:
                return number
            first = span.stop
        raise ValueError(
            f"rescore: got variables of shape {variables.shape} that no call of variable_from of "
            "this graph returned; pass what it returned, not a part of it."
        )

    def _laid_out(self) -> Layout:
        if self._layout is None:
            self._layout = build_layout(self._n_variables, self.factors)
        return self._layout
