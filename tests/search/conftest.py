"""Fixtures of the tests of lpsmap-search."""

from __future__ import annotations

import pytest

from lpsmap_search.incumbents import Incumbent


@pytest.fixture
def poor_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches begin at restarts of Viterbi EM alone.

    What is found later must then come from boxes, so that a box that is lost is noticed.
    """
    for further in ("_relax", "_soften", "_perturb"):
        monkeypatch.setattr(Incumbent, further, lambda self, *_: None)
