"""A part's problem and the explicit state of the loop that solves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel
from lpsmap_core.layout import Part
from lpsmap_core.local import LocalSolver, local_solver

__all__ = ["Iterate", "Links", "Options", "PartState", "Progress", "Selection", "start", "sums"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FIRST_STEP_SIZE = 5.0
"""First step size for scores near zero; it grows with their root mean square."""

MOST_STRUCTURES = 1000
"""Active-set iterations for one factor, unless asked otherwise. Nearly uniform scores have
solutions of thousands of structures, whose Gram matrices would fill the memory."""

FORBIDDEN = 1e6
"""A forbidden variable's score, as a multiple of the largest magnitude of scores (at least 1)."""


@dataclass(frozen=True)
class Options:
    """Limits and settings of a solve; see `FactorGraph.solve`."""

    max_iter: int = 1000
    max_inner_iter: int | None = None
    tol: float = 1e-6
    step_size: float | None = None
    adapt: bool = True
    generic: bool = False
    trace: bool = False


class Links(NamedTuple):
    """A part's structure as the kernels read it."""

    offsets: IntArray
    links: IntArray
    component: IntArray
    sign: FloatArray
    shift: FloatArray


class Iterate(NamedTuple):
    """The loop's state on variables and links."""

    score: FloatArray
    """eta / delta, one a variable."""
    u: FloatArray
    dual: FloatArray
    a: FloatArray
    z: FloatArray


class Progress(NamedTuple):
    """The loop's state on components."""

    gamma: FloatArray
    primal: FloatArray
    """Largest |mu_v - (M p)_l| of the last iteration."""
    change: FloatArray
    """Largest gamma |mu_v - previous mu_v|, likewise."""
    iterations: IntArray
    converged: BoolArray
    infeasible: BoolArray


class Selection(NamedTuple):
    """Some components of a part: their numbers, their variables, their rows of every bucket."""

    components: IntArray
    variables: IntArray
    rows: list[IntArray]


@dataclass
class PartState:
    """A solved part: the iterate, and the solvers that hold the faces of its factors."""

    part: Part
    eta: FloatArray
    """Scores of the part's variables; a forbidden one has a finite, hugely negative score."""
    eta_v: list[FloatArray]
    """Scores of every bucket's additionals."""
    scaled_v: list[FloatArray]
    """The same over 1 + gamma, as the local problems see them."""
    huge: float
    solvers: list[LocalSolver]
    links: Links
    iterate: Iterate
    v: list[FloatArray]
    progress: Progress
    everything: Selection
    faces_complete: bool = False
    trace: list[FloatArray] = field(default_factory=list)
    """For every iteration the (2, n_components) residuals, if they are to be kept."""

    def select(self, chosen: BoolArray) -> Selection:
        """Return the selection of the chosen components."""
        if chosen.all():
            return self.everything
        return Selection(
            np.flatnonzero(chosen),
            np.flatnonzero(chosen[self.part.component]),
            [np.flatnonzero(chosen[bucket.component]) for bucket in self.part.buckets],
        )

    def solve_locally(
        self,
        rows: Sequence[IntArray],
        max_inner_iter: int,
    ) -> None:
        """Solve the local problems of some rows of every bucket at the current local scores."""
        starts, iterate = self.part.starts, self.iterate
        for b, solver in enumerate(self.solvers):
            if rows[b].size:
                links = slice(starts[b], starts[b + 1])
                solver.solve(
                    rows[b],
                    iterate.a[links],
                    self.scaled_v[b],
                    iterate.z[links],
                    self.v[b],
                    max_inner_iter,
                    self.huge,
                )

    def unsolved(self) -> BoolArray:
        """Return the components in which a factor's latest local problem is not solved."""
        unsolved = np.zeros(self.part.n_components, dtype=bool)
        for b, solver in enumerate(self.solvers):
            rows = solver.unsolved()
            if rows.size:
                unsolved[self.part.buckets[b].component[rows]] = True
        return unsolved

    def scale_additionals(self, components: BoolArray) -> None:
        """Write the local scores of the additionals, eta_N / (1 + gamma), of some components."""
        for b, bucket in enumerate(self.part.buckets):
            if self.eta_v[b].size:
                _scale_rows(
                    components,
                    bucket.additional_offsets,
                    bucket.component,
                    self.progress.gamma,
                    self.eta_v[b],
                    self.scaled_v[b],
                )

    def complete_faces(self) -> None:
        """Prepare the faces of converged components for derivatives; at most once."""
        if self.faces_complete:
            return
        self.faces_complete = True
        for b, (bucket, solver) in enumerate(zip(self.part.buckets, self.solvers, strict=True)):
            links = slice(self.part.starts[b], self.part.starts[b + 1])
            rows = np.flatnonzero(self.progress.converged[bucket.component])
            a, z = self.iterate.a[links], self.iterate.z[links]
            solver.complete_faces(rows, a, self.scaled_v[b], z, self.huge)

    def marginals(self) -> FloatArray:
        """Return the means of the variables' copies, in [0, 1]."""
        means = np.empty(self.part.n_variables)
        _means(self.links, self.iterate.z, means)
        return means


