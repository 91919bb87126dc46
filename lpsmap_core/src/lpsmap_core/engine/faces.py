"""The operator of the current faces, ``I - S``, and the conjugate gradients that invert it.

``S = C^T J C``, where ``C`` maps variables to their scaled copies on the links (``(C mu)_l = mu_v /
delta_v``, with opposite sign for a negated slot) and ``J`` holds the local Jacobians on the current
faces. ``J`` is an orthogonal projection, so ``I - S`` is symmetric with eigenvalues in [0, 1].

Most copies cannot move at all: their rows and columns of ``J`` are zero. A variable none of
whose copies can move is left out of the conjugate gradients; in a 30x40 matching these are nine
variables in ten. One product of ``J`` with numbers in general position identifies them.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.problem import ONE, LoopProblem
from lpsmap_core.engine.selection import (
    Selection,
    multiply_locally,
    scatter_to_links,
    subtract_gathered,
)
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import general_position, leaf
from lpsmap_jit.interrupts import interrupted
from lpsmap_jit.memory import Blueprint, Memory

__all__ = [
    "FaceWorkspace",
    "apply_operator",
    "draw_general_position",
    "face_workspace_at",
    "face_workspace_sizes",
    "make_face_workspace",
    "order_moving_first",
    "plan_face_workspace",
    "reduce_residual",
]

FLAT = 1e-14
"""Curvatures of ``I - S`` along a unit direction up to this are rounding."""


class FaceWorkspace(NamedTuple):
    """Memory for products with ``I - S`` and for conjugate gradients."""

    inputs: FloatArray
    """Inputs of the local Jacobians, one per link."""
    outputs: FloatArray
    """Outputs of the local Jacobians, one per link."""
    no_v: FloatArray
    """Zeros, one per additional."""
    outputs_v: FloatArray
    """Outputs of the local Jacobians, one per additional."""
    residual: FloatArray
    """Residual, one number per variable, as for the next two."""
    direction: FloatArray
    image: FloatArray
    """Product of the operator with the direction."""
    order: npt.NDArray[np.uint64]
    """Variables that can move, then those that cannot; see `order_moving_first`."""
    target: FloatArray
    """Squared norm of the residual at which a component is done, one per component, as for the
    rest."""
    size: FloatArray
    """Squared norm of the current residual."""
    next_size: FloatArray
    """Squared norm of the next residual; at the start of a step, of the direction."""
    curvature: FloatArray
    """Curvature along the direction; then the step length, then the weight of the old direction."""
    running: BoolArray
    """Whether the component has not reached its target."""


face_workspace_at = record_at(FaceWorkspace)
"""Returns, in kernels, the workspace of a handle."""


def make_face_workspace(part: Part, outputs_v: FloatArray) -> Memory[FaceWorkspace]:
    """Return the workspace for products with the Jacobian of a part.

    Products on the additionals are written to `outputs_v`.
    """
    return _blueprint(*face_workspace_sizes(part)).make(outputs_v)


def face_workspace_sizes(part: Part) -> tuple[int, int, int, int]:
    """Return the sizes that `plan_face_workspace` takes for a part.

    A part whose components are all direct needs no conjugate gradients.
    """
    coupled = 0 if part.all_direct else 1
    return part.n_links, part.n_additionals, coupled * part.n_variables, coupled * part.n_components


def plan_face_workspace(
    on_links: int, on_additionals: int, on_variables: int, on_components: int
) -> list[Any]:
    """Return the plan of a `Blueprint` of `FaceWorkspace`."""
    return [
        *[(on_links,)] * 2,
        (on_additionals,),
        None,
        *[(on_variables,)] * 4,
        *[(on_components,)] * 5,
    ]


@functools.lru_cache(maxsize=32)
def _blueprint(*sizes: int) -> Blueprint[FaceWorkspace]:
    """Return the blueprint of workspaces of some sizes."""
    return Blueprint(FaceWorkspace, plan_face_workspace(*sizes))


@leaf
def apply_operator(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    work: FaceWorkspace,
    x: FloatArray,
    out: FloatArray,
) -> None:
    """Write ``(I - S) x`` for the selected components."""
    links, spans = problem.links, problem.spans
    scatter_to_links(selection, links, x, work.inputs)
    multiply_locally(
        selection, solver_table, spans, work.inputs, work.no_v, work.outputs, work.outputs_v
    )
    subtract_gathered(selection, links, work.outputs, x, out)


@leaf
def draw_general_position(selection: Selection, problem: LoopProblem, out: FloatArray) -> None:
    """Write numbers in general position on the links, always the same for a component.

    Products of the local Jacobians with them distinguish faces, and are zero only for copies that
    cannot move.
    """
    links, spans = problem.links, problem.spans
    for v in selection.variables:
        first = links.offsets[spans.first_variable[links.component[v]]]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            out[links.order[e]] = general_position(int(e - first), 0)


@leaf
def order_moving_first(
    selection: Selection, links: Links, products: FloatArray, work: FaceWorkspace
) -> int:
    """Write the selected variables to ``work.order``; return how many can move.

    They are written from position ``selection.variables[0]`` on. `products` are the products of the
    local Jacobians with numbers of `draw_general_position`.
    """
    if len(selection.variables) == 0:
        return 0
    first = selection.variables[0]
    n, last = first, first + np.uint64(len(selection.variables))
    for v in selection.variables:
        moves = False
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            moves |= products[links.order[e]] != 0.0
        if moves:
            work.order[n] = v
            n += ONE
        else:
            last -= ONE
            work.order[last] = v
    return int(n - first)


@leaf
def reduce_residual(
    selection: Selection,
    n_moving: int,
    solver_table: Any,
    problem: LoopProblem,
    work: FaceWorkspace,
    x: FloatArray,
    max_products: int,
) -> None:
    """Subtract from `x` the least-norm y with ``(I - S) y = residual``, by conjugate gradients.

    All vectors but `x` stay in the range of ``I - S``. Its null space, which may hold a large part
    of the result, therefore does not affect the inner products.

    Parameters
    ----------
    selection
        Components to treat. Entries of other components are neither read nor written.
    n_moving
        Number of their variables that can move, from `order_moving_first`.
    solver_table, problem
        The part, whose local solvers hold the faces.
    work
        ``work.residual`` holds the residual, in the range of ``I - S``, and ``work.target`` its
        squared norm at which a component is done. On return ``work.running`` marks the components
        that did not reach it; their `x` is the last approximation.
    x
        Changed in place.
    max_products
        Limit of products with the operator.
    """
    links, component = problem.links, problem.links.component
    n_variables = len(selection.variables)
    first = selection.variables[0] if n_variables > 0 else np.uint64(0)
    order = work.order[first : first + np.uint64(n_variables)]
    for v in order[n_moving:]:
        x[v] -= work.residual[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            work.inputs[links.order[e]] = 0.0
    moving = Selection(
        selection.components, order[:n_moving], selection.rows, selection.first, selection.last
    )
    for c in selection.components:
        work.size[c] = 0.0
    for v in moving.variables:
        work.size[component[v]] += work.residual[v] * work.residual[v]
        work.direction[v] = work.residual[v]
    n_running = 0
    for c in selection.components:
        work.running[c] = work.size[c] > work.target[c]
        n_running += work.running[c]
    for _ in range(max_products):
        if n_running == 0 or interrupted():
            break
        apply_operator(moving, solver_table, problem, work, work.direction, work.image)
        n_running = _advance(moving, component, work, x)


@leaf
def _advance(selection: Selection, component: IntArray, work: FaceWorkspace, x: FloatArray) -> int:
    """Take one step of conjugate gradients; return the number of running components."""
    residual, direction, image = work.residual, work.direction, work.image
    size, next_size, curvature, running = work.size, work.next_size, work.curvature, work.running
    for c in selection.components:
        curvature[c] = next_size[c] = 0.0
    for v in selection.variables:
        curvature[component[v]] += direction[v] * image[v]
        next_size[component[v]] += direction[v] * direction[v]
    for c in selection.components:
        # I - S is positive on its range; the rounding of a residual may lie in its null space
        in_range = curvature[c] > FLAT * next_size[c]
        curvature[c] = size[c] / curvature[c] if running[c] and in_range else 0.0
        next_size[c] = 0.0
    for v in selection.variables:
        c = component[v]
        x[v] -= curvature[c] * direction[v]
        residual[v] -= curvature[c] * image[v]
        next_size[c] += residual[v] * residual[v]
    n_running = 0
    for c in selection.components:
        if running[c]:
            running[c] = next_size[c] > work.target[c] and curvature[c] > 0.0
            n_running += running[c]
            curvature[c] = next_size[c] / size[c]
            size[c] = next_size[c]
    for v in selection.variables:
        direction[v] = residual[v] + curvature[component[v]] * direction[v]
    return n_running
