"""The sum-product algorithm over trees of factors (Pearl 1988; Kschischang et al. 2001).

Each factor's message is a pair of its log-partition functions, with the parent variable on and off.
The two conditional distributions of a factor also give its marginals and their derivatives, as a
mixture with the marginal of the parent. Hence no logarithm of a marginal is taken, and messages are
exact next to marginals of 0 and 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Scores
from lpsmap_core.api import FloatArray
from lpsmap_dynamic.exact_sums import add_exactly, sum_exactly
from lpsmap_dynamic.factor_forest import FactorForest, Step
from lpsmap_dynamic.inference import Beliefs, Found, LogPartition


class _SumsGivenParents(NamedTuple):
    """Sums of factors given that their parents are on, or off; those of roots are given neither."""

    high: FloatArray
    """(F,) log-partition functions."""
    low: FloatArray
    """(F,) their rounding errors."""
    entropy: FloatArray
    m: FloatArray
    """(L,) marginals of slots."""
    n: FloatArray
    """Expected counts of additionals."""


class ForestSums:
    """Sums over the assignments of a forest of factors, with given scores.

    Parameters
    ----------
    forest
        The factors.
    scores
        Scores of all variables, and of the additionals of all declarations, flat; finite or -inf.
    """

    def __init__(self, forest: FactorForest, scores: Scores) -> None:
        self._forest = forest
        self._sums: list[LogPartition] = [factor.log_partition() for factor in forest.declarations]
        n_factors, n_links = int(forest.first_factor[-1]), len(forest.variable)
        shapes = n_factors, n_factors, n_factors, n_links, len(scores.eta_v)
        self._on, self._off = (_SumsGivenParents(*map(np.zeros, shapes)) for _ in range(2))
        self._eta_u, self._eta_v = np.zeros(n_links), scores.eta_v
        # the graph's variables, and additionals as those of merged factors
        self._total = np.append(scores.eta_u, scores.eta_v[forest.merged_additionals])
        self._finite = self._total.copy()
        self._worth = np.zeros((2, n_factors))
        self._contradiction = np.zeros(forest.n_components + 1, dtype=np.bool_)
        self._contradiction[forest.component_of_all_factors[forest.impossible]] = True
        with np.errstate(invalid="ignore"):
            for step in forest.steps:
                self._send(step)

    def beliefs(self) -> Beliefs:
        """Return the sums of every component, and zeros for another one without variables.

        ``m`` has the marginals of all variables, ``n`` the expected counts of all additionals.
        """
        forest, on, off = self._forest, self._on, self._off
        of_factor = forest.component_of_all_factors
        m, n, doubt = np.zeros(len(self._total)), np.zeros(len(self._eta_v)), np.zeros_like(on.high)
        for step in reversed(forest.steps):
            factors, links = step.factors, step.links
            doubt[factors], slots, extra = on.entropy[factors], on.m[links], self._rows(on.n, step)
            if step.parent is not None:
                weight = m[forest.variable[step.parent]]
                doubt[factors] = _mix(weight, doubt[factors], off.entropy[factors])
                slots = _mix(weight[step.place], slots, off.m[links])
                extra = _mix(weight[:, None], extra, self._rows(off.n, step))
            m[forest.variable[links]] = np.where(forest.negated[links], 1.0 - slots, slots)
            self._table(n, step)[step.rows] = extra
        size = forest.n_components + 1
        m, of_merged = np.split(m, [forest.n_variables])
        np.add.at(n, forest.merged_additionals, of_merged)
        entropy = np.bincount(of_factor, doubt, minlength=size).astype(np.float64)
        finite = np.isfinite(self._worth[0])
        high, low = sum_exactly(of_factor[finite], self._worth[0, finite], size)
        low += np.bincount(of_factor[finite], self._worth[1, finite], minlength=size)
        without = self._contradiction.copy()
        without[of_factor[~finite]] = True
        if without.any():
            high[without], low[without], entropy[without] = -np.inf, 0.0, 0.0
            m[without[forest.component]] = 0.0
            n[without[forest.component_of_additional]] = 0.0
        return Beliefs(high, entropy, m, n, low)

    def hessian_product(self, direction: Scores) -> Scores:
        """Return the derivative of the marginals and expected counts along a direction.

        The messages change by the differences of conditional marginals, and the marginals by the
        derivative of their mixture.
        """
        forest, on, off = self._forest, self._on, self._off
        d_total = np.append(direction.eta_u, direction.eta_v[forest.merged_additionals])
        d_eta = np.zeros(len(self._eta_u))
        for step in forest.steps:
            links = step.links
            moved = d_total[forest.variable[links]]
            d_eta[links] = np.where(forest.negated[links], -moved, moved)
            if step.parent is not None:
                change = (on.m[links] - off.m[links]) * d_eta[links]
                of_parent = self._rows(on.n, step) - self._rows(off.n, step)
                d_message = (of_parent * self._rows(direction.eta_v, step)).sum(axis=1)
                d_message += np.bincount(step.place, change, minlength=len(step.rows))
                decided = np.isinf(on.high[step.factors]) | np.isinf(off.high[step.factors])
                d_message = np.where(decided, 0.0, d_message)
                np.add.at(d_total, forest.variable[step.parent], d_message)
        along = Scores(d_eta, direction.eta_v)
        m = self.beliefs().m
        d_m, d_n = np.zeros_like(d_total), np.zeros_like(self._eta_v)
        for step in reversed(forest.steps):
            links = step.links
            d_slots, d_extra = self._multiply(step, along, True)
            if step.parent is not None:
                parent = forest.variable[step.parent]
                weight, d_weight = m[parent], d_m[parent]
                d_off = self._multiply(step, along, False)
                d_slots = _mix(weight[step.place], d_slots, d_off.eta_u)
                d_slots += d_weight[step.place] * (on.m[links] - off.m[links])
                d_extra = _mix(weight[:, None], d_extra, d_off.eta_v)
                d_extra += d_weight[:, None] * (self._rows(on.n, step) - self._rows(off.n, step))
            d_m[forest.variable[links]] = np.where(forest.negated[links], -d_slots, d_slots)
            self._table(d_n, step)[step.rows] = d_extra
        d_m, of_merged = np.split(d_m, [forest.n_variables])
        np.add.at(d_n, forest.merged_additionals, of_merged)
        return Scores(d_m, d_n)

    def sample(self, n: int, random: np.random.Generator) -> Scores:
        """Return `n` independent assignments: values of all variables, and of all additionals.

        From the roots down, each factor is drawn given its parent. Components without an assignment
        have zeros.
        """
        forest = self._forest
        inference = [factor.inference() for factor in forest.declarations]
        values, additionals = np.zeros((n, len(self._total))), np.zeros((n, len(self._eta_v)))
        for step in reversed(forest.steps):
            sums = inference[step.declaration]
            slots, extra = self._draw(
                step, sums.sample(step.rows, self._scores(step, True), n, random)
            )
            if step.parent is not None:
                off = sums.sample(step.rows, self._scores(step, False), n, random)
                others = self._draw(step, off)
                on = values[:, forest.variable[step.parent]] > 0.0
                slots = np.where(on[:, step.place], slots, others[0])
                extra = np.where(on[:, :, None], extra, others[1])
            negated = forest.negated[step.links]
            values[:, forest.variable[step.links]] = np.where(negated, 1.0 - slots, slots)
            self._table(additionals, step)[:, step.rows] = extra
        values, of_merged = np.split(values, [forest.n_variables], axis=1)
        np.add.at(additionals.T, forest.merged_additionals, of_merged.T)
        without = np.isneginf(self.beliefs().log_partition)
        values[:, without[forest.component]] = 0.0
        additionals[:, without[forest.component_of_additional]] = 0.0
        return Scores(values, additionals)

    # ---------------------------------------------------------------- steps

    def _send(self, step: Step) -> None:
        """Compute the sums of factors, and add their messages to the scores of their parents."""
        forest, on, off, factors = self._forest, self._on, self._off, step.factors
        negated, total = forest.negated[step.links], self._total[forest.variable[step.links]]
        self._eta_u[step.links] = np.where(negated, -total, total)
        self._sum(step, True, on)
        high, low = on.high[factors], on.low[factors]
        if step.parent is not None:
            self._sum(step, False, off)
            message = (high - off.high[factors]) + (low - off.low[factors])
            possible = off.high[factors] > -np.inf
            high = np.where(possible, off.high[factors], high)
            low = np.where(possible, off.low[factors], low)
            parent = forest.variable[step.parent]
            np.add.at(self._total, parent, message)
            np.add.at(self._finite, parent, np.where(np.isfinite(message), message, 0.0))
            wrong = parent[np.isnan(self._total[parent])]  # impossible both on and off
            self._contradiction[forest.component[wrong]] = True
            self._total[wrong] = 0.0
        # a variable is on while its slot is off, or forced by messages: sums exclude its score
        shown = (negated & np.isfinite(total)) | (total == np.inf)
        excluded = self._finite[forest.variable[step.links]][shown]
        constant, rest = sum_exactly(step.place[shown], excluded, len(factors))
        worth, lost = add_exactly(high, constant)
        self._worth[:, factors] = worth, low + rest + lost

    def _sum(self, step: Step, on: bool, sums: _SumsGivenParents) -> None:
        """Write the sums of factors whose parents are on, or off."""
        d, forest = step.declaration, self._forest
        beliefs = self._sums[d].beliefs(step.rows, self._scores(step, on))
        sums.high[step.factors] = beliefs.log_partition[step.rows]
        if beliefs.remainder is not None:
            sums.low[step.factors] = beliefs.remainder[step.rows]
        sums.entropy[step.factors] = beliefs.entropy[step.rows]
        sums.m[step.links] = beliefs.m[step.links - forest.first_link[d]]
        table = self._table(sums.n, step)
        table[step.rows] = beliefs.n.reshape(table.shape)[step.rows]

    def _multiply(self, step: Step, direction: Scores, on: bool) -> Scores:
        """Return the products with Hessians of factors whose parents are on, or off."""
        links, additionals = self._ranges(step.declaration)
        along = Scores(direction.eta_u[links], direction.eta_v[additionals])
        sums = self._sums[step.declaration]
        product = sums.hessian_product(step.rows, self._scores(step, on), along)
        of_additionals = product.eta_v.reshape(self._table(direction.eta_v, step).shape)
        return Scores(product.eta_u[step.links - links.start], of_additionals[step.rows])

    def _draw(self, step: Step, samples: Found) -> tuple[FloatArray, FloatArray]:
        """Return (n, L) values of the links of a step, and (n, R, A) additionals, of samples."""
        forest, (start, entry, value, size) = self._forest, samples.structures
        factor, first = forest.declarations[step.declaration], forest.first_link[step.declaration]
        n, n_links = len(size) // factor.n_factors, len(step.links)
        drawn = (step.rows[:, None] * n + np.arange(n)).reshape(-1)
        sizes = np.maximum(size[drawn], 0)
        structure = np.repeat(np.arange(len(drawn)), sizes)
        before = np.repeat(np.cumsum(sizes) - sizes - start[drawn], sizes)
        at = np.arange(len(structure)) - before
        number, chosen = entry[at].astype(np.int64), structure // n
        row = step.rows[chosen]
        behind = number - np.diff(factor.offsets)[row]
        slots = np.zeros((n, n_links + 1))  # the last column is for parents
        extra = np.zeros((n, len(step.rows), factor.n_additionals))
        column = np.full(int(factor.offsets[-1]), n_links)
        column[step.links - first] = np.arange(n_links)
        of_slots = behind < 0
        place = column[(factor.offsets[row] + number)[of_slots]]
        slots[(structure % n)[of_slots], place] = value[at[of_slots]]
        of_extra = ~of_slots
        target = (structure % n)[of_extra], chosen[of_extra], behind[of_extra]
        extra[target] = value[at[of_extra]]
        return slots[:, :n_links], extra

    def _scores(self, step: Step, on: bool) -> Scores:
        """Return the scores of a declaration, which force the parents of factors on, or off."""
        links, additionals = self._ranges(step.declaration)
        eta_u = self._eta_u[links].copy()
        if step.parent is not None:
            forced = self._forest.negated[step.parent] != on
            eta_u[step.parent - links.start] = np.where(forced, np.inf, -np.inf)
        return Scores(eta_u, self._eta_v[additionals])

    def _ranges(self, declaration: int) -> tuple[slice, slice]:
        """Return the links and the additionals of a declaration."""
        forest, d = self._forest, declaration
        return slice(*forest.first_link[d : d + 2]), slice(*forest.first_additional[d : d + 2])

    def _table(self, additionals: FloatArray, step: Step) -> FloatArray:
        """Return a view of a declaration's additionals, (..., n_factors, n_additionals)."""
        factor = self._forest.declarations[step.declaration]
        _, own = self._ranges(step.declaration)
        shape = *additionals.shape[:-1], factor.n_factors, factor.n_additionals
        return additionals[..., own].reshape(shape)

    def _rows(self, additionals: FloatArray, step: Step) -> FloatArray:
        """Return the (R, n_additionals) additionals of factors."""
        rows: FloatArray = self._table(additionals, step)[step.rows]
        return rows


def _mix(weight: FloatArray, on: FloatArray, off: FloatArray) -> FloatArray:
    """Return the mixture of what is given that a variable is on, and what if it is off."""
    return weight * on + (1.0 - weight) * off