def start(part: Part, eta: FloatArray, eta_v: list[FloatArray], options: Options) -> PartState:
    """Return the state before the first iteration; scores of ``-inf`` become finite."""
    scale = max([1.0, *(_largest(x) for x in [eta, *eta_v])])
    forbidden = any(np.isneginf(x).any() for x in [eta, *eta_v])
    given = options.step_size
    gamma = _first_step_size(part, eta) if given is None else np.full(part.n_components, given)
    eta = np.where(np.isneginf(eta), -FORBIDDEN * scale, eta)
    eta_v = [np.where(np.isneginf(x), -FORBIDDEN * scale, x) for x in eta_v]
    n = part.n_components
    return PartState(
        part=part,
        eta=eta,
        eta_v=eta_v,
        scaled_v=[np.empty_like(x) for x in eta_v],
        huge=0.1 * FORBIDDEN * scale if forbidden else np.inf,
        solvers=[
            local_solver(bucket, part.delta[lo:hi], options.generic)
            for bucket, lo, hi in zip(part.buckets, part.starts[:-1], part.starts[1:], strict=True)
        ],
        links=Links(
            part.variable_offsets, part.variable_links, part.component, part.sign, part.shift
        ),
        iterate=Iterate(
            score=eta / np.sqrt(np.diff(part.variable_offsets)),
            u=np.zeros(part.n_variables),
            dual=np.zeros(part.n_links),
            a=np.empty(part.n_links),
            z=np.zeros(part.n_links),
        ),
        v=[np.zeros_like(x) for x in eta_v],
        progress=Progress(
            gamma=np.where(part.direct, 0.0, gamma),
            primal=np.full(n, np.inf),
            change=np.full(n, np.inf),
            iterations=np.zeros(n, dtype=np.int64),
            converged=np.zeros(n, dtype=bool),
            infeasible=np.zeros(n, dtype=bool),
        ),
        everything=Selection(
            np.arange(n),
            np.arange(part.n_variables),
            [np.arange(bucket.n_factors) for bucket in part.buckets],
        ),
    )


def _first_step_size(part: Part, eta: FloatArray) -> FloatArray:
    """Return a multiple of the scores' scale, as large as the duals have to become."""
    allowed = np.isfinite(eta)
    component = part.component[allowed]
    scale = np.ones(part.n_components)
    np.maximum.at(scale, component, np.abs(eta[allowed]))
    squares = sums(component, (eta[allowed] / scale[component]) ** 2, part.n_components)
    count = np.bincount(component, minlength=part.n_components)
    return FIRST_STEP_SIZE * scale * np.sqrt(scale**-2.0 + squares / np.maximum(count, 1))


def _largest(scores: FloatArray) -> float:
    """Return the largest magnitude of finite scores."""
    return float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0))


@kernel
def _scale_rows(
    chosen: BoolArray,
    offsets: IntArray,
    component: IntArray,
    gamma: FloatArray,
    scores: FloatArray,
    scaled: FloatArray,
) -> None:
    """Write scores / (1 + gamma), with the step size of each factor's component."""
    for f in range(len(component)):
        if chosen[component[f]]:
            factor = 1.0 / (1.0 + gamma[component[f]])
            for i in range(offsets[f], offsets[f + 1]):
                scaled[i] = scores[i] * factor


def sums(owner: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of some values by their owners 0 to n - 1."""
    return np.bincount(owner, values, minlength=n).astype(np.float64, copy=False)


@kernel
def _means(links: Links, z: FloatArray, means: FloatArray) -> None:
    """Write every variable's mean copy, in units of marginals."""
    for v in range(len(means)):
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            link = links.links[e]
            total += links.sign[link] * z[link] + links.shift[link]
        means[v] = min(1.0, max(0.0, total / np.sqrt(float(hi - lo))))
