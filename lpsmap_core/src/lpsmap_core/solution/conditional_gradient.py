"""Conditional gradient: SparseMAP of one factor by steps between structures.

Maximises, over the convex hull of a factor's structures (Niculae et al. 2018, Eq. 5),

    f(mu, nu) = <eta, mu> + <eta_N, nu> - 1/2 ||mu||^2

An iteration asks the MAP oracle for the structure that the gradient ``(eta - mu, eta_N)`` likes
best, s, and moves the weights p of the structures found so far in one of three ways (appendix A.1,
Algorithm 1; Lacoste-Julien & Jaggi 2015), with w the structure of the mixture that the gradient
likes least:

    vanilla    e_s - p            toward s
    away       e_s - p or p - e_w, whichever the gradient promises more of
    pairwise   e_s - e_w          from w to s

as far as f rises along that line. The active set (`lpsmap_core.local.active`), which
`FactorGraph.solve` uses, moves to the best weights of all structures at hand instead and ends at
the exact solution; these are what it is compared with, and need nothing but the oracle and inner
products.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.state import initial_state
from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.callers import stacklevel
from lpsmap_core.kernels.interrupts import Watch
from lpsmap_core.layout.layout import build_layout
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.forced import ORACLE, decide
from lpsmap_core.local.vertices import Vertices, structure_scores
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_count, checked_number, kind_of
from lpsmap_core.model.unused import forget_unused
from lpsmap_core.solution.distribution import Distribution, Distributions
from lpsmap_core.solution.report import ConvergenceWarning

__all__ = ["ConditionalGradient", "Variant", "conditional_gradient"]


Variant = Literal["vanilla", "away", "pairwise"]


@dataclass(frozen=True)
class ConditionalGradient:
    """A factor's solution by conditional gradient, and how it came about.

    The arrays have an entry for every iterate; the first is the best-scoring structure alone.

    Attributes
    ----------
    variant
        The directions of the steps.
    converged
        Whether the last gap is within the tolerance.
    objective
        (T + 1,) ``f(mu, nu)``, which never falls.
    gap
        (T + 1,) ``max <gradient, (m, n) - (mu, nu)>`` over structures (Eq. 7). It bounds how far
        the objective is from its maximum, and the squared distance of ``mu`` from the solution.
    support_size
        (T + 1,) number of structures with positive weight.
    distribution
        The structures of the last iterate and their weights.
    """

    variant: Variant
    converged: bool
    objective: FloatArray
    gap: FloatArray
    support_size: IntArray
    distribution: Distribution

    @property
    def iterations(self) -> int:
        """Number of steps taken."""
        return len(self.gap) - 1

    @property
    def error_bound(self) -> float:
        """Bound on the distance of the variables' marginals from the solution.

        With the gradients at both points, ``||mu - mu*||^2 = <g* - g, x - x*> <= gap``.
        """
        return float(np.sqrt(self.gap[-1]))

    @functools.cached_property
    def marginals(self) -> FloatArray:
        """Marginals of the variables that the factor was given, in its event shape.

        Zeros beyond the factor's `lengths` and outside its mask.
        """
        return self._mean(self.distribution.variables)

    @functools.cached_property
    def additionals(self) -> FloatArray:
        """Marginals of the additionals, in the shape of one factor's scores."""
        return self._mean(self.distribution.additionals)

    def _mean(self, structures: FloatArray) -> FloatArray:
        mean: FloatArray = np.tensordot(self.distribution.probabilities, structures, axes=1)
        return mean

    def __repr__(self) -> str:
        end = "converged" if self.converged else "not converged"
        return (
            f"ConditionalGradient({self.variant}, {self.iterations} iterations, {end}: "
            f"objective {self.objective[-1]:.6g}, gap {self.gap[-1]:.1e}, "
            f"{self.support_size[-1]} structures)"
        )


