"""Boxes of parameters as nodes of the paper's search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_decode import Look
from lpsmap_search.arrays import FloatArray
from lpsmap_search.box_space import Arrays, BoxSpace
from lpsmap_search.branching import halves
from lpsmap_search.checks import checked_count, checked_number
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.flow_polytope import flow_polytope
from lpsmap_search.linear_programs import (
    Basis,
    LinearProgram,
    LinearSolution,
    SimplexSolver,
    highspy_module,
)
from lpsmap_search.paper.branching import Split, most_fractional, most_regretted
from lpsmap_search.paper.linear_rows import LinearRows, Ranges
from lpsmap_search.paper.nodes import McCormickNode, packed, unpacked
from lpsmap_search.paper.parse_rows import parse_rows
from lpsmap_search.paper.projections import Projection, completed, projected
from lpsmap_search.paper.relaxation import Relaxation
from lpsmap_search.paper.row_pairs import Filter
from lpsmap_search.paper.tangents import Tangents, joined_tangents, separated, simplex_tangents
from lpsmap_search.polytopes import hypergraph_polytope
from lpsmap_search.shares import count_ranges, shrink

__all__ = ["McCormickOptions", "McCormickSpace"]

PolytopeName = Literal["hypergraph", "flow"]

TIGHT = 1e-7
"""By how much sums of probabilities may exceed one where nothing is left to branch on."""

SMALL_REGRET = 0.1
"""Sums are made tight where regrets sum to at most this share of what has to be closed."""

LARGE_REGRET = 3.0
"""Fractional parses are branched on unless regrets sum to this many times what has to be closed."""

SOLVER = {"simplex_dual_edge_weight_strategy": 1}
"""Options of HiGHS: Devex pricing takes a fifth to a half less time here than steepest edges."""

MOST_ENTRIES = 100_000
"""Of the programs of nodes that are looked at together: a tenth of a second, or less."""

MOST_NODES = 16
"""Nodes that are looked at together; of two or more, half have the highest bounds."""

MOST_ROUNDS = 20
"""Of separation at a node."""


class McCormickOptions(NamedTuple):
    """How the relaxations of the paper's search are made and used."""

    products: Filter = 0
    """Which products of rows there are besides the concave envelopes.

    A number of random ones (``Max.1k`` is 1,000), a share of all, as a float, or ``"objective"``
    (``Obj.Filter``)."""
    polytope: PolytopeName = "hypergraph"
    """Of the parses; the hull, or the paper's ``"flow"`` for dependency trees."""
    split: Split = "midpoint"
    """Where a range is divided, in the middle or at the relaxation's ``"point"``."""
    projection: Projection = "normalise"
    """How parameters are made feasible."""
    n_steps: int = 5
    """Steps of Viterbi EM from there."""
    smoothing: float = 0.1
    """What these add to counts."""
    least: float | None = None
    """Where logarithms end, such as ``log(1e-12)``; the least one also stands for probability zero.
    None for ``-1 - log F``, and never above that, F being the most counts that the parameter's
    block can have: with more, structures that use parameters of probability zero would score more
    than their likelihood, and bounds would stay above it."""
    n_tangents: int | None = None
    """Random tangents of each block at the root; None for the square of the block's size."""
    most_cuts: int = 300
    """Tangents that a node may have from above. Beyond, it keeps those that bind."""
    excess: float = 0.01
    """Tangents are separated while sums of probabilities exceed one by more."""
    seed: int = 0
    """Of the random tangents and products."""


