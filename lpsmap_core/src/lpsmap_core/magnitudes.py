"""Scores of any magnitude: what is far larger than the rest of its component decides first.

A mask of -1e9 says "never", and so do most scores that are a hundred times all others. Added to
them, the others would lose their digits, and the loop would walk for as long as the multipliers
are large. So a component whose scores fall into *base* and *huge* ones is solved without the huge
ones, and whether that is the solution is then asked of the factors:

- Huge negative scores are forbidden. The solution is the true one if no factor's best structure, at
  the multipliers found and the true scores, holds what was forbidden.
- Where a factor cannot do without them (a padded row, masked entirely), or where they are positive,
  they are *released*: with c their levels in units of the largest, their scores become what sets
  those of a level apart, plus a moderate multiple K c. With N the normal cone of the constraints at
  the solution mu, ``e + K c - mu`` is in N. If c is in N, too, then so is ``e + M c - mu`` for all
  M > K, since N is a convex cone: mu is the true solution. That is so exactly if mu is its own
  projection ``argmax <mu + K c, x> - 1/2 ||x||^2``, which is solved to find out.

What neither proves is solved as it stands up to scores of `LARGEST`; beyond, the component is said
to be more than float64 can hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.active_set import ActiveSets
from lpsmap_core.admm import deadline_of, run, solve_part
from lpsmap_core.arrangement import Blocks
from lpsmap_core.certificate import best_vertices
from lpsmap_core.compile import leaf
from lpsmap_core.forced import ORACLE
from lpsmap_core.infeasible import factor_of_links, holders
from lpsmap_core.layout import Part
from lpsmap_core.local import local_solver
from lpsmap_core.state import (
    MOST_STRUCTURES,
    Options,
    PartState,
    WarmStart,
    first_step_sizes,
    restart,
    start,
)

__all__ = ["LARGEST", "solve_on_any_scale"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

RATIO = 100.0
"""Scores are huge if they are as many times as large as the largest of all smaller ones."""

LARGEST = 1e8
"""Scores up to this are solved as they are, where nothing better is proven."""

PENALTIES = (1e3, 1e6)
"""Multiples K of the base scores that stand in for released scores, tried one after the other."""

MOST_FINITE = float(np.finfo(np.float64).max)

MOST_ROUNDS = 6
"""Limit of the solves of a component, each with other scores forbidden or released."""

MOVED = 1e-7
"""A projection that moves the solution by more, and by ten times the tolerance, disproves it."""

HELD = 1e-9
"""Share of a structure above which it holds a forbidden entry."""


def solve_on_any_scale(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> PartState:
    """Solve one part, whatever the magnitudes of its scores; the arguments are `solve_part`'s."""
    largest = np.empty(part.n_components)
    _largest_finite(part.blocks, eta, eta_v, largest)
    largest[skip] = 0.0
    if not (largest > RATIO).any():
        return solve_part(part, eta, eta_v, skip, options, warm)
    split = Split(part, np.concatenate([eta, eta_v]), largest)
    if not split.considered.any():
        state = solve_part(part, eta, eta_v, skip, options, warm)
    else:
        state = _solve_split(split, skip, options, warm)
    state.shrunk = split.shrunk
    state.imprecise = split.unproven | ((largest > LARGEST) & ~split.proven)
    return state


