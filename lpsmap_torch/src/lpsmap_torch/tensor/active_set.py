"""The active set method for a batch of local problems, all of which advance side by side.

Each problem maximises ``<c, x> - 1/2 <q, x^2>`` over the convex hull of a factor's structures, of
which x has the variables and then the additionals; q is 0 for additionals (Niculae et al. 2018,
appendix A.2). An iteration calls the oracle once for all problems. Its structures join the active
sets, whose weights then take a few steps to their optimum (Nocedal & Wright 2006, algorithm 16.3).
Linear constraints on x, if there are any, have multipliers; see `Multipliers`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lpsmap_torch.tensor.multipliers import MAX_PENALTY, Multipliers, Rows

__all__ = ["ActiveSets", "LocalProblems", "inverse_of", "solve_active_sets"]

GAP_ROUNDING = 1e-13
"""A gap below this multiple of the summed magnitudes of a structure's scores is rounding."""

DAMPING = 1e-10
"""Added to the diagonal of Gram matrices, for each entry of a structure. Along a direction on which
the point does not change, the weights then take a huge step that a weight of zero blocks. Other
steps are repeated."""

NEVER = 2.0**100
"""Damping of places that are not used, whose weights do not move. Elimination with row pivots is as
exact as without these places, since it does not depend on the scale of columns."""

NEGLIGIBLE, SMALL_STEP = 1e-14, 1e-9
"""A weight leaves that a step moves this far below zero. A set is at its optimum after a step of
the second or less."""

STEP_ROUNDING = 1e-14
"""Steps below this multiple of the summed magnitudes of a structure's scores are rounding."""

CLEAR_GAP = 1e-7
"""Gaps above this are no effect of damping."""

STEPS, CONSTRAINED_STEPS = 2, 3
"""Steps of the weights for each call of the oracle, without and with constraints."""

ITERATIONS_PER_NUMBER, MIN_LIMIT = 10, 1_000
"""Iterations per number of a problem, and the smallest limit."""

MAX_STRUCTURES = 512
"""Maximum number of structures of an active set. Problems that need more are left unsolved."""

PROVED = 1e-9
"""Minimum margin of a proof that constraints cannot hold, relative to the summed magnitudes of
scores."""

MAX_CONSTRAINED_ITERATIONS = 500
"""Maximum number of iterations if there are constraints."""

CHECK_EVERY, FIRST_CAPACITY = 5, 16
"""Number of iterations between checks of convergence, which wait for the device, and the number of
structures for which sets have room at first."""


@dataclass(frozen=True)
class LocalProblems:
    """A batch of local problems.

    Vectors have variables, then additionals, and a last number in which padding is collected.
    """

    oracle: Callable[[Tensor], Tensor]
    """Returns the (n, W) entries of the best structures for (n, D) scores; D for padding."""
    linear: Tensor
    """(n, D + 1) the coefficients c; 0 for forced numbers."""
    quadratic: Tensor
    """(n or 1, D + 1) the coefficients q; 0 for additionals."""
    forced: Tensor
    """(n, D + 1) the numbers that are forced: -1 to be off, 1 to be on, 0 for others."""
    huge: Tensor
    """(n, 1) scores of forced numbers, which outweigh all others."""
    rows: Rows | None = None
    """Constraints on the variables."""

    def best(self, gradient: Tensor) -> Tensor:
        """Return the entries of the best structures for (n, D + 1) scores."""
        free, forced = self._free_and_forced
        return self.oracle(torch.where(free, gradient, forced)[:, :-1])

    def gradient(self, sets: ActiveSets) -> Tensor:
        """Return the gradient of the objective at the mixtures."""
        gradient = torch.addcmul(self.linear, self.quadratic, sets.x, value=-1.0)
        if sets.beside is None:
            return gradient
        force = sets.beside.force(sets.beside.of(sets.p))
        return gradient + sets.beside.rows.pull(force, gradient)

    def value(self, x: Tensor) -> Tensor:
        """Return the (n,) objectives."""
        return (x * (self.linear - 0.5 * self.quadratic * x)).sum(1)

    def least_value(self, width: int) -> Tensor:
        """Return (n,) lower bounds of the objective of all mixtures, despite rounding.

        Structures have `width` entries. Variables are at most 1; additionals may count repeatedly.
        """
        is_variable = self.quadratic > 0.0
        most = torch.where(is_variable, self.linear - 0.5 * self.quadratic, width * self.linear)
        magnitudes = self.linear.abs().sum(1)
        return most.clamp(max=0.0).sum(1) - 1.0 - PROVED * width * magnitudes

    @functools.cached_property
    def _free_and_forced(self) -> tuple[Tensor, Tensor]:
        """Flags of the numbers that are not forced, and the scores of those that are."""
        return self.forced == 0.0, self.huge * self.forced


