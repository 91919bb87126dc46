"""The equations of the interior point method."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lpsmap_torch.tensor.equations import Equations


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def test_equations_have_the_solutions_of_numpy() -> None:
    half = normal(2, 15, 20)
    matrix, right = half @ half.mT, normal(2, 15, seed=3)
    expected = np.linalg.solve(matrix.numpy(), right.numpy()[..., None])[..., 0]
    found = Equations(matrix).solve(right).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_singular_equations_have_some_solution() -> None:
    half = normal(2, 6, 3)
    matrix, x = half @ half.mT, normal(2, 6, seed=1)
    right = (matrix @ x.unsqueeze(-1)).squeeze(-1)
    found = Equations(matrix).solve(right)
    image = (matrix @ found.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(image, right, rtol=0, atol=1e-11)
