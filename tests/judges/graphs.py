"""Whole graphs of enumerated factors: quadratic and linear programs, and Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize

from judges.polytope import project_polytope
from judges.program import Program

FloatArray = npt.NDArray[np.float64]


class EnumeratedFactor(NamedTuple):
    """A factor by its vertices, in terms of its slots: a negated slot is ``1 - u``."""

    variables: npt.ArrayLike
    """(K,) variable of every slot."""
    negated: npt.ArrayLike
    """(K,) whether the slot is ``1 - u``."""
    vertices_m: npt.ArrayLike
    """(Y, K)"""
    vertices_n: npt.ArrayLike
    """(Y, A)"""
    eta_v: npt.ArrayLike
    """(A,)"""


def solve_graph(
    eta: npt.ArrayLike,
    factors: Sequence[EnumeratedFactor | tuple[Any, Any, Any, Any, Any]],
    tolerance: float = 1e-9,
    centred: bool = False,
) -> tuple[FloatArray, list[FloatArray], list[FloatArray]]:
    """Solve LP-SparseMAP over enumerated factors (Niculae & Martins 2020, Eq. 10).

    ``maximise <eta, mu> + sum_f <eta_f, N_f^T p_f> - 1/2 ||mu||^2`` over weights ``p_f`` in
    simplices whose marginals agree with ``mu``; variables outside all factors stay in ``[0, 1]``.
    An interior point method finds the weights that vanish, and a linear system the solution.

    Parameters
    ----------
    eta
        (V,) finite scores.
    factors
        The factors; see `EnumeratedFactor`.
    tolerance
        Maximum violation of an optimality condition, relative to ``max(1, |scores|)``.
    centred
        Whether to subtract multipliers from the scores first, which makes large scores small. The
        violation is then relative to `FAR` at every scale of the scores.

    Returns
    -------
    mu
        (V,) the unique marginals.
    nus
        Per factor, (A,) its additionals; one choice if they are not unique.
    ps
        Per factor, (Y,) the weights of its vertices; one choice if they are not unique.

    Raises
    ------
    ArithmeticError
        If the factors contradict each other, or the optimality conditions do not hold.
    """
    program = Program.from_graph(np.asarray(eta, dtype=np.float64), factors)
    x = program.solve_centred(tolerance) if centred else program.solve(tolerance)
    mu = np.clip(np.asarray(eta, dtype=np.float64), 0.0, 1.0)
    linked = np.unique(program.link_variables)
    mu[linked] = x[linked]
    ps = np.split(x[len(mu) :], np.cumsum(program.sizes)[:-1]) if factors else []
    nus = [np.asarray(f[3], dtype=np.float64).T @ p for f, p in zip(factors, ps, strict=True)]
    return mu, nus, ps


def admm(
    eta: npt.ArrayLike,
    factors: Sequence[EnumeratedFactor | tuple[Any, Any, Any, Any, Any]],
    step_size: float,
    iterations: int,
    relaxation: float = 1.0,
) -> FloatArray:
    """Run Algorithm 1 (Niculae & Martins 2020) with exact local solutions.

    The sign of its line 6 is corrected. Over-relaxation mixes the copies with the previous means
    before they are used (Boyd et al. 2011, section 3.4.3).

    Parameters
    ----------
    eta
        (V,) finite scores.
    factors
        The factors; see `EnumeratedFactor`.
    step_size
        The constant gamma.
    iterations
        Number of iterations.
    relaxation
        Weight of the copies in the mixture.

    Returns
    -------
    marginals
        (iterations, V) the means of the variables' copies after every iteration, not scaled.
    """
    eta = np.asarray(eta, dtype=np.float64)
    links = np.concatenate([np.asarray(factor[0], dtype=np.int64) for factor in factors])
    ends = np.cumsum([len(np.asarray(factor[0])) for factor in factors])[:-1]
    degree = np.bincount(links, minlength=len(eta))
    delta = np.sqrt(np.maximum(degree, 1))
    means, duals = np.zeros(len(eta)), np.zeros(len(links))

    def averaged(copies: FloatArray) -> FloatArray:
        return np.bincount(links, copies, minlength=len(eta)) / np.maximum(degree, 1)

    history = []
    for _ in range(iterations):
        targets = (eta / delta + step_size * means)[links] + duals
        local = [
            project_polytope(
                np.where(np.asarray(negated, dtype=bool), 1.0 - np.asarray(m), m),
                n,
                target / (1.0 + step_size),
                np.asarray(eta_v) / (1.0 + step_size),
                delta[np.asarray(variables)],
            )[0]
            for (variables, negated, m, n, eta_v), target in zip(
                factors, np.split(targets, ends), strict=True
            )
        ]
        copies = np.concatenate(local)
        mixed = relaxation * copies + (1.0 - relaxation) * means[links]
        means = averaged(mixed)
        duals = duals + step_size * (means[links] - mixed)
        history.append(np.where(degree > 0, delta * averaged(copies), np.clip(eta, 0.0, 1.0)))
    return np.array(history)


def project_factor(eta: npt.ArrayLike, factor: EnumeratedFactor) -> FloatArray:
    """Solve a graph of one factor over distinct variables in decimal arithmetic, at any scale.

    Returns
    -------
    mu
        The marginals of the variables, in their order.
    """
    variables, negated = np.asarray(factor.variables), np.asarray(factor.negated, dtype=bool)
    m = np.asarray(factor.vertices_m, dtype=np.float64)
    mu = np.asarray(eta, dtype=np.float64).copy()
    m = np.where(negated, 1.0 - m, m)
    ones = np.ones(len(variables))
    mu[variables], _ = project_polytope(m, factor.vertices_n, mu[variables], factor.eta_v, ones)
    return mu


def linear_optimum(
    eta: FloatArray, factors: Sequence[EnumeratedFactor], mu: FloatArray
) -> tuple[float, float]:
    """Return the maximum of ``<eta, mu> + sum_f <eta_f, nu_f>``, free and for given marginals.

    Both come from linear programs with scores that are scaled to at most 1.
    """
    scale = max(np.abs(np.concatenate([eta, *(np.ravel(f.eta_v) for f in factors)])).max(), 1.0)
    scaled = [f._replace(eta_v=np.asarray(f.eta_v) / scale) for f in factors]
    program = Program.from_graph(eta / scale, scaled)
    values = []
    for bounds in ([(0.0, 1.0)] * len(mu), [(max(x - 1e-9, 0.0), x + 1e-9) for x in mu]):
        result = optimize.linprog(
            -program.c,
            A_eq=program.equalities,
            b_eq=program.right,
            bounds=[*bounds, *[(0.0, None)] * (len(program.c) - len(mu))],
        )
        if result.status != 0:
            raise ArithmeticError(f"linear_optimum: {result.message}")
        values.append(-scale * result.fun)
    return values[0], values[1]


def is_feasible(n_variables: int, factors: Sequence[Any]) -> bool:
    """Whether any marginals satisfy all enumerated factors, by a linear program."""
    if not all(len(f[2]) for f in factors):
        return False
    program = Program.from_graph(np.zeros(n_variables), factors)
    result = optimize.linprog(
        np.zeros(len(program.c)),
        A_eq=program.equalities,
        b_eq=program.right,
        bounds=[(None, None)] * n_variables + [(0.0, None)] * (len(program.c) - n_variables),
    )
    if result.status not in (0, 2):
        raise ArithmeticError(f"is_feasible: {result.message}")
    return bool(result.status == 0)
