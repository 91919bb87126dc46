"""What the papers print, where it fails, beside the corrected form of the page of errata.

Every test writes a printed formula out in numpy, without the library, and compares both forms with
an independent judge. The names are those of `docs/explanation/errata.md`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from lpsmap import ALGORITHM_1, AtMostOne, FactorGraph, Xor

FloatArray = NDArray[np.float64]

ROWS, COLUMNS = 1, 0
"""The axis along which an exactly-one factor sums, and that of an at-most-one factor."""

DEGREE = 2.0
"""Every variable of a matching is in a row and in a column."""


def capped(x: FloatArray, total: float, axis: int, *, exact: bool) -> FloatArray:
    """Return the nearest nonnegative lines that sum to `total`, or to at most `total`."""
    x = np.moveaxis(x, axis, -1)
    clipped = np.maximum(x, 0.0)
    ordered = -np.sort(-x, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - total) / np.arange(1, x.shape[-1] + 1)
    threshold = np.take_along_axis(
        excess, (ordered > excess).sum(axis=-1, keepdims=True) - 1, axis=-1
    )
    if not exact:
        threshold = np.where(clipped.sum(axis=-1, keepdims=True) <= total, 0.0, threshold)
    return np.moveaxis(np.maximum(x - threshold, 0.0), -1, axis)


def nearest_matching(eta: FloatArray) -> FloatArray:
    """Return the projection onto rows that sum to 1 and columns to at most 1 (Dykstra 1983)."""
    x, row, column = eta, np.zeros_like(eta), np.zeros_like(eta)
    for _ in range(20_000):
        y = capped(x + row, 1.0, ROWS, exact=True)
        row = x + row - y
        new = capped(y + column, 1.0, COLUMNS, exact=False)
        column = y + column - new
        if abs(new - y).max() < 1e-13 and abs(new - x).max() < 1e-13:
            break
        x = new
    return new


def algorithm_1(
    eta: FloatArray, sign: float, start: float, n_iterations: int = 10, step_size: float = 0.5
) -> FloatArray:
    """Return the marginals of Algorithm 1 for a matching by rows and columns.

    Line 6 adds `sign` times the duals; line 3 begins with every marginal at `start`.
    """
    delta = np.sqrt(DEGREE)
    mu, duals = np.full_like(eta, start), np.zeros((2, *eta.shape))
    for _ in range(n_iterations):
        local = (eta / delta + sign * duals + step_size * mu / delta) / (step_size + 1.0)
        copies = np.stack(
            [
                capped(local[0], 1.0 / delta, ROWS, exact=True),
                capped(local[1], 1.0 / delta, COLUMNS, exact=False),
            ]
        )
        mu = copies.sum(axis=0) / delta
        duals += step_size * (mu / delta - copies)
    return mu


ETA = 2.0 * np.random.default_rng(0).normal(size=(3, 4))


def test_algorithm_1_line_6_adds_the_duals() -> None:
    solution = nearest_matching(ETA)
    corrected = algorithm_1(ETA, +1.0, 0.0, 2000)
    np.testing.assert_allclose(corrected, solution, rtol=0, atol=1e-9)
    printed = algorithm_1(ETA, -1.0, 0.0, 2000)
    assert abs(printed - solution).max() > 0.3


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_the_option_algorithm_1_starts_at_zero_and_the_paper_at_one_over_the_degree() -> None:
    graph = FactorGraph()
    u = graph.variable_from(ETA)
    for row in range(ETA.shape[0]):
        graph.add(Xor(u[row]))
    for column in range(ETA.shape[1]):
        graph.add(AtMostOne(u[:, column]))
    graph.solve(**ALGORITHM_1)
    np.testing.assert_allclose(u.value, algorithm_1(ETA, +1.0, 0.0), rtol=0, atol=1e-12)
    printed = algorithm_1(ETA, +1.0, 1.0 / DEGREE)
    assert 1e-5 < abs(u.value - printed).max() < 1e-2
    np.testing.assert_allclose(
        algorithm_1(ETA, +1.0, 1.0 / DEGREE, 2000), nearest_matching(ETA), rtol=0, atol=1e-9
    )


def local_jacobian(copies: FloatArray, axis: int, *, exact: bool) -> FloatArray:
    """Return the Jacobian of `capped` for copies of degree 2, as a matrix over all variables."""
    index = np.moveaxis(np.arange(copies.size).reshape(copies.shape), axis, -1)
    found = np.zeros((copies.size, copies.size))
    for line in index.reshape(-1, index.shape[-1]):
        free = line[copies.reshape(-1)[line] > 1e-9]
        tight = exact or copies.reshape(-1)[line].sum() > 1.0 / np.sqrt(DEGREE) - 1e-9
        found[np.ix_(free, free)] = np.eye(len(free)) - tight / max(len(free), 1)
    return found


def products(eta: FloatArray) -> list[FloatArray]:
    """Return the local Jacobians of rows and columns at the solution."""
    copies = nearest_matching(eta) / np.sqrt(DEGREE)
    return [
        local_jacobian(copies, ROWS, exact=True),
        local_jacobian(copies, COLUMNS, exact=False),
    ]


def differences(eta: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the transposed Jacobian of a matching times a vector, by central differences."""
    found, h = np.zeros(eta.size), 1e-5
    for i in range(eta.size):
        step = np.zeros(eta.size)
        step[i] = h
        ahead, behind = (
            nearest_matching(eta + s * step.reshape(eta.shape)).reshape(-1) for s in (1.0, -1.0)
        )
        found[i] = direction @ (ahead - behind) / (2.0 * h)
    return found


