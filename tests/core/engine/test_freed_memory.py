"""Processes that overwrite memory when it is freed live, and give the same answers."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize

from environments import ROOT

pytestmark = pytest.mark.compiled

OVERWRITTEN = {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"}
"""The C library's setting, by which freed memory is overwritten, and Python's to use the C library.

Other systems' libraries do not know the first; then these are tests of sizes alone.
"""

SHAPES = [(40, 40), (10, 12)]

MATCHINGS = f"""
import numpy as np
from lpsmap_core import FactorGraph
from lpsmap_factors_logic import AtMostOne, Xor

for shape in {SHAPES}:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal(shape))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    print(graph.solve_map(threads=1).objective.sum())
"""


def run(*arguments: str, **environment: str) -> str:
    """Run Python in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-300:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_matchings_are_solved() -> None:
    said = run("-c", MATCHINGS, **OVERWRITTEN)
    for shape, found in zip(SHAPES, said.split(), strict=True):
        scores = np.random.default_rng(0).standard_normal(shape)
        best = scores[optimize.linear_sum_assignment(scores, maximize=True)].sum()
        assert float(found) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(
    "shape",
    [
        (6, 8),
        *(pytest.param(shape, marks=pytest.mark.slow) for shape in ((10, 12), (20, 24), (48, 52))),
    ],
    ids=lambda shape: f"{shape[0]}x{shape[1]}",
)
def test_rows_of_every_type_beside_columns(shape: tuple[int, int]) -> None:
    said = run(str(ROOT / "tests" / "matched_rows.py"), *map(str, shape), **OVERWRITTEN)
    assert said.endswith("done\n")
