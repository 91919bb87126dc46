"""The solution of a factor graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.protocol import MAX_UNSCALED, MIN_UNSCALED, SolvedGraph, WarmStart
from lpsmap_core.engine.status import OK, Status
from lpsmap_core.layout.layout import Layout
from lpsmap_core.layout.ragged import flags, ranges, sums
from lpsmap_core.local.vertices import join_vertices, structure_scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import kind_of, real_numbers
from lpsmap_core.model.slots import placed_slots, slot_values
from lpsmap_core.model.variables import Variables
from lpsmap_core.plugins.install_advice import installed_decoder
from lpsmap_core.solution.contradictions import (
    Contradictions,
    ReducedContradictions,
    explain_contradictions,
    reduced_contradictions,
)
from lpsmap_core.solution.distribution import Distributions
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores
from lpsmap_core.solution.scored_graph import ScoredGraph
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.cached_property import cached_property
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.deadlines import Deadline

DEFAULT_GAP = 1e-8
"""Relative difference of bound and score that counts as a proof."""

DECODE_MAX_NODES = 1000
"""Default maximum number of nodes for decoding a relaxed solution."""

DECODE_MAX_TIME = 10.0
"""Default time limit in seconds. For thousands of tables, a thousand nodes would take minutes."""


@dataclass
class Solution:
    """The solution of a factor graph, with the data for derivatives.

    Components are numbered by their first variable, and declarations in the order of addition.
    """

    layout: Layout
    factors: Sequence[Factor]
    solved: SolvedGraph
    scores: FloatArray
    values: FloatArray
    """(n_variables,) marginals in [0, 1], in the graph's flat order of variables."""
    status: npt.NDArray[np.object_]
    """(n_components,) array of `Status`; its text has their counts."""
    iterations: IntArray
    """(n_components,) outer iterations; 1 for a component of a single factor."""
    primal_residual: FloatArray
    """(n_components,) largest disagreement of a variable's copies, in units of marginals."""
    dual_residual: FloatArray
    """(n_components,) largest last change of a marginal times the step size, likewise."""
    additional_scores: Sequence[FloatArray]
    threads: int = 1
    max_time: float | None = None
    trace: FloatArray | None = None
    """(n_iterations, 2, n_components) the two residuals after every outer iteration, if requested.
    A finished component keeps its last ones, and a component of a single factor has zeros."""

    @cached_property
    def additionals(self) -> list[FloatArray]:
        """For every declaration, the (n_factors, n_additionals) marginals of its additionals."""
        return self.layout.part.by_declaration(self.solved.additionals(), self.factors)

    @property
    def ok(self) -> bool:
        """Whether every component is solved."""
        statuses: list[Status] = self.status.tolist()
        return sum(statuses.count(status) for status in OK) == len(statuses)

    @property
    def failed(self) -> IntArray:
        """Numbers of the unsolved components."""
        return np.flatnonzero(~self._has(*OK))

    @property
    def non_finite(self) -> BoolArray:
        """For each component, whether one of its scores is NaN or ``+inf``."""
        return self._has(Status.NON_FINITE)

    @property
    def is_linear(self) -> bool:
        """Whether this is a solution of LP-MAP, without the quadratic term."""
        return self.solved.quadratic == 0.0

    @cached_property
    def free(self) -> IntArray:
        """Numbers of the variables in no factor, with the values ``clip(score / T, 0, 1)``."""
        return np.flatnonzero(self.layout.component < 0)

    @cached_property
    def objective(self) -> FloatArray:
        """The maximum of each component (Niculae & Martins 2020, Eq. 10).

        (n_components,) ``<eta, mu> + <eta_N, nu> - T/2 ||mu||^2`` at temperature T, 1 by default.
        """
        part, eta, mu = self.layout.part, np.concatenate(self.graph.of_part()), self._of_part
        forbidden = np.concatenate(self.solved.forbidden()) | np.isneginf(eta)
        with np.errstate(over="ignore"):
            gains = mu * np.where(forbidden, 0.0, eta)  # 0 for -inf, whatever the marginal
            own = mu[: part.n_variables]
            gains[: part.n_variables] -= 0.5 * self.solved.quadratic * own * own
            return sums(part.component_of_numbers, gains, part.n_components)

    @cached_property
    def gap(self) -> FloatArray:
        """The duality gap, the largest possible distance of the maximum above `objective`.

        (n_components,) ``objective + gap`` is an upper bound of the maximum, whatever the status.
        The gap is inf in components of status ``NON_FINITE`` or ``PRECISION_LIMIT``, and in LP-MAP
        where a variable with a dominant score is on. Since the copies of a variable only agree up
        to `primal_residual`, the objective can exceed the maximum, and the gap can be negative, by
        a multiple of it. The first access costs one MAP call or projection of every factor.
        """
        gap = self.solved.gap()
        gap[self._has(Status.NON_FINITE, Status.PRECISION_LIMIT)] = np.inf
        if not self.solved.quadratic:
            gap[self._holds_far_scores()] = np.inf
        return gap

    def _holds_far_scores(self) -> BoolArray:
        """Return for each component whether scores that contribute to it were reduced.

        Negative scores of variables that are off do not matter: their reduction raises them, so
        that bounds remain valid.
        """
        part, scores = self.layout.part, self.graph.of_part()
        eta, near = np.concatenate(scores), reduce_dominant_scores(part, *scores)[:2]
        changed = (np.concatenate(near) != eta) & ((self._of_part != 0.0) | (eta > 0.0))
        return flags(part.component_of_numbers[changed], part.n_components)

    @cached_property
    def error_bound(self) -> FloatArray:
        """A bound on the distance of the marginals from the exact ones.

        (n_components,) bounds on the 2-norm of the error over a component's variables, hence on the
        error of each; inf if no bound is known. The page on the method has the proof, and the model
        of rounding. For the status ``SOLVED``, this costs one MAP call or projection of every
        factor. Other components are first solved up to rounding, which can take as long as the
        solve itself.
        """
        bound = self.solved.error_bound(self.threads)
        bound[self._has(Status.NON_FINITE, Status.INFEASIBLE, Status.PRECISION_LIMIT)] = np.inf
        return bound

    @cached_property
    def _reduced_contradictions(self) -> ReducedContradictions:
        return reduced_contradictions(self.graph, self.solved.contradictions())

    @property
    def contradictions(self) -> Contradictions:
        """For each component of status ``INFEASIBLE``, factors that contradict each other.

        Lists of (declaration, number of the factor within it). No assignment satisfies all of them,
        at least not without a variable or an additional that a score of ``-inf`` forbids. With
        ``lpsmap-decode``, none can be left out, unless `explanation` says that time ran out.
        """
        return self._reduced_contradictions.factors

    @property
    def explanation(self) -> str:
        """Sentences with the names of up to twelve of `contradictions`, see `FactorGraph.add`."""
        factors, ended = self._reduced_contradictions
        return explain_contradictions(factors, self.factors, ended)

    def start_for(self, layout: Layout) -> WarmStart | None:
        """Return the final state, for ``solve(warm_start=...)`` of a graph with this `layout`.

        None if the engine has none. Graphs that are alike have the same part.

        Raises
        ------
        ValueError
            If the variables or factors of that graph differ from those of the solved graph.
        """
        if not self.layout.like(layout):
            raise ValueError(
                f"warm_start: got the solution of a graph of {self.layout.n_variables} variables "
                f"and {len(self.factors)} declarations; expected one with the same factors over "
                f"the same variables as the graph of {layout.n_variables} variables to be solved."
            )
        end = self.solved.end()
        if end is None or end.first_step_size is not None:
            return end
        return end._replace(first_step_size=end.step_size)

    def component_of(self, variables: Variables) -> IntArray:
        """Return the component of every entry of a view; -1 for variables in no factor.

        Raises
        ------
        TypeError
            If `variables` are not Variables.
        ValueError
            If they do not belong to the solved graph.
        """
        if not isinstance(variables, Variables):
            raise TypeError(f"component_of: got {kind_of(variables)}; expected Variables.")
        if variables.index.max(initial=-1) >= self.layout.n_variables:
            raise ValueError(
                f"component_of: {variables!r} are not of the solved graph, which has "
                f"{self.layout.n_variables} variables."
            )
        return self.layout.component[variables.index]

    def vjp(
        self, d_values: npt.ArrayLike, d_additionals: Sequence[npt.ArrayLike] | None = None
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Multiply the transposed Jacobian of the solution in the scores with a vector.

        The Jacobian is symmetric and depends only on the faces, so that the same product is the
        forward derivative (`jvp`) along a change of the scores.

        Parameters
        ----------
        d_values
            (n_variables,) gradient of a loss in `values`.
        d_additionals
            Gradients of the loss in `additionals`; zero by default.

        Returns
        -------
        d_scores, d_additional_scores
            Gradients in the scores of the variables and of each declaration's additionals. They are
            NaN in components of status ``NON_FINITE``, and in components where the vector is not
            finite; otherwise they are zero in components of status ``INFEASIBLE``.

        Raises
        ------
        TypeError
            If the vectors do not consist of real numbers.
        ValueError
            If `d_values` does not have one number for each variable, or `d_additionals` does not
            have one array for each declaration, with one number for each additional.

        Warns
        -----
        RuntimeWarning
            If components reach the limits of the engine or of an active set, or ``max_time``. Their
            gradients are approximate, and zero for components that were not started.
        """
        d = real_numbers("vjp: d_values", d_values).astype(np.float64, copy=False).reshape(-1)
        if len(d) != len(self.values):
            raise ValueError(
                f"vjp: d_values has {len(d)} entries; expected {len(self.values)}, one for each "
                "variable of the graph."
            )
        part, flat = self.layout.part, np.empty(0)
        if d_additionals is not None and len(d_additionals):
            flat = part.by_bucket(self._checked_additionals(d_additionals), self.factors)
        product, product_v = self._multiplied(part.of_graph(d), flat)
        out = product if part.whole else self._with_free(d, product)
        return out, part.by_declaration(product_v, self.factors)

    jvp = vjp

    def jacobian(self, variables: Variables) -> FloatArray:
        """Return the Jacobian of the marginals of some variables in their scores.

        It is symmetric, and zero between components, which share products with unit vectors.

        Parameters
        ----------
        variables
            A view of k variables, such as ``factor.variables`` or those of a component.

        Returns
        -------
        ndarray
            (k, k) derivatives, in the order of the view's flat entries; negated entries count as
            ``1 - mu``, and their scores likewise. Large for large k. Columns that the `max_time` of
            the solve leaves no time for are NaN.

        Raises
        ------
        TypeError
            If they are not Variables.
        ValueError
            If they do not belong to the solved graph.

        Warns
        -----
        RuntimeWarning
            If the time limit passes, and as for `vjp`.
        """
        component = self.component_of(variables).reshape(-1)
        index = variables.index.reshape(-1)
        sense = np.where(variables.negated.reshape(-1), -1.0, 1.0)
        component = np.where(component < 0, -1 - index, component)  # free ones are on their own
        matrix, left = np.zeros((len(index), len(index))), np.arange(len(index))
        deadline, late = Deadline(self.max_time), False
        while left.size:  # one column of each component at a time
            names, first = np.unique(component[left], return_index=True)
            column, left = left[first], np.delete(left, first)
            unit = np.zeros(len(self.values))
            unit[index[column]] = 1.0
            late = deadline.passed
            product = np.full(len(unit), np.nan) if late else self.vjp(unit)[0]
            row = np.flatnonzero(np.isin(component, names))
            matrix[row, column[np.searchsorted(names, component[row])]] = product[index[row]]
        if late:
            warnings.warn(
                f"jacobian: some columns are NaN, because the time limit of {self.max_time:g} "
                "seconds passed; raise max_time, or ask for fewer variables.",
                RuntimeWarning,
                stacklevel=stacklevel(),
            )
        return matrix * sense * sense[:, None]

    def dual_variables(self, factor: Factor) -> FloatArray:
        """Return the Lagrange multipliers of the agreement of a declaration's factors with others.

        A factor's marginals m are the solution of its own problem with the scores ``eta / d +
        lambda``, where d is the number of slots that have a variable: they maximise ``<eta / d +
        lambda, m> - T/2 sum m^2 / d`` and the scores of additionals. The multipliers of a variable
        sum to zero.

        Returns
        -------
        ndarray
            In the shape of ``factor.variables``, and in the variables' own sense where the view
            negates them; zeros outside `lengths` and masks. NaN if the engine has none.

        Raises
        ------
        ValueError
            If the factor does not belong to the solved graph.
        """
        self._position(factor, "dual_variables")
        part, end = self.layout.part, self.solved.end()
        of_link, known = np.zeros(part.n_links), np.zeros(part.n_components, dtype=bool)
        if end is not None:
            of_link[part.links.order] = end.duals
            known = end.known
        unknown = ~known[part.component[part.link_variable]] & (part.delta > 1.0)
        of_link *= (self.solved.quadratic or 1.0) / part.delta
        of_link[unknown] = np.nan
        multipliers = np.empty(int(factor.offsets[-1]))
        for b, bucket in enumerate(part.buckets):
            mine = bucket.rows_of(factor)
            links = part.spans.first_link[b] + ranges(bucket.offsets, mine)
            multipliers[ranges(factor.offsets, bucket.row[mine])] = of_link[links]
        return placed_slots(factor, multipliers)

    def decode(
        self,
        gap: float = DEFAULT_GAP,
        max_time: float | None = DECODE_MAX_TIME,
        max_nodes: int | None = DECODE_MAX_NODES,
        threads: int | None = None,
        progress: Callable[[int, Any], None] | None = None,
    ) -> Any:
        """Return an assignment of zeros and ones near the marginals, with a bound.

        LP-MAP is solved from there for all components together, and rounded. Where the result is
        not feasible, or is not proved to be the best, branch and bound over LP-MAP continues.

        Parameters
        ----------
        gap, max_time, max_nodes, threads
            As for `FactorGraph.solve_map`.
        progress
            Called after every batch of nodes with the number of the component and the progress of
            its search: ``score``, ``bound``, ``n_nodes`` and ``seconds``.

        Returns
        -------
        Assignment
            The best assignment that was found, also if Ctrl-C ended the search.

        Raises
        ------
        TypeError
            If an option has a wrong type.
        ValueError
            If an option is out of range.
        ImportError
            If ``lpsmap-decode`` is not installed.
        """
        return installed_decoder("decode").near(
            self,
            gap=gap,
            max_time=max_time,
            max_nodes=max_nodes,
            threads=threads,
            progress=progress,
        )

    @property
    def graph(self) -> ScoredGraph:
        """The layout and the scores that were solved."""
        scores = self.scores, self.additional_scores, self.non_finite
        return ScoredGraph(self.layout, self.factors, *scores)

    def structures(
        self, factor: Factor, without: Sequence[Status] = (Status.NON_FINITE,)
    ) -> Distributions:
        """Return the sparse distribution over structures of every factor of a declaration.

        This call decomposes the marginals of a factor with a closed form by its MAP oracle.

        Parameters
        ----------
        factor
            The declaration.
        without
            Statuses of components that get no structures.

        Returns
        -------
        Distributions
            For every factor, its structures, the likeliest first. The probabilities sum to 1. The
            mean is the factor's marginals, up to the residuals of its component.

        Raises
        ------
        ValueError
            If the factor does not belong to the solved graph, or is a chain so long that its
            structures would take gigabytes.
        """
        position = self._position(factor, "structures")
        finite, groups = ~self._has(*without), []
        for b, bucket in enumerate(self.layout.part.buckets):
            if type(factor) is bucket.type:
                mine = bucket.rows_of(factor)
                group = self.solved.structures(b, mine[finite[bucket.component[mine]]])
                groups.append(group._replace(owner=bucket.row[group.owner]))
        vertices = join_vertices(groups)
        scores = structure_scores(
            vertices,
            factor.offsets,
            self.scores[slot_values(factor, factor.variables.index)],
            slot_values(factor, factor.variables.negated),
            self.additional_scores[position],
        )
        return Distributions(factor, vertices, scores, len(self.values))

    def _multiplied(self, d: FloatArray, d_v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the engine's product; NaN for components with NaN or infinite numbers.

        An engine may skip zeros of the Jacobian, and thus lose NaN and infinite numbers of the
        vector. Engines also take squares, so that components with numbers far from 1 are scaled.
        """
        status, solved = self.status.tolist(), self.solved
        regular = not (status.count(Status.NON_FINITE) or status.count(Status.INFEASIBLE))
        if regular and solved.takes(d) and solved.takes(d_v):
            return solved.multiply(d, d_v, None, self.threads)
        part, lost = self.layout.part, self._has(Status.NON_FINITE)
        of, of_v = part.component, part.additional_component[: d_v.size]
        lost[of[~np.isfinite(d)]] = True
        lost[of_v[~np.isfinite(d_v)]] = True
        d, d_v = np.where(lost[of], 0.0, d), np.where(lost[of_v], 0.0, d_v)
        largest = np.zeros(len(lost))
        np.maximum.at(largest, of, np.abs(d))
        np.maximum.at(largest, of_v, np.abs(d_v))
        shift = np.where(
            (largest < MIN_UNSCALED) | (largest > MAX_UNSCALED), np.frexp(largest)[1], 0
        )
        usable = ~(lost | self._has(Status.INFEASIBLE))
        scaled = np.ldexp(d, -shift[of]), np.ldexp(d_v, -shift[of_v])
        product, product_v = solved.multiply(*scaled, usable, self.threads)
        of_v = part.additional_component[: product_v.size]
        product, product_v = np.ldexp(product, shift[of]), np.ldexp(product_v, shift[of_v])
        product[lost[of]] = product_v[lost[of_v]] = np.nan
        return product, product_v

    def _with_free(self, d: FloatArray, product: FloatArray) -> FloatArray:
        """Return the product for all variables, including those in no factor."""
        out = np.zeros(len(d))
        moved = d[self.free]
        if moved.any():
            scores, t = self.scores[self.free], self.solved.quadratic
            slope = ((scores > 0.0) & (scores < t)) / (t or 1.0)
            slope = np.where(np.isnan(self.values[self.free]), np.nan, slope)
            # a NaN that is not used, such as one in padding, must not affect a gradient
            with np.errstate(invalid="ignore"):
                out[self.free] = np.where(moved == 0.0, 0.0, slope * moved)
        out[self.layout.part.variables] = product
        return out

    def _checked_additionals(self, d_additionals: Sequence[npt.ArrayLike]) -> list[FloatArray]:
        """Return the (n_factors, n_additionals) gradients in the additionals of declarations."""
        name = "vjp: d_additionals"
        if len(d_additionals) != len(self.factors):
            raise ValueError(
                f"{name} has {len(d_additionals)} arrays; expected {len(self.factors)}, one for "
                "each declaration of the graph."
            )
        arrays = []
        for i, (numbers, factor) in enumerate(zip(d_additionals, self.factors, strict=True)):
            array = real_numbers(f"{name}[{i}]", numbers).astype(np.float64, copy=False)
            if array.size != factor.n_factors * factor.n_additionals:
                raise ValueError(
                    f"{name}[{i}] has shape {array.shape}; expected {factor.n_factors} x "
                    f"{factor.n_additionals}, those of {factor!r}."
                )
            arrays.append(array.reshape(factor.n_factors, factor.n_additionals))
        return arrays

    def _position(self, factor: Factor, verb: str) -> int:
        for i, other in enumerate(self.factors):
            if other is factor:
                return i
        raise ValueError(
            f"{verb}: {factor!r} is not a factor of the solved graph; expected a factor that was "
            "added before this solve."
        )

    @property
    def _of_part(self) -> FloatArray:
        """Return the marginals of the part's variables, and then of its additionals."""
        part, nu = self.layout.part, self.additionals
        return np.append(self.values[part.variables], part.by_bucket(nu, self.factors))

    def _has(self, *statuses: Status) -> BoolArray:
        """Return for each component whether it has one of the statuses."""
        return np.array([status in statuses for status in self.status.tolist()], dtype=bool)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Solution holds addresses of the process that solved it, and cannot be pickled or "
            "copied; expected its arrays (values, additionals, status), or the graph. Solve the "
            "graph again after loading it."
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a Solution is no tuple; expected solution.objective, solution.values and "
            "solution.status. With calls of AD3, use PFactorGraph.solve_lp_map_ad3()."
        )

    def __repr__(self) -> str:
        return f"Solution({len(self.values)} variables; components: {str(self.status) or 'none'})"
