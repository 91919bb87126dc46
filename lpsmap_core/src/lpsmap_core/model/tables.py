"""Factors as tables over variables of several states."""

from __future__ import annotations

from typing import NamedTuple

from lpsmap_core.kernels.arrays import FloatArray, IntArray

__all__ = ["Tables"]


class Tables(NamedTuple):
    """What the structures of many factors are, as tables over blocks of their slots.

    A block is a variable of several states, one for each of its slots that is on. The slots of a
    factor are its blocks, one after the other. A table has an entry for every choice of states, the
    last block's the fastest.

    Attributes
    ----------
    n_blocks
        For each factor, its number of blocks.
    block_sizes
        For each block of all factors, its number of slots.
    always
        Whether exactly one slot of a block is on. Otherwise none may be, which is one more state,
        the last.
    fixed
        For each entry of all tables, 0, or ``-inf`` if no structure is like that.
    additional
        For each entry, which additional of the bucket scores it, -1 for none.
    """

    n_blocks: IntArray
    block_sizes: IntArray
    always: bool
    fixed: FloatArray
    additional: IntArray