def algorithm_2(eta: FloatArray, d: FloatArray, *, printed: bool) -> tuple[FloatArray, int]:
    """Return the result of Algorithm 2 and its iterations; line 8 as printed, or corrected."""
    delta, local = np.sqrt(DEGREE), products(eta)
    for t in range(1, 1001):
        copies = [d / delta, d / delta]
        gradients = [jacobian.T @ copy for jacobian, copy in zip(local, copies, strict=True)]
        new: FloatArray = sum(copies if printed else gradients) / delta  # type: ignore[operator]
        if np.linalg.norm(new - d) <= 1e-12:
            return new, t
        d = new
    return d, 1000


def test_algorithm_2_line_8_averages_the_local_gradients() -> None:
    d = np.random.default_rng(1).normal(size=ETA.size)
    expected = differences(ETA, d)
    corrected, _ = algorithm_2(ETA, d, printed=False)
    np.testing.assert_allclose(corrected, expected, rtol=0, atol=1e-6)
    found, n_iterations = algorithm_2(ETA, d, printed=True)
    assert n_iterations == 1  # it returns its input
    np.testing.assert_allclose(found, d, rtol=0, atol=1e-12)
    assert abs(found - expected).max() > 0.1


def test_equation_13_does_not_determine_the_jacobian() -> None:
    operator = sum(products(ETA)) / DEGREE
    values, vectors = np.linalg.eigh(operator)
    ones = vectors[:, values > 1.0 - 1e-9]
    jacobian = ones @ ones.T  # Eq. 60: the projection onto the eigenvectors of eigenvalue 1
    d = np.random.default_rng(2).normal(size=ETA.size)
    np.testing.assert_allclose(jacobian @ d, differences(ETA, d), rtol=0, atol=1e-6)
    for other in (jacobian, 0.0 * jacobian, 0.5 * jacobian):  # symmetric, and all satisfy Eq. 13
        np.testing.assert_allclose(operator @ other, other, rtol=0, atol=1e-9)


def test_equations_33_and_34_transpose_the_selector() -> None:
    """A variable in two factors, another in one: three copies of two variables."""
    selector = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    scaled = selector / np.sqrt(selector.sum(axis=0))
    copies = np.array([0.2, 0.6, 0.5]) / np.array([np.sqrt(2), np.sqrt(2), 1.0])
    with pytest.raises(ValueError, match="mismatch"):
        scaled @ copies
    np.testing.assert_allclose(scaled.T @ copies, [0.4, 0.5])  # the average of the copies


