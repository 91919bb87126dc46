"""Graphs of separate factors of one type: one call of a closed form, without the loop.

The loop would find the same solution in its first iteration, but in a small batch its state takes
longer to set up than the closed form takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lpsmap_core.engine.magnitudes import HUGE_RATIO
from lpsmap_core.engine.protocol import need_no_scaling
from lpsmap_core.engine.soundness import MARGINAL_TOLERANCE
from lpsmap_core.kernels.entries import Entry, address_of
from lpsmap_core.kernels.records import Direction, Factors, LocalScores, LocalSolution, Product
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.finite_scores import NOTHING_FORBIDDEN, make_rows_finite
from lpsmap_core.local.solvers import solver_of, takes_one_pass
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import by_value, record_at
from lpsmap_jit.compile import leaf
from lpsmap_jit.memory import Memory, hold
from lpsmap_jit.native import invoke
from lpsmap_jit.tiers import interprets

Result = TypeVar("Result")


class _Form(NamedTuple):
    """The closed form of a part."""

    project: int
    """Address of the projection kernel."""
    multiply: IntArray
    """Address of the kernel of its Jacobian; 0 until it is compiled."""
    rows: IntArray
    factors: Factors
    delta: FloatArray
    no_additionals: FloatArray


_form_at = record_at(_Form)


class DirectSolution(NamedTuple):
    """The marginals of a part, and the faces of its factors."""

    form: Memory[_Form]
    multiplier: Entry
    marginals: FloatArray
    face: ByteArray
    branch: ByteArray

    def multiply(self, d: FloatArray) -> FloatArray | None:
        """Return the product of the Jacobian with a vector `d`; None if that needs scaling."""
        product, faces = np.empty(len(d)), (self.face, self.branch)
        exact = self.multiplier.ready() and _multiply(self.form.handle, *faces, d, product)
        return product if exact else None


def solve_directly(
    part: Part, scores: FloatArray, otherwise: Callable[[], Result]
) -> DirectSolution | Result:
    """Return the solution of a part by a closed form, or the result of another function.

    Parameters
    ----------
    part
        The part.
    scores
        Scores of all variables of the graph, flat.
    otherwise
        Solves factors that share, negate or permute variables, have additionals or no compiled
        closed form; scores that are large, NaN or ``inf``; infeasible factors; and with interpreted
        kernels.
    """
    if interprets() or not part.derived(_has_form):
        return otherwise()
    solution = _solved(part, part.of_graph(scores))
    return otherwise() if solution is None else solution


def _has_form(part: Part) -> bool:
    """Return whether a compiled closed form solves a part in one pass, without other arrays."""
    if len(part.buckets) != 1 or not part.all_direct or part.n_additionals:
        return False
    kind, order = part.buckets[0].type, part.links.order
    compiled = all(hasattr(x, "overloads") for x in (kind.projection_kernel, kind.jvp_kernel))
    if not (compiled and takes_one_pass(solver_of(part.buckets[0]).solver, kind)):
        return False
    return not part.negated.any() and bool((order[1:] > order[:-1]).all())


def _form(part: Part) -> tuple[Memory[_Form], Entry]:
    """Return the closed form of a part, and the kernel of its Jacobian."""
    (bucket,) = part.buckets
    project = address_of(bucket.type.projection_kernel, "projection_kernel")
    multiplier = Entry(bucket.type.jvp_kernel, "jvp_kernel")
    rows = part.links.counting[: bucket.n_factors]
    form = _Form(project, multiplier.place, rows, bucket.factors, part.delta, np.empty(0))
    return hold(form), multiplier


def _solved(part: Part, a: FloatArray) -> DirectSolution | None:
    """Return the solution for moderate scores of feasible factors, or None; overwrites scores."""
    (form, multiplier), marginals = part.derived(_form), np.empty(len(a))
    face, branch = np.zeros(len(a), np.int8), np.zeros(part.n_components, np.int8)
    if not _solve(form.handle, a, marginals, face, branch):
        return None
    return DirectSolution(form, multiplier, marginals, face, branch)


@leaf
def _solve(
    handle: Any, a: FloatArray, marginals: FloatArray, face: ByteArray, branch: ByteArray
) -> bool:
    """Write marginals and faces; return whether they are the solution."""
    form, factors, n_wrong = _form_at(handle), by_value(_form_at(handle).factors), 0
    if not largest_magnitude(a) <= HUGE_RATIO:
        for score in a:
            n_wrong += not (score == -np.inf or abs(score) <= HUGE_RATIO)
        if n_wrong > 0:
            return False
        make_rows_finite(form.rows, factors, a, form.no_additionals, NOTHING_FORBIDDEN)
    scores = LocalScores(a, form.delta, form.no_additionals)
    solution = LocalSolution(marginals, form.no_additionals, face, branch)
    invoke(form.project, (form.rows, factors, scores, solution))
    for v in range(np.uint64(len(a))):
        mean, most = marginals[v], 0.0 if a[v] < -HUGE_RATIO else 1.0  # 0 if it is forbidden
        n_wrong += not ((mean >= -MARGINAL_TOLERANCE) & (mean <= most + MARGINAL_TOLERANCE))
        marginals[v] = min(1.0, max(0.0, mean))
    return n_wrong == 0


@leaf
def _multiply(
    handle: Any, face: ByteArray, branch: ByteArray, d: FloatArray, product: FloatArray
) -> bool:
    """Write the product of the Jacobian with a vector, unless that needs scaling."""
    if not need_no_scaling(d):
        return False
    form = _form_at(handle)
    direction = Direction(form.delta, face, branch, d, form.no_additionals)
    outputs = Product(product, form.no_additionals)
    invoke(form.multiply[0], (form.rows, by_value(form.factors), direction, outputs))
    return True
