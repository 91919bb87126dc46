"""Graphs of single factors of one type: one call of a closed form, without the loop.

The loop would find the same solution in its first iteration, but the state of a solve takes ten
times longer to set up than the closed form of a small batch takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lpsmap_core.engine.cotangents import need_no_scaling_compiled
from lpsmap_core.engine.magnitudes import HUGE_RATIO
from lpsmap_core.engine.soundness import MARGINAL_TOLERANCE
from lpsmap_core.kernels.entries import address_of, lazy_place
from lpsmap_core.kernels.records import Direction, Factors, LocalScores, LocalSolution, Product
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.finite_scores import NOTHING_BARRED, make_rows_finite
from lpsmap_core.local.solvers import choose_solver, takes_one_pass
from lpsmap_core.model.unused import largest_magnitude
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import by_value, record_at
from lpsmap_jit.compile import leaf
from lpsmap_jit.lazy_kernels import kernel_at, raise_late
from lpsmap_jit.memory import Memory, hold
from lpsmap_jit.native import invoke
from lpsmap_jit.tiers import interprets, unless_slow

__all__ = ["DirectSolution", "solve_directly"]

Result = TypeVar("Result")


class _Form(NamedTuple):
    """The closed form of a part."""

    project: int
    """Address of the projection kernel."""
    multiply: int
    """Place of the kernel of its Jacobian."""
    rows: IntArray
    factors: Factors
    links: Links
    delta: FloatArray
    plain: int
    """Whether the links are in the order of the variables, without negation."""
    no_additionals: FloatArray


_form_at = record_at(_Form)


class DirectSolution(NamedTuple):
    """The marginals of a part, and the faces of its factors."""

    form: Any
    marginals: FloatArray
    face: ByteArray
    branch: ByteArray

    def multiply(self, d: FloatArray) -> FloatArray | None:
        """Return the product of the Jacobian with a vector; None if that needs scaling."""
        copies, products, out = np.empty(len(d)), np.empty(len(d)), np.empty(len(d))
        exact = _multiply(self.form, self.face, self.branch, d, copies, products, out)
        raise_late()
        return out if exact else None


def solve_directly(
    part: Part, eta: FloatArray, otherwise: Callable[[], Result]
) -> DirectSolution | Result:
    """Return the solution of a part by a closed form, or the result of another function.

    Parameters
    ----------
    part
        The part.
    eta
        Scores of its variables.
    otherwise
        Solves factors that share variables, have additionals or no compiled closed form; scores
        that are large, NaN or ``inf``; infeasible factors; and with interpreted kernels. It may be
        called twice.
    """
    if not part.derived(_has_form):
        return otherwise()

    def work() -> DirectSolution | Result:
        found = None if interprets() else _solved(part, eta)
        return otherwise() if found is None else found

    return unless_slow(work, _solve, lambda: part.n_links)


def _has_form(part: Part) -> bool:
    """Return whether a compiled closed form of one type solves a part in one pass."""
    if len(part.buckets) != 1 or not part.all_direct or part.n_additionals:
        return False
    kind = part.buckets[0].type
    compiled = hasattr(kind.projection_kernel, "overloads") and hasattr(
        kind.jvp_kernel, "overloads"
    )
    return compiled and takes_one_pass(choose_solver(kind).solver, kind)


def _form(part: Part) -> Memory[_Form]:
    """Return the closed form of a part."""
    (bucket,) = part.buckets
    rows, links = part.spans.counting[: bucket.n_factors], part.links
    plain = not links.negated.any() and bool((links.order[1:] > links.order[:-1]).all())
    return hold(
        _Form(
            address_of(bucket.type.projection_kernel, "projection_kernel"),
            lazy_place(bucket.type.jvp_kernel, "jvp_kernel"),
            *(rows, bucket.factors, links, part.delta, int(plain), np.empty(0)),
        )
    )


def _solved(part: Part, eta: FloatArray) -> DirectSolution | None:
    """Return the solution for moderate scores of feasible factors, or None."""
    n, form = part.n_variables, part.derived(_form).handle
    a, z, marginals = np.empty(n), np.empty(n), np.empty(n)
    face, branch = np.zeros(n, dtype=np.int8), np.zeros(part.n_components, dtype=np.int8)
    solved = _solve(form, eta, a, z, face, branch, marginals)
    return DirectSolution(form, marginals, face, branch) if solved else None


@leaf
def _solve(
    handle: Any,
    eta: FloatArray,
    a: FloatArray,
    z: FloatArray,
    face: ByteArray,
    branch: ByteArray,
    marginals: FloatArray,
) -> bool:
    """Write marginals and faces; return whether they are the solution."""
    form, n_wrong, forbids = _form_at(handle), 0, False
    if not largest_magnitude(eta) <= HUGE_RATIO:
        forbids = True
        for score in eta:
            n_wrong += not (score == -np.inf or abs(score) <= HUGE_RATIO)
        if n_wrong > 0:
            return False
    factors = by_value(form.factors)
    _scatter(form, eta, 1.0, a)
    if forbids:
        make_rows_finite(form.rows, factors, a, form.no_additionals, NOTHING_BARRED)
    scores = LocalScores(a, form.delta, form.no_additionals)
    solution = LocalSolution(z, form.no_additionals, face, branch)
    invoke(form.project, (form.rows, factors, scores, solution))
    _gather(form, z, 1.0, marginals)
    for v in range(np.uint64(len(eta))):
        mean, most = marginals[v], 0.0 if eta[v] == -np.inf else 1.0
        n_wrong += not ((mean >= -MARGINAL_TOLERANCE) & (mean <= most + MARGINAL_TOLERANCE))
        marginals[v] = min(1.0, max(0.0, mean))
    return n_wrong == 0


@leaf
def _multiply(
    handle: Any,
    face: ByteArray,
    branch: ByteArray,
    d: FloatArray,
    copies: FloatArray,
    products: FloatArray,
    out: FloatArray,
) -> bool:
    """Write the product of the Jacobian with a vector, unless that needs scaling."""
    if not need_no_scaling_compiled(d):
        return False
    form = _form_at(handle)
    _scatter(form, d, 0.0, copies)
    address = kernel_at(form.multiply)
    if address == 0:  # Python raised
        return False
    direction = Direction(form.delta, face, branch, copies, form.no_additionals)
    product = Product(products, form.no_additionals)
    invoke(address, (form.rows, by_value(form.factors), direction, product))
    _gather(form, products, 0.0, out)
    return True


@leaf
def _scatter(form: _Form, x: FloatArray, one: float, out: FloatArray) -> None:
    """Write numbers on the variables to their links; ``one - x`` for negated slots."""
    order, negated = form.links.order, form.links.negated
    for v in range(np.uint64(len(x))):
        if form.plain != 0:
            out[v] = x[v]
        else:
            out[order[v]] = one - x[v] if negated[v] else x[v]


@leaf
def _gather(form: _Form, values: FloatArray, one: float, out: FloatArray) -> None:
    """Write numbers on the links to their variables; the inverse of `_scatter`."""
    order, negated = form.links.order, form.links.negated
    for v in range(np.uint64(len(out))):
        if form.plain != 0:
            out[v] = values[v]
        else:
            value = values[order[v]]
            out[v] = one - value if negated[v] else value
