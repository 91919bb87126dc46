"""Products with the Jacobian of a `Solution`, the Jacobian as a matrix, and dual variables."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.cotangents import MAX_UNSCALED, MIN_UNSCALED
from lpsmap_core.engine.status import Status
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import real_numbers
from lpsmap_core.model.slots import slot_values
from lpsmap_core.model.variables import Variables
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.callers import stacklevel
from lpsmap_jit.deadlines import Deadline

__all__ = ["checked_extra", "dual_variables", "jacobian", "multiply", "with_free"]


def multiply(solution: Any, d: FloatArray, d_v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the engine's product; NaN for components with NaN or infinite numbers.

    An engine may skip zeros of the Jacobian, and thus lose NaN and infinite numbers of the
    vector. Engines also take squares, so that components with numbers far from 1 are scaled.
    """
    status = solution.status.tolist()
    regular = not (status.count(Status.NON_FINITE) or status.count(Status.INFEASIBLE))
    if regular and solution.solved.takes(d) and solution.solved.takes(d_v):
        product, product_v = solution.solved.multiply(d, d_v, None, solution.threads)
        return product, product_v
    part, lost = solution.layout.part, solution._has(Status.NON_FINITE)
    of, of_v = part.component, part.additional_component[: d_v.size]
    lost[of[~np.isfinite(d)]] = True
    lost[of_v[~np.isfinite(d_v)]] = True
    d, d_v = np.where(lost[of], 0.0, d), np.where(lost[of_v], 0.0, d_v)
    largest = np.zeros(len(lost))
    np.maximum.at(largest, of, np.abs(d))
    np.maximum.at(largest, of_v, np.abs(d_v))
    shift = np.where((largest < MIN_UNSCALED) | (largest > MAX_UNSCALED), np.frexp(largest)[1], 0)
    usable = ~(lost | solution._has(Status.INFEASIBLE))
    scaled = np.ldexp(d, -shift[of]), np.ldexp(d_v, -shift[of_v])
    product, product_v = solution.solved.multiply(*scaled, usable, solution.threads)
    of_v = part.additional_component[: product_v.size]
    product, product_v = np.ldexp(product, shift[of]), np.ldexp(product_v, shift[of_v])
    product[lost[of]] = product_v[lost[of_v]] = np.nan
    return product, product_v


def with_free(solution: Any, d: FloatArray, product: FloatArray) -> FloatArray:
    """Return the product for all variables, including those in no factor."""
    out = np.zeros(len(d))
    moved = d[solution.free]
    if moved.any():
        scores, t = solution.scores[solution.free], solution.solved.quadratic
        slope = ((scores > 0.0) & (scores < t)) / (t or 1.0)
        slope = np.where(np.isnan(solution.values[solution.free]), np.nan, slope)
        # a NaN that is not used, such as one in padding, must not affect a gradient
        with np.errstate(invalid="ignore"):
            out[solution.free] = np.where(moved == 0.0, 0.0, slope * moved)
    out[solution.layout.part.variables] = product
    return out


def checked_extra(solution: Any, d_additionals: Sequence[npt.ArrayLike] | None) -> list[FloatArray]:
    """Return gradients in the additionals as arrays, one for each declaration, or no arrays."""
    if d_additionals is None or not len(d_additionals):
        return []
    name = "vjp: d_additionals"
    if len(d_additionals) != len(solution.factors):
        raise ValueError(
            f"{name} has {len(d_additionals)} arrays; expected {len(solution.factors)}, one for "
            "each declaration of the graph."
        )
    numbers = (real_numbers(f"{name}[{i}]", x) for i, x in enumerate(d_additionals))
    arrays = [x.astype(np.float64, copy=False) for x in numbers]
    for i, (array, factor) in enumerate(zip(arrays, solution.factors, strict=True)):
        if array.size != factor.n_factors * factor.n_additionals:
            raise ValueError(
                f"{name}[{i}] has shape {array.shape}; expected {factor.n_factors} x "
                f"{factor.n_additionals}, those of {factor!r}."
            )
    return arrays


def jacobian(solution: Any, variables: Variables) -> FloatArray:
    """Return the Jacobian as a matrix; see `Solution.jacobian`."""
    component = solution.component_of(variables).reshape(-1)
    index = variables.index.reshape(-1)
    sense = np.where(variables.negated.reshape(-1), -1.0, 1.0)
    component = np.where(component < 0, -1 - index, component)  # free ones are on their own
    names, of = np.unique(component, return_inverse=True)
    order = np.argsort(of, kind="stable")
    rank = np.empty(len(of), dtype=np.int64)
    rank[order] = np.arange(len(of)) - np.searchsorted(of[order], np.arange(len(names)))[of[order]]
    matrix = np.zeros((len(index), len(index)))
    deadline, late = Deadline(solution.max_time), False
    for turn in range(rank.max(initial=-1) + 1):
        column = np.flatnonzero(rank == turn)
        unit = np.zeros(len(solution.values))
        unit[index[column]] = 1.0
        late = deadline.passed
        product = np.full(len(unit), np.nan) if late else solution.vjp(unit)[0]
        of_component = np.full(len(names), -1)
        of_component[of[column]] = column
        row = np.flatnonzero(of_component[of] >= 0)
        matrix[row, of_component[of[row]]] = product[index[row]]
    if late:
        warnings.warn(
            f"jacobian: some columns are NaN, because the time limit of {solution.max_time:g} "
            "seconds passed; raise max_time, or ask for fewer variables.",
            RuntimeWarning,
            stacklevel=stacklevel(),
        )
    return matrix * sense * sense[:, None]


def dual_variables(solution: Any, factor: Factor) -> FloatArray:
    """Return the multipliers of a declaration's factors; see `Solution.dual_variables`."""
    start = solution.start_for(solution.layout)
    declared = [d for bucket in solution.layout.buckets for d in bucket.declarations]
    before = declared[: next(i for i, other in enumerate(declared) if other is factor)]
    first = sum(int(d.offsets[-1]) for d in before)
    index = slot_values(factor, factor.variables.index)
    degree = np.bincount(
        np.concatenate([slot_values(d, d.variables.index) for d in declared]),
        minlength=len(solution.values),
    )
    multipliers = start.duals[first : first + len(index)] / np.sqrt(degree[index])
    unknown = ~start.known[solution.layout.component[index]] & (degree[index] > 1)
    multipliers = np.where(unknown, np.nan, multipliers * (solution.solved.quadratic or 1.0))
    if factor.keep is None:
        return multipliers.reshape(factor.variables.shape)
    placed = np.zeros(factor.variables.shape)
    placed[factor.keep] = multipliers
    return placed
