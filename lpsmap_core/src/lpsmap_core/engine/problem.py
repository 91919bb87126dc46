"""The problem of a part as one record, which kernels receive by its address, and its scores."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.step_size import first_step_size
from lpsmap_core.engine.stopping import ITERATING
from lpsmap_core.layout.arrangement import Links, Spans
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.finite_scores import FORBIDDEN_MULTIPLE
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import leaf
from lpsmap_jit.memory import Blueprint, Memory

ONE = np.uint64(1)
"""Unsigned 1, to add to a variable's number; see `Links.variable_counting`."""


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
    forbidden: ByteArray
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
    outcome: ByteArray
    """How the component ended, or that it did not; see `lpsmap_core.engine.stopping`."""
    at_inner_limit: BoolArray
    """Whether the latest local problem of a factor reached its iteration limit."""
    stale: BoolArray
    """Whether the local scores are out of date."""
    largest_score: FloatArray
    """Largest finite magnitude of the scores; 1 if it is smaller and there is a quadratic term, or
    if it is 0."""
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
    """As in `Part`: for each component, whether it is a single factor, solved without the loop."""
    quadratic: float
    """1 with the quadratic term, 0 without."""


problem_at = record_at(LoopProblem)
"""Returns, in kernels, the problem of a handle."""


def new_problem(
    part: Part, quadratic: float, eta_v: FloatArray, *start: FloatArray
) -> Memory[LoopProblem]:
    """Return the problem of a part before its scores are written.

    `eta_v` becomes ``extras.eta``, and the arrays of a start ``iterate.u`` and ``iterate.duals``:
    there may be many links and far more additionals, so that copies would take much memory.
    """
    sizes = part.n_variables, part.n_links, part.n_additionals, part.n_components
    blueprint = _blueprint(*sizes, quadratic, len(start) > 0)
    return blueprint.make(*part.loop.records, *start, eta_v, part.direct)


@functools.lru_cache(maxsize=32)
def _blueprint(
    on_variables: int,
    on_links: int,
    on_additionals: int,
    on_components: int,
    quadratic: float,
    has_start: bool,
) -> Blueprint[LoopProblem]:
    means, duals = (None, None) if has_start else ((on_variables,), (on_links,))
    iterate = [(on_variables,), (on_variables,), means, duals, (on_links,), (on_links,)]
    extras, progress = [None, *[(on_additionals,)] * 3], [(on_components,)] * len(Progress._fields)
    return Blueprint(LoopProblem, [None, None, iterate, extras, progress, None, quadratic])


# -------------------------------------------------------------------- scores

EVERYWHERE = np.empty(0, dtype=np.bool_)
"""Selects all components."""


def set_scores(
    handle: Any, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, options: Options
) -> float:
    """Write the scores of chosen components, or `EVERYWHERE`, and reset their progress.

    Means, duals and faces are kept as the starting point of the loop. Infinite scores are stored
    separately: ``-inf`` and ``inf`` of variables, which are forced on then, in ``iterate.score``,
    and ``-inf`` of additionals in ``extras.forbidden``. Returns the largest magnitude, at least 1;
    infinite if any score is.
    """
    fixed = np.nan if options.step_size is None else options.step_size
    largest: float = _set_scores(handle, chosen, eta, eta_v, fixed)
    return largest


@leaf
def _set_scores(
    handle: Any, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, step_size: float
) -> float:
    """Compute `set_scores`; a `step_size` of NaN means the default."""
    problem = problem_at(handle)
    progress, first = problem.progress, problem.spans.first_variable
    largest = 1.0
    for c in range(len(first) - 1):
        if len(chosen) > 0 and not chosen[c]:
            continue
        most, finite = _set_variables(first[c], eta[first[c] : first[c + 1]], problem)
        if problem.quadratic > 0.0 or (finite == 0.0 and len(eta_v) == 0):
            finite = max(1.0, finite)
        progress.largest_score[c] = finite
        progress.primal_residual[c] = progress.dual_residual[c] = np.inf
        progress.iterations[c], progress.stale[c] = 0, True
        progress.outcome[c] = ITERATING
        progress.at_inner_limit[c] = progress.warm[c] = False
        largest = max(largest, most)
    if len(eta_v) > 0:
        largest = max(largest, _set_additionals(chosen, eta_v, problem))
    for c in range(len(first) - 1):
        if len(chosen) == 0 or chosen[c]:
            step = step_size
            if problem.direct[c]:
                step = 0.0
            elif np.isnan(step):
                scores = eta[first[c] : first[c + 1]]
                step = first_step_size(scores, progress.largest_score[c], problem.quadratic)
            progress.step_size[c] = progress.first_step_size[c] = step
    return largest


@leaf
def _set_variables(first: int, scores: FloatArray, problem: LoopProblem) -> tuple[float, float]:
    """Write the scores of a component's variables.

    Returns the largest magnitude and the largest finite magnitude.
    """
    last = first + len(scores)
    score, eta = problem.iterate.score[first:last], problem.iterate.eta[first:last]
    root_degree = problem.links.root_degree[first:last]
    for i in range(np.uint64(len(scores))):
        score[i] = scores[i] / root_degree[i]
        eta[i] = 0.0 if abs(scores[i]) == np.inf else scores[i]
    most = largest_magnitude(scores)
    finite = largest_magnitude(eta) if most == np.inf else most
    return most, finite


@leaf
def _set_additionals(chosen: BoolArray, eta_v: FloatArray, problem: LoopProblem) -> float:
    """Write the scores of additionals; return the largest magnitude.

    Forbidden additionals get scores so low that no other scores outweigh them.
    """
    spans, extras, largest_score = problem.spans, problem.extras, problem.progress.largest_score
    offsets, largest = spans.additional_offsets, 1.0
    for f in range(len(spans.component)):
        c, lo, hi = spans.component[f], offsets[f], offsets[f + 1]
        if len(chosen) == 0 or chosen[c]:
            most = largest_magnitude(eta_v[lo:hi])
            _copy(eta_v[lo:hi], extras.eta[lo:hi])
            if len(chosen) > 0:  # otherwise they are still zeros, whose pages take no memory
                extras.forbidden[lo:hi] = 0
            largest = max(largest, most)
            if most == np.inf:
                most = _largest_finite(eta_v[lo:hi])
            largest_score[c] = max(largest_score[c], most)
    for f in range(len(spans.component)):
        c, lo, hi = spans.component[f], offsets[f], offsets[f + 1]
        if len(chosen) == 0 or chosen[c]:
            if largest_score[c] == 0.0:
                largest_score[c] = 1.0
            if largest == np.inf:
                score = -FORBIDDEN_MULTIPLE * largest_score[c]
                _forbid(extras.eta[lo:hi], score, extras.forbidden[lo:hi])
            _copy(extras.eta[lo:hi], extras.scaled[lo:hi])
    return largest


@leaf
def _largest_finite(scores: FloatArray) -> float:
    """Return the largest finite magnitude, 0 without finite numbers."""
    most = 0.0
    for score in scores:
        if abs(score) < np.inf:
            most = max(most, abs(score))
    return most


@leaf
def _forbid(scores: FloatArray, score: float, forbidden: ByteArray) -> None:
    """Replace scores of ``-inf`` by `score`, and mark them in `forbidden`."""
    for i in range(np.uint64(len(scores))):
        forbidden[i] = scores[i] == -np.inf
        scores[i] = score if scores[i] == -np.inf else scores[i]


@leaf
def _copy(source: FloatArray, target: FloatArray) -> None:
    for i in range(np.uint64(len(source))):
        target[i] = source[i]
