"""Experiments on real data, most of the two SparseMAP papers: `python -m experiments --help`.

Data readers and models shared with the examples are imported from there.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.append(str(ROOT / "examples"))
