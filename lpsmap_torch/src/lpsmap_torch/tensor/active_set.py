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
"""Added to the diagonal of Gram matrices. Along a direction on which the point does not change, the
weights then take a huge step that a weight of zero blocks. Other steps are repeated."""

NEGLIGIBLE, SMALL_STEP = 1e-14, 1e-9
"""A weight leaves that a step moves this far below zero. A set is at its optimum after a step of
the second or less."""

TINY = 1e-300
"""Minimum divisor in place of zero."""

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
    p: Tensor
    """(n, capacity) the weights."""
    theta: Tensor
    """(n, capacity) the linear terms of the structures."""
    gram: Tensor
    """(n, capacity, capacity) their inner products plus 1: singular if they depend affinely."""
    identity: Tensor
    """(capacity, capacity) the identity matrix."""
    x: Tensor
    """(n, D + 1) the mixtures."""
    size: Tensor
    """(n,) the largest summed magnitudes of scores of the structures seen."""
    gap: Tensor
    """(n,) optimality gaps."""
    settled: Tensor
    """(n,) whether the last step was small."""
    blocked: Tensor
    """(n,) whether a weight that became zero cut the last step short."""
    done: Tensor
    """(n,) whether no structure can improve the objective."""
    infeasible: Tensor
    """(n,) whether even the best structure contradicts forced numbers."""
    iterations: Tensor
    """(n,) calls of the oracle."""
    beside: Multipliers | None = None
    """The constraints."""

    @property
    def rounding(self) -> Tensor:
        """(n,) gaps up to which structures are as good as the active ones."""
        rounding = GAP_ROUNDING * (self.size + 1.0)
        return rounding if self.beside is None else rounding + GAP_ROUNDING * MAX_PENALTY

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
        self.used, self.p, self.theta = (pad(x, (0, more)) for x in (self.used, self.p, self.theta))
        self.gram = pad(self.gram, (0, more, 0, more))
        if self.beside is not None:
            self.beside.sums = pad(self.beside.sums, (0, 0, 0, more))
        self.identity = torch.eye(capacity, dtype=self.p.dtype, device=self.p.device)

    def sums(self, numbers: Tensor) -> Tensor:
        """Return the (n, capacity) sums of numbers over the entries of the structures."""
        found = numbers.gather(1, self.entries.flatten(1))
        return found.reshape(self.entries.shape).sum(-1)

    def mixture(self, weights: Tensor) -> Tensor:
        """Return the (n, D + 1) weighted sums of the structures; the transpose of `sums`.

        The last column, of padding, has any number; all scores there are zero.
        """
        spread = weights.unsqueeze(-1).expand(self.entries.shape).flatten(1)
        return torch.zeros_like(self.x).scatter_add(1, self.entries.flatten(1), spread)

    def products(self, found: Tensor, problems: LocalProblems) -> Tensor:
        """Return the (n, capacity) inner products with other structures plus 1; see `gram`."""
        quadratic = problems.quadratic.expand_as(self.x)
        other = torch.zeros_like(self.x).scatter(1, found, quadratic.gather(1, found))
        return self.sums(other) + 1.0

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
        row = torch.arange(len(found), device=found.device)
        place = self.used.to(torch.int8).argmin(1)  # a place that is not used
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
    return sets


def _first_sets(problems: LocalProblems) -> ActiveSets:
    """Return sets of one structure each."""
    found = problems.best(problems.linear)
    scores = problems.linear.gather(1, found)
    n = len(found)
    x = torch.zeros_like(problems.linear)
    empty, flags = x.new_zeros((n, FIRST_CAPACITY)), torch.zeros_like(x[:, 0], dtype=torch.bool)
    sets = ActiveSets(
        entries=found.new_full((n, FIRST_CAPACITY, found.shape[1]), x.shape[1] - 1),
        used=torch.zeros_like(empty, dtype=torch.bool),
        p=empty,
        theta=empty.clone(),
        gram=x.new_zeros((n, FIRST_CAPACITY, FIRST_CAPACITY)),
        identity=torch.eye(FIRST_CAPACITY, dtype=x.dtype, device=x.device),
        x=x,
        size=scores.abs().sum(1),
        gap=torch.full_like(x[:, 0], torch.inf),
        settled=~flags,
        blocked=flags,
        done=flags,
        infeasible=flags,
        iterations=torch.ones_like(x[:, 0], dtype=torch.int64),
    )
    if problems.rows is not None:
        sets.beside = Multipliers.first(problems.rows, FIRST_CAPACITY)
    sets.join(found, scores.sum(1), ~flags, problems)
    sets.p[:, 0] = 1.0
    sets.x = sets.mixture(sets.p)
    wrong = (sets.x * problems.forced < 0.0) | ((problems.forced > 0.0) & (sets.x == 0.0))
    sets.infeasible = sets.done = wrong.any(1)
    return sets