class Split:
    """Base and huge scores, over the variables and then the additionals of a part."""

    def __init__(self, part: Part, scores: FloatArray, largest: FloatArray) -> None:
        self.part, self.scores, self.largest = part, scores, largest
        self.owner = np.concatenate([part.component, part.additional_component])
        n = part.n_components
        self.cut, self.base = np.zeros(n), np.ones(n)
        self.penalty = np.full(n, PENALTIES[0])
        self.proven, self.unproven = np.zeros((2, n), dtype=bool)
        self.huge = np.zeros(len(scores), dtype=bool)
        self.released = self.huge.copy()
        self.considered = np.zeros(n, dtype=bool)
        self.raise_cut(largest > RATIO)

    @property
    def withheld(self) -> BoolArray:
        """Which scores are forbidden for being huge and negative."""
        return self.huge & ~self.released

    def raise_cut(self, chosen: BoolArray) -> BoolArray:
        """Take the next gap in some components' magnitudes for the cut; return which have one."""
        cut, base = self.cut.copy(), np.ones(len(self.cut))
        n_variables = self.part.n_variables
        eta, eta_v = self.scores[:n_variables], self.scores[n_variables:]
        _next_gap(self.part.blocks, eta, eta_v, chosen, cut, base)
        found = chosen & np.isfinite(cut)
        huge = np.isfinite(self.scores) & (np.abs(self.scores) >= cut[self.owner])
        positive = np.zeros(len(cut), dtype=bool)
        positive[self.owner[huge & (self.scores > 0.0)]] = True
        narrow = (base > 1.0) | (self.largest - cut <= cut / RATIO)
        found &= (self.largest > LARGEST) | (~positive & narrow)
        self.cut[found], self.base[found] = cut[found], base[found]
        self.considered |= found
        of_found = found[self.owner]
        self.huge[of_found] = huge[of_found]
        self.released[of_found] = (huge & (self.scores > 0.0))[of_found]
        return found

    @property
    def shrunk(self) -> FloatArray:
        """How many times the released scores are as large as what stands in for them."""
        if not self.released.any():
            return np.ones(len(self.cut))
        _, _, multiple = self.levels()
        ratio, largest = np.ones(len(self.cut)), self.largest[self.owner]
        of = self.released
        np.maximum.at(ratio, self.owner[of], largest[of] / multiple[of])
        return ratio

    def give_up(self, chosen: BoolArray) -> None:
        """Take some components as they are."""
        self.huge[chosen[self.owner]] = False
        self.released[chosen[self.owner]] = False
        self.considered[chosen] = False

    def reduced(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores to solve, of variables and additionals."""
        scores = np.where(self.withheld, -np.inf, self.scores)
        if self.released.any():
            level, rest, multiple = self.levels()
            scores = np.where(self.released, rest + multiple * level, scores)
        return self._parted(scores)

    def penalties(self, marginals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return marginals plus the multiple K c of the levels, to project; see the module."""
        level, _, multiple = self.levels()
        scores = np.concatenate([marginals, np.zeros(len(level) - len(marginals))])
        scores += np.where(self.withheld, -self.penalty[self.owner], multiple * level)
        return self._parted(np.where(np.isneginf(self.scores), -np.inf, scores))

    def levels(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return for every entry the level of its group, what sets it apart, and the multiple K.

        Released scores of a component form a group where they differ by base scores only.
        """
        level, rest = np.zeros(len(self.scores)), np.where(self.released, 0.0, self.scores)
        released = np.flatnonzero(self.released)
        order = released[np.lexsort((self.scores[released], self.owner[released]))]
        scores, owner = self.scores[order], self.owner[order]
        with np.errstate(over="ignore"):
            apart = np.diff(scores) > RATIO * self.base[owner[1:]]
        begins = np.flatnonzero(np.concatenate([[True], apart | (np.diff(owner) > 0)]))
        length = np.diff(np.append(begins, len(order)))
        # the score nearest to zero, so that differences stay exact
        nearest = np.where(scores[begins] > 0.0, begins, begins + length - 1)
        level[order] = np.repeat(scores[nearest], length)
        rest[order] = scores - level[order]
        size, top = self.base.copy(), np.ones(len(self.base))
        np.maximum.at(size, owner, np.abs(rest[order]))
        np.maximum.at(top, owner, np.abs(level[order]))
        return level / top[self.owner], rest, (self.penalty * size)[self.owner]

    def _parted(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        n_variables = self.part.n_variables
        return scores[:n_variables], scores[n_variables:]


# -------------------------------------------------------------------- rounds of solves


def _solve_split(
    split: Split, skip: BoolArray, options: Options, warm: WarmStart | None
) -> PartState:
    """Solve with huge scores forbidden or released, until what was found is proven."""
    part, deadline = split.part, deadline_of(options)
    state = start(part, *split.reduced(), options, warm)
    _release_needed(state, split, options)
    chosen, spent = ~skip, np.zeros(part.n_components, dtype=np.int64)
    progress = state.problem.progress
    for _ in range(MOST_ROUNDS):
        run(state, chosen, options, deadline)
        chosen = _mend(state, split, chosen, options)
        if state.out_of_time or not chosen.any():
            break
        spent[chosen] += progress.iterations[chosen]
        restart(state, chosen, *split.reduced(), options)
    progress.iterations[:] += spent
    split.unproven |= chosen & progress.converged
    return state


def _release_needed(state: PartState, split: Split, options: Options) -> None:
    """Release the huge scores that some factor cannot do without, or look only at larger ones."""
    while split.withheld.any():
        factors = _needing(state, _owning(split, split.withheld))
        held = _entries_of(state, factors) & split.withheld
        needing = _owning(split, held)
        if not needing.any():
            return
        raised = split.raise_cut(needing)
        held &= ~raised[split.owner]
        split.released |= held
        restart(state, needing, *split.reduced(), options)
        _charge(state, split, factors, held, options)


def _charge(
    state: PartState, split: Split, factors: BoolArray, held: BoolArray, options: Options
) -> None:
    """Start from duals that charge the released scores to the factors that need them.

    The others see base scores only, so that step sizes are as for these. What a factor needs in
    all its structures costs it a constant.
    """
    part, n_variables = state.part, split.part.n_variables
    iterate, progress = state.problem.iterate, state.problem.progress
    level, rest, multiple = split.levels()
    degree = np.diff(part.variable_offsets)
    of_link = np.repeat(np.arange(n_variables), degree)  # in the order of the variables
    pays = (factors[factor_of_links(state)])[part.variable_links] & held[of_link]
    payers, first = np.unique(of_link[pays], return_index=True)
    share = np.zeros(n_variables)
    share[payers] = (multiple * level)[payers] / part.root_degree[payers]
    chosen = np.zeros(n_variables, dtype=bool)
    chosen[payers] = True
    dual = -share[of_link]
    dual[np.flatnonzero(pays)[first]] += (share * degree)[payers]
    np.copyto(iterate.dual, dual, where=chosen[of_link])
    components = np.zeros(part.n_components, dtype=bool)
    components[part.component[payers]] = True
    gamma = first_step_sizes(part, np.where(split.withheld, -np.inf, rest)[:n_variables], options)
    for sizes in (progress.gamma, progress.first_gamma):
        np.copyto(sizes, gamma, where=components)


def _mend(state: PartState, split: Split, solved: BoolArray, options: Options) -> BoolArray:
    """Change what is forbidden or released where the solution is not proven; return where."""
    progress = state.problem.progress
    withheld, released = _owning(split, split.withheld), _owning(split, split.released)
    needing = holders(state, state.problem.iterate.z, state.problem.extras.v)
    lacking = np.zeros(len(solved), dtype=bool)
    lacking[state.problem.blocks.component[needing]] = True
    lacking = solved & withheld & (progress.infeasible | lacking)
    judged = solved & progress.converged & ~lacking
    unjustified = _wanted(state, split, judged & withheld)
    doubtful = _owning(split, unjustified)
    unproven = _unproven(state, split, judged & released & ~doubtful, options)
    split.proven |= judged & (withheld | released) & ~doubtful & ~unproven
    split.released |= lacking[split.owner] & split.withheld
    last = unproven & (split.penalty >= PENALTIES[-1])
    split.penalty[unproven] = PENALTIES[-1]
    plain = (doubtful | last) & (split.largest <= LARGEST)
    split.released |= unjustified & ~plain[split.owner]
    split.give_up(plain)
    state.contradicting = {c: f for c, f in state.contradicting.items() if not lacking[c]}
    return lacking | doubtful | (unproven & ~last) | plain


def _owning(split: Split, entries: BoolArray) -> BoolArray:
    """Return the components of some entries."""
    found = np.zeros(split.part.n_components, dtype=bool)
    found[split.owner[entries]] = True
    return found


# -------------------------------------------------------------------- what factors say


def _needing(state: PartState, chosen: BoolArray) -> BoolArray:
    """Return the factors of which every structure holds something forbidden."""
    part = state.part
    slots = part.sign * np.where(state.forbidden, -np.inf, 0.0)[part.link_variable]
    scores_v = np.where(state.problem.extras.barred, -np.inf, 0.0)
    w, n = _best_structures(state, chosen, slots, scores_v)
    return holders(state, w / part.delta, n) & chosen[state.problem.blocks.component]


def _wanted(state: PartState, split: Split, chosen: BoolArray) -> BoolArray:
    """Return withheld entries that some factor's best structure holds at their true scores."""
    part, extras, n_variables = state.part, state.problem.extras, state.part.n_variables
    held = np.zeros(len(split.scores), dtype=bool)
    if not chosen.any():
        return held
    withheld = split.withheld[:n_variables][part.link_variable]
    share = (split.scores[:n_variables] / part.root_degree**2)[part.link_variable]
    slope = (state.slot_scores() - state.problem.iterate.z) / part.delta
    slots = np.where(withheld, part.sign * share, slope)
    true_v, withheld_v = split.scores[n_variables:], split.withheld[n_variables:]
    barred = np.where(extras.barred, -np.inf, extras.eta)
    w, n = _best_structures(state, chosen, slots, np.where(withheld_v, true_v, barred))
    own = part.sign * w + (part.sign < 0.0)
    held[part.link_variable[withheld & (own > HELD)]] = True
    held[n_variables:] = withheld_v & (n > HELD)
    return held & chosen[split.owner]


def _best_structures(
    state: PartState, chosen: BoolArray, slots: FloatArray, scores_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the best structures of some components' factors, dense, for scores of their slots.

    Of a closed form it is the solution of the local problem around the last one, which holds what
    the best structure would add.
    """
    part, problem = state.part, state.problem
    slots, scores_v = _bounded(state, slots, scores_v)
    w, n = np.zeros(part.n_links), np.zeros(len(scores_v))
    for b, (bucket, solver) in enumerate(zip(part.buckets, state.solvers, strict=True)):
        rows = np.flatnonzero(chosen[bucket.component])
        links, additionals = state.links_of(b), state.additionals_of(b)
        if not rows.size:
            continue
        if isinstance(solver, ActiveSets):
            w[links], n[additionals] = best_vertices(state, b, slots[links], scores_v[additionals])
            continue
        delta, z = part.delta[links], problem.iterate.z[links]
        best, best_v = z.copy(), problem.extras.v[additionals].copy()
        a, eta_v = slots[links] * delta + z, scores_v[additionals].copy()
        local_solver(bucket, delta).solve(rows, a, eta_v, best, best_v, MOST_STRUCTURES)
        w[links], n[additionals] = best * delta, best_v
    return w, n


def _bounded(
    state: PartState, slots: FloatArray, scores_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return scores of which the forbidden ones are no larger than it takes to decide."""
    blocks = state.problem.blocks
    factor, n_factors = factor_of_links(state), len(blocks.component)
    factor_v = np.repeat(np.arange(n_factors), np.diff(blocks.additional_offsets))
    forced, barred = state.forbidden[state.part.link_variable], state.problem.extras.barred != 0
    total = 1.0 + np.bincount(factor, np.where(forced, 0.0, np.abs(slots)), n_factors)
    total += np.bincount(factor_v, np.where(barred, 0.0, np.abs(scores_v)), n_factors)
    most, most_v = ORACLE * total[factor], ORACLE * total[factor_v]
    return (
        np.where(forced, np.clip(slots, -most, most), slots),
        np.where(barred, np.maximum(scores_v, -most_v), scores_v),
    )


def _entries_of(state: PartState, factors: BoolArray) -> BoolArray:
    """Return the variables and additionals of some factors."""
    part = state.part
    variables = np.zeros(part.n_variables, dtype=bool)
    variables[part.link_variable[factors[factor_of_links(state)]]] = True
    n_additionals = np.diff(state.problem.blocks.additional_offsets)
    return np.concatenate([variables, np.repeat(factors, n_additionals)])


def _unproven(state: PartState, split: Split, chosen: BoolArray, options: Options) -> BoolArray:
    """Return the components whose solution is not shown to be the best for the levels alone."""
    if not chosen.any():
        return chosen
    part, iterate = state.part, state.problem.iterate
    mu = state.marginals()
    eta, eta_v = split.penalties(mu)
    warm = WarmStart(iterate.u, iterate.dual, state.problem.progress.gamma, chosen)
    tight = Options(max_iter=options.max_iter, tol=min(options.tol, 1e-8), threads=options.threads)
    other = solve_part(part, eta, eta_v, ~chosen, tight, warm)
    moved = np.zeros(part.n_components)
    np.maximum.at(moved, part.component, np.abs(other.marginals() - mu))
    gain = np.where(np.isfinite(eta_v), eta_v, 0.0) * (
        other.problem.extras.v - state.problem.extras.v
    )
    gained = np.bincount(part.additional_component, gain, part.n_components)
    size = split.penalty * split.base
    tolerance = max(MOVED, 10.0 * options.tol)
    good = (moved <= tolerance) & (gained <= tolerance * size)
    return np.logical_and(chosen, ~(good & other.problem.progress.converged))


# -------------------------------------------------------------------- kernels


@leaf
def _largest_up_to(
    c: int, limit: float, blocks: Blocks, eta: FloatArray, eta_v: FloatArray
) -> tuple[float, float]:
    """Return a component's largest magnitude up to a limit, and its smallest finite one beyond."""
    largest, beyond = 0.0, np.inf
    for v in range(blocks.variables[c], blocks.variables[c + 1]):
        if abs(eta[v]) <= limit:
            largest = max(largest, abs(eta[v]))
        else:
            beyond = min(beyond, abs(eta[v]))
    if len(eta_v) > 0:
        for b in range(len(blocks.factors) - 1):
            first = blocks.factors[b] + blocks.of_component[c, b]
            last = blocks.factors[b] + blocks.of_component[c + 1, b]
            for i in range(blocks.additional_offsets[first], blocks.additional_offsets[last]):
                if abs(eta_v[i]) <= limit:
                    largest = max(largest, abs(eta_v[i]))
                else:
                    beyond = min(beyond, abs(eta_v[i]))
    return largest, beyond


@leaf
def _largest_finite(blocks: Blocks, eta: FloatArray, eta_v: FloatArray, out: FloatArray) -> None:
    """Write the largest finite magnitude of the scores of every component."""
    for c in range(len(out)):
        out[c], _ = _largest_up_to(c, MOST_FINITE, blocks, eta, eta_v)


@leaf
def _next_gap(
    blocks: Blocks,
    eta: FloatArray,
    eta_v: FloatArray,
    chosen: BoolArray,
    cut: FloatArray,
    base: FloatArray,
) -> None:
    """Write for chosen components the smallest magnitude behind the first gap above their cut.

    Infinite if there is none. `base` becomes the largest magnitude below it, at least 1.
    """
    for c in range(len(cut)):
        if not chosen[c]:
            continue
        below, next_below = 0.0, max(1.0, cut[c])
        while next_below > below:
            below = next_below
            largest, beyond = _largest_up_to(c, RATIO * below, blocks, eta, eta_v)
            next_below = max(below, largest)
        cut[c], base[c] = beyond, below
