"""The loop: LP-SparseMAP of one part by ADMM (Niculae & Martins 2020, Algorithm 1).

Per iteration every bucket solves its local problems in one call; then one pass over the variables
averages their copies, updates the duals and writes the next local scores. With the sign of the
paper's line 6 put right, for a variable v, its links l and its factors f::

    a_l = (eta_v / delta_v + lambda_l + gamma u_v) / (1 + gamma)
    z_f = the local solution at (a, eta_N / (1 + gamma))
    u_v = mean over the links l of v of z_l
    lambda_l += gamma (u_v - z_l)

with over-relaxation, a step size for every component that balances its two residuals, and a polish
once the faces have settled. Convergence is judged component by component, and a finished component
drops out. A component of one factor has step size 0, which makes its first iteration the solution.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel
from lpsmap_core.infeasible import InfeasibilityTest
from lpsmap_core.layout import Part
from lpsmap_core.polish import Polisher
from lpsmap_core.state import (
    MOST_STRUCTURES,
    Iterate,
    Links,
    Options,
    PartState,
    Progress,
    start,
)

__all__ = ["solve_part"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

RELAXATION = 1.6
"""Of 1, 1.6 and 1.8 this took the fewest iterations on most workloads."""

BALANCE_PERIOD = 10
BALANCE_RATIO = 5.0
BALANCE_FACTOR = 2.0
"""Every so many iterations, a step size changes by the factor if its residuals differ by the
ratio.
"""

INNER_ITERATIONS = 5
"""Active-set iterations for a factor in one outer iteration, unless asked otherwise. Early local
problems need not be solved to the end, since their sets are warm when the next ones come; but no
component converges before its local problems are solved."""

WIDEST_RANGE = 1e4
"""A step size stays within this factor of its first value."""


def solve_part(
    part: Part, eta: FloatArray, eta_v: list[FloatArray], skip: BoolArray, options: Options
) -> PartState:
    """Solve one part.

    Parameters
    ----------
    part
        The part.
    eta
        Scores of its variables, finite or ``-inf``.
    eta_v
        Scores of every bucket's additionals, likewise.
    skip
        Components to leave out.
    options
        Limits and settings.
    """
    state = start(part, eta, eta_v, options)
    coupled = ~part.direct
    if not coupled.all():
        limit = options.max_inner_iter or MOST_STRUCTURES
        _Loop(state, options, part.direct & ~skip).step(limit)
    loop = _Loop(state, options, coupled & ~skip)
    inner = options.max_inner_iter or INNER_ITERATIONS
    while loop.selection.components.size and loop.iteration < options.max_iter:
        loop.step(inner)
        if options.trace:
            state.trace.append(np.stack([state.progress.primal, state.progress.change]))
    return state


class _Loop:
    """The running components of a part, and one iteration on them."""

    def __init__(self, state: PartState, options: Options, chosen: BoolArray) -> None:
        self.state = state
        self.options = options
        self.chosen = chosen
        self.iteration = 0
        self.first_gamma = state.progress.gamma.copy()
        self.polisher = Polisher(state, options.tol)
        self.infeasibility = InfeasibilityTest(state)
        self._choose()
        self._rescale(self.running)

    def step(self, max_inner_iter: int) -> None:
        """Do one iteration on the running components; drop those that are finished."""
        self.iteration += 1
        state, progress = self.state, self.state.progress
        state.solve_locally(self.selection.rows, max_inner_iter)
        unsolved = state.unsolved()
        moved = self._polish(unsolved)
        others = self.selection if moved is None else state.select(self.running & ~moved)
        finished, rescaled = _finish(
            others.variables,
            others.components,
            state.links,
            state.iterate,
            progress,
            self.first_gamma,
            unsolved,
            self.iteration,
            self.options.tol,
            self.options.adapt and self.iteration % BALANCE_PERIOD == 0,
        )
        if moved is None:
            self._rescale(self.polisher.take_back())
        if self.infeasibility.found(self.iteration, self.selection.rows, self.running):
            finished = True
        if finished:
            self._choose()
        if rescaled:
            self._rescale(self.running)

    def _polish(self, unsolved: BoolArray) -> BoolArray | None:
        """Polish components whose faces have settled; return which moved, or None."""
        if not self.options.adapt:
            return None
        moved = self.polisher.after_local_solve(self.iteration, self.running & ~unsolved)
        self._rescale(moved)
        return moved

    def _choose(self) -> None:
        """Find what still runs."""
        progress = self.state.progress
        self.running = self.chosen & ~(progress.converged | progress.infeasible)
        self.selection = self.state.select(self.running)

    def _rescale(self, components: BoolArray | None) -> None:
        """Write the local scores of components whose iterate or step size changed."""
        if components is None:
            return
        state = self.state
        variables = state.select(components).variables
        _rescore(variables, state.links, state.progress.gamma, state.iterate)
        state.scale_additionals(components)


# -------------------------------------------------------------------- kernels


@kernel
def _rescore(variables: IntArray, links: Links, gamma: FloatArray, iterate: Iterate) -> None:
    """Write the local scores of the current iterate."""
    for v in variables:
        g = gamma[links.component[v]]
        base = iterate.score[v] + g * iterate.u[v]
        inverse = 1.0 / (1.0 + g)
        for e in range(links.offsets[v], links.offsets[v + 1]):
            link = links.links[e]
            # to the last bit as in _average: whether it runs depends on other components
            a = links.sign[link] * (base + iterate.dual[link]) * inverse
            iterate.a[link] = a + links.shift[link]


@kernel
def _finish(
    variables: IntArray,
    components: IntArray,
    links: Links,
    iterate: Iterate,
    progress: Progress,
    first_gamma: FloatArray,
    unsolved: BoolArray,
    iteration: int,
    tol: float,
    balance: bool,
) -> tuple[bool, bool]:
    """Finish an iteration after its local solves.

    Averages the copies of every variable, updates the duals and writes the next local scores; then
    judges the components. Returns whether one converged, and whether a step size changed.
    """
    for c in components:
        progress.iterations[c] = iteration
        progress.primal[c] = progress.change[c] = 0.0
    _average(variables, links, iterate, progress)
    finished, rescaled = False, False
    for c in components:
        primal, change = progress.primal[c], progress.change[c]
        if primal <= tol and change <= tol and not unsolved[c]:
            progress.converged[c] = True
            finished = True
        elif balance:
            rescaled |= _balance(c, primal, change, first_gamma, progress)
    return finished, rescaled


@kernel
def _average(variables: IntArray, links: Links, iterate: Iterate, progress: Progress) -> None:
    """Average the copies of every variable, update the duals, write the next local scores."""
    primal, change = progress.primal, progress.change
    for v in variables:
        c = links.component[v]
        g = progress.gamma[c]
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            link = links.links[e]
            total += links.sign[link] * iterate.z[link] + links.shift[link]
        mean = total / (hi - lo)
        previous = iterate.u[v]
        relax = RELAXATION if g > 0.0 else 1.0
        relaxed = relax * mean + (1.0 - relax) * previous
        iterate.u[v] = relaxed
        base = iterate.score[v] + g * relaxed
        inverse, step = 1.0 / (1.0 + g), relax * g
        largest = 0.0
        for e in range(lo, hi):
            link = links.links[e]
            sign, shift = links.sign[link], links.shift[link]
            gap = mean - (sign * iterate.z[link] + shift)
            largest = max(largest, abs(gap))
            dual = iterate.dual[link] + step * gap
            iterate.dual[link] = dual
            iterate.a[link] = sign * (base + dual) * inverse + shift
        delta = np.sqrt(float(hi - lo))
        primal[c] = max(primal[c], delta * largest)
        change[c] = max(change[c], g * delta * abs(mean - previous))


@kernel
def _balance(
    c: int, primal: float, change: float, first_gamma: FloatArray, progress: Progress
) -> bool:
    """Change a component's step size if its residuals differ much; return whether it did."""
    if primal > BALANCE_RATIO * change:
        gamma = progress.gamma[c] * BALANCE_FACTOR
    elif change > BALANCE_RATIO * primal:
        gamma = progress.gamma[c] / BALANCE_FACTOR
    else:
        return False
    if not first_gamma[c] / WIDEST_RANGE <= gamma <= first_gamma[c] * WIDEST_RANGE:
        return False
    progress.gamma[c] = gamma
    return True
