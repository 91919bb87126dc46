"""Independent judges: slow, plain and exact answers that the library is held against.

Nothing here imports the library. Polytopes are lists of enumerated vertices, programs are solved by
other algorithms than the library's, and a judge that cannot vouch for its answer raises.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# -------------------------------------------------------------------- one factor, in many digits


def project_polytope(
    vertices_m: npt.ArrayLike,
    vertices_n: npt.ArrayLike,
    a: npt.ArrayLike,
    eta_v: npt.ArrayLike,
    delta: npt.ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """Solve a factor's local problem by an active set in decimal arithmetic of 60 or more digits.

    ``z = argmin 1/2 ||z - a||^2 - <eta_v, N^T p>`` subject to ``delta * z = M^T p`` and ``p`` in
    the simplex. On the vertices of positive weight the problem has equality constraints only, and
    is solved by Gaussian elimination; a vertex of positive reduced cost joins, one whose weight
    reaches zero leaves. Every join strictly improves the objective, so that no face comes back.

    Parameters
    ----------
    vertices_m
        (Y, K) the variables of every vertex.
    vertices_n
        (Y, A) its additionals.
    a, delta
        (K,) finite scores and positive scales.
    eta_v
        (A,) scores of the additionals.

    Returns
    -------
    z
        (K,) the unique scaled marginals, exact to rounding.
    p
        (Y,) weights of the vertices, one choice of possibly many.

    Raises
    ------
    ArithmeticError
        If the optimality conditions do not hold in the end.
    """
    scale = max(1.0, np.abs(np.append(a, eta_v)).max(initial=0.0))
    with localcontext(Context(prec=60 + 2 * int(np.ceil(np.log10(scale))))):
        w = _decimals(vertices_m) / _decimals(delta)
        centre = _decimals(a)
        gain = _dot(w, centre) + _dot(_decimals(vertices_n), _decimals(eta_v))
        support, p = _active_set(w, gain)
        z = _dot(w[support].T, p)
        reduced = gain - _dot(w, z)
        violation = max(reduced) - min(reduced[support])
        if violation > 2 * TINY or min(p) < 0 or abs(sum(p) - 1) > TINY:
            raise ArithmeticError(f"project_polytope: reduced cost {violation}, weights {p}")
        weights = np.zeros(len(w))
        weights[support] = p.astype(np.float64)
        return z.astype(np.float64), weights


TINY = Decimal("1e-40")
"""What counts as zero among numbers that carry an absolute error far below 1e-50."""


def _active_set(w: Any, gain: Any) -> tuple[list[int], Any]:
    """Maximise ``<gain, p> - 1/2 ||w^T p||^2`` over the simplex; return support and weights."""
    support = [int(np.argmax(gain - (w * w).sum(axis=1) / 2))]
    p = _decimals([1.0])
    for _ in range(1000 + 100 * len(w)):
        direction, level = _towards_optimum(w[support], gain[support], p)
        falling = direction < -TINY
        ratios = p[falling] / -direction[falling]
        if level is None or (len(ratios) and min(ratios) < 1):
            p = p + min(ratios) * direction
            finished = False
        else:
            p = p + direction
            finished = True
        kept = p > TINY
        support, p = [y for y, keep in zip(support, kept, strict=True) if keep], p[kept]
        if finished:
            reduced = gain - _dot(w, _dot(w[support].T, p)) - level
            joining = int(np.argmax(reduced))
            if reduced[joining] <= TINY:
                return support, p
            support, p = [*support, joining], np.append(p, _decimals([0.0]))
    raise ArithmeticError("project_polytope: the active set does not end")


def _towards_optimum(w: Any, gain: Any, p: Any) -> tuple[Any, Any]:
    """Return the step to a face's optimum and the multiplier of ``sum p = 1`` there.

    On affinely dependent vertices the step is a dependency that does not lower the objective, and
    the multiplier None.
    """
    bordered = np.full((len(p) + 1, len(p) + 2), Decimal(1), dtype=object)
    bordered[0, 0], bordered[0, -1] = Decimal(0), Decimal(1)
    bordered[1:, 1:-1], bordered[1:, -1] = _dot(w, w.T), gain
    solution, unique = _eliminate(bordered)
    if unique:
        return solution[1:] - p, solution[0]
    dependency = solution[1:]
    return (dependency if _dot(gain, dependency) >= 0 else -dependency), None


def _eliminate(augmented: Any) -> tuple[Any, bool]:
    """Solve a square system given with its right side; or return a null vector, and False."""
    table, n = augmented.copy(), len(augmented)
    for column in range(n):
        pivot = column + int(np.argmax(np.abs(table[column:, column])))
        if abs(table[pivot, column]) <= TINY:
            null = np.full(n, Decimal(0), dtype=object)
            null[:column], null[column] = -table[:column, column], Decimal(1)
            return null, False
        table[[column, pivot]] = table[[pivot, column]]
        table[column] = table[column] / table[column, column]
        factors = table[:, column].copy()
        factors[column] = Decimal(0)
        table = table - np.multiply.outer(factors, table[column])
    return table[:, -1], True


def _decimals(values: npt.ArrayLike) -> Any:
    """Convert floats to decimals without rounding."""
    array = np.asarray(values, dtype=np.float64)
    out = np.empty(array.shape, dtype=object)
    out.reshape(-1)[:] = [Decimal(x) for x in array.reshape(-1).tolist()]
    return out


def _dot(left: Any, right: Any) -> Any:
    """Multiply arrays of decimals; an empty sum is zero."""
    return (left @ right) + Decimal(0) if left.shape[-1] else left.sum(axis=-1) + Decimal(0)


# -------------------------------------------------------------------- a whole graph


class EnumeratedFactor(NamedTuple):
    """A factor by its vertices, stated for its own slots: a negated slot sees ``1 - u``."""

    variables: npt.ArrayLike
    """(K,) variable of every slot."""
    negated: npt.ArrayLike
    """(K,) whether the slot stands for ``1 - u``."""
    vertices_m: npt.ArrayLike
    """(Y, K)"""
    vertices_n: npt.ArrayLike
    """(Y, A)"""
    eta_v: npt.ArrayLike
    """(A,)"""


def solve_graph(
    eta: npt.ArrayLike,
    factors: Sequence[EnumeratedFactor | tuple[Any, Any, Any, Any, Any]],
    tolerance: float = 1e-9,
    centred: bool = False,
) -> tuple[FloatArray, list[FloatArray], list[FloatArray]]:
    """Solve LP-SparseMAP over enumerated factors (Niculae & Martins 2020, Eq. 10).

    ``maximise <eta, mu> + sum_f <eta_f, N_f^T p_f> - 1/2 ||mu||^2`` over weights ``p_f`` in
    simplices whose marginals agree with ``mu``; variables of no factor stay in ``[0, 1]``. An
    interior point finds which weights vanish, one linear system the solution without them.

    Parameters
    ----------
    eta
        (V,) finite scores.
    factors
        The factors; see `EnumeratedFactor`.
    tolerance
        Largest violation of any optimality condition, relative to ``max(1, |scores|)``.
    centred
        Whether multipliers are taken off the scores first, which makes large ones small: the
        violation is then relative to `FAR`, whatever the scale of the scores.

    Returns
    -------
    mu
        (V,) the unique marginals.
    nus
        Per factor, (A,) its additionals; one choice where they are not unique.
    ps
        Per factor, (Y,) the weights of its vertices; one choice where they are not unique.

    Raises
    ------
    ArithmeticError
        If the factors contradict each other, or the optimality conditions do not hold.
    """
    program = _Program.from_graph(np.asarray(eta, dtype=np.float64), factors)
    x = program.solve_centred(tolerance) if centred else program.solve(tolerance)
    mu = np.clip(np.asarray(eta, dtype=np.float64), 0.0, 1.0)
    linked = np.unique(program.link_variables)
    mu[linked] = x[linked]
    ps = np.split(x[len(mu) :], np.cumsum(program.sizes)[:-1]) if factors else []
    nus = [np.asarray(f[3], dtype=np.float64).T @ p for f, p in zip(factors, ps, strict=True)]
    return mu, nus, ps


def admm(
    eta: npt.ArrayLike,
    factors: Sequence[EnumeratedFactor | tuple[Any, Any, Any, Any, Any]],
    step_size: float,
    iterations: int,
    relaxation: float = 1.0,
) -> FloatArray:
    """Run Algorithm 1 (Niculae & Martins 2020) with exact local solutions.

    The sign of its line 6 is put right. Over-relaxation mixes the copies with the previous means,
    before anything else is made of them (Boyd et al. 2011, section 3.4.3).

    Parameters
    ----------
    eta
        (V,) finite scores.
    factors
        The factors; see `EnumeratedFactor`.
    step_size
        The constant gamma.
    iterations
        How many.
    relaxation
        What the copies count in the mixture.

    Returns
    -------
    marginals
        (iterations, V) the means of the variables' copies after every iteration, not scaled.
    """
    eta = np.asarray(eta, dtype=np.float64)
    links = np.concatenate([np.asarray(factor[0], dtype=np.int64) for factor in factors])
    ends = np.cumsum([len(np.asarray(factor[0])) for factor in factors])[:-1]
    degree = np.bincount(links, minlength=len(eta))
    delta = np.sqrt(np.maximum(degree, 1))
    means, duals = np.zeros(len(eta)), np.zeros(len(links))

    def averaged(copies: FloatArray) -> FloatArray:
        return np.bincount(links, copies, minlength=len(eta)) / np.maximum(degree, 1)

    found = []
    for _ in range(iterations):
        wanted = (eta / delta + step_size * means)[links] + duals
        local = [
            project_polytope(
                np.where(np.asarray(negated, dtype=bool), 1.0 - np.asarray(m), m),
                n,
                own / (1.0 + step_size),
                np.asarray(eta_v) / (1.0 + step_size),
                delta[np.asarray(variables)],
            )[0]
            for (variables, negated, m, n, eta_v), own in zip(
                factors, np.split(wanted, ends), strict=True
            )
        ]
        copies = np.concatenate(local)
        mixed = relaxation * copies + (1.0 - relaxation) * means[links]
        means = averaged(mixed)
        duals = duals + step_size * (means[links] - mixed)
        found.append(np.where(degree > 0, delta * averaged(copies), np.clip(eta, 0.0, 1.0)))
    return np.array(found)


def project_factor(eta: npt.ArrayLike, factor: EnumeratedFactor) -> FloatArray:
    """Solve a graph of one factor over distinct variables in decimals, at any scale.

    Returns
    -------
    mu
        The marginals of the variables, in their order.
    """
    variables, negated = np.asarray(factor.variables), np.asarray(factor.negated, dtype=bool)
    m = np.asarray(factor.vertices_m, dtype=np.float64)
    mu = np.asarray(eta, dtype=np.float64).copy()
    own = np.where(negated, 1.0 - m, m)
    ones = np.ones(len(variables))
    mu[variables], _ = project_polytope(own, factor.vertices_n, mu[variables], factor.eta_v, ones)
    return mu


def linear_optimum(
    eta: FloatArray, factors: Sequence[EnumeratedFactor], mu: FloatArray
) -> tuple[float, float]:
    """Return the maximum of ``<eta, mu> + sum_f <eta_f, nu_f>``, and that for given marginals.

    Both by linear programs on scores that are brought to 1 first.
    """
    scale = max(np.abs(np.concatenate([eta, *(np.ravel(f.eta_v) for f in factors)])).max(), 1.0)
    scaled = [f._replace(eta_v=np.asarray(f.eta_v) / scale) for f in factors]
    program = _Program.from_graph(eta / scale, scaled)
    values = []
    for bounds in ([(0.0, 1.0)] * len(mu), [(max(x - 1e-9, 0.0), x + 1e-9) for x in mu]):
        result = optimize.linprog(
            -program.c,
            A_eq=program.equalities,
            b_eq=program.right,
            bounds=[*bounds, *[(0.0, None)] * (len(program.c) - len(mu))],
        )
        if result.status != 0:
            raise ArithmeticError(f"linear_optimum: {result.message}")
        values.append(-scale * result.fun)
    return values[0], values[1]


def is_feasible(n_variables: int, factors: Sequence[Any]) -> bool:
    """Whether any marginals satisfy all enumerated factors, by a linear program."""
    if not all(len(f[2]) for f in factors):
        return False
    program = _Program.from_graph(np.zeros(n_variables), factors)
    result = optimize.linprog(
        np.zeros(len(program.c)),
        A_eq=program.equalities,
        b_eq=program.right,
        bounds=[(None, None)] * n_variables + [(0.0, None)] * (len(program.c) - n_variables),
    )
    if result.status not in (0, 2):
        raise ArithmeticError(f"is_feasible: {result.message}")
    return bool(result.status == 0)


FAR = 100.0
"""A structure whose reduced cost is this far from 0 has no weight, see `_Program.centred`."""


class _Program(NamedTuple):
    """``minimise 1/2 <x, q x> - <c, x>  s.t.  E x = e, x[n:] >= 0``; ``x = (mu, p_1, ...)``."""

    n: int
    quadratic: FloatArray
    c: FloatArray
    equalities: FloatArray
    right: FloatArray
    sizes: list[int]
    link_variables: IntArray

    @classmethod
    def from_graph(cls, eta: FloatArray, factors: Sequence[Any]) -> _Program:
        n, sizes = len(eta), [len(f[2]) for f in factors]
        total = n + sum(sizes)
        c, rows, right, links = np.zeros(total), [], [], []
        c[:n] = eta
        first = n
        for (variables, negated, m, nu, eta_v), size in zip(factors, sizes, strict=True):
            block = slice(first, first + size)
            c[block] = np.asarray(nu, dtype=np.float64) @ np.asarray(eta_v, dtype=np.float64)
            row = np.zeros(total)
            row[block] = 1.0
            rows.append(row)
            right.append(1.0)
            columns = np.asarray(m, dtype=np.float64).T
            for v, flip, column in zip(np.asarray(variables), negated, columns, strict=True):
                row = np.zeros(total)
                row[block] = column
                row[v] = 1.0 if flip else -1.0
                rows.append(row)
                right.append(1.0 if flip else 0.0)
                links.append(int(v))
            first += size
        quadratic = np.zeros(total)
        quadratic[:n] = 1.0
        matrix = np.array(rows).reshape(-1, total)
        return cls(n, quadratic, c, matrix, np.array(right), sizes, np.array(links, dtype=np.int64))

    def solve_centred(self, tolerance: float) -> FloatArray:
        """Return a solution whose optimality was verified near zero, see `centred`."""
        for regularization in (1e-8, 1e-12, 1e-10, 1e-14):
            program = self.centred(regularization)
            x = program.solve(tolerance)
            if not (x[self.n :][program.c[self.n :] <= -FAR] > tolerance).any():
                return x
        raise ArithmeticError("solve_graph: a weight that was taken for zero is not")

    def centred(self, regularization: float) -> _Program:
        """Return a program of the same solution, whose scores are near zero.

        ``E x = e`` makes ``<E^T y, x>`` a constant for any multipliers y, so that the scores ``c -
        E^T y`` have the same solution. For those of an interior point they are marginals and
        reduced costs. Weights of very negative ones vanish, and the optimality conditions ask no
        more of these than that they are negative: they are cut off, in the end at -`FAR`.

        Raises
        ------
        ArithmeticError
            If some scores stay large: of variables in no factor, or amid degenerate constraints.
        """
        c = np.array([Fraction(x) for x in self.c.tolist()], dtype=object)
        entries = list(zip(*np.nonzero(self.equalities), strict=True))
        largest, cut = float(np.abs(self.c).max(initial=0.0)), np.inf
        if largest <= FAR:
            return self
        for _ in range(8):
            for weights in np.split(c[self.n :], np.cumsum(self.sizes)[:-1]):
                weights -= weights.max()  # a multiplier of their sum
            near = c.astype(np.float64)
            near[self.n :] = np.maximum(near[self.n :], -cut)
            program = self._replace(c=near)
            if np.abs(near).max(initial=0.0) <= FAR:
                return program
            _, y, _ = program.interior_point(regularization, True)
            exact = [Fraction(x) for x in y.tolist()]  # degenerate constraints make y huge
            for i, j in entries:
                c[j] -= Fraction(float(self.equalities[i, j])) * exact[i]
            cut = max(FAR, 1e-2 * min(cut, largest))
        raise ArithmeticError(f"centred: scores of {np.abs(near).max():.1e} are left")

    def solve(self, tolerance: float) -> FloatArray:
        """Return a solution whose optimality was verified."""
        # On few degenerate problems the interior point stalls too early to tell which weights
        # vanish; it rarely does so under two settings.
        for regularization in (1e-8, 1e-12, 1e-10, 1e-14):
            for scaled in (True, False):
                start = self.interior_point(regularization, scaled)
                x, violation = self.polish(*start, tolerance)
                if violation <= tolerance:
                    return x
        raise ArithmeticError(f"solve_graph: optimality conditions violated by {violation:.1e}")

    def interior_point(
        self, regularization: float, scaled: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a solution amid the optimal face, its multipliers, and the weights' slacks."""
        n_p, n_rows = len(self.c) - self.n, len(self.right)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
        settings.static_regularization_constant = regularization
        settings.equilibrate_enable = scaled
        signs = sparse.hstack([sparse.csc_matrix((n_p, self.n)), -sparse.identity(n_p)])
        result = clarabel.DefaultSolver(
            sparse.diags(self.quadratic).tocsc(),
            -self.c,
            sparse.vstack([sparse.csc_matrix(self.equalities), signs]).tocsc(),
            np.concatenate([self.right, np.zeros(n_p)]),
            [clarabel.ZeroConeT(n_rows), clarabel.NonnegativeConeT(n_p)],
            settings,
        ).solve()
        if "Infeasible" in str(result.status):
            raise ArithmeticError(f"solve_graph: factors contradict each other: {result.status}")
        y, slack = np.split(np.array(result.z), [n_rows])
        return np.array(result.x), y, slack

    def polish(
        self, x: FloatArray, y: FloatArray, slack: FloatArray, tolerance: float
    ) -> tuple[FloatArray, float]:
        """Solve on the weights that do not vanish; mend the choice of them until all holds.

        Returns the last point, and the largest violation of an optimality condition there.
        """
        scale = max(1.0, float(np.abs(self.c).max(initial=0.0)))
        basic = x[self.n :] > slack / scale
        for _ in range(20):
            candidate, reduced = self._on_face(x, y, basic)
            p = candidate[self.n :]
            residual = np.abs(self.equalities @ candidate - self.right).max(initial=0.0)
            leaving = basic & (p < -tolerance)
            joining = ~basic & (reduced > tolerance * scale)
            slackness = np.abs(reduced[basic]).max(initial=0.0)
            worst = max(residual, -p.min(initial=0.0), reduced.max(initial=0.0) / scale)
            worst = float(max(worst, slackness / scale))
            if worst <= tolerance or not (leaving.any() or joining.any()):
                break
            basic = (basic & ~leaving) | joining
        return candidate, worst

    def _on_face(
        self, x: FloatArray, y: FloatArray, basic: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the solution nearest to (x, y) with zeros off `basic`, and the reduced costs."""
        free = np.concatenate([np.ones(self.n, dtype=bool), basic])
        matrix = self.equalities[:, free]
        k, rows = matrix.shape[1], matrix.shape[0]
        corner = np.zeros((rows, rows))
        kkt = np.block([[np.diag(self.quadratic[free]), matrix.T], [matrix, corner]])
        target = np.concatenate([self.c[free], self.right])
        point = np.concatenate([x[free], y])
        inverse = np.linalg.pinv(kkt, rcond=1e-12, hermitian=True)
        for _ in range(3):  # iterative refinement
            point += inverse @ (target - kkt @ point)
        solution = np.zeros_like(x)
        solution[free] = point[:k]
        reduced = self.c - self.quadratic * solution - self.equalities.T @ point[k:]
        return solution, reduced[self.n :]


# -------------------------------------------------------------------- vertices, by enumeration

Vertices = tuple[FloatArray, FloatArray]
"""(Y, K) variables and (Y, A) additionals of every structure of a factor."""


def binary_vectors(k: int) -> FloatArray:
    """Return the (2^k, k) vectors of zeros and ones."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=k))).reshape(2**k, k)


def _where(k: int, predicate: Callable[[list[bool]], bool]) -> Vertices:
    m = np.array([row for row in binary_vectors(k) if predicate([bool(x) for x in row])])
    return m.reshape(-1, k), np.zeros((len(m), 0))


def xor(k: int) -> Vertices:
    """Exactly one variable is on."""
    return _where(k, lambda m: sum(m) == 1)


def at_least_one(k: int) -> Vertices:
    """OR: one or more variables are on."""
    return _where(k, any)


def at_most_one(k: int) -> Vertices:
    """One variable is on, or none."""
    return _where(k, lambda m: sum(m) <= 1)


def budget(k: int, most: int, *, exact: bool = False) -> Vertices:
    """At most, or exactly, so many variables are on."""
    return _where(k, lambda m: sum(m) == most if exact else sum(m) <= most)


def nand(k: int) -> Vertices:
    """Not all variables are on."""
    return _where(k, lambda m: not all(m))


def imply(k: int) -> Vertices:
    """If all variables but the last are on, the last is."""
    return _where(k, lambda m: m[-1] or not all(m[:-1]))


def xor_out(k: int) -> Vertices:
    """At most one variable before the last is on, and the last says whether one is."""
    return _where(k, lambda m: sum(m[:-1]) <= 1 and m[-1] == any(m[:-1]))


def or_out(k: int) -> Vertices:
    """The last variable says whether any other is on."""
    return _where(k, lambda m: m[-1] == any(m[:-1]))


def and_out(k: int) -> Vertices:
    """The last variable says whether all others are on."""
    return _where(k, lambda m: m[-1] == all(m[:-1]))


def pair() -> Vertices:
    """Two variables, and whether both are on as an additional."""
    m = binary_vectors(2)
    return m, m[:, :1] * m[:, 1:]


def knapsack(costs: npt.ArrayLike, most: float) -> Vertices:
    """Vertices of ``{0 <= m <= 1, <costs, m> <= most}``: corners, and edges that the plane cuts."""
    c = np.asarray(costs, dtype=np.float64)
    k = len(c)
    found = [row for row in binary_vectors(k) if c @ row <= most]
    for free in range(k):
        for rest in binary_vectors(k - 1):
            row = np.insert(rest, free, 0.0)
            level = (most - c @ row) / c[free] if c[free] != 0 else 0.0
            if 0.0 < level < 1.0:
                row[free] = level
                found.append(row)
    m = np.array(found).reshape(-1, k)
    return m, np.zeros((len(m), 0))


def tree_heads(n: int, *, single_root: bool = False) -> list[tuple[int, ...]]:
    """Return the heads of every dependency tree of `n` words; a word on the root heads itself."""

    def reaches_root(heads: tuple[int, ...], word: int) -> bool:
        for _ in range(n):
            if heads[word] == word:
                return True
            word = heads[word]
        return False

    return [
        heads
        for heads in itertools.product(range(n), repeat=n)
        if all(reaches_root(heads, word) for word in range(n))
        and (not single_root or sum(heads[word] == word for word in range(n)) == 1)
    ]


def trees(n: int, *, single_root: bool = False, packed: bool = True) -> Vertices:
    """Dependency trees of `n` words, raveled from (n, n).

    Packed: ``m[i, h] = 1`` where word h heads word i, and the diagonal is the arc from the root.
    Unpacked: row i holds the root's arc, then the other words in order.
    """
    rows = []
    for heads in tree_heads(n, single_root=single_root):
        m = np.zeros((n, n))
        m[np.arange(n), heads] = 1.0
        if not packed:
            m = np.array([np.append(m[i, i], np.delete(m[i], i)) for i in range(n)])
        rows.append(m.reshape(-1))
    return np.array(rows).reshape(-1, n * n), np.zeros((len(rows), 0))


def sequences(length: int, states: int) -> Vertices:
    """State sequences: (length, states) indicators, (length - 1, states, states) transitions."""
    m, n = [], []
    for path in itertools.product(range(states), repeat=length):
        indicator, used = np.zeros((length, states)), np.zeros((max(length - 1, 0), states, states))
        indicator[np.arange(length), path] = 1.0
        for i, (left, right) in enumerate(itertools.pairwise(path)):
            used[i, left, right] = 1.0
        m.append(indicator.reshape(-1))
        n.append(used.reshape(-1))
    return np.array(m), np.array(n)


def negations(k: int) -> Iterable[BoolArray]:
    """Return every choice of negated slots."""
    return binary_vectors(k).astype(bool)


# -------------------------------------------------------------------- derivatives


def central_difference(
    f: Callable[[FloatArray], npt.ArrayLike], x: npt.ArrayLike, h: float = 1e-5
) -> FloatArray:
    """Return the derivative of `f`, of shape ``f(x).shape + x.shape``, by central differences."""
    point = np.array(x, dtype=np.float64)
    columns = []
    for i in np.ndindex(point.shape):
        up, down = point.copy(), point.copy()
        up[i] += h
        down[i] -= h
        rise = np.asarray(f(up), dtype=np.float64) - np.asarray(f(down), dtype=np.float64)
        columns.append(rise / (up[i] - down[i]))
    shape = columns[0].shape if columns else np.shape(f(point))
    return np.stack(columns, axis=-1).reshape(shape + point.shape)


def directional_derivative(
    f: Callable[[FloatArray], npt.ArrayLike],
    x: npt.ArrayLike,
    d: npt.ArrayLike,
    h: float = 1e-5,
    tolerance: float = 1e-6,
) -> tuple[FloatArray, bool]:
    """Return the derivative of `f` at `x` along `d`, and whether no kink lies within ``h * d``.

    With a kink anywhere within the step, either the central differences over h and h/2 differ, or
    the one-sided ones do not close up as h shrinks; the two cannot cancel at once.

    Parameters
    ----------
    f
        Function of an array of any shape to one of any shape.
    x, d
        Point and direction.
    h
        Step length.
    tolerance
        What counts as a difference, relative to ``max(1, |derivative|)``; above the rounding of
        ``f`` over h.
    """
    point, direction = np.asarray(x, dtype=np.float64), np.asarray(d, dtype=np.float64)

    def at(t: float) -> FloatArray:
        return np.asarray(f(point + t * direction), dtype=np.float64)

    here = at(0.0)
    central, gap = [], []
    for step in (h, h / 2):
        forward, backward = (at(step) - here) / step, (here - at(-step)) / step
        central.append((forward + backward) / 2)
        gap.append(forward - backward)
    allowed = tolerance * max(1.0, float(np.abs(central[1]).max(initial=0.0)))
    drift = np.abs(central[0] - central[1]).max(initial=0.0)
    opening = np.abs(gap[0] - 2 * gap[1]).max(initial=0.0)
    return central[1], bool(drift <= allowed and opening <= allowed)
