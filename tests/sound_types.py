"""Sound factor types of every level, which the conformance kit has to pass."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from lpsmap_core import LOWER, TIGHT, Factor, FactorGraph, LocalSolution, TensorOracle
from lpsmap_core.model.linear_constraints import bounded_sums


class OneOf(Factor):
    """Exactly one variable is on; an additional, if there is one, says whether it is the first."""

    def __init__(self, variables, additionals=None, *, lengths=None, prize=0.0):
        super().__init__(variables, additionals, lengths=lengths)
        self.prize = self.per_factor("prize", prize)

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u), cls(u, np.zeros((3, 1)), lengths=[4, 1, 2])]

    def solve_map(self, eta_u, eta_v):
        scores = eta_u.copy()
        scores[0] += eta_v.sum()
        return int(np.argmax(scores))

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], np.full(self.n_additionals, float(y == 0))


class OnTensors(OneOf):
    """The same with an oracle for batches."""

    def tensor_oracle(self):
        arities = np.diff(self.offsets)
        return TensorOracle(best_slots, (arities,))


def best_slots(eta_u, eta_v, arities):
    """Return the slot with the highest score of each row, and the additional of the first."""
    xp, n = array_namespace(eta_u), eta_u.shape[1]
    scores = xp.concat([eta_u[:, :1] + xp.sum(eta_v, axis=1, keepdims=True), eta_u[:, 1:]], axis=1)
    inside = xp.arange(n, device=device(eta_u)) < arities[:, None]
    best = xp.argmax(xp.where(inside, scores, -xp.inf), axis=1)
    if not eta_v.shape[1]:
        return best[:, None]
    return xp.stack([best, xp.where(best == 0, n, -1)], axis=1)


class Compiled(OneOf):
    """The same with an oracle for many rows; the rules are the same for one that is compiled."""

    def map_kernel(rows, factors, scores, structures):
        offsets, extra = factors.offsets, factors.additional_offsets
        start, entry, value, size = structures
        for r in rows:
            eta_u = scores.eta_u[offsets[r] : offsets[r + 1]].copy()
            eta_u[0] += scores.eta_v[extra[r] : extra[r + 1]].sum()
            best, n = int(np.argmax(eta_u)), len(eta_u)
            size[r] = 2 if best == 0 and extra[r + 1] > extra[r] else 1
            entry[start[r] : start[r] + size[r]] = (best, n)[: size[r]]
            value[start[r] : start[r] + size[r]] = 1.0

    map_kernel = staticmethod(map_kernel)

    @classmethod
    def vertex_sizes(cls, factors):
        return np.minimum(np.diff(factors.additional_offsets), 1) + 1


class Allowed(Factor):
    """One of some variables is on, which the declaration names: for all factors, or for each."""

    def __init__(self, variables, allowed):
        super().__init__(variables)
        several = np.ndim(allowed[0]) == 1
        self.allowed = self.integers("allowed", allowed, per_factor=several)

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u, np.array([0, 2])), cls(u, [[1], [0, 2, 3], [3, 1]])]

    def solve_map(self, eta_u, eta_v):
        return int(self.allowed[np.argmax(eta_u[self.allowed])])

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], []

    def map_kernel(rows, factors, scores, structures):
        for r in rows:
            begin, end = factors.integer_ranges[r]
            first, best = factors.offsets[r], factors.integers[begin]
            for k in factors.integers[begin:end]:
                best = k if scores.eta_u[first + k] > scores.eta_u[first + best] else best
            at = structures.start[r]
            structures.entry[at], structures.value[at], structures.size[r] = best, 1.0, 1

    map_kernel = staticmethod(map_kernel)


class Closed(OneOf):
    """The same without additionals, in closed form: ``z = max(a - tau delta, 0)``."""

    @classmethod
    def examples(cls):
        u = FactorGraph().variable((3, 4))
        return [cls(u), cls(u, lengths=[4, 1, 2])]

    def linear_constraints(self):
        return bounded_sums(self, 1.0, 1.0)

    @classmethod
    def solve_sparsemap(cls, a, eta_v, delta, parameters, link_parameter):
        xp = array_namespace(a)
        order = xp.argsort(-a / delta, axis=1)
        x, d = (xp.take_along_axis(numbers, order, axis=1) for numbers in (a, delta))
        tau = (xp.cumulative_sum(d * x, axis=1) - 1) / xp.cumulative_sum(d * d, axis=1)
        support = xp.sum(xp.astype(x > tau * d, xp.int64), axis=1, keepdims=True)
        z = xp.clip(a - xp.take_along_axis(tau, support - 1, axis=1) * delta, min=0.0)
        face = LOWER * xp.astype(z == 0, xp.int8)
        return LocalSolution(z, eta_v, face, 0 * face[:, 0] + TIGHT)


class ClosedKernel(Closed):
    """The same as kernels on flat arrays."""

    def projection_kernel(rows, factors, scores, solution):
        a, delta, eta_v = scores
        for r in rows:
            s = slice(factors.offsets[r], factors.offsets[r + 1])
            found = Closed.solve_sparsemap(a[None, s], eta_v[:0], delta[None, s], None, None)
            solution.z[s], solution.face[s] = found.z[0], found.face[0]
            solution.branch[r] = TIGHT

    projection_kernel = staticmethod(projection_kernel)


class Block(Factor):
    """One entry of a matrix is on, of the first rows and columns."""

    variables_ndim = 2

    def __init__(self, variables, *, lengths=None):
        super().__init__(variables, lengths=lengths)
        columns = self.event_shape[1] if self.lengths is None else self.lengths[:, 1]
        self.n_columns = self.per_factor("n_columns", np.reshape(columns, (-1,)))

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3, 3)), lengths=np.array([[3, 2], [1, 2]]))]

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))

    def vertex(self, y):
        m = np.zeros(self.event_shape)
        m.flat[y] = 1.0
        return m, []


class Spaced(Factor):
    """Positions at least `gap` apart; the additional counts neighbours of exactly this distance."""

    def __init__(self, variables, bonus, gap, *, lengths=None):
        super().__init__(variables, bonus, lengths=lengths)
        self.gap = self.counts("gap", gap)
        if self.n_additionals != 1:
            raise ValueError(f"Spaced: bonus has {self.n_additionals} scores; expected 1.")

    @classmethod
    def examples(cls):
        u = FactorGraph().variable
        return [
            cls(u(7), np.zeros(1), 2),
            cls(u((3, 8)), np.zeros((3, 1)), [1, 2, 3], lengths=[8, 3, 6]),
        ]

    def solve_map(self, eta_u, eta_v):
        best, ends = (0.0, ()), []
        for i, score in enumerate(eta_u):
            end = (score, (i,))
            for j in range(max(0, i - self.gap + 1)):
                total = ends[j][0] + score + (eta_v[0] if i - j == self.gap else 0.0)
                if total > end[0]:
                    end = (total, (*ends[j][1], i))
            ends.append(end)
            if end[0] > best[0]:
                best = end
        return best[1]

    def vertex(self, y):
        on = np.zeros(self.event_shape)
        on[list(y)] = 1.0
        return on, np.array([float((np.diff(y) == self.gap).sum())])


LEVELS = (OneOf, OnTensors, Compiled, Allowed, Closed, ClosedKernel)
SOUND = [factor for cls in (*LEVELS, Spaced) for factor in cls.examples()]
