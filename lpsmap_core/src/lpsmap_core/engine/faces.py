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

from lpsmap_core.engine.problem import ONE, LoopProblem, problem_at
from lpsmap_core.engine.selection import (
    Selection,
    Variables,
    keep_chosen,
    multiply_jacobians,
)
from lpsmap_core.engine.state import PartState
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import general_position, leaf
from lpsmap_jit.interrupts import interrupted
from lpsmap_jit.memory import Blueprint, Memory

FLAT = 1e-14
"""Curvatures of ``I - S`` along a unit direction up to this are rounding."""


POLL_PERIOD = 4
"""Number of products between two looks at Ctrl-C and the clock."""


class FaceWorkspace(NamedTuple):
    """Memory for products with ``I - S`` and for conjugate gradients."""

    problem: LoopProblem
    """The solved problem, which `problem_at` finds by the handle of the workspace, too."""
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


def multiply(
    state: PartState,
    selection: Selection,
    work: FaceWorkspace,
    inputs_v: FloatArray | None = None,
) -> None:
    """Write the outputs of a workspace for its inputs, and for `inputs_v` on the additionals."""
    inputs_v = work.no_v if inputs_v is None or not len(inputs_v) else inputs_v
    multiply_jacobians(state, selection, work.inputs, inputs_v, work.outputs, work.outputs_v)


def make_face_workspace(state: PartState, outputs_v: FloatArray) -> Memory[FaceWorkspace]:
    """Return the workspace for products with the Jacobian of a solved part.

    Products on the additionals are written to `outputs_v`.
    """
    return _blueprint(*face_workspace_sizes(state.part)).make(state.memory, outputs_v)


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
        None,
        *[(on_links,)] * 2,
        (on_additionals,),
        None,
        *[(on_variables,)] * 4,
        *[(on_components,)] * 5,
    ]


@functools.lru_cache(maxsize=32)
def _blueprint(*sizes: int) -> Blueprint[FaceWorkspace]:
    return Blueprint(FaceWorkspace, plan_face_workspace(*sizes))


@leaf
def draw_general_position(variables: Variables, problem: Any, out: FloatArray) -> None:
    """Write numbers in general position on the links, always the same for a component.

    Products of the local Jacobians with them distinguish faces, and are zero only for copies that
    cannot move.
    """
    record = problem_at(problem)
    links, spans = record.links, record.spans
    for v in variables:
        first = links.offsets[spans.first_variable[links.component[v]]]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            out[links.order[e]] = general_position(int(e - first), 0)


def order_moving_first(
    state: PartState, selection: Selection, products: FloatArray, work: FaceWorkspace
) -> tuple[Variables, Variables]:
    """Return the selected variables that can move, and those that cannot.

    `products` are the products of the local Jacobians with numbers of `draw_general_position`. The
    results are views of ``work.order``.
    """
    variables = selection.variables
    if not len(variables):
        return variables, variables
    first = int(variables[0])
    order = work.order[first : first + len(variables)]
    n = _order_moving_first(variables, state.handle, products, order)
    return order[:n], order[n:]


@leaf
def _order_moving_first(
    variables: Variables, problem: Any, products: FloatArray, order: Variables
) -> int:
    """Write the variables that can move, then the others; return the number of the first."""
    links, n, last = problem_at(problem).links, 0, len(order)
    for v in variables:
        moves = False
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            moves |= products[links.order[e]] != 0.0
        if moves:
            order[n] = v
            n += 1
        else:
            last -= 1
            order[last] = v
    return n


