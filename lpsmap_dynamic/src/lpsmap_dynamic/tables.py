"""Factors as tables over multi-state variables: what the method `as_tables` returns."""

from __future__ import annotations

from typing import NamedTuple

from lpsmap_core.api import FloatArray, IntArray


class Tables(NamedTuple):
    """The structures of factors as tables over blocks of their slots.

    A block is a multi-state variable; state i means that slot i of the block is on. The slots of a
    factor are its blocks, one after the other. A table has an entry for every choice of states, the
    last block's state fastest.

    Attributes
    ----------
    n_blocks
        For each factor, its number of blocks.
    block_sizes
        For each block of all factors, its number of slots.
    always
        Whether exactly one slot of a block is on. Otherwise all may be off, which is an additional
        last state.
    first_entry
        For each factor, where the entries of its table begin in the next two arrays. Tables that
        differ in their scores alone begin at the same entry.
    fixed
        For each entry, 0, or ``-inf`` if no structure corresponds to it.
    additional
        For each entry, the additional that scores it, counted from the first one of its factor; -1
        for none.
    """

    n_blocks: IntArray
    block_sizes: IntArray
    always: bool
    first_entry: IntArray
    fixed: FloatArray
    additional: IntArray