def conditional_gradient(
    factor: Factor,
    variant: Variant = "pairwise",
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> ConditionalGradient:
    """Solve one factor by conditional gradient; the graph's other factors are left out.

    Parameters
    ----------
    factor
        A declaration of one factor over distinct variables. Scores are those of its graph.
    variant
        ``"vanilla"``: the gap falls like 1 / t at best in general (Jaggi 2013). ``"away"`` and
        ``"pairwise"``: it falls geometrically (Lacoste-Julien & Jaggi 2015).
    max_iter
        Limit of the steps.
    tol
        A gap that is small enough, in units of the objective.

    Returns
    -------
    ConditionalGradient
        The last iterate, and the course of objective, gap and support size.

    Raises
    ------
    TypeError
        If `factor` is none, or `max_iter` or `tol` no such number.
    ValueError
        If an option is out of range, the declaration is not one factor over distinct variables, a
        score is NaN or ``+inf``, or every structure uses something that ``-inf`` forbids.

    Warns
    -----
    ConvergenceWarning
        If the gap is still larger than `tol` at the end.

    Examples
    --------
    >>> import numpy as np
    >>> from lpsmap import FactorGraph, Xor
    >>> from lpsmap_core import conditional_gradient
    >>> graph = FactorGraph()
    >>> choice = graph.add(Xor(graph.variable_from(np.array([0.5, 0.3, -1.0]))))
    >>> found = conditional_gradient(choice, variant="away")
    >>> found.marginals.round(3)
    array([0.6, 0.4, 0. ])
    """
    _check_variant(variant)
    max_iter = checked_count("max_iter", max_iter)
    # the gap reaches zero only by luck
    tol = checked_number("tol", tol, "a positive number, such as 1e-10", lambda x: 0.0 < x < np.inf)
    problem = _SingleFactor(factor)
    mixture = _Mixture(problem.first_structure())
    trace = []
    while True:
        mean = mixture.mean()
        gradient = problem.gradient(mean)
        best = problem.best_structure(gradient)
        gap = max(0.0, float(gradient @ (best - mean)))
        trace.append((problem.objective(mean), gap, len(mixture.weights)))
        if gap <= tol or len(trace) > max_iter:
            break
        if not mixture.move(variant, best, gradient, gap, problem.arity):
            break  # the rest of the gap is rounding
    objective, gaps, sizes = zip(*trace, strict=True)
    if gap > tol:
        warnings.warn(
            f"conditional_gradient: {variant} stopped after {len(trace) - 1} iterations with a gap "
            f"of {gap:.1e}, larger than tol {tol:.1e}: raise max_iter or tol, or accept marginals "
            f"within {np.sqrt(gap):.1e} of the solution.",
            ConvergenceWarning,
            stacklevel=stacklevel(),
        )
    return ConditionalGradient(
        variant=variant,
        converged=gap <= tol,
        objective=np.array(objective),
        gap=np.array(gaps),
        support_size=np.array(sizes),
        distribution=problem.distribution(mixture),
    )


def _check_variant(variant: Variant) -> None:
    if variant not in get_args(Variant):
        raise ValueError(
            f"variant: got {variant!r}; expected one of {', '.join(map(repr, get_args(Variant)))}."
        )


class _SingleFactor:
    """One factor's scores and oracle, in terms of its variables rather than of its slots.

    A structure is one vector, its variables before its additionals; negated slots are turned, so
    that forbidden variables are 0 in every structure that matters, and their scores have no part
    in any sum.
    """

    def __init__(self, factor: Factor) -> None:
        if not isinstance(factor, Factor):
            raise TypeError(f"factor: got {kind_of(factor)}; expected a declared factor.")
        name = type(factor).__name__
        if factor.n_factors != 1:
            raise ValueError(
                f"factor: got {factor!r}; expected a declaration of one factor. Declare it over "
                f"one entry of the batch, as in {name}(u[0])."
            )
        graph = factor.variables.graph
        part = build_layout(graph.n_variables, [factor]).part
        if part.n_components == 0 or not part.direct.all():
            raise ValueError(
                f"factor: got {factor!r} that covers no variable, or one in several slots; "
                "expected distinct variables. Solve it with its graph."
            )
        self.factor = factor
        self.scores, extra = graph.flat_scores(), graph.additional_scores(factor)
        (self.additional_scores,) = forget_unused([factor], self.scores, [extra])
        eta, eta_v = self.scores[part.variables], part.buckets[0].scores([self.additional_scores])
        for what, values in (("scores", eta), ("additionals", eta_v)):
            if np.isnan(values).any() or (values == np.inf).any():
                raise ValueError(
                    f"{what}: {factor!r} has one that is NaN or +inf; expected finite numbers, or "
                    "-inf to forbid. Mend it."
                )
        state = initial_state(part, eta, eta_v, Options(generic=True))
        (sets,) = state.solvers
        assert isinstance(sets, ActiveSets)
        self._sets = sets
        self._sign, self._shift, self.arity = part.sign, part.shift, part.n_links
        iterate, extras = state.problem.iterate, state.problem.extras
        theta_u = np.where(state.forbidden, -np.inf, iterate.eta)[part.link_variable]
        self.forbidden = np.concatenate([theta_u == -np.inf, extras.barred != 0])
        decide(theta_u, extras.eta, extras.barred, ORACLE)
        self.theta = np.concatenate([theta_u, extras.eta])

    def first_structure(self) -> FloatArray:
        """Return the best-scoring structure."""
        first = self.best_structure(self.theta)
        if first[self.forbidden].any():
            raise ValueError(
                f"factor: every structure of {self.factor!r} uses a variable or an additional that "
                "a score of -inf forbids; expected one that does not. Allow more."
            )
        return first

    def best_structure(self, gradient: FloatArray) -> FloatArray:
        """Return the structure of the largest inner product with a gradient."""
        sets = self._sets
        sets.scores[:] = self._sign * gradient[: self.arity]
        with Watch():
            sets.solve_map(np.zeros(1, dtype=np.int64), gradient[self.arity :])
        size = sets.candidates.size[0]
        structure = np.zeros(len(gradient))
        structure[sets.candidates.entry[:size]] = sets.candidates.value[:size]
        return self._turned(structure)

    def gradient(self, mean: FloatArray) -> FloatArray:
        """Return ``(eta - mu, eta_N)``."""
        gradient = self.theta.copy()
        gradient[: self.arity] -= mean[: self.arity]
        return gradient

    def objective(self, mean: FloatArray) -> float:
        """Return ``<eta, mu> + <eta_N, nu> - 1/2 ||mu||^2``."""
        mu = mean[: self.arity]
        return float(self.theta @ mean - 0.5 * mu @ mu)

    def distribution(self, mixture: _Mixture) -> Distribution:
        """Return a mixture as others read it, the heaviest structure first."""
        order = np.argsort(-mixture.weights, kind="stable")
        local = np.array([self._turned(row) for row in mixture.structures[order]])
        structure, entry = np.nonzero(local)
        factor, links = self.factor, self.factor.links
        vertices = Vertices(
            np.zeros(len(order), dtype=np.int64),
            mixture.weights[order],
            np.searchsorted(structure, np.arange(len(order) + 1)),
            entry,
            local[structure, entry],
        )
        scores = structure_scores(
            vertices,
            factor.offsets,
            self.scores[links(factor.variables.index)],
            links(factor.variables.negated),
            self.additional_scores,
        )
        return Distributions(factor, vertices, scores, len(self.scores))[0]

    def _turned(self, structure: FloatArray) -> FloatArray:
        """Return a structure of slots as one of variables, or the other way round."""
        turned = structure.copy()
        turned[: self.arity] = self._sign * structure[: self.arity] + self._shift
        return turned


class _Mixture:
    """Structures with positive weights that sum to one."""

    def __init__(self, first: FloatArray) -> None:
        self._room = first[None].copy()
        self.weights = np.ones(1)

    @property
    def structures(self) -> FloatArray:
        """All of them, an (n, arity + additionals) array."""
        return self._room[: len(self.weights)]

    def mean(self) -> FloatArray:
        """Return the mean structure ``(mu, nu)``."""
        return self.weights @ self.structures

    def move(
        self, variant: Variant, best: FloatArray, gradient: FloatArray, gap: float, arity: int
    ) -> bool:
        """Take the best step; return false, and stay, if it does not lead up."""
        scores = self.structures @ gradient
        worst = int(scores.argmin())
        away_gap = self.weights @ scores - scores[worst]
        newcomer = self._place_of(best)
        direction = np.zeros(len(self.weights))
        if variant == "pairwise":
            direction[newcomer] += 1.0
            direction[worst] -= 1.0
        elif variant == "away" and away_gap > gap:
            direction += self.weights
            direction[worst] -= 1.0
        else:
            direction -= self.weights
            direction[newcomer] += 1.0
        return self._follow(direction, gradient, arity)

    def _follow(self, direction: FloatArray, gradient: FloatArray, arity: int) -> bool:
        """Change the weights along a direction up to the maximum (Eq. 8); see `move`."""
        change = direction @ self.structures
        slope, curvature = gradient @ change, change[:arity] @ change[:arity]
        falling = np.flatnonzero(direction < 0.0)
        if slope <= 0.0 or not falling.size:
            self._keep(self.weights > 0.0)
            return False
        limits = self.weights[falling] / -direction[falling]
        step = limits.min()
        if slope < step * curvature:  # additionals alone have no curvature
            step = slope / curvature
        weights = np.maximum(self.weights + step * direction, 0.0)
        weights[falling[limits <= step]] = 0.0
        self.weights = weights / weights.sum()  # steps away would let its rounding grow
        self._keep(self.weights > 0.0)
        return True

    def _place_of(self, structure: FloatArray) -> int:
        """Return the place of a structure, which joins with weight zero if it is new."""
        same = np.flatnonzero((self.structures == structure).all(axis=1))
        if same.size:
            return int(same[0])
        count = len(self.weights)
        if count == len(self._room):
            self._room = np.concatenate([self._room, np.empty_like(self._room)])
        self._room[count] = structure
        self.weights = np.append(self.weights, 0.0)
        return count

    def _keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        if not chosen.all():
            kept = self.structures[chosen]
            self._room[: len(kept)] = kept
            self.weights = self.weights[chosen]
