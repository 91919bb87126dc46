"""The factor graph, which declares variables and factors, and is solved."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.choice import AUTO, beside_core, choose_engine
from lpsmap_core.engine.options import (
    DEFAULTS,
    EARLIER_OPTIONS,
    Options,
    checked_options,
    replaced_options,
    threads_or_default,
)
from lpsmap_core.engine.protocol import Engine
from lpsmap_core.layout.layout import Layout, build_layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.factor_checks import check_declaration, check_parameters
from lpsmap_core.model.inputs import (
    checked_flag,
    checked_shape,
    copied,
    count_or_flag,
    kind_of,
    real_numbers,
)
from lpsmap_core.model.memory_limit import (
    DECLARATION_BYTES,
    LINK_BYTES,
    VARIABLE_BYTES,
    reserve_memory,
)
from lpsmap_core.model.slots import set_label
from lpsmap_core.model.variables import Variables
from lpsmap_core.plugins.install_advice import installed_decoder
from lpsmap_core.solution.distribution import Distributions
from lpsmap_core.solution.plan import Plan, make_plan
from lpsmap_core.solution.report import log, non_finite_message, report_unsolved
from lpsmap_core.solution.scored_graph import ScoredGraph, scored_graph
from lpsmap_core.solution.solution import DEFAULT_GAP, Solution
from lpsmap_core.solution.solve import solve_laid_out
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.interrupts import Watch

AnyFactor = TypeVar("AnyFactor", bound=Factor)


class FactorGraph:
    """A factor graph over binary variables, solved by LP-SparseMAP.

    ``solve`` maximises, over marginals ``mu`` in [0, 1] of the variables and a distribution ``p_f``
    over each factor's structures that agrees with them (Niculae & Martins 2020, Eq. 10)::

        <eta, mu> + sum_f <eta_f, N_f p_f> - 1/2 ||mu||^2

    A mini-batch is one graph: its instances are connected components, which are solved together,
    each with its own convergence test.

    A graph can be pickled with its variables and factors, but without its solution. A pickled
    factor does not include its graph: pickle ``(graph, factor)`` to send both. Only load pickles
    that you trust.

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

    refuses_non_finite: bool = True
    """Whether NaN or +inf scores in every component raise an error instead of a warning."""

    def __init__(self) -> None:
        self._factors: list[Factor] = []
        self._scores: list[Any] = []
        self._additionals: list[Any] = []
        self._position: dict[int, int] = {}
        self._not_added: dict[Hashable, str] = {}
        self._first_of: dict[type[Factor], Factor] = {}
        self._n_variables = 0
        self._layout: Layout | None = None
        self.solution: Solution | Any = None

    def __getstate__(self) -> dict[str, Any]:
        # a solution holds addresses of the current process
        return {**vars(self), "_not_added": {}, "_layout": None, "solution": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._position = {id(factor): i for i, factor in enumerate(self._factors)}

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "copy: two graphs cannot share their variables; expected copy.deepcopy. Copy views and "
            "factors together with the graph: copy.deepcopy((graph, u))."
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._n_variables} variables, {len(self.factors)} factors)"

    # ---------------------------------------------------------------- declarations

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
        return [self._view(span.start, shape) for span, shape in self._spans()]

    @property
    def variables(self) -> list[Variables]:
        """All variables, as `blocks`; the name that the earlier library had for them."""
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
        variables = self._view(self._n_variables, shape)
        self._scores.append(array)
        self._n_variables += math.prod(shape)
        self._layout = self.solution = None
        return variables

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

        A declaration that is not added has no effect; the next solve warns about it.

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
        check_declaration(factor, self)
        if id(factor) in self._position:
            raise ValueError(f"add: {factor!r} was added before; declare it once.")
        check_parameters(factor, self._first_of.get(type(factor), factor))
        n_numbers = factor.n_factors * factor.n_additionals
        n_bytes = DECLARATION_BYTES + LINK_BYTES * factor.variables.size + 8 * n_numbers
        reserve_memory(n_bytes, "links of factors")
        scores = factor.additionals
        if scores is not None:
            scores = self._as_scores(f"add: additionals of {factor!r}", scores)
        if name is not None:
            set_label(factor, name)
        self._position[id(factor)] = len(self._factors)
        self._not_added.pop(_key_of(factor), None)
        self._first_of.setdefault(type(factor), factor)
        self._factors.append(factor)
        self._additionals.append(scores)
        self._layout = self.solution = None
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

    # ---------------------------------------------------------------- solves

    @replaced_options(**EARLIER_OPTIONS)
    def solve(
        self,
        max_iter: int = DEFAULTS.max_iter,
        max_inner_iter: int | None = None,
        tol: float = DEFAULTS.tol,
        step_size: float | None = None,
        adapt: bool = True,
        verbose: int = 0,
        *,
        dual_tol: float | None = None,
        threads: int | None = None,
        relaxation: float = DEFAULTS.relaxation,
        trace: bool = False,
        max_time: float | None = None,
        warm_start: Solution | None = None,
        engine: str = AUTO,
        temperature: float = 1.0,
        backward_tol: float = DEFAULTS.backward_tol,
        backward_max_iter: int = DEFAULTS.backward_max_iter,
    ) -> Solution:
        """Solve the graph; afterwards ``u.value`` holds the marginals of its variables.

        Variables in no factor, such as those beyond a factor's `lengths`, follow their own scores:
        give them ``-inf``, or multiply their values by a mask.

        Parameters
        ----------
        max_iter
            Maximum number of outer iterations, at least 1. A component of one factor needs one.
        max_inner_iter
            Maximum number of the active set's iterations for a factor in one outer iteration. Each
            is a call of the MAP oracle. None for no limit if the factor is alone in its component,
            and otherwise for an adaptive limit, spread over the outer iterations.
        tol
            A component has converged when the copies of each of its variables agree with their mean
            within `tol`, and are exact local solutions for scores that differ from the given ones
            by at most `tol`, or the rounding of the largest score. Both hold for every variable,
            whatever the size of the graph. ``solution.error_bound`` bounds the resulting error of
            the marginals.
        dual_tol
            The second of these tolerances, that of the scores, if it is not `tol`.
        step_size
            First step size of ADMM (the papers' gamma); None to choose by the scale of the scores.
        adapt
            Whether to adapt step sizes, start from multipliers, accelerate and polish.
        verbose
            From 1 on, the outcome is logged by the logger ``lpsmap``, or on stderr without handler.
        threads
            Number of threads that solve components; None for ``LPSMAP_THREADS`` or all cores.
            Results do not depend on it.
        relaxation
            Factor by which copies are extrapolated before averaging, below 2; 1 for none.
        trace
            Whether to store the residuals of every outer iteration, as ``solution.trace``.
        max_time
            Time limit in seconds, without compilation, of the solve, of each product with the
            Jacobian, and of `Solution.jacobian`. Unsolved components get status ``TIME_LIMIT`` and
            their latest values, if any.
        warm_start
            Initial point: a solution of this graph, or of one that only differs in scores and
            parameters. Values and gradients only depend on it within `tol`.
        engine
            Name of the engine that solves; ``"auto"`` leaves the choice to the library, see `plan`.
        temperature
            Weight T > 0 of the quadratic term ``T/2 ||mu||^2``. The solution is that for all scores
            divided by T, to which `tol` refers. It becomes sparser and tends to that of LP-MAP as T
            tends to 0. `solution.objective` and derivatives refer to the scores as given.
        backward_tol, backward_max_iter
            Relative tolerance and iteration limit of products with the Jacobian, for components of
            several factors. A RuntimeWarning reports those that reach the limit.

        Returns
        -------
        Solution
            Also stored as ``self.solution``.

        Raises
        ------
        TypeError
            If an option or the warm start has a wrong type. NumPy numbers, and arrays and tensors
            with one element, count as numbers.
        ValueError
            If an option is out of range, if no component has finite scores, if the warm start
            belongs to another graph, or if the engine is unknown or refuses the graph.

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
            relaxation=relaxation,
            trace=trace,
            max_time=max_time,
            threads=threads,
            dual_tol=dual_tol,
            temperature=temperature,
            backward_tol=backward_tol,
            backward_max_iter=backward_max_iter,
        )
        return self._run(options, verbose, warm_start, engine)

    def solve_map(
        self,
        max_iter: int = DEFAULTS.max_iter,
        *,
        tol: float = DEFAULTS.tol,
        dual_tol: float | None = None,
        step_size: float | None = None,
        adapt: bool = True,
        relaxation: float = DEFAULTS.relaxation,
        autodetect_acyclic: bool = True,
        exact: bool = False,
        gap: float = DEFAULT_GAP,
        max_time: float | None = None,
        max_nodes: int | None = None,
        max_inner_iter: int | None = None,
        trace: bool = False,
        progress: Callable[[int, Any], None] | None = None,
        verbose: int = 0,
        threads: int | None = None,
        warm_start: Solution | None = None,
        engine: str = AUTO,
        solver: str = AUTO,
    ) -> Solution | Any:
        """Find the best structure: the relaxation LP-MAP, or the best assignment with a proof.

        The problem is that of `solve` without the quadratic term (Martins et al. 2015)::

            maximise  <eta, mu> + sum_f <eta_f, N_f p_f>

        A component of a single factor is solved by its oracle. In others, proximal steps
        (Rockafellar 1976) take over where ADMM is slow, and the marginals of the relaxation can be
        fractional. With `exact`, branch and bound finds the best assignment of
        zeros and ones. Afterwards ``u.value`` holds the values, without gradients.

        Parameters
        ----------
        max_iter, tol, dual_tol, step_size, adapt, relaxation, max_inner_iter, verbose, threads
            As for `solve`, as are `trace`, `warm_start` and `engine`. The tolerance of the scores
            is in units of the largest one of their component if that is below 1.
        autodetect_acyclic
            Ignored; accepted for compatibility with the earlier library.
        exact
            Whether to search for the best assignment.
        gap
            The search ends once the bound is within ``gap * max(1, abs(score))`` of the score. If
            the scores of a component are below 1, its largest replaces the 1, up to a factor of 2.
        max_time
            Time limit in seconds, or None. Results at the limit, or after Ctrl-C, have a bound.
        max_nodes
            Maximum number of nodes of each component's search; None for no limit.
        progress
            See `Solution.decode`; only used by the library's own search.
        solver
            Solver of the exact problem: ``"lpsmap"``, the library's own search; or a plugin, such
            as ``"highs"``, if every factor type has linear constraints. ``"auto"`` leaves the
            choice to the library; see ``assignment.solver`` and ``assignment.reason``.

        Returns
        -------
        Solution or Assignment
            The relaxation, or the best assignment with `exact`. Also stored as ``self.solution``.

        Raises
        ------
        TypeError
            If an option has a wrong type.
        ValueError
            If an option is out of range, if the solver is unknown or refuses the graph, or as for
            `solve`.
        ImportError
            With `exact`, if ``lpsmap-decode`` or a package that the solver needs is not installed.

        Warns
        -----
        ConvergenceWarning
            Once, if components were not solved, or assignments not proved to be the best.
        """
        options = checked_options(
            max_iter=max_iter,
            max_inner_iter=max_inner_iter,
            tol=tol,
            dual_tol=dual_tol,
            step_size=step_size,
            adapt=adapt,
            relaxation=relaxation,
            trace=trace,
            max_time=max_time,
            threads=threads,
        )._replace(quadratic=0.0)
        checked_flag("autodetect_acyclic", autodetect_acyclic)
        if not checked_flag("exact", exact):
            return self._run(options, verbose, warm_start, engine)
        assignment = installed_decoder("solve_map(exact=True)").best(
            self,
            self._relaxation(verbose, warm_start, engine),
            options,
            solver,
            gap=gap,
            max_time=max_time,
            max_nodes=max_nodes,
            threads=threads,
            progress=progress,
        )
        return self._decoded(assignment)

    def k_best(
        self,
        k: int,
        *,
        by_component: bool = False,
        gap: float = DEFAULT_GAP,
        max_time: float | None = None,
        max_nodes: int | None = None,
        threads: int | None = None,
    ) -> Sequence[Any]:
        """Find the `k` best assignments of the graph, with a proof.

        The search of `solve_map` continues. For one factor with a dynamic program, see `gibbs`.

        Parameters
        ----------
        k
            Number of assignments, at most a million.
        by_component
            Whether to rank every component by itself, as in a mini-batch: entry j then has the j-th
            best of each, or the score ``-inf``, and the best values of variables in no factor.
        gap, max_time, max_nodes, threads
            As for `solve_map`.

        Returns
        -------
        sequence of Assignment
            The best first, all distinct; fewer than `k` if there are no more. ``proved`` means that
            only assignments in earlier entries score more. The first is also ``self.solution``: the
            only one if a component has no assignment, unless its scores are NaN or ``+inf``.

        Raises
        ------
        TypeError
            If an option has a wrong type.
        ValueError
            If an option is out of range.
        ImportError
            If ``lpsmap-decode`` is not installed.

        Warns
        -----
        ConvergenceWarning
            Once, if the best assignments of components are not proved to be the best.
        """
        assignments: Sequence[Any] = installed_decoder("k_best").k_best(
            self,
            self._relaxation(),
            k,
            by_component,
            gap=gap,
            max_time=max_time,
            max_nodes=max_nodes,
            threads=threads,
            progress=None,
        )
        self._decoded(assignments[0])
        return assignments

    def condition(self, evidence: Sequence[tuple[Variables, npt.ArrayLike]]) -> Any:
        """Return the graph over the remaining variables, given the values of some.

        Parameters
        ----------
        evidence
            Pairs of a view and its values: 0, 1, or NaN if unknown, of a shape that broadcasts to
            that of the view.

        Raises
        ------
        ValueError
            If a view belongs to another graph, or values are invalid or contradict each other.
        ImportError
            If ``lpsmap-decode`` is not installed.
        """
        decoder = installed_decoder("condition")
        return decoder.condition(self, evidence, self._scores, self._additionals, self._forbid)

    def plan(self, threads: int | None = None, limited: bool = False, engine: str = AUTO) -> Plan:
        """Return how the graph would be solved, without solving it.

        Parameters
        ----------
        threads
            As for `solve`.
        limited
            Whether `max_inner_iter` will be given to `solve`. Not all closed forms support it.
        engine
            As for `solve`.

        Returns
        -------
        Plan
            Engine, components, solvers, threads and memory. It prints as tables.

        Raises
        ------
        TypeError, ValueError
            If an option has a wrong type, or is out of range; if the engine refuses the graph.
        """
        layout, limited = self._laid_out(), checked_flag("limited", limited)
        options = Options(threads=threads_or_default(threads))
        of_scores = self._engine_of_scores(engine)
        if of_scores is None:
            choice = choose_engine(engine, layout.part, options)
        else:
            choice = beside_core(*of_scores, layout.part, options)
        return make_plan(layout, choice, options.threads, limited)

    def _engine_of_scores(self, engine: str) -> tuple[Engine, str] | None:
        """Return the engine for scores such as tensors on a device, and the reason for it.

        It is None where the engine does not depend on the scores, as for arrays.
        """
        return None

    def _run(
        self,
        options: Options,
        verbose: int,
        warm_start: Solution | None,
        engine: str,
        to_decode: bool = False,
    ) -> Solution:
        """Solve with validated options; report unsolved components unless `to_decode`."""
        verbose = count_or_flag("verbose", verbose)
        if warm_start is not None and not isinstance(warm_start, Solution):
            raise TypeError(f"warm_start: got {kind_of(warm_start)}; expected a Solution.")

        deadline = Deadline(options.max_time, options.within)
        layout = self._laid_out()
        chosen = choose_engine(engine, layout.part, options).engine
        warm = None if warm_start is None else warm_start.start_for(layout)
        with Watch(within=deadline):
            solution = solve_laid_out(chosen, layout, self.factors, *self._flat(), options, warm)
        self._store(solution)
        if not to_decode:
            report_unsolved(solution, self._shapes, self.refuses_non_finite)
        if verbose:
            log(solution)
        return solution

    def _relaxation(
        self, verbose: int = 0, warm_start: Solution | None = None, engine: str = AUTO
    ) -> Callable[[Options], Solution]:
        """Return the function with which decoders solve the relaxation."""
        return lambda options: self._run(options, verbose, warm_start, engine, to_decode=True)

    def _decoded(self, assignment: Any) -> Any:
        """Store the result of a decoder, and report what it does not prove."""
        self._store(assignment)
        bad = np.isnan(assignment.bound)
        if self.refuses_non_finite and bad.size and bad.all():
            raise ValueError(non_finite_message(assignment.scores, self._shapes()))
        assignment.warn_unproved()
        return assignment

    # ---------------------------------------------------------------- results

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
            If the graph is not solved.
        ValueError
            If the factor belongs to another graph.
        """
        values = self._solved("additionals_of").additionals[self._number(factor, "additionals_of")]
        return values.reshape(np.shape(factor.additionals) if factor.n_additionals else 0).copy()

    def structures(self, factor: Factor) -> Distributions:
        """Return the latest solution's sparse distributions; see `Solution.structures`.

        Raises
        ------
        RuntimeError
            If the graph is not solved.
        ValueError
            If the factor belongs to another graph.
        """
        self._number(factor, "structures")
        return self._solved("structures").structures(factor)

    def gibbs(self, factor: Factor | None = None) -> Any:
        """Return the Gibbs distributions of a declaration's factors one by one, or the graph's.

        The type names the class by `Factor.gibbs`: ``lpsmap_dynamic.Gibbs``, or one with the same
        members. Without `factor` it is ``lpsmap_dynamic.GraphGibbs``. No solve is needed.

        Raises
        ------
        TypeError
            If a type cannot sum over structures, or has no class for these distributions.
        ValueError
            If the factor belongs to another graph, one has a variable twice, or sums are too large.
        """
        if factor is None:
            if not self.factors:
                raise ValueError("gibbs: the graph has no factors; expected at least one.")
            return _gibbs_class(self.factors[0]).of_graph(self)
        self._number(factor, "gibbs")
        return _gibbs_class(factor)(factor, self.flat_scores(), self.additional_scores(factor))

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

    def declared(self, factor: Factor) -> None:
        """Take note of a declaration over variables of this graph, which should be added."""
        shape = factor.variables.shape
        self._not_added[_key_of(factor)] = f"{type(factor).__name__} over shape {shape}"

    def flat_scores(self) -> FloatArray:
        """Return a flat copy of the scores of all variables."""
        blocks = [self._numbers(scores).reshape(-1) for scores in self._scores]
        return blocks[0].copy() if len(blocks) == 1 else np.concatenate([np.empty(0), *blocks])

    def additional_scores(self, factor: Factor) -> FloatArray:
        """Return a copy of the (n_factors, n_additionals) scores of a declaration's additionals.

        Scores of `rescore` replace those of the declaration. The declaration need not be added.
        """
        i = self._position.get(id(factor))
        scores = factor.additionals if i is None else self._additionals[i]
        return self._flat_additionals(factor, scores).copy()

    def _flat_additionals(self, factor: Factor, scores: Any) -> FloatArray:
        """Return scores of a declaration's additionals; those that factors share are read-only."""
        shape = factor.n_factors, factor.n_additionals
        return np.empty(shape) if scores is None else copied(self._numbers(scores)).reshape(shape)

    def scored_graph(self) -> ScoredGraph:
        """Return the layout with the scores, for decoders."""
        return scored_graph(self._laid_out(), self.factors, *self._flat())

    def _flat(self) -> tuple[FloatArray, list[FloatArray]]:
        """Return the scores of all variables, and of every declaration's additionals."""
        scores = self.flat_scores()
        return scores, list(map(self._flat_additionals, self.factors, self._additionals))

    # ---------------------------------------------------------------- state and checks

    def _store(self, solution: Any) -> None:
        """Make a solution or an assignment the latest one."""
        self.solution = solution

    def _scores_changed(self) -> None:
        """Discard the solution."""
        self.solution = None

    def _view(self, begin: int, shape: tuple[int, ...]) -> Variables:
        """Return the view of a block of variables, of which the first has the number `begin`."""
        span = slice(begin, begin + math.prod(shape))
        index = np.arange(span.start, span.stop).reshape(shape)
        return Variables(self, index, np.zeros(shape, dtype=bool), span)

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(block.shape) for block in self._scores]

    def _spans(self) -> Iterator[tuple[slice, tuple[int, ...]]]:
        """Yield the numbers of the variables of each block, and its shape."""
        begin = 0
        for shape in self._shapes():
            end = begin + math.prod(shape)
            yield slice(begin, end), shape
            begin = end

    def _solved(self, verb: str) -> Solution | Any:
        if self.solution is None:
            raise RuntimeError(
                f"{verb}: the graph was not solved since its last change; call graph.solve() first."
            )
        return self.solution

    def _laid_out(self) -> Layout:
        if self._layout is None:
            if self._not_added:
                words, self._not_added = ", ".join(self._not_added.values()), {}  # to warn once
                warnings.warn(
                    "declared over variables of this graph, but not added, and without effect: "
                    f"{words}. Pass every declaration to graph.add.",
                    stacklevel=stacklevel(),
                )
            self._layout = build_layout(self._n_variables, self.factors)
        return self._layout

    def _number(self, factor: Factor, verb: str) -> int:
        number = self._position.get(id(factor))
        if number is None:
            raise ValueError(
                f"{verb}: {factor!r} is not in this graph; expected one of its factors."
            )
        return number

    def _check_own(self, variables: Variables) -> None:
        if not isinstance(variables, Variables):
            raise TypeError(f"value_of: got {kind_of(variables)}; expected Variables.")
        if variables.graph is not self:
            raise ValueError(
                f"value_of: {variables!r} belong to another graph; use Variables.value instead."
            )

    def _block(self, variables: Variables) -> int:
        """Return the number of the block that variables cover."""
        for number, block in enumerate(self._spans()):
            if variables.graph is self and (variables.span, variables.shape) == block:
                return number
        raise ValueError(
            f"rescore: got variables of shape {variables.shape} that are not a block of this "
            "graph; pass the Variables that variable_from returned, not a part of them."
        )


def _key_of(factor: Factor) -> Hashable:
    """Return a key that declarations share if one replaces the other after an error."""
    index = factor.variables.index
    return type(factor), index.shape, index.flat[0] if index.size else None


def _gibbs_class(factor: Factor) -> Any:
    make = type(factor).gibbs
    if make is None:
        factor.log_partition()  # raises an error for a type without sums
        raise TypeError(
            f"{type(factor).__name__} has sums over its structures, but its attribute gibbs is "
            "None; expected a class of distributions. Install lpsmap-dynamic, and set gibbs = "
            "lpsmap_dynamic.Gibbs in the class."
        )
    return make
