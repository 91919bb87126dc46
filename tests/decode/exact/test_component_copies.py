"""Copies of a component, side by side."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core.engine.admm import solve_part
from lpsmap_core.engine.options import Options
from lpsmap_decode.exact.component_copies import copies_of
from random_graphs import KINDS, random_graph

KEPT = [*KINDS, "Sequence"]


@pytest.mark.parametrize("seed", range(15))
def test_every_copy_is_solved_as_the_component_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, _, _ = random_graph(rng, 8, kinds=KEPT).build()
    solution = graph.solve(threads=1)
    part = solution.layout.part
    eta, eta_v = (
        graph.flat_scores()[part.variables],
        part.by_bucket(solution.additional_scores, graph.factors),
    )
    for c in range(part.n_components):
        variables = slice(*part.first_variable[c : c + 2].tolist())
        copies = copies_of(part, c, 3)
        own = [eta_v[part.additionals_of(b)] for b in range(len(part.buckets))]
        own = [
            scores[np.repeat(bucket.component == c, np.diff(bucket.additional_offsets))]
            for scores, bucket in zip(own, part.buckets, strict=True)
            if (bucket.component == c).any()
        ]
        tiled = np.concatenate([np.empty(0), *(np.tile(scores, 3) for scores in own)])
        skip = np.array([False, True, False])
        state = solve_part(copies, np.tile(eta[variables], 3), tiled, skip, Options())
        found = state.marginals().reshape(3, -1)
        np.testing.assert_allclose(found[0], solution.values[part.variables][variables], atol=1e-12)
        np.testing.assert_array_equal(found[0], found[2])
        assert (state.problem.progress.iterations > 0).tolist() == [True, False, True]
