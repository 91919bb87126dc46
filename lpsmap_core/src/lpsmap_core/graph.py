"""The factor graph, which declares variables and factors, and is solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.choice import AUTO, choose_engine, run_with
from lpsmap_core.engine.options import RELAXATION, Options, checked_options, threads_or_default
from lpsmap_core.engine.warm_start import CachedStart
from lpsmap_core.layout.layout import Layout, build_layout
from lpsmap_core.model.declared import DeclaredGraph
from lpsmap_core.model.earlier import SOLVE, replaced_options
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_count, checked_flag, count_or_flag
from lpsmap_core.model.levels import gibbs_class
from lpsmap_core.model.unused import zero_unused_scores
from lpsmap_core.model.variables import Variables
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.decoder import (
    DEFAULT_GAP,
    SearchProgress,
    installed_decoder,
    options_for_search,
    search_limits,
)
from lpsmap_core.solution.distribution import Distributions
from lpsmap_core.solution.plan import Plan, make_plan
from lpsmap_core.solution.report import log, report_unproved, report_unsolved
from lpsmap_core.solution.solution import Solution, checked_start
from lpsmap_core.solution.solve import best_assignment, scored_graph, solve_laid_out
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.ctrl_c import ended_by_ctrl_c
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.interrupts import Watch

__all__ = ["FactorGraph"]


class FactorGraph(DeclaredGraph):
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

    def __init__(self) -> None:
        super().__init__()
        self.solution: Solution | Assignment | None = None
        self._layout: Layout | None = None

    def __getstate__(self) -> dict[str, Any]:
        # a solution holds addresses of the current process
        return {**super().__getstate__(), "_layout": None, "solution": None}

    @replaced_options(**SOLVE)
    def solve(
        self,
        max_iter: int = 1000,
        max_inner_iter: int | None = None,
        tol: float = 1e-6,
        step_size: float | None = None,
        adapt: bool = True,
        verbose: int = 0,
        *,
        dual_tol: float | None = None,
        threads: int | None = None,
        relaxation: float = RELAXATION,
        trace: bool = False,
        max_time: float | None = None,
        warm_start: Solution | CachedStart | None = None,
        engine: str = AUTO,
        temperature: float = 1.0,
        backward_tol: float = 1e-13,
        backward_max_iter: int = 2000,
    ) -> Solution:
        """Solve the graph; afterwards ``u.value`` holds the marginals of its variables.

        Parameters
        ----------
        max_iter
            Limit of the outer iterations, at least 1. A component of a single factor needs one.
        max_inner_iter
            Limit of the active set's iterations for a factor in one outer iteration. Each iteration
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
            Time limit in seconds, without compilation, of the solve and of each product with the
            Jacobian. Unsolved components get status ``TIME_LIMIT`` and their latest values, if any.
        warm_start
            Initial point: a solution of this graph, or of one that only differs in scores and
            parameters; or ``cache.at(u, keys)`` of a `WarmStartCache`, for examples that recur in
            other batches. Values and gradients only depend on it within `tol`.
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
        max_iter: int = 1000,
        *,
        tol: float = 1e-6,
        dual_tol: float | None = None,
        step_size: float | None = None,
        adapt: bool = True,
        relaxation: float = RELAXATION,
        autodetect_acyclic: bool = True,
        exact: bool = False,
        gap: float = DEFAULT_GAP,
        max_time: float | None = None,
        max_nodes: int | None = None,
        max_inner_iter: int | None = None,
        trace: bool = False,
        progress: Callable[[int, SearchProgress], None] | None = None,
        verbose: int = 0,
        threads: int | None = None,
        warm_start: Solution | CachedStart | None = None,
        engine: str = AUTO,
        solver: str = AUTO,
    ) -> Solution | Assignment:
        """Find the best structure: the relaxation LP-MAP, or the best assignment with a proof.

        The problem is that of `solve` without the quadratic term (Martins et al. 2015)::

            maximise  <eta, mu> + sum_f <eta_f, N_f p_f>

        A component of a single factor is solved by its oracle. Otherwise the marginals of the
        relaxation can be fractional. With `exact`, branch and bound finds the best assignment of
        zeros and ones. Afterwards ``u.value`` holds the values, without gradients.

        Parameters
        ----------
        max_iter, tol, dual_tol, step_size, adapt, relaxation, max_inner_iter, verbose, threads
            As for `solve`, as are `trace`, `warm_start` and `engine`.
        autodetect_acyclic
            Ignored; accepted for compatibility with the earlier library.
        exact
            Whether to search for the best assignment.
        gap
            The search ends once the bound is within ``gap * max(1, abs(score))`` of the score.
        max_time
            Time limit in seconds, or None. Results at the limit, or after Ctrl-C, have a bound.
        max_nodes
            Limit of the nodes of each component's search; None for no limit.
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
        limits = search_limits(gap, max_time, max_nodes, threads, progress)
        decoder, latest = installed_decoder("solve_map(exact=True)"), self.solution
        searched = options_for_search(options, limits)
        with ended_by_ctrl_c(limits.deadline):
            flat = self._flat()
            flat[1][:] = zero_unused_scores(self.factors, *flat)

            def relax() -> Solution:
                return self._run(searched, verbose, warm_start, engine, flat)

            graph = scored_graph(self._laid_out(), self.factors, *flat)
            found = best_assignment(decoder, graph, solver, limits, relax, latest)
        self.solution = found
        report_unproved(found, self._shapes, self.refuses_non_finite)
        return found

    def k_best(
        self,
        k: int,
        *,
        by_component: bool = False,
        gap: float = DEFAULT_GAP,
        max_time: float | None = None,
        max_nodes: int | None = None,
        threads: int | None = None,
    ) -> Sequence[Assignment]:
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
        k = checked_count("k_best: k", k)
        checked_flag("k_best: by_component", by_component)
        limits = search_limits(gap, max_time, max_nodes, threads, None)
        decoder = installed_decoder("k_best")
        linear = Options(threads=limits.threads, quadratic=0.0, max_time=max_time)
        options = options_for_search(linear, limits)._replace(exact=False)
        with ended_by_ctrl_c(limits.deadline):
            relaxed = self._run(options, 0, None, AUTO, self._flat())
            found = decoder.k_best(relaxed.relaxation, k, limits, by_component)
        self.solution = found[0]
        report_unproved(found[0], self._shapes, self.refuses_non_finite)
        return found

    def _run(
        self,
        options: Options,
        verbose: int,
        warm_start: Solution | CachedStart | None,
        engine: str,
        to_decode: tuple[FloatArray, list[FloatArray]] | None = None,
    ) -> Solution:
        """Solve with validated options; report unsolved components unless `to_decode` is given."""
        verbose = count_or_flag("verbose", verbose)
        start = None if warm_start is None else checked_start(warm_start, self)

        def by_engine() -> Solution:
            deadline = Deadline(options.max_time, options.within)
            layout = self._laid_out()
            flat = to_decode or self._flat()
            chosen = choose_engine(engine, layout.part, options).engine
            warm = None if start is None else start.start_for(layout)
            with Watch(within=deadline):
                return solve_laid_out(chosen, layout, self.factors, *flat, options, warm)

        solution = by_engine() if to_decode else run_with(engine, by_engine, self._size)
        if isinstance(start, CachedStart):
            start.keep(self._laid_out(), solution.solved)
        self.solution = solution
        if to_decode is None:
            report_unsolved(solution, self._shapes, self.refuses_non_finite)
        if verbose:
            log(solution)
        return solution

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
        choice = choose_engine(engine, layout.part, options)
        return make_plan(layout, choice, options.threads, limited)

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
            return gibbs_class(self.factors[0]).of_graph(self)
        self._number(factor, "gibbs")
        return gibbs_class(factor)(factor, self.flat_scores(), self.additional_scores(factor))

    def _declaration_changed(self) -> None:
        self._layout = self.solution = None

    def _scores_changed(self) -> None:
        self.solution = None

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(block.shape) for block in self._scores]

    def _solved(self, verb: str) -> Solution | Assignment:
        if self.solution is None:
            raise RuntimeError(
                f"{verb}: the graph was not solved since its last change; call graph.solve() first."
            )
        return self.solution

    def _laid_out(self) -> Layout:
        if self._layout is None:
            self._layout = build_layout(self._n_variables, self.factors)
        return self._layout
