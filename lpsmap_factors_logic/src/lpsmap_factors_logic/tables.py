"""Factors as tables over variables of several states, for ``lpsmap-decode``."""

from __future__ import annotations

from typing import NamedTuple

from lpsmap_core.api import FloatArray, IntArray

__all__ = ["TableFields"]


class TableFields(NamedTuple):
    """What ``as_tables`` returns: the fields of ``lpsmap_decode.Tables``, which explains them."""

    n_blocks: IntArray
    block_sizes: IntArray
    always: bool
    fixed: FloatArray
    additional: IntArray