def _iterate(problems: LocalProblems, sets: ActiveSets) -> None:
    """Call the oracle, and move the weights."""
    gradient = problems.gradient(sets)
    found = problems.best(gradient)
    gap = gradient.gather(1, found).sum(1) - (gradient * sets.x).sum(1)
    sets.gap = torch.where(sets.done, sets.gap, gap)
    scores = problems.linear.gather(1, found)
    sets.size = torch.maximum(sets.size, scores.abs().sum(1))
    improves = gap > sets.rounding
    arrived = sets.settled & ~improves
    if sets.beside is not None:
        arrived = arrived & ~sets.done
        least = problems.least_value(found.shape[1])
        bound = problems.value(sets.x) + sets.beside.bound(sets.p) + gap
        sets.infeasible = sets.infeasible | (arrived & (bound < least))
        arrived = sets.beside.move(sets.p, arrived) | sets.infeasible
    sets.done = sets.done | arrived
    unsolved = ~sets.done
    sets.iterations += unsolved
    # of a set that is not at its optimum, active structures have gaps, too
    may_join = sets.settled
    if sets.beside is None:
        may_join = may_join | (~sets.blocked & (gap > CLEAR_GAP))
    joins = improves & unsolved & may_join
    sets.join(found, scores.sum(1), joins, problems)
    for _ in range(STEPS if sets.beside is None else CONSTRAINED_STEPS):
        step, sets.blocked = _step(sets)
    sets.p = sets.p / sets.p.sum(1, keepdim=True)  # steps keep the sum, to rounding
    largest = torch.linalg.vector_norm(step, torch.inf, dim=1)
    beyond = torch.sub(largest, sets.size, alpha=STEP_ROUNDING)
    sets.settled = ~sets.blocked & (beyond <= SMALL_STEP)
    sets.x = sets.mixture(sets.p)


def _step(sets: ActiveSets) -> tuple[Tensor, Tensor]:
    """Move the weights towards the optimum of their sets, until one of them is zero and leaves.

    Returns the full step, and whether a weight cut it short.
    """
    used, p, matrix = sets.used, sets.p, _matrix_of(sets, DAMPING)
    residual = plain = sets.plain_residual()
    if sets.beside is not None:
        force = sets.beside.force(sets.beside.of(p))
        residual = plain + sets.beside.pull(force)
        matrix = matrix + sets.beside.curvature(force) * (used.unsqueeze(1) & used.unsqueeze(2))
    factor = torch.linalg.cholesky_ex(matrix).L
    right = torch.stack([residual, torch.ones_like(p)], dim=-1) * used.unsqueeze(-1)
    # torch.cholesky_solve would wait for the device
    half = torch.linalg.solve_triangular(factor, right, upper=False)
    both = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    (free, ones), total = both.unbind(-1), both.sum(1)
    shift = (total[:, 0] / total[:, 1]).unsqueeze(1)
    step = torch.where(sets.done.unsqueeze(1), 0.0, torch.addcmul(free, shift, ones, value=-1.0))
    until = (-NEGLIGIBLE - p) / step.clamp(max=-TINY)  # huge for weights that do not decrease
    reach = until.amin(1, keepdim=True)
    length = reach.clamp(max=1.0)
    if sets.beside is not None:
        image = (sets.gram @ step.unsqueeze(2)).squeeze(2)
        best = sets.beside.length(p, step, (step * plain).sum(1), (step * image).sum(1))
        length = torch.minimum(length, best)
    sets.used = used & (until > length)
    sets.p = torch.addcmul(p, length, step).clamp(min=0.0)
    return step, (reach <= length).squeeze(1)


def _matrix_of(sets: ActiveSets, damping: float) -> Tensor:
    """Return the Gram matrices of the structures, with ones on the diagonal for unused places."""
    used = sets.used
    matrix = torch.where(used.unsqueeze(1) & used.unsqueeze(2), sets.gram, sets.identity)
    matrix.diagonal(dim1=1, dim2=2).mul_(1.0 + damping)
    return matrix


def inverse_of(sets: ActiveSets) -> Tensor:
    """Return the inverses of the Gram matrices; zeros for unused places.

    A step of Newton's method for inverses removes the effect of damping.
    """
    factor = torch.linalg.cholesky_ex(_matrix_of(sets, DAMPING)).L
    half = torch.linalg.solve_triangular(factor, sets.identity, upper=False)
    inverse = half.mT @ half
    inverse = 2.0 * inverse - inverse @ _matrix_of(sets, 0.0) @ inverse
    return torch.where(sets.used.unsqueeze(1) & sets.used.unsqueeze(2), inverse, 0.0)
