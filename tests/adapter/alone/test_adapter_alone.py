"""The adapter to torch on core and lpsmap_dynamic alone: a third party's factor has gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lpsmap_core import Factor
from lpsmap_torch import TorchFactorGraph
from lpsmap_torch.layers import SparseMAP


class ExactlyOne(Factor):
    """One variable is on."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: int) -> tuple[Any, Any]:
        return np.eye(self.event_shape[0])[y], np.zeros(0)


def test_gradients_reach_the_scores() -> None:
    scores = torch.tensor([[0.9, 0.7, 0.1], [0.3, 0.2, -4.0]], requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(ExactlyOne(u))
    graph.solve()
    u.value[1, 0].backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(u.value[1], torch.tensor([0.55, 0.45, 0.0]))
    torch.testing.assert_close(scores.grad, torch.tensor([[0.0] * 3, [0.5, -0.5, 0.0]]))


def test_a_layer_of_any_type() -> None:
    marginals = SparseMAP(ExactlyOne)(torch.tensor([0.3, 0.1, -1.0]))
    torch.testing.assert_close(marginals, torch.tensor([0.6, 0.4, 0.0]))
