"""Layers of one pack where the other is not installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lpsmap import DepTree
from lpsmap_torch import built_graph
from lpsmap_torch.layers import LatentTree, SparseMAP

ONLY_STRUCTURES = {"DepTree": built_graph.installed().factors["DepTree"]}


class Installed:
    factors = ONLY_STRUCTURES


@pytest.mark.parametrize("make", [lambda: SparseMAP(DepTree), LatentTree])
@pytest.mark.parametrize("shape", [(2, 3, 3), (0, 3, 3), (2, 0, 0)])
def test_a_batch_without_words_needs_no_logic_factors(
    make: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_graph, "installed", Installed)
    scores = torch.zeros(shape, requires_grad=True)
    layer, lengths = make(), torch.zeros(shape[0], dtype=torch.int64)
    found = layer(scores, lengths=lengths, return_solution=True)
    assert found.marginals.shape == shape
    assert not found.marginals.any()
    assert not any(found.structures().to_dict()["distributions"])
    found.marginals.sum().backward()
    assert not any(layer.structures(scores, lengths=lengths).to_dict()["distributions"])
