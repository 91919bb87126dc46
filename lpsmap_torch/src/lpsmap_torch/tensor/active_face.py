"""Derivatives of active sets: Jacobians on the faces that contain the solutions.

The derivative of a projection is the projection onto the affine hull of the face that contains the
solution, of which the active structures may span a part only. The oracle therefore gets the scores
at the solution, tilted along a direction that is orthogonal to the hull of the structures. It
returns one of them exactly if they span the whole face; see `lpsmap_core.local.active.ties`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import cached_property
from lpsmap_torch.tensor.active_set import CHECK_EVERY, ActiveSets
from lpsmap_torch.tensor.equations import Equations
from lpsmap_torch.tensor.local_problems import LocalProblems

TIES = 10.0
"""Structures whose scores are lower by up to this multiple of the rounding are tied."""

INDEPENDENT = 1e-9
"""Least relative squared distance of a structure from the affine hull of the others."""

MAX_TILT, MIN_TILT, TILT_RATIO = 1e-8, 1e-12, 1e-2
"""Relative changes of the scores that make the oracle choose other tied structures."""


class ActiveFace:
    """The faces of solved active sets, completed when the first product needs them.

    The (n, D) sign is -1 for negated slots, else 1.
    """

    def __init__(self, problems: LocalProblems, sets: ActiveSets, sign: Tensor) -> None:
        self._problems, self._sets, self._sign = problems, sets, sign

    def multiply(self, d: Tensor) -> Tensor:
        """Return the products of the Jacobians with (n, D) vectors; autograd can follow.

        The product of a vector that is not finite is NaN.
        """
        sets, kernel = self._completed
        sums = sets.sums(torch.nn.functional.pad(self._sign * d, (0, 1)))
        weights = (kernel @ sums.unsqueeze(-1)).squeeze(-1)
        return self._sign * sets.mixture(weights)[:, :-1] + (0.0 * d).sum(-1, keepdim=True)

    @cached_property
    def _completed(self) -> tuple[ActiveSets, Tensor]:
        """The sets with all tied structures, and the derivative of weights in linear terms."""
        with torch.no_grad():
            sets = _complete(self._problems, self._sets)
            kernel = _derivative(_inverse_of(sets))
            return sets, kernel if sets.beside is None else sets.beside.on_face(kernel)


def _inverse_of(sets: ActiveSets) -> Tensor:
    """Return the inverses of the Gram matrices plus 1; zeros for unused places."""
    both = sets.used.unsqueeze(1) & sets.used.unsqueeze(2)
    return Equations(torch.where(both, sets.gram + 1.0, 0.0)).inverse().where(both, 0.0)


def _derivative(inverse: Tensor) -> Tensor:
    """Return the derivative of the weights in the linear terms of the structures."""
    ones = inverse.sum(-1)
    total = ones.sum(-1, keepdim=True)
    # no structure is active where the problem is infeasible or invalid
    share = ones / torch.where(total > 0.0, total, 1.0)
    return inverse - share.unsqueeze(-1) * ones.unsqueeze(-2)


def _complete(problems: LocalProblems, solved: ActiveSets) -> ActiveSets:
    """Return the sets with tied structures of weight zero that complete their faces."""
    sets = dataclasses.replace(solved)
    sets.used = solved.used & (solved.done & ~solved.infeasible).unsqueeze(1)
    for name in ("entries", "right", "bordered"):
        setattr(sets, name, getattr(solved, name).clone())
    if solved.beside is not None:
        sets.beside = dataclasses.replace(solved.beside, sums=solved.beside.sums.clone())
    gradient = sets.gradient(problems)
    scale = torch.where(problems.quadratic > 0.0, gradient.abs(), 0.0).amax(1, keepdim=True) + 1.0
    level = (gradient * sets.x).sum(1)
    tilt = torch.where(sets.used.any(1), MAX_TILT, 0.0).to(gradient.dtype)
    for attempt in range(gradient.shape[1] + 10):
        if attempt % CHECK_EVERY == 0 and sets.have_finished(tilt == 0.0):
            break
        inverse = _inverse_of(sets)
        off = _off(problems, sets, _derivative(inverse), _wave(gradient, attempt))
        best = problems.best(gradient + tilt.unsqueeze(1) * scale * off)
        gap = gradient.gather(1, best).sum(1) - level
        is_tied = gap >= -TIES * sets.rounding
        joins = is_tied & _is_independent(problems, sets, inverse, best) & (tilt > 0.0)
        theta = problems.linear.gather(1, best).sum(1, keepdim=True)
        sets.join(best.unsqueeze(1), theta, joins.unsqueeze(1), problems)
        lower = torch.where(tilt > MIN_TILT, TILT_RATIO * tilt, 0.0)
        tilt = torch.where(joins, tilt, torch.where(is_tied, 0.0, lower))
    return sets


def _wave(like: Tensor, attempt: int) -> Tensor:
    """Return numbers in general position, equal for all problems and in all runs."""
    # not by torch, which refuses random numbers where gradients are batched
    wave = torch.from_numpy(np.random.default_rng(attempt).random(like.shape[1]) - 0.5)
    return wave.to(like).expand_as(like)


def _off(problems: LocalProblems, sets: ActiveSets, kernel: Tensor, wave: Tensor) -> Tensor:
    """Return the scores whose Riesz representation is the wave's part orthogonal to the hull."""
    wave = torch.where(problems.quadratic > 0.0, wave, 0.0)
    along = sets.mixture((kernel @ sets.sums(wave).unsqueeze(-1)).squeeze(-1))
    return wave - problems.quadratic * along


def _is_independent(
    problems: LocalProblems, sets: ActiveSets, inverse: Tensor, best: Tensor
) -> Tensor:
    products = torch.where(
        sets.used, sets.products(best.unsqueeze(1), problems).squeeze(1) + 1.0, 0.0
    )
    norm = problems.quadratic.expand_as(sets.x).gather(1, best).sum(1) + 1.0
    within = (products * (inverse @ products.unsqueeze(-1)).squeeze(-1)).sum(1)
    return norm - within > INDEPENDENT * norm