@dataclass
class ActiveSets:
    """The active sets of a batch of problems, with room for ``capacity`` structures each."""

    entries: Tensor
    """(n, capacity, W) the entries of the structures."""
    used: Tensor
    """(n, capacity) whether there is a structure at a place."""
    unknowns: Tensor
    """(n, 1 + capacity) the multiplier of the sum of the weights, and the weights."""
    right: Tensor
    """(n, 1 + capacity) that sum, 1, and the linear terms of the structures."""
    bordered: Tensor
    """(n, 1 + capacity, 1 + capacity) the Gram matrices with a border of ones, and 0 in the corner.
    At the optimum of positive weights, the product with the unknowns is the right side."""
    row: Tensor
    """(n,) the numbers of the problems."""
    zero: Tensor
    """(n, D + 1)"""
    x: Tensor
    """(n, D + 1) the mixtures."""
    size: Tensor
    """(n,) the largest summed magnitudes of scores of the structures seen, and 1 for the first."""
    gap: Tensor
    """(n,) optimality gaps."""
    settled: Tensor
    """(n,) whether the last step was small."""
    threshold: Tensor
    """(n,) gaps above which structures join: of a set that is not at its optimum, active structures
    have gaps, too."""
    done: Tensor
    """(n,) whether no structure can improve the objective."""
    infeasible: Tensor
    """(n,) whether even the best structure contradicts forced numbers."""
    n_idle: Tensor
    """(n,) calls of the oracle since the problem was done."""
    n_calls: int = 1
    """Number of calls of the oracle."""
    beside: Multipliers | None = None
    """The constraints."""

    @property
    def p(self) -> Tensor:
        """(n, capacity) the weights."""
        return self.unknowns[:, 1:]

    @property
    def theta(self) -> Tensor:
        """(n, capacity) the linear terms of the structures."""
        return self.right[:, 1:]

    @property
    def gram(self) -> Tensor:
        """(n, capacity, capacity) the inner products of the structures."""
        return self.bordered[:, 1:, 1:]

    @property
    def rounding(self) -> Tensor:
        """(n,) gaps up to which structures are as good as the active ones."""
        rounding = GAP_ROUNDING * self.size
        return rounding if self.beside is None else rounding + GAP_ROUNDING * MAX_PENALTY

    @property
    def iterations(self) -> Tensor:
        """(n,) calls of the oracle."""
        return self.n_calls - self.n_idle

    @property
    def capacity(self) -> int:
        """Number of structures for which each set has room."""
        return self.used.shape[1]

    def have_finished(self, done: Tensor) -> bool:
        """Return whether all problems are done, or one has too many structures.

        This waits for the device. Otherwise, there is room for the structures until the next check.
        """
        number = int(2 * self.used.sum(1).max() + done.all())  # one number, to wait once
        most, is_done = divmod(number, 2)
        if is_done or most > MAX_STRUCTURES:
            return True
        if most + CHECK_EVERY >= self.capacity:
            self._reserve(most + CHECK_EVERY + self.capacity // 2)
        return False

    def _reserve(self, capacity: int) -> None:
        """Make room for more structures."""
        more = capacity - self.capacity
        pad = torch.nn.functional.pad
        self.entries = pad(self.entries, (0, 0, 0, more))
        self.used, self.unknowns, self.right = (
            pad(x, (0, more)) for x in (self.used, self.unknowns, self.right)
        )
        self.bordered = pad(self.bordered, (0, more, 0, more), value=1.0)
        if self.beside is not None:
            self.beside.sums = pad(self.beside.sums, (0, 0, 0, more))

    def sums(self, numbers: Tensor) -> Tensor:
        """Return the (n, capacity) sums of numbers over the entries of the structures."""
        found = numbers.gather(1, self.entries.flatten(1))
        return found.reshape(self.entries.shape).sum(-1)

    def mixture(self, weights: Tensor) -> Tensor:
        """Return the (n, D + 1) weighted sums of the structures; the transpose of `sums`.

        The last column, of padding, has any number; all scores there are zero.
        """
        spread = weights.unsqueeze(-1).expand(self.entries.shape).contiguous().flatten(1)
        return self.zero.scatter_add(1, self.entries.flatten(1), spread)

    def products(self, found: Tensor, problems: LocalProblems) -> Tensor:
        """Return the (n, capacity) inner products with other structures."""
        quadratic = problems.quadratic.expand_as(self.x)
        other = self.zero.scatter(1, found, quadratic.gather(1, found))
        return self.sums(other)

    def residual(self) -> Tensor:
        """Return the (n, capacity) gradient of the objective in the weights, plus a constant."""
        residual = self.plain_residual()
        if self.beside is None:
            return residual
        return residual + self.beside.pull(self.beside.force(self.beside.of(self.p)))

    def plain_residual(self) -> Tensor:
        """Return the same without the constraints."""
        theta, p = self.theta.unsqueeze(-1), self.p.unsqueeze(-1)
        return torch.baddbmm(theta, self.gram, p, alpha=-1.0).squeeze(-1)

    def join(self, found: Tensor, theta: Tensor, joins: Tensor, problems: LocalProblems) -> None:
        """Add a structure with weight zero to the sets for which `joins` is true."""
        row, place = self.row, self.used.to(torch.int8).argmin(1)  # a place that is not used
        self.entries[row, place] = found
        self.theta[row, place] = theta
        products = self.products(found, problems)
        self.gram[row, place] = products
        self.gram[row, :, place] = products
        self.used[row, place] = joins
        if self.beside is not None:
            self.beside.sums[row, place] = self.beside.rows.of_structures(found)


def solve_active_sets(problems: LocalProblems, max_iterations: int | None = None) -> ActiveSets:
    """Solve a batch of local problems.

    Parameters
    ----------
    problems
        The problems.
    max_iterations
        Maximum number of calls of the oracle; None for as many as a solution can need.
    """
    sets = _first_sets(problems)
    if max_iterations is None:
        max_iterations = MIN_LIMIT + ITERATIONS_PER_NUMBER * sets.x.shape[1]
        if sets.beside is not None:
            max_iterations = MAX_CONSTRAINED_ITERATIONS
    for iteration in range(max_iterations - 1):
        if iteration % CHECK_EVERY == 0 and sets.have_finished(sets.done):
            break
        _iterate(problems, sets)
        sets.n_calls += 1
    return sets


def _first_sets(problems: LocalProblems) -> ActiveSets:
    """Return sets of one structure each."""
    found = problems.best(problems.linear)
    scores = problems.linear.gather(1, found)
    n = len(found)
    x = torch.zeros_like(problems.linear)
    empty, flags = x.new_zeros((n, 1 + FIRST_CAPACITY)), torch.zeros_like(x[:, 0], dtype=torch.bool)
    sets = ActiveSets(
        entries=found.new_full((n, FIRST_CAPACITY, found.shape[1]), x.shape[1] - 1),
        used=torch.zeros_like(empty[:, 1:], dtype=torch.bool),
        unknowns=empty,
        right=empty.clone(),
        bordered=torch.ones_like(empty.unsqueeze(1)).repeat(1, 1 + FIRST_CAPACITY, 1),
        row=torch.arange(n, device=x.device),
        zero=x,
        x=x,
        size=1.0 + scores.abs().sum(1),
        gap=torch.full_like(x[:, 0], torch.inf),
        settled=~flags,
        threshold=x[:, 0],
        done=flags,
        infeasible=flags,
        n_idle=torch.zeros_like(x[:, 0], dtype=torch.int64),
    )
    if problems.rows is not None:
        sets.beside = Multipliers.first(problems.rows, FIRST_CAPACITY)
    sets.bordered[:, 0, 0] = 0.0
    sets.join(found, scores.sum(1), ~flags, problems)
    sets.p[:, 0] = sets.right[:, 0] = 1.0
    sets.x = sets.mixture(sets.p)
    sets.threshold = sets.rounding
    wrong = (sets.x * problems.forced < 0.0) | ((problems.forced > 0.0) & (sets.x == 0.0))
    sets.infeasible = sets.done = wrong.any(1)
    return sets


def _iterate(problems: LocalProblems, sets: ActiveSets) -> None:
    """Call the oracle, and move the weights."""
    gradient = problems.gradient(sets)
    found = problems.best(gradient)
    score = gradient.gather(1, found).sum(1).reshape(-1, 1, 1)
    gap = torch.baddbmm(score, gradient.unsqueeze(1), sets.x.unsqueeze(2), alpha=-1.0).flatten()
    sets.gap = gap
    scores = problems.linear.gather(1, found)
    sets.size = torch.maximum(sets.size, torch.linalg.vector_norm(scores, 1, dim=1))
    improves = gap > sets.threshold
    arrived = sets.settled > improves  # settled, and not improved
    if sets.beside is not None:
        arrived = arrived & ~sets.done
        least = problems.least_value(found.shape[1])
        bound = problems.value(sets.x) + sets.beside.bound(sets.p) + gap
        sets.infeasible = sets.infeasible | (arrived & (bound < least))
        arrived = sets.beside.move(sets.p, arrived) | sets.infeasible
    sets.done = sets.done | arrived
    sets.n_idle += sets.done
    sets.join(found, scores.sum(1), improves > sets.done, problems)  # if not done
    _move(sets)
    sets.x = sets.mixture(sets.p)


def _move(sets: ActiveSets) -> None:
    """Take some steps of the weights towards the optimum of their sets."""
    damping = torch.where(sets.used, DAMPING * sets.entries.shape[2], NEVER)
    matrix = sets.bordered.clone()
    diagonal = matrix.diagonal(dim1=1, dim2=2)[:, 1:]
    diagonal += damping
    # the weights of problems that are done do not move
    slowest = torch.where(sets.done, -torch.inf, -1.0).unsqueeze(1)
    for _ in range(STEPS if sets.beside is None else CONSTRAINED_STEPS):
        step, leaves = _step(sets, matrix, slowest)
        diagonal.masked_fill_(leaves, NEVER)
    sets.used = diagonal < NEVER
    largest = torch.linalg.vector_norm(step, torch.inf, dim=1)
    beyond = torch.sub(largest, sets.size, alpha=STEP_ROUNDING)
    is_blocked = leaves.any(1)
    sets.settled = (beyond <= SMALL_STEP) > is_blocked
    clear = CLEAR_GAP if sets.beside is None else torch.inf
    sets.threshold = torch.where(sets.settled, sets.rounding, clear).masked_fill_(
        is_blocked, torch.inf
    )


def _step(sets: ActiveSets, matrix: Tensor, slowest: Tensor) -> tuple[Tensor, Tensor]:
    """Move the weights towards the optimum of their sets, until one of them is zero and leaves.

    Returns the full step, and flags of the structures that leave. A weight of rate -r, relative to
    its size, is zero after the share 1 / r of the step.
    """
    unknowns, p = sets.unknowns, sets.p
    residual = torch.baddbmm(
        sets.right.unsqueeze(2), sets.bordered, unknowns.unsqueeze(2), alpha=-1.0
    )
    if sets.beside is not None:
        plain, force = sets.plain_residual(), sets.beside.force(sets.beside.of(p))
        residual[:, 1:, 0] += sets.beside.pull(force)
        matrix = matrix + torch.nn.functional.pad(sets.beside.curvature(force), (1, 0, 1, 0))
    # unlike torch.linalg.solve, this does not wait for the device
    change = torch.linalg.solve_ex(matrix, residual).result.squeeze(2)
    step = change[:, 1:]
    rate = step / (p + NEGLIGIBLE)
    limit = torch.minimum(rate.amin(1, keepdim=True), slowest)
    if sets.beside is not None:
        image = (sets.gram @ step.unsqueeze(2)).squeeze(2)
        length = sets.beside.length(p, step, (step * plain).sum(1), (step * image).sum(1))
        limit = torch.minimum(limit, -1.0 / length)
    sets.unknowns = torch.addcdiv(unknowns, change, limit, value=-1.0)
    sets.p.clamp_(min=0.0)
    return step, rate <= limit


def _matrix_of(sets: ActiveSets, damping: float) -> Tensor:
    """Return the Gram matrices plus 1, with ones on the diagonal for unused places.

    Such a matrix is singular if structures depend affinely.
    """
    used = sets.used
    matrix = torch.where(used.unsqueeze(1) & used.unsqueeze(2), sets.gram + 1.0, _identity_of(sets))
    matrix.diagonal(dim1=1, dim2=2).mul_(1.0 + damping)
    return matrix


def _identity_of(sets: ActiveSets) -> Tensor:
    return torch.eye(sets.capacity, dtype=sets.x.dtype, device=sets.x.device)


def inverse_of(sets: ActiveSets) -> Tensor:
    """Return the inverses of the Gram matrices; zeros for unused places.

    A step of Newton's method for inverses removes the effect of damping.
    """
    factor = torch.linalg.cholesky_ex(_matrix_of(sets, DAMPING)).L
    half = torch.linalg.solve_triangular(factor, _identity_of(sets), upper=False)
    inverse = half.mT @ half
    inverse = 2.0 * inverse - inverse @ _matrix_of(sets, 0.0) @ inverse
    return torch.where(sets.used.unsqueeze(1) & sets.used.unsqueeze(2), inverse, 0.0)
