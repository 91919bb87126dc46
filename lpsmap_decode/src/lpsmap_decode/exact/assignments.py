"""The best assignment of one component, by branch and bound over LP-MAP.

A node has some variables decided. Its bound is the dual function of LP-MAP, from its parent's duals
on; many nodes are solved side by side, as copies of the component. What the relaxation leaves
between 0 and 1 is branched on.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    copies_of,
    out_of_time,
)
from lpsmap_decode.exact.rounding import round_towards
from lpsmap_decode.search import CutShort, Look, Space

__all__ = ["Assignments", "Node"]

MOST_COPIES = 32
"""Nodes looked at together, unless their copies would have more links than the next."""

MOST_LINKS = 50_000

ROOT_ITERATIONS, ITERATIONS, CLOSE_ITERATIONS = 2000, 30, 300
"""Iterations of the relaxation for the first node, for others, which start near by, and for those
that little more would close."""

CLOSE = 1e-4
"""How little, relative to the score."""

MOST_AGAIN = 3
"""How often the relaxation of a node so close goes on, for twice as long each time, if it has not
ended. Where many assignments score the same it ends late, and deciding a variable disturbs it: all
nodes would keep the bound of the first one."""

TOLERANCE = 1e-10
"""Of the relaxations: a tight one is a proof only if its bound is as sharp as the gap asked for."""

WHOLE = 1e-6
"""Distance from 0 and 1 within which a marginal counts as whole."""

NEARLY, DETOURS, DETOUR_ITERATIONS = 1e-3, (0.25, 0.1, 0.04, 0.016), 300
"""Likewise for `Assignments._disturb`; deviations of its noise, in units of the scores'."""

PLAIN_NODES, MOST_DETOURS = 32, 8
"""Nodes that are looked at before one is disturbed, which costs as much as dozens of small ones;
how often it then is."""

ROUNDING = 1e-13
"""Added to bounds, in units of the summed magnitudes of the scores: what rounding may hide."""

SHORTLY = 0.1
"""Seconds for which a first assignment is looked for when the time is up."""

DOUBTFUL = 0.25
"""Variables are branched on that are at least so doubtful, beside the most doubtful one."""

LEAST_GAIN = 1e-6
"""Of branching, beside the largest: so that the other value counts where one gains nothing."""

OPEN = -1
"""Of a variable that is not decided."""


class Node(NamedTuple):
    """Some variables of a component decided."""

    decided: ByteArray
    """For each variable 0, 1 or `OPEN`."""
    u: FloatArray
    """Where its relaxation starts from: the parent's means and duals, and step size."""
    duals: FloatArray
    step_size: float
    bound: float = np.inf
    """The parent's."""
    branched: int = -1
    """The variable that it was branched on; -1 for none."""
    moved: float = 1.0
    """How far that was from its value in the parent's relaxation."""
    again: int = 0
    """How often its relaxation went on where it had not ended."""


class Gains:
    """How much branching lowered bounds so far, for every variable and both values.

    These are the pseudo-costs of integer programming (Benichou et al. 1971). Where several
    variables are as good as each other, many are halves, and deciding one just moves the halves on.

    Parameters
    ----------
    n_variables
        The number of variables.
    """

    def __init__(self, n_variables: int) -> None:
        self._total, self._count = np.zeros((2, n_variables)), np.zeros((2, n_variables))

    def note(self, node: Node, bound: float) -> None:
        """Take note of the bound of a node."""
        if node.branched < 0 or not np.isfinite(node.bound - bound):
            return
        at = node.decided[node.branched], node.branched
        self._total[at] += max(0.0, node.bound - bound) / node.moved
        self._count[at] += 1.0

    def expected(self, means: FloatArray) -> FloatArray:
        """Return how promising it is to branch on variables whose marginals are given."""
        known = self._total.sum(axis=1) / np.maximum(1.0, self._count.sum(axis=1))
        a_unit = np.where(
            self._count > 0.0,
            self._total / np.maximum(1.0, self._count),
            np.where(known > 0.0, known, 1.0)[:, None],
        )
        off, on = a_unit * [means, 1.0 - means]
        least = LEAST_GAIN * max(off.max(), on.max())
        promise: FloatArray = np.maximum(off, least) * np.maximum(on, least)
        return promise


