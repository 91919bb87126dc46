"""The operator of the current faces, ``I - S``, and the conjugate gradients that invert it.

With ``C`` the scaled copies of the variables on the links (``(C mu)_l = mu_v / delta_v``, negated
where the slot is) and ``J`` the local Jacobians on the faces that the local solvers hold, ``S = C^T
J C``. ``J`` is an orthogonal projection, so that ``I - S`` is symmetric with eigenvalues in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel
from lpsmap_core.state import Links, PartState, sums

__all__ = ["FaceOperator"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class FaceOperator:
    """``I - S`` on the chosen components of a solved or half-solved part.

    Parameters
    ----------
    state
        The part, whose local solvers hold the faces.
    chosen
        Components to treat. Entries of other components are neither read nor written.
    """

    def __init__(self, state: PartState, chosen: BoolArray) -> None:
        self.state = state
        part = state.part
        self.inputs = np.zeros(part.n_links)
        self.outputs = np.zeros(part.n_links)
        self.no_v = [np.zeros_like(v) for v in state.v]
        self.outputs_v = [np.zeros_like(v) for v in state.v]
        self.choose(chosen)

    def choose(self, chosen: BoolArray) -> None:
        """Restrict the operator to some components."""
        self.chosen = chosen
        _, self.variables, self._rows = self.state.select(chosen)

    def scatter(self, x: FloatArray) -> None:
        """Write ``C x`` to the links' inputs."""
        _scatter(self.variables, self.state.links, x, self.inputs)

    def gather(self, values: FloatArray) -> FloatArray:
        """Return ``C^T`` times numbers on the links."""
        out = np.zeros(self.state.part.n_variables)
        _gather(self.variables, self.state.links, values, out)
        return out

    def multiply_locally(self, d_v: Sequence[FloatArray]) -> None:
        """Write the local Jacobians' products with the links' inputs and `d_v` to the outputs."""
        starts = self.state.part.starts
        for b, solver in enumerate(self.state.solvers):
            links = slice(starts[b], starts[b + 1])
            if self._rows[b].size:
                solver.jvp(
                    self._rows[b],
                    self.inputs[links],
                    d_v[b],
                    self.outputs[links],
                    self.outputs_v[b],
                )

    def multiply(self, x: FloatArray, out: FloatArray) -> None:
        """Write ``(I - S) x``."""
        _scatter(self.variables, self.state.links, x, self.inputs)
        self.multiply_locally(self.no_v)
        _subtract_gathered(self.variables, self.state.links, self.outputs, x, out)

    def defect(self) -> FloatArray:
        """Return for each component how far the last outputs are from being left as they are.

        ``||J J y - J y||``, of a projection `J` zero up to rounding.
        """
        part = self.state.part
        self.inputs[:], before = self.outputs, self.outputs.copy()
        self.multiply_locally(self.no_v)
        change = self.outputs - before
        owner = part.component[part.link_variable]
        return np.sqrt(sums(owner, change * change, part.n_components))

    def reduce(
        self, x: FloatArray, residual: FloatArray, target: FloatArray, max_products: int
    ) -> BoolArray:
        """Subtract from `x` the least-norm y with ``(I - S) y = residual``, by conjugate gradients.

        All vectors but `x` stay in the range of ``I - S``: its null space, where the answer may
        have a large part, cannot spoil the inner products.

        Parameters
        ----------
        x
            Changed in place.
        residual
            In the range of ``I - S``; overwritten.
        target
            For each component, the norm of the residual at which it is done.
        max_products
            Limit of products with the operator.

        Returns
        -------
        running
            The components that did not get there; their `x` is the last approximation.
        """
        component, chosen = self.state.part.component, self.chosen
        squared = target * target
        size = sums(component, residual * residual, len(target))
        direction, image = residual.copy(), np.zeros_like(x)
        running = chosen & (size > squared)
        selected = n_running = int(np.count_nonzero(running))
        if n_running:
            self.choose(running.copy())
        for _ in range(max_products):
            if not n_running:
                break
            if 2 * n_running < selected:  # choosing costs about as much as a product
                self.choose(running.copy())
                selected = n_running
            self.multiply(direction, image)
            n_running = _advance(
                self.variables, component, squared, x, residual, direction, image, size, running
            )
        self.choose(chosen)
        return running


# -------------------------------------------------------------------- kernels


@kernel
def _scatter(variables: IntArray, links: Links, x: FloatArray, out: FloatArray) -> None:
    """Write the scaled, signed copies of x on the links."""
    for v in variables:
        lo, hi = links.offsets[v], links.offsets[v + 1]
        copy = x[v] / np.sqrt(float(hi - lo))
        for e in range(lo, hi):
            link = links.links[e]
            out[link] = links.sign[link] * copy


@kernel
def _gather(variables: IntArray, links: Links, values: FloatArray, out: FloatArray) -> None:
    """Write the transpose of `_scatter`."""
    for v in variables:
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            link = links.links[e]
            total += links.sign[link] * values[link]
        out[v] = total / np.sqrt(float(hi - lo))


@kernel
def _subtract_gathered(
    variables: IntArray, links: Links, values: FloatArray, x: FloatArray, out: FloatArray
) -> None:
    """Write x less the gathered values."""
    for v in variables:
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            link = links.links[e]
            total += links.sign[link] * values[link]
        out[v] = x[v] - total / np.sqrt(float(hi - lo))


@kernel
def _advance(
    variables: IntArray,
    component: IntArray,
    target: FloatArray,
    x: FloatArray,
    residual: FloatArray,
    direction: FloatArray,
    image: FloatArray,
    size: FloatArray,
    running: BoolArray,
) -> int:
    """Take one step of conjugate gradients in every running component among the variables'.

    ``size`` and ``target`` are squared norms of the residuals. Clears ``running`` where a component
    arrived and returns how many still run.
    """
    n = len(size)
    curvature, new_size = np.zeros(n), np.zeros(n)
    for v in variables:
        curvature[component[v]] += direction[v] * image[v]
    step, memory = np.zeros(n), np.zeros(n)
    for c in range(n):
        if running[c] and curvature[c] > 0.0:  # I - S is positive on its range, up to rounding
            step[c] = size[c] / curvature[c]
    for v in variables:
        c = component[v]
        x[v] -= step[c] * direction[v]
        residual[v] -= step[c] * image[v]
        new_size[c] += residual[v] * residual[v]
    n_running = 0
    for c in range(n):
        if running[c]:
            memory[c] = new_size[c] / size[c]
            size[c] = new_size[c]
            running[c] = new_size[c] > target[c] and curvature[c] > 0.0
            n_running += running[c]
    for v in variables:
        direction[v] = residual[v] + memory[component[v]] * direction[v]
    return n_running
