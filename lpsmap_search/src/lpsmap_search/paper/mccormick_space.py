"""The search space of the paper: boxes of parameters, bounded by McCormick relaxations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray, checked_count
from lpsmap_decode import Evaluation
from lpsmap_search.box_space import Arrays, BoxSpace
from lpsmap_search.branching import halves
from lpsmap_search.checks import checked_nonnegative
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
from lpsmap_search.local_search import expectation_maximisation
from lpsmap_search.paper.branching_variables import Split, most_fractional, most_regretted
from lpsmap_search.paper.linear_rows import LinearRows, Ranges
from lpsmap_search.paper.projections import Projection, parsed_counts, projected
from lpsmap_search.paper.relaxation import McCormickRelaxation
from lpsmap_search.paper.row_pairs import Filter
from lpsmap_search.paper.tangents import Tangents, joined_tangents, separated, simplex_tangents
from lpsmap_search.polytopes import hypergraph_polytope
from lpsmap_search.shares import count_ranges, shrink

PolytopeName = Literal["hypergraph", "flow"]

TIGHT = 1e-7
"""Maximum excess of sums of probabilities over one if there is no branching variable."""

SMALL_REGRET = 0.1
"""Sums are tightened if the regrets sum to at most this share of the gap."""

LARGE_REGRET = 3.0
"""The search branches on fractional parses unless the regrets sum to this many times the gap."""

SOLVER = {"simplex_dual_edge_weight_strategy": 1}
"""Options of HiGHS: Devex pricing takes a fifth to a half less time here than steepest edge."""

MAX_ENTRIES = 100_000
"""Maximum total entries of the programs of nodes evaluated together: a tenth of a second or
less."""

MAX_NODES = 16
"""Maximum number of nodes evaluated together; of two or more, half have the highest bounds."""

MAX_ROUNDS = 20
"""Maximum rounds of separation at a node."""

TINY = 1e-12
"""Probability that is added to all parameters before structures are found for them."""


class McCormickOptions(NamedTuple):
    """Options of the relaxations of the paper."""

    products: Filter = 0
    """The products of rows in addition to the concave envelopes.

    A number of random ones (``Max.1k`` is 1,000), a share of all, as a float, or ``"objective"``
    (``Obj.Filter``)."""
    polytope: PolytopeName = "hypergraph"
    """The polytope of the parses, their hull or ``"flow"`` of the paper for dependency trees."""
    split: Split = "midpoint"
    """Where a range is divided, at its midpoint or at the ``"point"`` of the relaxation."""
    projection: Projection = "normalise"
    """How the solution is made feasible.

    Its parameters are divided by their sums (``"normalise"``), or replaced by the nearest ones
    (``"euclidean"``). With the ``"flow"`` polytope, ``"parse"`` takes the best trees for the
    fractional arcs, and their parameters."""
    added: float = 0.0
    """Constant added to probabilities before they are projected."""
    n_steps: int = 5
    """Steps of Viterbi EM from the feasible point."""
    smoothing: float = 0.1
    """Smoothing in these steps."""
    least: float | None = None
    """The least logarithm, such as ``log(1e-12)``, which also represents probability zero. None for
    ``-1 - log F``, which is also its maximum, where F is the largest total count of the parameter's
    block: above it, structures that use parameters of probability zero would score more than their
    likelihood, and bounds could not converge."""
    n_tangents: int | None = None
    """Number of random tangents of each block at the root; None for the square of the block
    size."""
    most_cuts: int = 300
    """Maximum number of tangents inherited by a node; beyond it, only binding ones are kept."""
    excess: float = 0.01
    """Tangents are separated while sums of probabilities exceed one by more than this."""
    seed: int = 0
    """Seed of the random tangents and products."""


class McCormickNode(NamedTuple):
    """A box of parameters, and bounds on the variables of the parses."""

    bounds: FloatArray
    """(2 M,) lower, then upper bounds of the probabilities."""
    parse_bounds: FloatArray
    """(2 P,) lower, then upper bounds of the variables of the parses."""
    cuts: Tangents
    """Tangents separated at ancestors."""
    basis: Basis | None
    """The initial basis of the simplex algorithm."""


class McCormickSpace(BoxSpace[McCormickNode]):
    """The search space of Gormley & Eisner (2013); answers are counts.

    Nodes are boxes of probabilities, bounded by a linear program: concave envelopes of the products
    ``theta_m f_m``, tangents of the constraints that probabilities sum to one, products of rows,
    and a polytope of parses.

    Parameters
    ----------
    corpus, gap, constraint
        As for `BoxSpace`.
    options
        Options of the relaxations.

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
        highspy_module()  # fails here if missing, rather than during the search
        self._corpus, self._gap, self._constraint = corpus, gap, constraint
        self._options = options = _checked(options or McCormickOptions())
        model, rng = corpus.model, np.random.default_rng(options.seed)
        flow = options.polytope == "flow"
        parses = flow_polytope(corpus) if flow else hypergraph_polytope(corpus)
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
        self.relaxation = McCormickRelaxation(rows, model.first, options.products, rng)
        self.batch = min(max(MAX_ENTRIES // self.relaxation.n_entries, 2), MAX_NODES)

    def root(self) -> McCormickNode:
        """Return the node of all parameters and parses."""
        return self._root

    def record(self, node: McCormickNode) -> Arrays:
        """Return a node as arrays."""
        nothing = np.zeros(0, dtype=np.uint8)
        return {
            "bounds": node.bounds,
            "parse_bounds": node.parse_bounds,
            "cut_block": node.cuts.block,
            "cut_point": node.cuts.point,
            **(
                {"columns": nothing, "rows": nothing} if node.basis is None else node.basis.arrays()
            ),
        }

    def node(self, record: Arrays) -> McCormickNode:
        """Return the node of a record."""
        return McCormickNode(
            record["bounds"],
            record["parse_bounds"],
            Tangents(record["cut_block"], record["cut_point"]),
            Basis.from_arrays(record) if len(record["columns"]) else None,
        )

    def evaluate(
        self, nodes: Sequence[McCormickNode], score: float
    ) -> list[Evaluation[McCormickNode, FloatArray]]:
        """Bound boxes, and divide those that are not pruned."""
        return [self._evaluate(node, score) for node in nodes]

    def _evaluate(self, node: McCormickNode, score: float) -> Evaluation[McCormickNode, FloatArray]:
        bounds, model = node.bounds.copy(), self._corpus.model
        low, high = np.split(bounds, 2)
        if not shrink(model.first, low, high):
            return Evaluation(-np.inf)
        node = node._replace(bounds=bounds)
        threshold = score + self._gap * max(1.0, abs(score))
        solved = self._solve(node, threshold)
        if solved.bound <= threshold:
            return Evaluation(solved.bound)
        value, counts = self._answer(solved)
        children = self._children(node, solved, threshold)
        return Evaluation(solved.bound, children, counts if value > score else None, value)

    def program(self, node: McCormickNode) -> LinearProgram:
        """Return the initial linear program of a node, before tangents are separated.

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

    def _solve(self, node: McCormickNode, threshold: float) -> _NodeSolution:
        """Solve the relaxation, and separate tangents while they make progress."""
        ranges, model = self._ranges(node), self._corpus.model
        low = ranges.lower[: model.n_parameters]
        cuts, excess = node.cuts, self._options.excess
        solver = SimplexSolver(self.program(node), SOLVER)
        solved = self._solved(_optimum(solver, node.basis, threshold), cuts, np.inf)
        for _ in range(MAX_ROUNDS):
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

    def _solved(self, solution: LinearSolution, cuts: Tangents, bound: float) -> _NodeSolution:
        m, x = self._corpus.model.n_parameters, solution.x
        theta, counts, parses = x[:m], x[m : 2 * m], x[2 * m : 2 * m + len(self._whole)]
        regret = np.maximum(x[self.relaxation.objective] - theta * counts, 0.0)
        return _NodeSolution(min(bound, solution.bound), solution, cuts, theta, regret, parses)

    def _answer(self, solved: _NodeSolution) -> tuple[float, FloatArray]:
        """Return the likelihood and counts of structures near the solution of the relaxation."""
        options, model = self._options, self._corpus.model
        if options.projection == "parse":
            parameters = model.normalised(parsed_counts(self._corpus, solved.parses))
        else:
            # the least logarithm represents zero
            p = np.where(solved.theta > self._least, np.exp(solved.theta), 0.0)
            parameters = projected(model, p + options.added, options.projection)
        # a zero parameter forbids structures, possibly all of a sentence
        trained = expectation_maximisation(
            self._corpus,
            parameters + TINY,
            smoothing=options.smoothing,
            max_steps=options.n_steps,
            constraint=self._constraint,
        )
        return trained.objective, trained.counts

    def _children(
        self, node: McCormickNode, solved: _NodeSolution, threshold: float
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
        """Branch on a variable of the parses: return two nodes that fix it."""
        on, off = node.parse_bounds.copy(), node.parse_bounds.copy()
        on[y], off[len(self._whole) + y] = self._whole[y], 0.0
        return [node._replace(parse_bounds=on), node._replace(parse_bounds=off)]


class _NodeSolution(NamedTuple):
    """The result of a relaxation."""

    bound: float
    """The lowest bound of all rounds of separation."""
    solution: LinearSolution
    """The solution of the last round."""
    cuts: Tangents
    theta: FloatArray
    regret: FloatArray
    """(M,) the excess of the variables of the objective over the products they represent."""
    parses: FloatArray


def _optimum(solver: SimplexSolver, basis: Basis | None, threshold: float) -> LinearSolution:
    """Return a solution, which need not be optimal if the bound is below a threshold."""
    solution = solver.solve(basis, cutoff=threshold)
    if solution.status == "below" and solution.bound > threshold:  # because of rounding
        return solver.solve()
    return solution


def _whole(corpus: Corpus, constraint: CountConstraint | None) -> FloatArray:
    """Return the nonzero value of each integral variable of the flow polytope; zero for others.

    Arcs and decisions are integral, flows are not. Under a constraint, equal sentences may need
    different parses, so their merged variables are not integral.
    """
    sentences = []
    for sentence, times in zip(corpus.sentences, corpus.multiplicity, strict=True):
        n = len(sentence)
        is_binary = np.repeat([1.0, 0.0, 1.0], [n * n, n * n, 4 * n])
        sentences.append(is_binary * (times if constraint is None or times == 1 else 0.0))
    return np.concatenate(sentences)


def _checked(options: McCormickOptions) -> McCormickOptions:
    """Validate options.

    Raises
    ------
    ValueError
        If an option is out of range.
    """
    for name, allowed in _CHOICES.items():
        value = getattr(options, name)
        if value not in allowed:
            raise ValueError(f"{name}: got {value!r}; expected {' or '.join(map(repr, allowed))}.")
    if options.projection == "parse" and options.polytope != "flow":
        raise ValueError(
            f"projection: got 'parse' with polytope {options.polytope!r}; expected polytope "
            "'flow', whose variables are arcs."
        )
    for name in ("added", "smoothing", "excess"):
        checked_nonnegative(name, getattr(options, name))
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
    "projection": ("normalise", "euclidean", "parse"),
}
