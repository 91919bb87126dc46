"""The active set method for a batch of local problems, all of which advance side by side.

An iteration calls the oracle once for all problems. Its structures join the active sets, whose
weights then take a few steps to their optimum (Nocedal & Wright 2006, algorithm 16.3). Linear
constraints, if there are any, have multipliers; see `Multipliers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lpsmap_torch.tensor.local_problems import LocalProblems
from lpsmap_torch.tensor.multipliers import MAX_PENALTY, Multipliers
from lpsmap_torch.tensor.splices import Rules

GAP_ROUNDING = 1e-13
"""A gap below this multiple of the summed magnitudes of a structure's scores is rounding."""

MAX_SIZE = 1e6
"""Larger summed magnitudes leave too few digits to prove a solution, such as those of a mask of
-1e9 that cannot hold."""

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

INDEPENDENT = 0.02
"""Minimum distance of one of several structures from the affine hull of the others."""

ITERATIONS_PER_NUMBER, MIN_LIMIT = 10, 1_000
"""Iterations per number of a problem, and the smallest limit."""

MAX_STRUCTURES = 512
"""Maximum number of structures of an active set. Problems that need more are left unsolved."""

MAX_CONSTRAINED_ITERATIONS = 500
"""Maximum number of iterations if there are constraints."""

STRAGGLERS = 32
"""One problem of so many, rounded, may be left unsolved: an iteration takes as many operations for
it as for all."""

