"""Conditional gradient: SparseMAP of one factor by steps between structures.

Maximises, over the convex hull of a factor's structures (Niculae et al. 2018, Eq. 5),

    f(mu, nu) = <eta, mu> + <eta_N, nu> - 1/2 ||mu||^2

An iteration calls the MAP oracle for the best structure s under the gradient ``(eta - mu, eta_N)``,
and moves the weights p of the structures found so far in one of three directions (appendix A.1,
Algorithm 1; Lacoste-Julien & Jaggi 2015), where w is the worst structure of the mixture under the
gradient:

    vanilla    e_s - p            toward s
    away       e_s - p or p - e_w, whichever has the larger inner product with the gradient
    pairwise   e_s - e_w          from w to s

with exact line search. The active set of `FactorGraph.solve` instead moves to the optimal weights
of all current structures and ends at the exact solution; `figure2.py` compares it with these
methods. They need only the two methods `solve_map` and `vertex` of a factor.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from lpsmap_core import ConvergenceWarning, Factor
from lpsmap_core.api import row_values, row_view, slot_values

FloatArray = npt.NDArray[np.float64]

Variant = Literal["vanilla", "away", "pairwise"]


@dataclass(frozen=True)
class ConditionalGradient:
    """The solution of a factor by conditional gradient, with its history.

    The first three arrays have an entry for every iterate; the first iterate is the best structure.

    Attributes
    ----------
    variant
        The directions of the steps.
    converged
        Whether the last gap is within the tolerance.
    objective
        (T + 1,) ``f(mu, nu)``, nondecreasing.
    gap
        (T + 1,) ``max <gradient, (m, n) - (mu, nu)>`` over structures (Eq. 7). It bounds the
        distance of the objective from its maximum, and the squared distance of ``mu`` from the
        solution.
    support_size
        (T + 1,) number of structures with positive weight.
    probabilities
        (S,) weights of the structures of the last iterate.
    variables
        (S, K) their variables, flat; those excluded by `lengths` or a mask are left out.
    additionals
        (S, A) their additionals.
    """

    variant: Variant
    converged: bool
    objective: FloatArray
    gap: FloatArray
    support_size: npt.NDArray[np.int64]
    probabilities: FloatArray
    variables: FloatArray
    additionals: FloatArray

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

    @property
    def marginals(self) -> FloatArray:
        """(K,) marginals of the variables."""
        return self.probabilities @ self.variables


def conditional_gradient(
    factor: Factor,
    variant: Variant = "pairwise",
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> ConditionalGradient:
    """Solve one factor by conditional gradient, ignoring other factors of the graph.

    Parameters
    ----------
    factor
        A declaration of one factor over distinct variables. Scores are those of its graph.
    variant
        ``"vanilla"``: the gap falls like 1 / t at best in general (Jaggi 2013). ``"away"`` and
        ``"pairwise"``: it falls geometrically (Lacoste-Julien & Jaggi 2015).
    max_iter
        Maximum number of steps.
    tol
        Tolerance on the gap, in units of the objective; the gap rarely reaches zero.

    Returns
    -------
    ConditionalGradient
        The last iterate, and the history of objective, gap and support size.

    Raises
    ------
    ValueError
        If the variant is unknown, the declaration is not one factor over distinct variables, or a
        score is not finite.

    Warns
    -----
    ConvergenceWarning
        If the gap is still larger than `tol` at the end.

    Examples
    --------
    >>> import numpy as np
    >>> from lpsmap import FactorGraph, Xor
    >>> graph = FactorGraph()
    >>> choice = graph.add(Xor(graph.variable_from(np.array([0.5, 0.3, -1.0]))))
    >>> found = conditional_gradient(choice, variant="away")
    >>> found.marginals.round(3)
    array([0.6, 0.4, 0. ])
    """
    if variant not in get_args(Variant):
        raise ValueError(f"variant: got {variant!r}; expected one of {get_args(Variant)}.")
    problem = _SingleFactor(factor)
    mixture = _Mixture(problem.best_structure(problem.theta))
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
            break  # the remaining gap is rounding
    objective, gaps, sizes = zip(*trace, strict=True)
    if gap > tol:
        warnings.warn(
            f"conditional_gradient: {variant} stopped after {len(trace) - 1} iterations with a gap "
            f"of {gap:.1e}, larger than tol {tol:.1e}: raise max_iter or tol, or accept marginals "
            f"within {np.sqrt(gap):.1e} of the solution.",
            ConvergenceWarning,
            stacklevel=2,
        )
    order = np.argsort(-mixture.weights, kind="stable")
    variables, additionals = np.split(mixture.structures[order], [problem.arity], axis=1)
    return ConditionalGradient(
        variant=variant,
        converged=gap <= tol,
        objective=np.array(objective),
        gap=np.array(gaps),
        support_size=np.array(sizes),
        probabilities=mixture.weights[order],
        variables=variables,
        additionals=additionals,
    )


class _SingleFactor:
    """One factor's scores and oracle. A structure is one vector, variables before additionals.

    A negated variable, ``x = 1 - z``, gives ``eta x - x^2 / 2 = (1 - eta) z - z^2 / 2 + constant``.
    """

    def __init__(self, factor: Factor) -> None:
        if factor.n_factors != 1:
            raise ValueError(
                f"factor: got {factor!r}; expected a declaration of one factor. Declare it over "
                f"one entry of the batch, as in {type(factor).__name__}(u[0])."
            )
        graph = factor.variables.graph
        index = slot_values(factor, factor.variables.index)
        negated = slot_values(factor, factor.variables.negated)
        if not index.size or len(np.unique(index)) < index.size:
            raise ValueError(
                f"factor: got {factor!r} that covers no variable, or one in several slots; "
                "expected distinct variables. Solve it with its graph."
            )
        eta, eta_v = graph.flat_scores()[index], graph.additional_scores(factor)[0]
        if not (np.isfinite(eta).all() and np.isfinite(eta_v).all()):
            raise ValueError(f"factor: got {factor!r} with a score that is not finite.")
        self.factor, self.row, self.arity = factor, row_view(factor, 0), index.size
        self.theta = np.concatenate([np.where(negated, 1.0 - eta, eta), eta_v])
        self.constant = float((eta - 0.5)[negated].sum())

    def best_structure(self, gradient: FloatArray) -> FloatArray:
        """Return the structure with the largest inner product with a gradient."""
        eta_u, eta_v = np.split(gradient, [self.arity])
        label = self.row.solve_map(row_values(self.factor, 0, eta_u), eta_v)
        parts = self.row.vertex(label)
        return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])

    def gradient(self, mean: FloatArray) -> FloatArray:
        """Return ``(eta - mu, eta_N)``."""
        gradient = self.theta.copy()
        gradient[: self.arity] -= mean[: self.arity]
        return gradient

    def objective(self, mean: FloatArray) -> float:
        """Return ``<eta, mu> + <eta_N, nu> - 1/2 ||mu||^2``."""
        mu = mean[: self.arity]
        return float(self.theta @ mean - 0.5 * mu @ mu) + self.constant


class _Mixture:
    """Structures with positive weights that sum to one."""

    def __init__(self, first: FloatArray) -> None:
        self._room = first[None].copy()
        self.weights = np.ones(1)

    @property
    def structures(self) -> FloatArray:
        """The structures, an (n, arity + additionals) array."""
        return self._room[: len(self.weights)]

    def mean(self) -> FloatArray:
        """Return the mean structure ``(mu, nu)``."""
        return self.weights @ self.structures

    def move(
        self, variant: Variant, best: FloatArray, gradient: FloatArray, gap: float, arity: int
    ) -> bool:
        """Take the best step; return false without moving if it is not an ascent direction."""
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
        """Move the weights along a direction to the maximum (Eq. 8); see `move`."""
        change = direction @ self.structures
        slope, curvature = gradient @ change, change[:arity] @ change[:arity]
        falling = np.flatnonzero(direction < 0.0)
        if slope <= 0.0 or not falling.size:
            self._keep(self.weights > 0.0)
            return False
        limits = self.weights[falling] / -direction[falling]
        step = limits.min()
        if slope < step * curvature:  # additionals have no curvature
            step = slope / curvature
        weights = np.maximum(self.weights + step * direction, 0.0)
        weights[falling[limits <= step]] = 0.0
        self.weights = weights / weights.sum()  # away steps would accumulate rounding errors
        self._keep(self.weights > 0.0)
        return True

    def _place_of(self, structure: FloatArray) -> int:
        """Return the index of a structure; a new one is added with weight zero."""
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
