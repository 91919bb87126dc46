"""The experiments of the two SparseMAP papers, run again: `python -m experiments --help`.

Readers of data and models that examples have as well are imported from there.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.append(str(ROOT / "examples"))