CHECK_EVERY, FIRST_CAPACITY = 5, 16
"""Number of iterations between checks of convergence, which wait for the device, and the number of
structures for which sets have room at first."""


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
    """(n,) the largest summed magnitudes of scores of the structures seen, and 1 for the first; at
    least the maximum penalty of constraints."""
    gap: Tensor
    """(n,) optimality gaps."""
    settled: Tensor
    """(n,) whether the last step was small."""
    threshold: Tensor
    """(n,) gaps above which structures join."""
    done: Tensor
    """(n,) whether no structure can improve the objective."""
    infeasible: Tensor
    """(n,) whether even the best structure contradicts forced numbers."""
    n_idle: Tensor
    """(n,) calls of the oracle since the problem was done."""
    rules: Rules
    """How sets change in an iteration."""
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
        return GAP_ROUNDING * self.size

    @property
    def iterations(self) -> Tensor:
        """(n,) calls of the oracle."""
        return self.n_calls - self.n_idle

    @property
    def capacity(self) -> int:
        """Number of structures for which each set has room, and one place for others."""
        return self.used.shape[1]

    def have_finished(self, done: Tensor, max_left: int = 0) -> bool:
        """Return whether all problems but a few are done, or one has too many structures.

        This waits for the device. Otherwise, there is room for the structures until the next check.
        """
        n = len(done)
        # one number, to wait once
        most, n_done = divmod(int((n + 1) * self.used.sum(1).max() + done.sum()), n + 1)
        if n - n_done <= max_left or most > MAX_STRUCTURES:
            return True
        room = 2 * CHECK_EVERY + self.rules.n_others
        if most + room >= self.capacity:
            self._reserve(most + room + self.capacity // 2)
        return False

    def _reserve(self, capacity: int) -> None:
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
        of_entries = numbers.gather(1, self.entries.flatten(1))
        return of_entries.reshape(self.entries.shape).sum(-1)

    def mixture(self, weights: Tensor) -> Tensor:
        """Return the (n, D + 1) weighted sums of the structures; the transpose of `sums`.

        The last column, of padding, has any number; all scores there are zero.
        """
        spread = weights.repeat_interleave(self.entries.shape[-1], 1)
        return self.zero.scatter_add(1, self.entries.flatten(1), spread)

    def gradient(self, problems: LocalProblems) -> Tensor:
        """Return the gradient of the objective at the mixtures."""
        gradient = torch.addcmul(problems.linear, problems.quadratic, self.x, value=-1.0)
        if self.beside is None:
            return gradient
        return self.beside.rows.add_pull(self.beside.force, gradient)

    def products(self, structures: Tensor, problems: LocalProblems) -> Tensor:
        """Return the (n, k, capacity) inner products with other (n, k, W) structures."""
        n, k, _ = structures.shape
        quadratic = problems.quadratic.unsqueeze(1).expand(n, k, -1)
        zero = self.zero.unsqueeze(1).expand(n, k, -1)
        numbers = zero.scatter(2, structures, quadratic.gather(2, structures))
        entries = self.entries.reshape(n, 1, -1).expand(-1, k, -1)
        return numbers.gather(2, entries).reshape(n, k, *self.entries.shape[1:]).sum(-1)

    def residual(self) -> Tensor:
        """Return the (n, 1 + capacity, 1) right side minus the product with the unknowns.

        Constraints are left out. The weights have the gradient of the objective, plus a constant.
        """
        right, unknowns = self.right.unsqueeze(2), self.unknowns.unsqueeze(2)
        return torch.baddbmm(right, self.bordered, unknowns, alpha=-1.0)

    def join(
        self, structures: Tensor, theta: Tensor, joins: Tensor, problems: LocalProblems
    ) -> None:
        """Add structures with weight zero to the sets.

        Of several, those join that do not depend on the others; the first always does if the set
        is at its optimum, since it has a gap then. They have (n, k, W) entries, and `theta` are
        their linear terms.
        """
        row, k = self.row.unsqueeze(1), joins.shape[1]
        is_taken, place = (
            x[:, :k] for x in self.used[:, :-1].to(torch.int8).sort(dim=1, stable=True)
        )
        if k > 1:  # there is room for one at least
            joins = joins > is_taken
            place = torch.where(joins, place, self.capacity - 1)
        self.entries[row, place] = structures
        self.theta[row, place] = theta
        products = self.products(structures, problems)
        if k > 1:
            joins = joins & self._are_independent(products, place, joins)
        self.gram[row, place] = products
        self.gram.mT[row, place] = products
        self.used[row, place] = joins
        if self.beside is not None:
            sums = self.beside.rows.of_structures(structures[:, 0])
            self.beside.sums[row[:, 0], 1 + place[:, 0]] = sums

    def _are_independent(self, products: Tensor, place: Tensor, joins: Tensor) -> Tensor:
        """Return the (n, k) flags of structures outside the affine hull of those before them."""
        n, k, capacity = products.shape
        among = products.gather(2, place.unsqueeze(1).expand(-1, k, -1))
        matrix = products.new_ones((n, capacity + k, capacity + k))
        matrix[:, :capacity, :capacity].add_(self.gram)
        matrix[:, capacity:, :capacity].add_(products)
        matrix[:, capacity:, capacity:].add_(among)
        is_member = torch.cat([self.used, joins], dim=1)
        damping = DAMPING * self.entries.shape[2]
        matrix.diagonal(dim1=1, dim2=2).add_(torch.where(is_member, damping, NEVER))
        pivots = torch.linalg.cholesky_ex(matrix).L.diagonal(dim1=1, dim2=2)[:, capacity:]
        independent: Tensor = pivots > INDEPENDENT
        independent[:, 0].logical_or_(self.settled)
        return independent


def solve_active_sets(problems: LocalProblems, max_iterations: int | None = None) -> ActiveSets:
    """Solve local problems; an iteration is a call of the oracle, None for as many as needed."""
    sets = _first_sets(problems)
    if max_iterations is None:
        max_iterations = MIN_LIMIT + ITERATIONS_PER_NUMBER * sets.x.shape[1]
        if sets.beside is not None:
            max_iterations = MAX_CONSTRAINED_ITERATIONS
    max_left = (len(sets.row) + STRAGGLERS // 2) // STRAGGLERS
    for iteration in range(max_iterations - 1):
        if iteration % CHECK_EVERY == 0:
            ends = sets.done | (sets.size > MAX_SIZE)
            if sets.have_finished(ends, max_left):
                break
        _iterate(problems, sets)
        sets.n_calls += 1
    return sets


def _first_sets(problems: LocalProblems) -> ActiveSets:
    best = problems.best(problems.linear)
    scores = problems.linear.gather(1, best)
    n, width = best.shape
    x = torch.zeros_like(problems.linear)
    empty, flags = x.new_zeros((n, 1 + FIRST_CAPACITY)), torch.zeros_like(x[:, 0], dtype=torch.bool)
    sets = ActiveSets(
        entries=best.new_full((n, FIRST_CAPACITY, width), x.shape[1] - 1),
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
        rules=problems.rules(width),
    )
    if problems.rows is not None:
        least = problems.least_value(width)
        sets.beside = Multipliers.first(problems.rows, FIRST_CAPACITY, least)
        sets.size += MAX_PENALTY
    sets.bordered[:, 0, 0] = 0.0
    sets.join(best.unsqueeze(1), scores.sum(1, keepdim=True), ~flags.unsqueeze(1), problems)
    sets.p[:, 0] = sets.right[:, 0] = 1.0
    sets.x = sets.mixture(sets.p)
    sets.threshold = sets.rounding
    wrong = (sets.x * problems.forced < 0.0) | ((problems.forced > 0.0) & (sets.x == 0.0))
    sets.infeasible = sets.done = wrong.any(1)
    if sets.beside is not None:
        sets.beside.arrive(sets.unknowns)
        sets.infeasible = sets.done = sets.done | sets.beside.rows.contradict_themselves()
    return sets


def _iterate(problems: LocalProblems, sets: ActiveSets) -> None:
    """Call the oracle, and move the weights."""
    gradient = sets.gradient(problems)
    structures, differ = sets.rules.structures(
        problems.oracle, problems.scores(gradient), sets.p, sets.entries, sets.n_calls
    )
    n_structures = structures.shape[1]
    scores = gradient.unsqueeze(1).expand(-1, n_structures, -1).gather(2, structures).sum(2)
    gaps = scores - torch.bmm(gradient.unsqueeze(1), sets.x.unsqueeze(2)).squeeze(2)
    sets.gap = gaps[:, 0]
    scores = problems.linear.unsqueeze(1).expand(-1, n_structures, -1).gather(2, structures)
    sets.size = torch.maximum(sets.size, torch.linalg.vector_norm(scores[:, 0], 1, dim=1))
    improves = gaps > sets.threshold.unsqueeze(1)
    arrived = sets.settled > improves[:, 0]  # settled, and not improved
    if sets.beside is not None:
        bound = problems.value(sets.x) + sets.gap
        arrived, fails = sets.beside.move(arrived > sets.done, bound)  # if not done
        sets.infeasible = sets.infeasible | fails
        arrived = arrived | fails
    sets.done = sets.done | arrived
    sets.n_idle += sets.done
    joins = improves > sets.done.unsqueeze(1)  # if not done
    if differ is not None:
        joins[:, 1:].logical_and_(differ)
    sets.join(structures, scores.sum(2), joins, problems)
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
    for _ in range(sets.rules.n_steps):
        step, leaves = _step(sets, matrix, slowest)
        diagonal.masked_fill_(leaves, NEVER)
    sets.used = diagonal < NEVER
    largest = torch.linalg.vector_norm(step, torch.inf, dim=1)
    beyond = torch.sub(largest, sets.size, alpha=STEP_ROUNDING)
    sets.settled = (beyond <= SMALL_STEP) > leaves.any(1)  # small, and no structure left
    sets.threshold = sets.rules.threshold(sets.rounding, sets.settled)


def _step(sets: ActiveSets, matrix: Tensor, slowest: Tensor) -> tuple[Tensor, Tensor]:
    """Move the weights towards the optimum of their sets, until one of them is zero and leaves.

    Returns the full step, and flags of the structures that leave. A weight of rate -r, relative to
    its size, is zero after the share 1 / r of the step.
    """
    residual = plain = sets.residual()
    if sets.beside is not None:
        residual = sets.beside.add_pull(plain)
        matrix = sets.beside.add_curvature(matrix)
    # unlike torch.linalg.solve, this does not wait for the device
    change = torch.linalg.solve_ex(matrix, residual).result.squeeze(2)
    step = change[:, 1:]
    rate = step / (sets.p + NEGLIGIBLE)
    limit = torch.minimum(rate.amin(1, keepdim=True), slowest)
    if sets.beside is not None:
        slope = torch.bmm(step.unsqueeze(1), plain[:, 1:])
        curvature = torch.bmm(step.unsqueeze(1), torch.bmm(sets.gram, step.unsqueeze(2)))
        limit = torch.minimum(limit, sets.beside.rate(change, slope, curvature))
    sets.unknowns = torch.addcdiv(sets.unknowns, change, limit, value=-1.0)
    sets.p.clamp_(min=0.0)
    if sets.beside is not None:
        sets.beside.arrive(sets.unknowns)
    return step, rate <= limit