def test_equation_39_transposes_the_additionals() -> None:
    m = np.array([[1.0, 0.0], [0.0, 1.0]])  # two structures of two variables
    n = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 2.0]])  # and of three additionals
    z = np.linalg.inv(m.T @ m)
    q = z - np.outer(z.sum(axis=1), z.sum(axis=1)) / z.sum()
    with pytest.raises(ValueError, match="mismatch"):
        m @ q @ n
    eta, eta_n, h = np.array([0.3, 0.1]), np.array([0.2, -0.1, 0.05]), 1e-6

    def marginals(scores: FloatArray) -> FloatArray:
        system = np.block([[m.T @ m, np.ones((2, 1))], [np.ones((1, 2)), np.zeros((1, 1))]])
        p = np.linalg.solve(system, np.append(m.T @ eta + n.T @ scores, 1.0))[:2]
        assert (p > 0.0).all()
        found: FloatArray = m @ p
        return found

    found = np.stack(
        [(marginals(eta_n + step) - marginals(eta_n - step)) / (2 * h) for step in h * np.eye(3)],
        axis=1,
    )
    np.testing.assert_allclose(m @ q @ n.T, found, rtol=0, atol=1e-8)


def test_equation_40_maximises() -> None:
    """The minimum of the printed objective is a vertex, SparseMAP is inside."""
    eta = np.array([0.55, 0.45])
    weights = np.linspace(0.0, 1.0, 1001)
    p = np.stack([weights, 1.0 - weights])
    printed = eta @ p - 0.5 * (p**2).sum(axis=0)
    assert weights[printed.argmin()] == 0.0
    np.testing.assert_allclose(weights[printed.argmax()], 0.55)  # the projection of eta


def test_equations_95_and_98_bound_the_output_from_above() -> None:
    """The output of an or is on if an input is: its hull has sums of at least the output."""
    structures = np.array([[a, b, max(a, b)] for a, b in itertools.product((0, 1), repeat=2)])
    inputs, output = structures[:, :2].sum(axis=1), structures[:, 2]
    assert not (inputs <= output).all()
    assert (inputs >= output).all()


def test_equation_137_subtracts_the_linear_terms() -> None:
    rng = np.random.default_rng(3)
    delta, mu = rng.uniform(1.0, 2.0, size=2), rng.uniform(0.0, 0.5, size=(5, 2))

    def constant(sign: float) -> FloatArray:
        """Return the left side less the right side without its constant."""
        left = 0.5 * ((1.0 / delta - mu) ** 2 + mu**2).sum(axis=1)
        right: FloatArray = (mu**2 + sign * mu / delta).sum(axis=1)
        return left - right

    assert np.ptp(constant(-1.0)) < 1e-15
    assert np.ptp(constant(+1.0)) > 0.1


def pair(eta: FloatArray, eta_12: float, delta: FloatArray, factor: float) -> FloatArray:
    """Return the solution of Eq. 145 by its three cases, told apart by Eq. 160 and 162.

    `factor` multiplies the squares of delta there: 1 as printed, or `eta_12`.
    """
    a, b = delta * eta
    if a > b + delta[1] ** 2 * factor:
        gain = np.array([0.0, delta[1] * eta_12])
        return np.clip(eta + gain, 0.0, 1.0 / delta)
    if b > a + delta[0] ** 2 * factor:
        gain = np.array([delta[0] * eta_12, 0.0])
        return np.clip(eta + gain, 0.0, 1.0 / delta)
    both = ((eta / delta).sum() + eta_12) / (1.0 / delta**2).sum()
    found: FloatArray = np.clip(both, 0.0, 1.0) / delta
    return found


def pair_objective(mu: FloatArray, eta: FloatArray, eta_12: float, delta: FloatArray) -> float:
    """Return the objective of Eq. 145, with the largest feasible marginal of the pair."""
    return float(0.5 * ((eta - mu) ** 2).sum() - eta_12 * (delta * mu).min())


