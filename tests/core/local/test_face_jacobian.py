"""Derivatives by face codes, in both forms, and the solutions that note these codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap_core import (
    FREE,
    LOWER,
    TIED,
    TIGHT,
    UPPER,
    Direction,
    Factors,
    LocalSolution,
    Product,
    boxed_solution,
)
from lpsmap_core.face_codes import face_jvp, face_jvp_kernel
from lpsmap_core.local.solvers import has_array_code, has_kernels
from sound_types import Closed, ClosedKernel

FACES = [
    ([LOWER, UPPER, LOWER], 0),
    ([FREE, FREE, UPPER], 0),
    ([FREE, FREE, LOWER], TIGHT),
    ([TIED, LOWER, TIED], 0),
    ([TIED, TIED + 1, FREE, TIED, TIED + 1, UPPER], 0),
    ([TIED, FREE, FREE, TIED, LOWER, TIED + 4], TIGHT),
    ([LOWER, LOWER], TIGHT),
    ([], TIGHT),
]


def projector(face: np.ndarray, branch: int, delta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the projector onto the directions in which slots of some codes may move."""
    matrix = np.diag(1.0 * (face == FREE))
    if branch == TIGHT and (face == FREE).any():
        w = np.where(face == FREE, weights * delta, 0.0)
        matrix -= np.outer(w, w) / (w @ w)
    for code in set(face.tolist()) - {FREE, LOWER, UPPER}:
        w = np.where(face == code, 1.0 / delta, 0.0)
        matrix += np.outer(w, w) / (w @ w)
    return matrix


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("codes", "branch"), FACES)
def test_products_are_projections(
    rng: np.random.Generator, codes: list[int], branch: int, weighted: bool
) -> None:
    n, face = len(codes), np.array(codes, dtype=np.int8)
    delta, d = np.sqrt(rng.integers(1, 5, size=n)), rng.normal(size=n)
    weights = rng.random(n) + 0.5 if weighted else np.ones(n)
    expected = projector(face, branch, delta, weights) @ d

    solution = LocalSolution(d, d[:0], face[None], np.array([branch], dtype=np.int8))
    out = face_jvp(solution, d[None], delta[None], weights[None] if weighted else None)
    np.testing.assert_allclose(out[0], expected, atol=1e-14)

    nothing, none = np.zeros(2, dtype=np.int64), np.empty(0, dtype=np.int64)
    per_link = weights if weighted else np.empty(0)
    factors = Factors(
        np.array([0, n]),
        nothing,
        np.empty((1, 0)),
        per_link,
        none,
        np.empty((0, 2), dtype=np.int64),
    )
    d_u, out_u = np.where((face == LOWER) | (face == UPPER), np.nan, d), np.full(n, np.nan)
    direction = Direction(delta, face, solution.branch, d_u, np.empty(0))
    face_jvp_kernel(np.zeros(1, dtype=np.int64), factors, direction, Product(out_u, np.empty(0)))
    np.testing.assert_allclose(out_u, expected, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solutions_are_exact_at_bounds(dtype: Any) -> None:
    delta = np.sqrt(np.array([[1.0, 2.0, 3.0, 1.0, 1.0]])).astype(dtype)
    epsilon = np.finfo(dtype).eps
    m = np.array([[-0.1, epsilon, 1.0 - epsilon, 0.5, 2.0]], dtype=dtype)
    found = boxed_solution(m, delta, np.ones_like(m), tight=True)
    assert found.face.tolist() == [[LOWER, LOWER, UPPER, FREE, UPPER]]
    assert found.z.tolist() == [[0.0, 0.0, (1 / delta)[0, 2], (m / delta)[0, 3], 1.0]]
    assert found.branch.tolist() == [TIGHT]
    assert found.v.shape == (1, 0)
    assert found.face.dtype == found.branch.dtype == np.int8


def test_groups_have_codes_and_rows_share_numbers() -> None:
    delta = np.ones((2, 3))
    codes = np.array([TIED, FREE, TIED + 1])
    found = boxed_solution(np.array([[0.5], [1.0]]), delta, 1.0, code=codes)
    assert found.face.tolist() == [[TIED, FREE, TIED + 1], [UPPER] * 3]
    assert found.branch.tolist() == [0, 0]


def test_what_rounds_is_at_a_bound_by_the_size_of_its_scores() -> None:
    m, delta = np.full((1, 2), 1e-9), np.ones((1, 2))
    found = boxed_solution(m, delta, np.array([[1.0, 1e7]]))
    assert found.face.tolist() == [[FREE, LOWER]]


class OwnInArrays(ClosedKernel):
    """Differentiates its array code itself, and nothing else."""

    @classmethod
    def jvp(cls, *arguments: Any) -> Any:
        return super().jvp(*arguments)


class OwnKernel(ClosedKernel):
    """The other way round."""

    @staticmethod
    def jvp_kernel(*arguments: Any) -> None:
        face_jvp_kernel(*arguments)


@pytest.mark.parametrize(
    ("cls", "kernels", "arrays"),
    [
        (Closed, False, True),
        (ClosedKernel, True, True),
        (OwnInArrays, False, True),
        (OwnKernel, True, False),
    ],
)
def test_no_form_is_differentiated_by_what_another_replaces(
    cls: Any, kernels: bool, arrays: bool
) -> None:
    assert has_kernels(cls) is kernels
    assert has_array_code(cls) is arrays


def test_codes_beyond_a_byte_are_rejected() -> None:
    m, delta = np.full((1, 3), 0.5), np.ones((1, 3))
    assert boxed_solution(m, delta, m, code=np.array([TIED, 126, 127])).face.tolist() == [
        [TIED, 126, 127]
    ]
    with pytest.raises(ValueError, match="code: got 128; expected at most 127"):
        boxed_solution(m, delta, m, code=np.array([TIED, 127, 128]))