class McCormickSpace(BoxSpace[McCormickNode]):
    """The search of Gormley & Eisner (2013): what it asks about boxes; its answers are counts.

    Nodes are boxes of probabilities, bounded by a linear program: concave envelopes of the products
    ``theta_m f_m``, tangents of the constraints that probabilities sum to one, products of rows,
    and a polytope of parses. It can be pickled, and looked at from many threads.

    Parameters
    ----------
    corpus
        The sentences.
    gap
        Of the search.
    options
        Of the relaxations.
    constraint
        What counts satisfy, or None. The bounds cover unequal structures for equal sentences.

    Raises
    ------
    ImportError
        If highspy is not installed.
    ValueError
        If an option is out of range.
    """

    def __init__(
        self,
        corpus: Corpus,
        gap: float,
        options: McCormickOptions | None = None,
        *,
        constraint: CountConstraint | None = None,
    ) -> None:
        highspy_module()  # which is missing now rather than in the first look
        self._corpus, self._gap, self._constraint = corpus, gap, constraint
        self._options = options = _checked(options or McCormickOptions())
        model, rng = corpus.model, np.random.default_rng(options.seed)
        flow = options.polytope == "flow"
        parses = parse_rows(flow_polytope(corpus) if flow else hypergraph_polytope(corpus))
        self._least_counts, self._most_counts = count_ranges(corpus, np.eye(model.n_parameters))
        _, most = count_ranges(corpus, np.eye(len(model.first) - 1)[:, model.block])
        least = -1.0 - np.log(np.maximum(most, 1))[model.block]
        self._least = least if options.least is None else np.minimum(least, options.least)
        self._whole = _whole(corpus, constraint) if flow else np.zeros(len(parses.upper))
        self._root = McCormickNode(
            np.repeat([0.0, 1.0], model.n_parameters),
            np.concatenate([0.0 * parses.upper, parses.upper]),
            Tangents(np.zeros(0, dtype=np.int64), np.zeros((0, int(np.diff(model.first).max())))),
            None,
        )
        tangents = simplex_tangents(model.first, self._least, options.n_tangents, rng)
        rows = LinearRows(model.first, parses, self._ranges(self._root), tangents, constraint)
        self.relaxation = Relaxation(rows, model.first, options.products, rng)
        self.batch = min(max(MOST_ENTRIES // self.relaxation.n_entries, 2), MOST_NODES)

    def root(self) -> McCormickNode:
        """Return the node of all parameters and parses."""
        return self._root

    def pack(self, nodes: Sequence[McCormickNode]) -> Arrays:
        """Return nodes as arrays."""
        return packed(nodes)

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[McCormickNode]:
        """Return the nodes that `pack` was given."""
        return unpacked(self._root, arrays)

    def look(
        self, nodes: Sequence[McCormickNode], score: float
    ) -> list[Look[McCormickNode, FloatArray]]:
        """Bound boxes, and divide those whose bound is too high."""
        return [self._look(node, score) for node in nodes]

    def _look(self, node: McCormickNode, score: float) -> Look[McCormickNode, FloatArray]:
        bounds, model = node.bounds.copy(), self._corpus.model
        low, high = np.split(bounds, 2)
        if not shrink(model.first, low, high):
            return Look(-np.inf)
        node = node._replace(bounds=bounds)
        threshold = score + self._gap * max(1.0, abs(score))
        solved = self._solve(node, threshold)
        if solved.bound <= threshold:
            return Look(solved.bound)
        value, counts = self._answer(solved.theta)
        children = self._children(node, solved, threshold)
        return Look(solved.bound, children, counts if value > score else None, value)

    def program(self, node: McCormickNode) -> LinearProgram:
        """Return the linear program that bounds a node first, before tangents are separated.

        Parameters
        ----------
        node
            The node.
        """
        return self.relaxation.program(self._ranges(node), node.cuts)

    def _ranges(self, node: McCormickNode) -> Ranges:
        """Return bounds of all variables."""
        low, high = np.split(node.bounds, 2)
        parse_low, parse_high = np.split(node.parse_bounds, 2)
        with np.errstate(divide="ignore"):
            theta_low, theta_high = (np.maximum(np.log(p), self._least) for p in (low, high))
        return Ranges(
            np.concatenate([theta_low, self._least_counts, parse_low]),
            np.concatenate([theta_high, self._most_counts, parse_high]),
        )

    def _solve(self, node: McCormickNode, threshold: float) -> _Solved:
        """Solve the relaxation, and separate tangents while they may lower the bound enough."""
        ranges, model = self._ranges(node), self._corpus.model
        low = ranges.lower[: model.n_parameters]
        cuts, excess = node.cuts, self._options.excess
        solver = SimplexSolver(self.program(node), SOLVER)
        solved = self._solved(_optimum(solver, node.basis, threshold), cuts, np.inf)
        for _ in range(MOST_ROUNDS):
            if solved.bound <= threshold or solved.solution.status != "optimal":
                break
            if solved.regret.sum() <= SMALL_REGRET * (solved.bound - threshold):
                excess = TIGHT
            new = separated(model.first, self._least, low, solved.theta, excess)
            if not len(new.block):
                break
            cuts = joined_tangents(cuts, new)
            rows = self.relaxation.cut_rows(ranges, new)
            solver.append_rows(rows.matrix, rows.lower, rows.upper)
            solved = self._solved(_optimum(solver, None, threshold), cuts, solved.bound)
        return solved

    def _solved(self, solution: LinearSolution, cuts: Tangents, bound: float) -> _Solved:
        m, x = self._corpus.model.n_parameters, solution.x
        theta, counts, parses = x[:m], x[m : 2 * m], x[2 * m : 2 * m + len(self._whole)]
        regret = np.maximum(x[self.relaxation.objective] - theta * counts, 0.0)
        return _Solved(min(bound, solution.bound), solution, cuts, theta, regret, parses)

    def _answer(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return feasible structures near the relaxation's parameters."""
        options = self._options
        # the least logarithm stands for zero
        p = np.where(theta > self._least, np.exp(theta), 0.0)
        parameters = projected(self._corpus.model, p, options.projection)
        return completed(
            self._corpus, parameters, options.n_steps, options.smoothing, self._constraint
        )

    def _children(
        self, node: McCormickNode, solved: _Solved, threshold: float
    ) -> list[McCormickNode]:
        node = node._replace(cuts=solved.cuts, basis=solved.solution.basis)
        if len(solved.cuts.block) > self._options.most_cuts:
            kept = self.relaxation.binding(solved.cuts, solved.solution.row_duals)
            node = node._replace(cuts=kept, basis=None)
        y = most_fractional(solved.parses, self._whole)
        branch = most_regretted(solved.regret, node.bounds, solved.theta, self._options.split)
        small = solved.regret.sum() <= LARGE_REGRET * (solved.bound - threshold)
        if y is not None and (small or branch is None):
            return self._decided(node, y)
        if branch is None:
            return []
        return [node._replace(bounds=bounds) for bounds in halves(node.bounds, branch)]

    def _decided(self, node: McCormickNode, y: int) -> list[McCormickNode]:
        """Return two nodes in which a variable of the parses is all or nothing."""
        on, off = node.parse_bounds.copy(), node.parse_bounds.copy()
        on[y], off[len(self._whole) + y] = self._whole[y], 0.0
        return [node._replace(parse_bounds=on), node._replace(parse_bounds=off)]


class _Solved(NamedTuple):
    """What came of a relaxation."""

    bound: float
    """The lowest one of all rounds of separation."""
    solution: LinearSolution
    """Of the last round."""
    cuts: Tangents
    theta: FloatArray
    regret: FloatArray
    """(M,) by how much the variables of the objective exceed the products they stand for."""
    parses: FloatArray


def _optimum(solver: SimplexSolver, basis: Basis | None, threshold: float) -> LinearSolution:
    """Return a solution, which need not be optimal if the bound is below a threshold."""
    solution = solver.solve(basis, cutoff=threshold)
    if solution.status == "below" and solution.bound > threshold:  # by rounding
        return solver.solve()
    return solution


def _whole(corpus: Corpus, constraint: CountConstraint | None) -> FloatArray:
    """Return what each variable of the flow polytope is if it is not zero; zero if that is open.

    Arcs and decisions are there or not, flows are open. Under a constraint equal sentences may need
    unequal parses, so that theirs are open.
    """
    sentences = []
    for sentence, times in zip(corpus.sentences, corpus.multiplicity, strict=True):
        n = len(sentence)
        is_binary = np.repeat([1.0, 0.0, 1.0], [n * n, n * n, 4 * n])
        sentences.append(is_binary * (times if constraint is None or times == 1 else 0.0))
    return np.concatenate(sentences)


def _checked(options: McCormickOptions) -> McCormickOptions:
    """Return options.

    Raises
    ------
    ValueError
        If one is out of range.
    """
    for name, allowed in _CHOICES.items():
        value = getattr(options, name)
        if value not in allowed:
            raise ValueError(f"{name}: got {value!r}; expected {' or '.join(map(repr, allowed))}.")
    for name in ("smoothing", "excess"):
        checked_number(name, getattr(options, name))
    if options.least is not None and not -np.inf < options.least < 0.0:
        raise ValueError(f"least: got {options.least}; expected a finite negative number or None.")
    for name in ("n_steps", "most_cuts"):
        checked_count(name, getattr(options, name))
    if options.n_tangents is not None:
        checked_count("n_tangents", options.n_tangents)
    return options


_CHOICES = {
    "polytope": ("hypergraph", "flow"),
    "split": ("midpoint", "point"),
    "projection": ("normalise", "euclidean"),
}
