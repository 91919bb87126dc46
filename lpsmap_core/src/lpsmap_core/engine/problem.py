"""The problem of a part as compiled loops see it: one record, known by one address."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.arrangement import Blocks, Links
from lpsmap_core.layout.counts import Counts
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.memory import Blueprint, Memory, Unset

__all__ = ["ONE", "Extras", "Iterate", "LoopProblem", "Progress", "new_problem", "problem_at"]

ONE = np.uint64(1)
"""Added to a variable's number, which is unsigned, see `Blocks.variable_counting`."""


class Iterate(NamedTuple):
    """The loop's state on variables and links."""

    eta: FloatArray
    """Scores of the part's variables, zero where they are decided: no face moves there."""
    score: FloatArray
    """eta / delta, one per variable; ``-inf`` where forbidden, ``inf`` where it must be on."""
    u: FloatArray
    duals: FloatArray
    """In the order of the variables; local scores and solutions are in that of the factors."""
    a: FloatArray
    z: FloatArray


class Extras(NamedTuple):
    """The additionals of all buckets: their scores and marginals."""

    eta: FloatArray
    scaled: FloatArray
    """Scores over quadratic + step size, as in the local problems."""
    v: FloatArray
    barred: ByteArray
    """Whether they are forbidden."""


class Progress(NamedTuple):
    """The loop's state on components."""

    step_size: FloatArray
    first_step_size: FloatArray
    primal_residual: FloatArray
    """Largest |mu_v - (M p)_l| of the last iteration."""
    dual_residual: FloatArray
    """Largest gamma |mu_v - previous mu_v|, likewise."""
    iterations: IntArray
    converged: BoolArray
    infeasible: BoolArray
    unsolved: BoolArray
    """Whether a factor's latest local problem hit the iteration limit."""
    stale: BoolArray
    """Whether the local scores have to be written anew."""
    rounding: FloatArray
    """What rounding leaves of `dual_residual`, whatever tolerance is asked for."""
    warm: BoolArray
    """Whether the loop started from an earlier solution, or from multipliers."""


class LoopProblem(NamedTuple):
    """All that the loops work on."""

    links: Links
    blocks: Blocks
    iterate: Iterate
    extras: Extras
    progress: Progress
    direct: BoolArray
    """For each component, whether its one factor's local problem is the whole."""
    counts: Counts
    quadratic: float
    """1 with the quadratic term, 0 without."""


problem_at = record_at(LoopProblem)
"""Returns, in kernels, the problem of a handle."""


def new_problem(part: Part, quadratic: float) -> Memory[LoopProblem]:
    """Return the problem of a part whose scores are still to be written.

    Marginals of additionals are not set either before the loop has run.
    """
    sizes = part.n_variables, part.n_links, part.n_additionals, part.n_components
    alone = quadratic > 0.0 and part.all_direct
    direct = part.direct if quadratic else np.zeros_like(part.direct)
    return _blueprint(*sizes, alone, quadratic).make(*part.records, direct, part.counts)


@functools.lru_cache(maxsize=32)
def _blueprint(
    on_variables: int,
    on_links: int,
    on_additionals: int,
    on_components: int,
    alone: bool,
    quadratic: float,
) -> Blueprint[LoopProblem]:
    """Return how the problems of some size are made.

    Where no component has a step size, additionals have one array of scores, scaled and not.
    """
    additionals = Unset((on_additionals,))
    plan = [
        None,
        None,
        [(on_variables,)] * 3 + [(on_links,)] * 3,
        [additionals, "eta" if alone else additionals, additionals, additionals],
        [(on_components,)] * len(Progress._fields),
        None,
        None,
        quadratic,
    ]
    return Blueprint(LoopProblem, plan)
