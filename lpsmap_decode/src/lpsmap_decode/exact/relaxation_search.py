"""The best assignment of one component, by branch and bound over LP-MAP.

A node fixes some variables. Its bound is the dual function of LP-MAP, started from the duals of its
parent; many nodes are solved together, as copies of the component. The search branches on variables
that are fractional in the relaxation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import CompiledEngine, Options, SolvedGraph, Status
from lpsmap_core.api import (
    BoolArray,
    ByteArray,
    FloatArray,
    Part,
    WarmStart,
    Watch,
    out_of_time,
)
from lpsmap_decode.exact.component_copies import copies_of
from lpsmap_decode.exact.rounding import round_towards
from lpsmap_decode.heuristics.propagation import OPEN
from lpsmap_decode.search import Evaluation, Space, Unfinished
from lpsmap_decode.tolerances import BOUND_ROUNDING, INTEGRAL

__all__ = ["RelaxationSpace", "Node"]

MAX_COPIES, MAX_LINKS = 32, 50_000
"""Maximum number of nodes evaluated together, and of links of their copies."""

ROOT_ITERATIONS, ITERATIONS, CLOSE_ITERATIONS = 2000, 30, 300
"""Iterations of the relaxation for the root; for other nodes, which start close to a solution; and
for nodes that are nearly pruned. What the root lacks, all nodes below it have to make up for."""

CLOSE = 1e-4
"""Relative gap up to which a node is nearly pruned."""

MAX_CONTINUATIONS = 3
"""How often the relaxation of a nearly pruned node is continued, twice as long each time, if it has
not converged. If many assignments have equal scores it converges late, and fixing a variable
perturbs it: all nodes would keep the bound of the root."""

TOLERANCE = 1e-10
"""Tolerance of the relaxations: a tight relaxation is a proof only if its bound is as sharp as the
requested gap."""

NEARLY, DETOURS, DETOUR_ITERATIONS = 1e-3, (0.25, 0.1, 0.04, 0.016), 300
"""Distance from 0 or 1 of variables that `_perturb` fixes, its levels of noise in units of the
scores, and its iterations."""

PLAIN_NODES, MAX_DETOURS = 32, 8
"""Nodes evaluated before one is perturbed, which costs as much as dozens of small nodes; and the
number of perturbations."""

SHORTLY = 0.1
"""Seconds to search for a first assignment after the time limit."""

DOUBTFUL = 0.25
"""Candidates for branching are at least this fractional, relative to the most fractional
variable."""

MIN_GAIN = 1e-6
"""Minimum gain of branching, relative to the largest, so that the other value still counts if one
value gains nothing."""


class Node(NamedTuple):
    """A node of the search: some variables of a component are fixed."""

    decided: ByteArray
    """For each variable 0, 1 or `OPEN`."""
    u: FloatArray
    """The start of its relaxation: means, duals and step size of the parent."""
    duals: FloatArray
    step_size: float
    bound: float = np.inf
    """The bound of the parent."""
    branched: int = -1
    """The variable that was fixed last; -1 for none."""
    moved: float = 1.0
    """The distance of this variable from its value in the relaxation of the parent."""
    continuations: int = 0
    """How often its relaxation was continued."""


class Gains:
    """The decrease of bounds by branching so far, for every variable and both values.

    These are the pseudo-costs of integer programming (Benichou et al. 1971). If several variables
    are equivalent, many are at 1/2, and fixing one just moves the halves on.
    """

    def __init__(self, n_variables: int) -> None:
        self._total, self._count = np.zeros((2, n_variables)), np.zeros((2, n_variables))

    def note(self, node: Node, bound: float) -> None:
        """Record the bound of a node."""
        if node.branched < 0 or not np.isfinite(node.bound - bound):
            return
        at = node.decided[node.branched], node.branched
        self._total[at] += max(0.0, node.bound - bound) / node.moved
        self._count[at] += 1.0

    def expected(self, means: FloatArray) -> FloatArray:
        """Return the expected gain of branching on each variable, given its marginal."""
        known = self._total.sum(axis=1) / np.maximum(1.0, self._count.sum(axis=1))
        a_unit = np.where(
            self._count > 0.0,
            self._total / np.maximum(1.0, self._count),
            np.where(known > 0.0, known, 1.0)[:, None],
        )
        off, on = a_unit * [means, 1.0 - means]
        least = MIN_GAIN * max(off.max(), on.max())
        promise: FloatArray = np.maximum(off, least) * np.maximum(on, least)
        return promise


class RelaxationSpace(Space[Node, BoolArray]):
    """The search space of assignments of a component, bounded by LP-MAP.

    Parameters
    ----------
    part
        The part of the component.
    component
        The number of the component in the part.
    eta
        Scores of the component's variables; ``-inf`` forbids.
    eta_v
        Scores of the additionals of all buckets of the part; ``-inf`` forbids.
    threads
        Maximum number of threads.
    """

    patience = 0.25

    def __init__(
        self, part: Part, component: int, eta: FloatArray, eta_v: FloatArray, threads: int
    ) -> None:
        n_links = max(1, int(part.sizes[component]))
        self.batch = int(np.clip(MAX_LINKS // n_links, 1, MAX_COPIES))
        self._part, self._component, self._eta = part, component, eta
        own = eta_v[part.additional_component == component]
        self._own, self._known_copies = own, dict[int, tuple[Part, FloatArray]]()
        size = np.abs(np.concatenate([eta, own]))
        size = size[np.isfinite(size)]
        self._rounding = BOUND_ROUNDING * (1.0 + float(size.sum()))
        self._spread = float(np.sqrt(np.square(size).sum() / max(1, len(size))))
        self._n_links, self._threads = n_links, threads
        self._n_evaluated, self._perturbed, self._gains = 0, False, Gains(len(eta))

    def _copies(self, n_nodes: int) -> tuple[Part, FloatArray]:
        """Return copies for a number of nodes, and the scores of their additionals.

        Their number is a power of two: the root needs one, whatever the size of later batches.
        """
        n = min(self.batch, 1 << (n_nodes - 1).bit_length())
        if n not in self._known_copies:
            copies = copies_of(self._part, self._component, n)
            sizes = [bucket.n_additionals // n for bucket in copies.buckets]
            own = np.split(self._own, np.cumsum(sizes)[:-1])
            eta_v = np.concatenate([np.empty(0), *(np.tile(scores, n) for scores in own)])
            self._known_copies[n] = copies, eta_v
        return self._known_copies[n]

    def root(self, start: WarmStart | None) -> Node:
        """Return the root node; its relaxation continues from `start`."""
        decided = np.full(len(self._eta), OPEN, dtype=np.int8)
        decided[np.isneginf(self._eta)] = 0
        if start is None or not start.known[self._component]:
            return Node(decided, np.zeros(len(decided)), np.zeros(self._n_links), 0.0)
        first, end = self._part.first_variable[self._component : self._component + 2]
        links = slice(*self._part.variable_offsets[[first, end]].tolist())
        step_size = float(start.step_size[self._component])
        return Node(decided, start.u[first:end].copy(), start.duals[links].copy(), step_size)

    def evaluate(
        self, nodes: Sequence[Node], score: float, known: bool = False
    ) -> list[Evaluation[Node, BoolArray]] | Unfinished[BoolArray]:
        """Bound nodes by their relaxations, round, and branch.

        At the time limit, the relaxations are only rounded if no assignment is `known` yet. One is
        known if there is a finite `score`.
        """
        known = known or score > -np.inf
        n, n_variables = len(nodes), len(self._eta)
        n_copies = self._copies(n)[0].n_components
        decided = np.full((n_copies, n_variables), OPEN, dtype=np.int8)
        decided[:n] = [node.decided for node in nodes]
        solved = self._relax(nodes, self._fixed_scores(decided), _iterations(nodes, score))
        on = np.where((decided == 1) & np.isfinite(self._eta), self._eta, 0.0).sum(axis=1)
        means = solved.marginals().reshape(n_copies, n_variables)
        if not out_of_time():
            bounds, status = solved.assignment_bound() + on + self._rounding, solved.status()
            bounds[status == Status.INFEASIBLE] = -np.inf
            rounded, scores = self._round(means, decided, 0.0 if known else np.inf)
        if out_of_time():  # bounds that were cut short are invalid
            return Unfinished() if known else self._rounded_shortly(means, decided, n)
        end = solved.end()
        assert end is not None  # core's engine always returns its final state
        u, duals = end.u.reshape(n_copies, -1), end.duals.reshape(n_copies, -1)
        ends = [Node(decided[i], u[i], duals[i], float(end.step_size[i])) for i in range(n)]
        self._n_evaluated += n
        i = int(bounds[:n].argmax())
        due = self._n_evaluated > PLAIN_NODES and not self._perturbed
        if due and bounds[i] > max(score, scores[i]) and not out_of_time():
            self._perturbed = True
            near, of_near = self._perturb(ends[i], means[i])
            if of_near > scores[i] and not out_of_time():
                rounded[i], scores[i] = near, of_near
        evaluations: list[Evaluation[Node, BoolArray]] = []
        for i in range(n):
            own, bound = float(scores[i]), float(bounds[i])
            bound = own if (decided[i] != OPEN).all() else bound
            self._gains.note(nodes[i], bound)
            children: list[Node] = []
            if bound > max(score, own):
                limited = status[i] is Status.ITERATION_LIMIT
                kept = ends[i]._replace(bound=min(bound, nodes[i].bound))
                children = self._children(nodes[i], kept, means[i], score, limited)
            evaluations.append(Evaluation(bound, children, rounded[i].copy(), own))
        return evaluations

    def _rounded_shortly(
        self, means: FloatArray, decided: ByteArray, n: int
    ) -> Unfinished[BoolArray]:
        """Return the best of the `n` assignments that a short search finds after the time limit."""
        with Watch():
            rounded, scores = self._round(means, decided, SHORTLY)
        best = int(scores[:n].argmax())
        return Unfinished(rounded[best], float(scores[best]))

    def _children(
        self, node: Node, end: Node, means: FloatArray, score: float, limited: bool
    ) -> list[Node]:
        """Return the children of a node, given the end of its relaxation, with its bound.

        If the relaxation was `limited` and the node is nearly pruned, it is continued instead.
        """
        end = end._replace(u=end.u.copy(), duals=end.duals.copy())
        continuations = node.continuations + 1
        unended = limited and continuations <= MAX_CONTINUATIONS
        if unended and score > -np.inf and _is_close(end.bound, score):
            return [end._replace(continuations=continuations)]
        return _branch(end, means, self._gains)

    def excluding(
        self, node: Node, last: Evaluation[Node, BoolArray]
    ) -> Iterator[tuple[float, Node]]:
        """Yield bounds and parts of a node that contain all its assignments but one."""
        decided = node.decided.copy()
        for variable in np.flatnonzero(node.decided == OPEN).tolist():
            value = int(last.answer is not None and last.answer[variable])
            other = decided.copy()
            other[variable] = 1 - value
            yield last.bound, node._replace(decided=other, branched=variable)
            decided[variable] = value

    def _round(
        self, means: FloatArray, decided: ByteArray, patience: float
    ) -> tuple[BoolArray, FloatArray]:
        """Return a rounded assignment for each copy, and its score."""
        towards = np.where(decided == OPEN, means - 0.5, np.where(decided == 1, np.inf, -np.inf))
        copies, eta_v = self._copies(len(decided))
        return round_towards(copies, self._eta, eta_v, towards, patience)

    def _fixed_scores(self, decided: ByteArray) -> FloatArray:
        """Return the scores of the variables of nodes, infinite where they are fixed."""
        return np.where(decided == OPEN, self._eta, np.where(decided == 1, np.inf, -np.inf))

    def _perturb(self, node: Node, means: FloatArray) -> tuple[BoolArray, float]:
        """Return an assignment near a node's relaxation, and its score.

        Nearly integral variables are fixed, and the other scores are perturbed. If several
        assignments have equal scores, for example if a sentence contains a word twice, the
        relaxation lies between all of them; a small perturbation of the scores breaks the tie.
        """
        decided = np.where(means > 0.5, 1, 0).astype(np.int8)
        decided[np.abs(means - 0.5) < 0.5 - NEARLY] = OPEN
        decided = np.where(node.decided == OPEN, decided, node.decided)
        n = min(self.batch, MAX_DETOURS)
        every = np.tile(decided, (self._copies(n)[0].n_components, 1))
        sizes = self._spread * np.resize(DETOURS, (len(every), 1))
        noise = sizes * np.random.default_rng(0).standard_normal(every.shape)
        given = self._fixed_scores(every)
        solved = self._relax([node] * n, given + noise, DETOUR_ITERATIONS)
        rounded, scores = self._round(solved.marginals().reshape(every.shape), every, 0.0)
        best = int(scores[:n].argmax())
        return rounded[best], float(scores[best])

    def _relax(self, nodes: Sequence[Node], eta: FloatArray, most: int) -> SolvedGraph:
        """Solve the relaxations of nodes together, each from the state of its node."""
        (part, eta_v), n_copies = self._copies(len(nodes)), len(eta)
        unused = np.arange(n_copies) >= len(nodes)
        u, duals = np.zeros(eta.shape), np.zeros((n_copies, self._n_links))
        step_size = np.zeros(n_copies)
        for i, node in enumerate(nodes):
            u[i], duals[i], step_size[i] = node.u, node.duals, node.step_size
        options = Options(max_iter=most, tol=TOLERANCE, threads=self._threads, quadratic=0.0)
        warm = WarmStart(u.reshape(-1), duals.reshape(-1), step_size, step_size > 0.0)
        return CompiledEngine().solve(part, eta.reshape(-1), eta_v, unused, options, warm)


def _iterations(nodes: Sequence[Node], score: float) -> int:
    """Return the number of iterations for the relaxations of nodes, given the best score so far.

    Without a score, nodes count as nearly pruned: only accurate relaxations round well.
    """
    if nodes[0].branched < 0 and nodes[0].continuations == 0:
        return ROOT_ITERATIONS
    if not _is_close(max(node.bound for node in nodes), score):
        return ITERATIONS
    return CLOSE_ITERATIONS << max(node.continuations for node in nodes)


def _is_close(bound: float, score: float) -> bool:
    """Return whether a bound is close to the best score."""
    return bound - score <= CLOSE * max(1.0, abs(score))


def _branch(node: Node, means: FloatArray, gains: Gains) -> list[Node]:
    """Branch on a fractional variable: return two children, the likelier first."""
    doubt = np.where(node.decided == OPEN, 0.5 - np.abs(means - 0.5), -1.0)
    if doubt.max() <= INTEGRAL:  # integral but not proved: branch on any open variable
        v = int((node.decided == OPEN).argmax())
    else:
        doubtful = doubt >= DOUBTFUL * doubt.max()
        v = int(np.where(doubtful, gains.expected(means), -1.0).argmax())
    values = (1, 0) if means[v] > 0.5 else (0, 1)
    children = []
    for value in values:
        decided, moved = node.decided.copy(), max(INTEGRAL, abs(value - float(means[v])))
        decided[v] = value
        children.append(node._replace(decided=decided, branched=v, moved=moved))
    return children