def reduce_residual(
    state: PartState,
    selection: Selection,
    moving: Variables,
    fixed: Variables,
    work: FaceWorkspace,
    handle: IntArray,
    x: FloatArray,
    max_products: int,
) -> None:
    """Subtract from `x` the least-norm y with ``(I - S) y = residual``, by conjugate gradients.

    All vectors but `x` stay in the range of ``I - S``. Its null space, which may hold a large part
    of the result, therefore does not affect the inner products.

    The variables of the selection are `moving` and `fixed`, as `order_moving_first` returns them;
    entries of other components are neither read nor written. The ``residual`` of the workspace
    `work`, which kernels find by `handle`, is in the range of ``I - S``, and ``target`` is its
    squared norm at which a component is done. On return ``running`` marks the components that did
    not reach it; their `x` is the last approximation.
    """
    own = selection._replace(variables=moving)
    n_running = _begin(own.components, moving, fixed, handle, x)
    for i in range(max_products):
        if n_running == 0 or (i % POLL_PERIOD == POLL_PERIOD - 1 and interrupted()):
            break
        if 2 * n_running <= len(own.components):
            own = keep_chosen(own, state.part, work.running)
        multiply(state, own, work)
        n_running = _advance(own.components, own.variables, handle, x)


@leaf
def _begin(
    components: IntArray, moving: Variables, fixed: Variables, handle: Any, x: FloatArray
) -> int:
    """Finish the variables that cannot move; return the number of components with a residual.

    Also writes ``C`` times the first direction to the inputs.
    """
    links, work = problem_at(handle).links, face_workspace_at(handle)
    for v in fixed:
        x[v] -= work.residual[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            work.inputs[links.order[e]] = 0.0
    for c in components:
        work.size[c] = 0.0
    for v in moving:
        work.size[links.component[v]] += work.residual[v] * work.residual[v]
        _set_direction(v, work.residual[v], links, work)
    n_running, faulty = 0, False
    for c in components:
        work.running[c] = work.size[c] > work.target[c]
        n_running += work.running[c]
        faulty |= np.isnan(work.size[c])
    if faulty:  # a type multiplied by NaN
        for v in moving:
            x[v] += work.residual[v]
    return n_running


@leaf
def _set_direction(v: np.uint64, direction: float, links: Links, work: FaceWorkspace) -> None:
    """Write the direction of a variable, and its copies on the links to the inputs."""
    work.direction[v] = direction
    copy = direction / links.root_degree[v]
    for e in range(links.offsets[v], links.offsets[v + ONE]):
        work.inputs[links.order[e]] = -copy if links.negated[e] else copy


@leaf
def _advance(components: IntArray, variables: Variables, handle: Any, x: FloatArray) -> int:
    """Take one step of conjugate gradients; return the number of running components.

    The outputs hold ``J C`` times the direction, and the inputs get ``C`` times the next one.
    """
    links, work = problem_at(handle).links, face_workspace_at(handle)
    component, residual = links.component, work.residual
    direction, image = work.direction, work.image
    size, next_size, curvature, running = work.size, work.next_size, work.curvature, work.running
    for c in components:
        curvature[c] = next_size[c] = 0.0
    for v in variables:
        total = 0.0
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            value = work.outputs[links.order[e]]
            total += -value if links.negated[e] else value
        image[v] = direction[v] - total / links.root_degree[v]
        curvature[component[v]] += direction[v] * image[v]
        next_size[component[v]] += direction[v] * direction[v]
    for c in components:
        # I - S is positive on its range; the rounding of a residual may lie in its null space
        in_range = curvature[c] > FLAT * next_size[c]
        curvature[c] = size[c] / curvature[c] if running[c] and in_range else 0.0
        next_size[c] = 0.0
    for v in variables:
        c = component[v]
        x[v] -= curvature[c] * direction[v]
        residual[v] -= curvature[c] * image[v]
        next_size[c] += residual[v] * residual[v]
    n_running = 0
    for c in components:
        if running[c]:
            running[c] = next_size[c] > work.target[c] and curvature[c] > 0.0
            n_running += running[c]
            curvature[c] = next_size[c] / size[c]
            size[c] = next_size[c]
    for v in variables:
        _set_direction(v, residual[v] + curvature[component[v]] * direction[v], links, work)
    return n_running
