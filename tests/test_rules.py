"""The rules of the judge, written from the documentation, agree with the oracles of the types."""

from __future__ import annotations

import numpy as np
import pytest

import stress_decoding
from lpsmap_core import FactorGraph
from lpsmap_core.testing.oracle import Oracle
from lpsmap_factors_logic import AtMostOne
from rules import RULES
from stress_graphs import Piece, Row, structures_of, templates_of


@pytest.mark.parametrize("kind", sorted(RULES))
def test_rules_allow_what_oracles_give(kind: str) -> None:
    judged = 0
    for template in templates_of(kind):
        rng = np.random.default_rng(0)
        eta_v = rng.normal(size=template.shape_v)
        numbers, off = np.arange(template.size), np.zeros(template.size, dtype=bool)
        tables = stress_decoding.factor_tables(Piece(template, numbers, off, eta_v))
        for row, table, scores in zip(template.rows, tables, eta_v, strict=True):
            if len(row.places) <= stress_decoding.MAX_SLOTS:
                judged += 1
                assert _scores(row, scores) == pytest.approx(
                    {on.tobytes(): float(s) for on, s in zip(table.on, table.score, strict=True)}
                )
    assert judged


def _scores(row: Row, eta_v: np.ndarray) -> dict[bytes, float]:
    """Return the best score of every assignment that the oracle returns."""
    whole = np.isin(row.m, (0.0, 1.0)).all(axis=1)
    order = np.argsort(row.places)
    best: dict[bytes, float] = {}
    for m, n in zip(row.m[whole] > 0.5, row.n[whole], strict=True):
        key = m[order].tobytes()
        best[key] = max(best.get(key, -np.inf), float(n @ eta_v))
    return best


def test_a_row_of_no_variables_has_one_structure() -> None:
    factor = AtMostOne(FactorGraph().variable((2, 3)), lengths=np.array([0, 2]))
    listed = structures_of(Oracle(factor, 0))
    assert listed is not None
    assert [part.shape for part in listed] == [(1, 0), (1, 0)]


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [77, 164, 850, 5171, 70352])
def test_graphs_that_the_run_found(seed: int) -> None:
    """Graphs on which a check of the stress run failed once.

    Their scores are near the largest number, so that forcing a variable needs larger ones; or the
    scores of additionals are lost in the rounding of those that force the variables; or masks of
    negated variables cancel in a bound and leave only rounding.
    """
    assert not stress_decoding.checked(seed).wrong