class Assignments(Space[Node, BoolArray]):
    """The assignments of a component's variables.

    Parameters
    ----------
    part
        The part that the component is of.
    component
        Its number.
    eta
        Scores of the component's variables; ``-inf`` forbids.
    eta_v
        Scores of the additionals of all buckets of the part, likewise.
    threads
        Number of threads that may be used.
    """

    def __init__(
        self, part: Part, component: int, eta: FloatArray, eta_v: FloatArray, threads: int
    ) -> None:
        n_links = max(1, int(part.sizes[component]))
        self.batch = int(np.clip(MOST_LINKS // n_links, 1, MOST_COPIES))
        self._copies = copies_of(part, component, self.batch)
        self._part, self._component, self._eta = part, component, eta
        own = np.concatenate(
            [
                eta_v[part.additionals_of(b)][
                    np.repeat(bucket.component == component, np.diff(bucket.additional_offsets))
                ]
                for b, bucket in enumerate(part.buckets)
                if (bucket.component == component).any()
            ]
        )
        self._eta_v = self._tiled(own)
        finite = np.abs(np.concatenate([eta, own]))
        self._rounding = ROUNDING * (1.0 + float(finite[np.isfinite(finite)].sum()))
        self._spread = float(np.sqrt(np.square(finite[np.isfinite(finite)]).mean()))
        self._n_links, self._threads = n_links, threads
        self._n_looked, self._disturbed, self._gains = 0, False, Gains(len(eta))

    def _tiled(self, own: FloatArray) -> FloatArray:
        """Return the scores of one copy's additionals for all copies, bucket by bucket."""
        pieces, begin = [], 0
        for bucket in self._copies.buckets:
            n = bucket.n_additionals // self.batch
            pieces.append(np.tile(own[begin : begin + n], self.batch))
            begin += n
        return np.concatenate([np.empty(0), *pieces])

    def root(self, start: WarmStart | None) -> Node:
        """Return the node of all assignments; its relaxation goes on from where another ended."""
        decided = np.full(len(self._eta), OPEN, dtype=np.int8)
        decided[np.isneginf(self._eta)] = 0
        if start is None or not start.known[self._component]:
            return Node(decided, np.zeros(len(decided)), np.zeros(self._n_links), 0.0)
        first, end = self._part.first_variable[self._component : self._component + 2]
        links = slice(*self._part.variable_offsets[[first, end]].tolist())
        step_size = float(start.step_size[self._component])
        return Node(decided, start.u[first:end].copy(), start.duals[links].copy(), step_size)

    def look(
        self, nodes: Sequence[Node], score: float
    ) -> list[Look[Node, BoolArray]] | CutShort[BoolArray]:
        """Bound nodes by their relaxations, round these, and branch."""
        n, n_variables = len(nodes), len(self._eta)
        decided = np.full((self.batch, n_variables), OPEN, dtype=np.int8)
        decided[:n] = [node.decided for node in nodes]
        solved = self._relax(nodes, self._given(decided), _iterations(nodes, score))
        on = np.where((decided == 1) & np.isfinite(self._eta), self._eta, 0.0).sum(axis=1)
        means, unknown = solved.marginals().reshape(self.batch, n_variables), score == -np.inf
        if not out_of_time():
            bounds, status = solved.assignment_bound() + on + self._rounding, solved.status()
            bounds[status == Status.INFEASIBLE] = -np.inf
            rounded, scores = self._round(means, decided, np.inf if unknown else 0.0)
        if out_of_time():  # nor are bounds that were cut short any
            with Watch():
                rounded, scores = self._round(means, decided, SHORTLY if unknown else 0.0)
            best = int(scores[:n].argmax())
            return CutShort(rounded[best], float(scores[best]))
        end = solved.end()
        assert end is not None  # core's engine says where it ended
        u, duals = end.u.reshape(self.batch, -1), end.duals.reshape(self.batch, -1)
        self._n_looked += n
        i = int(bounds[:n].argmax())
        due = self._n_looked > PLAIN_NODES and not self._disturbed
        if due and bounds[i] > max(score, scores[i]):
            self._disturbed = True
            kept = Node(decided[i], u[i], duals[i], float(end.step_size[i]))
            near, of_near = self._disturb(kept, means[i])
            if of_near > scores[i] and not out_of_time():
                rounded[i], scores[i] = near, of_near
        looks: list[Look[Node, BoolArray]] = []
        for i in range(n):
            bound, step_size = float(bounds[i]), float(end.step_size[i])
            if (decided[i] != OPEN).all():
                bound = float(scores[i])
            self._gains.note(nodes[i], bound)
            children: list[Node] = []
            if bound > max(score, scores[i]):
                least = min(bound, nodes[i].bound)
                kept = Node(decided[i], u[i].copy(), duals[i].copy(), step_size, least)
                again = nodes[i].again + 1
                unended = status[i] is Status.ITERATION_LIMIT and again <= MOST_AGAIN
                if unended and score > -np.inf and _is_close(least, score):
                    children = [kept._replace(again=again)]
                else:
                    children = _branched(kept, means[i], self._gains)
            looks.append(Look(bound, children, rounded[i].copy(), float(scores[i])))
        return looks

    def _round(
        self, means: FloatArray, decided: ByteArray, patience: float
    ) -> tuple[BoolArray, FloatArray]:
        """Return for each copy an assignment near its relaxation, and its score."""
        towards = np.where(decided == OPEN, means - 0.5, np.where(decided == 1, np.inf, -np.inf))
        return round_towards(self._copies, self._eta, self._eta_v, towards, patience)

    def _given(self, decided: ByteArray) -> FloatArray:
        """Return the scores of nodes' variables, infinite where they are decided."""
        return np.where(decided == OPEN, self._eta, np.where(decided == 1, np.inf, -np.inf))

    def _disturb(self, node: Node, means: FloatArray) -> tuple[BoolArray, float]:
        """Return an assignment near a node's relaxation, and its score.

        What is nearly whole is held, and the other scores are disturbed. Where several assignments
        score the same, as if a sentence has a word twice, the relaxation is amid them all; but few
        are as good once the scores have changed a bit.
        """
        decided = np.where(means > 0.5, 1, 0).astype(np.int8)
        decided[np.abs(means - 0.5) < 0.5 - NEARLY] = OPEN
        decided = np.where(node.decided == OPEN, decided, node.decided)
        every, n = np.tile(decided, (self.batch, 1)), min(self.batch, MOST_DETOURS)
        sizes = self._spread * np.resize(DETOURS, (self.batch, 1))
        noise = sizes * np.random.default_rng(0).standard_normal(every.shape)
        given = self._given(every)
        solved = self._relax([node] * n, given + noise, DETOUR_ITERATIONS)
        rounded, scores = self._round(solved.marginals().reshape(every.shape), every, 0.0)
        best = int(scores[:n].argmax())
        return rounded[best], float(scores[best])

    def _relax(self, nodes: Sequence[Node], eta: FloatArray, most: int) -> SolvedGraph:
        """Solve relaxations side by side from where the nodes are, as far as it pays."""
        part, n = self._copies, len(nodes)
        unused = np.arange(self.batch) >= n
        u, duals = np.zeros((self.batch, eta.shape[1])), np.zeros((self.batch, self._n_links))
        step_size = np.zeros(self.batch)
        for i, node in enumerate(nodes):
            u[i], duals[i], step_size[i] = node.u, node.duals, node.step_size
        options = Options(max_iter=most, tol=TOLERANCE, threads=self._threads, quadratic=0.0)
        warm = WarmStart(u.reshape(-1), duals.reshape(-1), step_size, step_size > 0.0)
        return CompiledEngine().solve(part, eta.reshape(-1), self._eta_v, unused, options, warm)


def _iterations(nodes: Sequence[Node], score: float) -> int:
    """Return how far it pays to solve the relaxations of nodes, given the best score so far.

    Without one as far as of nearly closed nodes: only relaxations that are solved round well.
    """
    if not any(node.step_size for node in nodes):
        return ROOT_ITERATIONS
    if not _is_close(max(node.bound for node in nodes), score):
        return ITERATIONS
    return CLOSE_ITERATIONS << max(node.again for node in nodes)


def _is_close(bound: float, score: float) -> bool:
    """Return whether little is left between a bound and the best score."""
    return bound - score <= CLOSE * max(1.0, abs(score))


def _branched(node: Node, means: FloatArray, gains: Gains) -> list[Node]:
    """Return a node's two children: a doubtful variable on and off, the likelier first."""
    doubt = np.where(node.decided == OPEN, 0.5 - np.abs(means - 0.5), -1.0)
    if doubt.max() <= WHOLE:  # whole, but not proved: any open variable will do
        v = int((node.decided == OPEN).argmax())
    else:
        doubtful = doubt >= DOUBTFUL * doubt.max()
        v = int(np.where(doubtful, gains.expected(means), -1.0).argmax())
    values = (1, 0) if means[v] > 0.5 else (0, 1)
    children = []
    for value in values:
        decided, moved = node.decided.copy(), max(WHOLE, abs(value - float(means[v])))
        decided[v] = value
        children.append(node._replace(decided=decided, branched=v, moved=moved))
    return children