def test_equations_160_and_162_have_the_score_of_the_pair() -> None:
    delta, eta_12 = np.array([1.0, np.sqrt(2.0)]), 0.1
    for eta in (np.array([0.9, 0.2]), np.array([0.1, 0.6])):
        corrected, printed = (pair(eta, eta_12, delta, factor) for factor in (eta_12, 1.0))
        grid = np.stack(np.meshgrid(*(np.linspace(0, 1 / d, 401) for d in delta)), axis=-1)
        values = 0.5 * ((eta - grid) ** 2).sum(axis=-1) - eta_12 * (delta * grid).min(axis=-1)
        least = values.min()
        assert pair_objective(corrected, eta, eta_12, delta) <= least
        assert pair_objective(printed, eta, eta_12, delta) > least + 0.01


def test_listing_1_prints_the_gradient_of_a_name_it_defines() -> None:
    torch = pytest.importorskip("torch")
    eta = torch.tensor(ETA, requires_grad=True)
    eta.sum().backward()
    names = {"eta": eta}
    with pytest.raises(NameError, match="'x' is not defined"):
        exec("x.grad", names)
    exec("eta.grad", names)


def conditional_gradient(
    eta: FloatArray, structures: FloatArray, variant: str, *, line_4: str, line_20: str
) -> tuple[FloatArray, FloatArray]:
    """Return the weights and the point of SparseMAP's Algorithm 1 after 500 iterations.

    Lines 4 and 20 are ``"printed"`` or ``"corrected"``. The away direction of line 16 is that of
    line 4.
    """
    weights = np.eye(len(structures))[int((structures @ eta).argmax())]
    for _ in range(500):
        u = weights @ structures
        scores = structures @ (eta - u)
        s = int(scores.argmax())
        if scores[s] - (eta - u) @ u < 1e-12:
            break
        active = np.flatnonzero(weights > 0.0)
        values = scores[active]
        w = int(active[values.argmax() if line_4 == "printed" else values.argmin()])
        toward, away = np.eye(len(structures))[s] - weights, weights - np.eye(len(structures))[w]
        direction, most = toward, 1.0
        if variant == "pairwise":
            direction, most = toward + away, float(weights[w])
        elif scores @ toward < scores @ away:
            direction, most = away, float(weights[w] / (1.0 - weights[w]))
        d = direction @ structures
        step = 1.0
        if line_20 == "corrected":
            step = min(most, max(0.0, float((eta - u) @ d / max(d @ d, 1e-300))))
        weights = weights + step * direction
    return weights, weights @ structures


STRUCTURES = np.eye(6)[list(map(list, itertools.combinations(range(6), 3)))].sum(axis=1)
"""All choices of three of six variables."""

SCORES = np.array([0.9, 0.8, 0.7, 0.4, 0.2, -0.5])


def test_algorithm_1_of_sparsemap_line_20_multiplies_by_the_step() -> None:
    expected = capped_choice(SCORES)
    for variant in ("away", "pairwise"):
        weights, u = conditional_gradient(
            SCORES, STRUCTURES, variant, line_4="corrected", line_20="corrected"
        )
        assert weights.min() > -1e-12
        np.testing.assert_allclose(u, expected, rtol=0, atol=1e-5)
        _, printed = conditional_gradient(
            SCORES, STRUCTURES, variant, line_4="corrected", line_20="printed"
        )
        assert abs(printed - expected).max() > 0.05


def test_algorithm_1_of_sparsemap_line_4_finds_the_worst_structure() -> None:
    expected = capped_choice(SCORES)
    _, printed = conditional_gradient(
        SCORES, STRUCTURES, "pairwise", line_4="printed", line_20="corrected"
    )
    assert abs(printed - expected).max() > 0.05


def test_algorithm_1_of_sparsemap_line_16_names_the_direction_of_line_4() -> None:
    names = {"d_F": 1.0, "d_W": 2.0}  # what lines 3 and 4 define
    with pytest.raises(NameError, match="'d_A' is not defined"):
        exec("d = d_A", names)
    exec("d = d_W", names)


def capped_choice(eta: FloatArray) -> FloatArray:
    """Return the nearest point between 0 and 1 that sums to 3, by bisection."""
    low, high = -10.0, 10.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.clip(eta + middle, 0, 1).sum() < 3 else (low, middle)
    found: FloatArray = np.clip(eta + high, 0.0, 1.0)
    return found
