"""The problem of a part as one record, which kernels receive by its address."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.arrangement import Links, Spans
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.memory import Blueprint, Memory

__all__ = ["ONE", "Extras", "Iterate", "LoopProblem", "Progress", "new_problem", "problem_at"]

ONE = np.uint64(1)
"""Unsigned 1, to add to a variable's number; see `Spans.variable_counting`."""


class Iterate(NamedTuple):
    """The loop's state on variables and links."""

    eta: FloatArray
    """Scores of the part's variables; zero for forbidden and forced ones, which no face moves."""
    score: FloatArray
    """eta / delta, one per variable; ``-inf`` if forbidden, ``inf`` if forced on."""
    u: FloatArray
    """Scaled means of the copies, one per variable."""
    duals: FloatArray
    """Duals, one per link in the order of the variables."""
    a: FloatArray
    """Local scores, one per link in the order of the factors."""
    z: FloatArray
    """Local solutions, one per link in the order of the factors."""


class Extras(NamedTuple):
    """The additionals of all buckets: their scores and marginals."""

    eta: FloatArray
    scaled: FloatArray
    """Scores divided by quadratic + step size, as in the local problems."""
    v: FloatArray
    """Marginals."""
    barred: ByteArray
    """Whether an additional is forbidden."""


class Progress(NamedTuple):
    """The loop's state on components."""

    step_size: FloatArray
    first_step_size: FloatArray
    primal_residual: FloatArray
    """Largest |mu_v - (M p)_l| of the last iteration."""
    dual_residual: FloatArray
    """Largest gamma |mu_v - previous mu_v| of the last iteration."""
    iterations: IntArray
    converged: BoolArray
    infeasible: BoolArray
    unsolved: BoolArray
    """Whether the latest local problem of a factor reached its iteration limit."""
    stale: BoolArray
    """Whether the local scores are out of date."""
    rounding: FloatArray
    """Rounding of `dual_residual`, a lower limit of any tolerance."""
    warm: BoolArray
    """Whether the loop started from an earlier solution."""


class LoopProblem(NamedTuple):
    """The records of a problem and of its loop."""

    links: Links
    spans: Spans
    iterate: Iterate
    extras: Extras
    progress: Progress
    direct: BoolArray
    """For each component, whether the local problem of its single factor is the whole problem."""
    quadratic: float
    """1 with the quadratic term, 0 without."""


problem_at = record_at(LoopProblem)
"""Returns, in kernels, the problem of a handle."""


def new_problem(part: Part, quadratic: float, eta_v: FloatArray) -> Memory[LoopProblem]:
    """Return the problem of a part before its scores are written; `eta_v` becomes ``extras.eta``.

    There may be far more additionals than links, so that a copy would take much memory.
    """
    sizes = part.n_variables, part.n_links, part.n_additionals, part.n_components
    direct = part.direct if quadratic else np.zeros_like(part.direct)
    return _blueprint(*sizes, quadratic).make(*part.records, eta_v, direct)


@functools.lru_cache(maxsize=32)
def _blueprint(
    on_variables: int, on_links: int, on_additionals: int, on_components: int, quadratic: float
) -> Blueprint[LoopProblem]:
    """Return the blueprint of problems of some sizes."""
    iterate = [(on_variables,)] * 3 + [(on_links,)] * 3
    extras, progress = [None, *[(on_additionals,)] * 3], [(on_components,)] * len(Progress._fields)
    return Blueprint(LoopProblem, [None, None, iterate, extras, progress, None, quadratic])
