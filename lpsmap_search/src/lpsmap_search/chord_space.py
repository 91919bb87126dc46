"""A search space of boxes of parameters, bounded by the chord program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray
from lpsmap_decode import Evaluation
from lpsmap_search.box_space import Arrays, BoxSpace
from lpsmap_search.branching import Means, choose_branch, halves
from lpsmap_search.chord_program import ChordProgram
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.corpus import Corpus
from lpsmap_search.linear_programs import Basis, LinearSolution, SimplexSolver, highspy_module
from lpsmap_search.shares import first_box, tighten, totals
from lpsmap_search.viterbi import viterbi

MAX_BOXES = 16
"""Maximum number of boxes evaluated together by one solver. The minimum is two, since half of a
batch are the boxes with the highest bounds."""

MAX_ENTRIES = 50_000
"""Maximum total number of coefficients of the programs evaluated together, for batches of more than
two boxes. They take about a tenth of a second."""

MIN_PROBABILITY = 1e-10
"""The share that replaces zero when structures are decoded: zero would forbid the parameter."""


class ChordBox(NamedTuple):
    """A box of parameters, and the initial basis of its program."""

    bounds: FloatArray
    """(2 M,) lower, then upper bounds."""
    basis: Basis
    """The basis of the solution of the parent."""


class ChordSpace(BoxSpace[ChordBox]):
    """The search space of the chord relaxation.

    Parameters
    ----------
    corpus, gap, constraint
        As for `BoxSpace`.

    Raises
    ------
    ImportError
        If highspy is not installed.
    """

    def __init__(
        self, corpus: Corpus, gap: float, *, constraint: CountConstraint | None = None
    ) -> None:
        highspy_module()  # fails here if missing, rather than during the search
        self._corpus, self._gap, self._constraint = corpus, gap, constraint
        self._totals = totals(corpus)
        self._first_box = first_box(corpus, self._totals)
        self._program = ChordProgram(corpus, self._totals, constraint)
        self.batch = min(max(MAX_ENTRIES // self._program.n_entries, 2), MAX_BOXES)

    def root(self) -> ChordBox:
        """Return the box of all parameters, with the basis of slacks."""
        return ChordBox(self._first_box, self._program.slack_basis)

    def record(self, node: ChordBox) -> Arrays:
        """Return a box as arrays."""
        return {"bounds": node.bounds, **node.basis.arrays()}

    def node(self, record: Arrays) -> ChordBox:
        """Return the box of a record."""
        return ChordBox(record["bounds"], Basis.from_arrays(record))

    def evaluate(
        self, nodes: Sequence[ChordBox], score: float
    ) -> list[Evaluation[ChordBox, FloatArray]]:
        """Bound boxes, and divide those that are not pruned."""
        solver = self._program.solver()
        return [self._evaluate(solver, node, score) for node in nodes]

    def _evaluate(
        self, solver: SimplexSolver, node: ChordBox, score: float
    ) -> Evaluation[ChordBox, FloatArray]:
        model, n = self._corpus.model, self._corpus.model.n_parameters
        box = node.bounds.copy()
        low, high = box[:n], box[n:]
        if not tighten(model.first, self._totals, low, high):
            return Evaluation(-math.inf)
        chords = self._program.set_box(solver, low, high)
        threshold = score + self._gap * max(1.0, abs(score))
        solution = solver.solve(node.basis, cutoff=threshold)
        if solution.bound <= threshold:
            return Evaluation(solution.bound)
        f, sums = self._program.counts(solution.x)
        means = Means(sums, f, chords.slope * f + chords.intercept * sums[model.block])
        branch = choose_branch(model.first, self._totals, low, high, means)
        basis = solution.basis or node.basis
        children = [ChordBox(half, basis) for half in halves(box, branch)]
        counts = self._structures(f, solution)
        value = model.log_likelihood(counts)
        if value > score and (self._constraint is None or self._constraint.holds(counts)):
            return Evaluation(solution.bound, children, counts, value)
        return Evaluation(solution.bound, children)

    def _structures(self, f: FloatArray, solution: LinearSolution) -> FloatArray:
        """Return the counts of the best structures under the shares of the solution."""
        model = self._corpus.model
        scores = np.log(np.maximum(model.normalised(f), MIN_PROBABILITY))
        if self._constraint is not None:
            scores -= solution.row_duals[-1] * self._constraint.weights
        return viterbi(self._corpus, scores)[1]
