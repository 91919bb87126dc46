"""Projections onto the constraints of a batch: by a kernel, or by operations.

The operations are an interior point method, then Newton's method on the face.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lpsmap_torch.tensor.batch import Batch
from lpsmap_torch.tensor.cuda_kernels import serves, solve
from lpsmap_torch.tensor.face import Face, FusedFace, face_of, on_face
from lpsmap_torch.tensor.interior_point import Interior, first_point, next_point
from lpsmap_torch.tensor.newton import Pieces, newton_step, pieces_at, select
from lpsmap_torch.tensor.oracle_batch import OracleBatch
from lpsmap_torch.tensor.projection_problem import (
    EXACT,
    MAX_DISTANCE,
    MAX_SCORE,
    ROUNDING,
    Limits,
    Projected,
    Projections,
    projections_of,
    proves_infeasible,
)

MAX_RESIDUAL = 1e-7
"""Pieces with a larger residual are worse than the interior point, if there are proximal terms."""

MARGIN_EVERY, KINK = 3, 2.0
"""In every third Newton step, numbers and sums closer to a bound than this multiple of the
residual are free and tight, and smaller multipliers are zero: otherwise steps can cycle between the
two sides of a bound."""


def project(batch: Batch | OracleBatch, eta: Tensor, limits: Limits) -> Projected:
    """Project (n, n_columns) scores, ``-inf`` where a column is forbidden, onto polytopes."""
    if isinstance(batch, OracleBatch):
        return batch.project(eta, limits)
    solve_batch = _by_kernel if serves(batch, eta) else _by_operations
    return solve_batch(batch, eta, limits)


def _by_kernel(batch: Batch, eta: Tensor, limits: Limits) -> Projected:
    """Solve by the kernel and, if checks may wait, by operations what it left."""
    found = solve(batch, eta, limits.interior)
    face = FusedFace(batch, found.ease, found.tight)
    own = {name: x for name, x in found._asdict().items() if name not in ("y", "ease", "tight")}
    may_wait = limits.check_every is not None
    if not may_wait or bool(found.exact.all()):
        return Projected(**own, face=face, is_solved=may_wait)
    (left,) = torch.where(~(found.exact | found.infeasible) & (eta < torch.inf).all(-1))
    if len(left):
        of_left = _by_operations(batch.taken(left), eta[left], limits)
        assert isinstance(of_left.face, Face)
        own = {name: x.index_copy(0, left, getattr(of_left, name)) for name, x in own.items()}
        ease = found.ease.index_copy(0, left, of_left.face.ease)
        face = FusedFace(batch, ease, found.tight.index_copy(0, left, of_left.face.tight))
    return Projected(**own, face=face)


def _by_operations(batch: Batch, eta: Tensor, limits: Limits) -> Projected:
    invalid = ~(eta < torch.inf).all(-1, keepdim=True)
    scores = torch.where(invalid, 0.0, eta).clamp(max=MAX_SCORE)
    allowed = scores > -MAX_SCORE
    scores = torch.where(allowed, scores, 0.0)
    problems = projections_of(batch, scores, allowed)
    point = first_point(problems)
    for i in range(limits.interior):
        if i and limits.check_is_due(i) and bool(point.done.all()):
            break
        point = next_point(problems, point)
    infeasible = proves_infeasible(problems, point.y)
    best = _on_pieces(problems, point, infeasible, limits)
    face = face_of(problems, best.free & ~infeasible, best.tight & ~infeasible)
    moved, rough = on_face(problems, best, face), _rough(problems, best, point)
    is_close = moved.off.abs().amax(-1, keepdim=True) <= MAX_DISTANCE
    exact = is_exact(problems, best) & is_close & ~infeasible
    best = select(exact, moved, rough)
    return Projected(
        torch.where(invalid, torch.nan, best.u),
        _gap(problems, best),
        torch.where(invalid, torch.inf, best.residual).squeeze(-1),
        (exact & ~invalid).squeeze(-1),
        (infeasible & ~invalid).squeeze(-1),
        point.iterations.squeeze(-1).long(),
        face,
    )


def _on_pieces(
    problems: Projections, point: Interior, infeasible: Tensor, limits: Limits
) -> Pieces:
    """Return the pieces with the least residual that Newton's method finds from a point."""
    pieces = best = pieces_at(problems, point.y, point.u)
    center = point.u
    for i in range(limits.newton):
        if limits.check_is_due(i) and bool((is_exact(problems, best) | infeasible).all()):
            break
        margin, y = None, pieces.y
        if i % MARGIN_EVERY == 1:
            margin = KINK * pieces.residual
            y = torch.where(y.abs() > margin, y, 0.0)
        y = newton_step(problems, pieces_at(problems, y, center, margin))
        pieces = pieces_at(problems, y, center)
        best = select(pieces.residual < best.residual, pieces, best)
        center = pieces.u.clamp(0.0, 1.0)
    return best


def _rough(problems: Projections, best: Pieces, point: Interior) -> Pieces:
    """Return what is known without a face: the interior point if proximal terms are far off."""
    batch = problems.batch
    if batch.linear is None:
        return best
    sums = batch.sums(point.u)
    off = (batch.low - sums).clamp(min=0.0) - (sums - batch.high).clamp(min=0.0)
    nothing, tight = torch.zeros_like(best.moved), torch.ones_like(best.tight)
    interior = Pieces(point.u, best.free, tight, off, point.y, nothing)
    return select(best.residual > MAX_RESIDUAL, interior, best)


def is_exact(problems: Projections, pieces: Pieces) -> Tensor:
    """Return whether pieces satisfy the equations up to rounding."""
    size = torch.where(pieces.free, problems.eta.abs(), 0.0) + pieces.y.abs().amax(-1, keepdim=True)
    size = problems.ease * size  # without a quadratic term, rounding errors are amplified
    return pieces.residual <= EXACT + ROUNDING * size.amax(-1, keepdim=True)


def _gap(problems: Projections, pieces: Pieces) -> Tensor:
    batch, y, u = problems.batch, pieces.y, pieces.u
    bound = torch.where(y > 0.0, batch.low, batch.high)
    # the multiplier of an infinite bound is at most the residual, and is treated as zero
    ignored = (y == 0.0) | bound.isinf()
    gap = torch.where(ignored, 0.0, y * (batch.sums(u) - bound)).sum(-1)
    if batch.linear is not None:
        reduced = torch.where(batch.linear & problems.open, problems.eta + batch.pull(y), 0.0)
        gap = gap + (reduced.clamp(min=0.0) - reduced * u).sum(-1)
    return gap
