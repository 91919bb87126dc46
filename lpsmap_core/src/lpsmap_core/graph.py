"""The factor graph: variables, factors, solve."""

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
from lpsmap_core.model.evidence import Conditioned
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_flag, count_or_flag, kind_of
from lpsmap_core.model.unused import forget_unused
from lpsmap_core.model.variables import Variables
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.decoder import (
    DEFAULT_GAP,
    SearchProgress,
    checked_rank,
    installed_decoder,
    options_for_search,
    search_limits,
)
from lpsmap_core.solution.distribution import Distributions
from lpsmap_core.solution.gibbs import GibbsDistributions, gibbs_of
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

    A mini-batch is one graph: its instances are connected components, which are solved together and
    judged one by one.

    A graph pickles with its variables and factors, unsolved. A factor pickles with its graph, but
    does not keep it: pickle ``(graph, factor)`` to send both. Load pickles that you trust only.

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
        # a solution holds addresses of this process
        return {**super().__getstate__(), "_layout": None, "solution": None}

    def solve(
        self,
        max_iter: int = 1000,
        max_inner_iter: int | None = None,
        tol: float = 1e-6,
        step_size: float | None = None,
        adapt: bool = True,
        verbose: int = 0,
        *,
        threads: int | None = None,
        relaxation: float = RELAXATION,
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
            Limit of the active set's iterations, each a question to the MAP oracle, for a factor in
            one outer iteration. None: as many as the solution takes of a factor that is alone in
            its component, and otherwise as many as agreement takes, spread over the outer
            iterations.
        tol
            A component has converged when the copies of each of its variables agree with their mean
            within `tol`, and are the exact local solutions for scores that differ by no more than
            `tol` from those given, nor by more than the rounding of the largest score. Both hold
            for every variable, whatever the size of the graph. ``solution.error_bound`` bounds what
            this means for the marginals.
        step_size
            First step size of ADMM (the papers' gamma); None chooses by the scale of the scores.
        adapt
            Whether to balance step sizes on the way, start from multipliers, accelerate and polish.
        verbose
            From 1 on, how it ended goes to the logger ``lpsmap``, or stderr if it has no handler.
        threads
            Threads among which the components are spread; None for ``LPSMAP_THREADS`` or all cores.
            Results do not depend on it.
        relaxation
            By what copies are extrapolated before they are averaged, less than 2; 1 for not at all.
        trace
            Whether to keep the residuals of every outer iteration, as ``solution.trace``.
        max_time
            Limit of the seconds, compiling aside, also within one factor; None for no limit. What
            is not solved by then has status ``TIME_LIMIT`` and the values that it got to: zeros
            where it was not looked at. It limits each product with the Jacobian, too.
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
            relaxation=relaxation,
            trace=trace,
            max_time=max_time,
            threads=threads,
        )
        return self._run(options, verbose, warm_start, engine)

    def solve_map(
        self,
        max_iter: int = 1000,
        *,
        tol: float = 1e-6,
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

        The same problem as `solve`'s without the quadratic term (Martins et al. 2015)::

            maximise  <eta, mu> + sum_f <eta_f, N_f p_f>

        A component of a single factor is solved by its oracle. Elsewhere the marginals of the
        relaxation can be fractions; with `exact` a branch and bound over it finds the best
        assignment of zeros and ones. Afterwards ``u.value`` holds the values, without gradients.

        Parameters
        ----------
        max_iter, tol, step_size, adapt, relaxation, max_inner_iter, trace, verbose, threads
            As for `solve`, as are `warm_start` and `engine`.
        autodetect_acyclic
            For calls of the earlier library: graphs without loops need no other treatment here.
        exact
            Whether to search for the best assignment.
        gap
            The search ends once the bound is within ``gap * max(1, abs(score))`` of the score.
        max_time
            Limit of the seconds, or None. What is found by then, or by Ctrl-C, has its bound.
        max_nodes
            Limit of the nodes of each component's search; None for no limit.
        progress
            See `Solution.decode`; of the library's own search.
        solver
            With `exact`, who looks for it: ``"lpsmap"``, the library's own search; or a plugin's,
            such as ``"highs"``, if every factor type has linear constraints. ``"auto"`` leaves the
            choice to the library; ``assignment.solver`` and ``assignment.reason`` say who and why.

        Returns
        -------
        Solution or Assignment
            The relaxation, or the best assignment with `exact`. Also kept as ``self.solution``.

        Raises
        ------
        TypeError
            If an option is of another type than it should be.
        ValueError
            If an option is out of range, the solver is unknown or refuses, or as for `solve`.
        ImportError
            With `exact`, if ``lpsmap-decode`` is not installed, or a package that the solver needs.

        Warns
        -----
        ConvergenceWarning
            Once, if components were not solved, or assignments not proved.
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
        )._replace(quadratic=0.0)
        checked_flag("autodetect_acyclic", autodetect_acyclic)
        if not checked_flag("exact", exact):
            return self._run(options, verbose, warm_start, engine)
        limits = search_limits(gap, max_time, max_nodes, threads, progress)
        decoder, latest = installed_decoder("solve_map(exact=True)"), self.solution
        searched = options_for_search(options, limits)
        with ended_by_ctrl_c(limits.deadline):
            flat = self._flat()
            flat[1][:] = forget_unused(self.factors, *flat)

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
        gap: float = DEFAULT_GAP,
        max_time: float | None = None,
        max_nodes: int | None = None,
        threads: int | None = None,
    ) -> Sequence[Assignment]:
        """Find the `k` best assignments of every component, with a proof.

        The search of `solve_map` goes on past the best assignment, and excludes those that it has.
        For one factor with a dynamic program, `gibbs` is faster.

        Parameters
        ----------
        k
            How many, a million at most.
        gap, max_time, max_nodes, threads
            As for `solve_map`.

        Returns
        -------
        sequence of Assignment
            Of length `k`: entry j has the j-th best assignment of each component, and no score
            where a component has fewer. ``proved`` says that no assignment but those before it
            scores more. The first is also kept as ``self.solution``. Variables in no factor have
            their best values in all.

        Raises
        ------
        TypeError
            If an option is of another type than it should be.
        ValueError
            If an option is out of range.
        ImportError
            If ``lpsmap-decode`` is not installed.

        Warns
        -----
        ConvergenceWarning
            Once, if the best assignments of components are not proved to be that.
        """
        k, limits = checked_rank(k), search_limits(gap, max_time, max_nodes, threads, None)
        decoder = installed_decoder("k_best")
        linear = Options(threads=limits.threads, quadratic=0.0, max_time=max_time)
        options = options_for_search(linear, limits)._replace(exact=False)
        with ended_by_ctrl_c(limits.deadline):
            relaxed = self._run(options, 0, None, AUTO, self._flat())
            found = decoder.k_best(relaxed.relaxation, k, limits)
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
        """Solve with checked options; for given scores, what is not solved is not reported."""
        verbose = count_or_flag("verbose", verbose)
        start = None if warm_start is None else self._own_start(warm_start)

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

    def condition(self, evidence: Sequence[tuple[Variables, npt.ArrayLike]]) -> Conditioned:
        """Return the graph of what is left to ask when some variables are known.

        Parameters
        ----------
        evidence
            Pairs of a view of variables and what they are: 0, 1, or NaN for not known, of a shape
            that broadcasts to the view's.

        Raises
        ------
        ValueError
            If a view is not of this graph, a number is another one, or two contradict.
        ImportError
            If ``lpsmap-decode`` is not installed.
        """
        decoder = installed_decoder("condition")
        return decoder.condition(self, evidence, self._scores, self._additionals, self._forbid)

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
            The engine and why it is this one, components, factors and their solvers, threads,
            memory, and which factors can never bind; prints as tables.

        Raises
        ------
        TypeError
            If an option is of another type than it should be.
        ValueError
            If `threads` is out of range, or there is no such engine, or it refuses the graph.
        """
        layout, limited = self._laid_out(), checked_flag("limited", limited)
        options = Options(threads=threads_or_default(threads))
        choice = choose_engine(engine, layout.part, options)
        return make_plan(self.factors, layout, choice, options.threads, limited)

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
        values = self._solved("additionals_of").additionals[self._number(factor, "additionals_of")]
        return values.reshape(np.shape(factor.additionals) if factor.n_additionals else 0).copy()

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
        self._number(factor, "structures")
        return self._solved("structures").structures(factor)

    def gibbs(self, factor: Factor) -> GibbsDistributions:
        """Return the Gibbs distributions of a declaration's factors, each by itself.

        Log-partition functions, marginals, entropies, samples, the k best structures and their
        number, for the latest scores. Nothing has to be solved.

        Raises
        ------
        TypeError
            If the type sums over no structures, or names nothing that makes these distributions.
        ValueError
            If the factor is not of this graph, or has a variable twice.
        """
        self._number(factor, "gibbs")
        return gibbs_of(factor, self.flat_scores(), self.additional_scores(factor))

    # ---------------------------------------------------------------- what a change makes void

    def _declaration_changed(self) -> None:
        self._layout = self.solution = None

    def _scores_changed(self) -> None:
        self.solution = None

    # ---------------------------------------------------------------- checks

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(block.shape) for block in self._scores]

    def _solved(self, verb: str) -> Solution | Assignment:
        if self.solution is None:
            raise RuntimeError(
                f"{verb}: the graph was not solved since it last changed; call graph.solve() first."
            )
        return self.solution

    def _check_own(self, variables: Variables) -> None:
        if not isinstance(variables, Variables):
            raise TypeError(f"value_of: got {kind_of(variables)}; expected Variables.")
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

    def _laid_out(self) -> Layout:
        if self._layout is None:
            self._layout = build_layout(self._n_variables, self.factors)
        return self._layout
