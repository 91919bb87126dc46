"""Shares that threads take in turn inside compiled code, by a counter that all of them see."""

from __future__ import annotations

import _thread
from typing import Any

from lpsmap_core.kernels.arrays import IntArray
from lpsmap_core.kernels.compile import COMPILED, interpreted_by, leaf

__all__ = ["next_in_turn", "next_turn_in_python"]

_lock = _thread.allocate_lock()


def next_turn_in_python(taken: IntArray) -> int:
    """Return how many turns were taken before, and take one; for counters that no kernel has."""
    with _lock:
        turn = int(taken[0])
        taken[0] = turn + 1
    return turn


_take: Any

if COMPILED:
    from lpsmap_core.kernels.numba_names import intrinsic, ir, types

    @intrinsic  # type: ignore[untyped-decorator]
    def _take(typing_context: Any, taken: Any) -> Any:
        """Do what `_next_turn` does."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            counter = context.make_array(signature.args[0])(context, builder, values[0])
            return builder.atomic_rmw("add", counter.data, ir.IntType(64)(1), "monotonic")

        return types.int64(taken), generate

else:
    _take = None


@interpreted_by(next_turn_in_python)
@leaf
def _next_turn(taken: IntArray) -> int:
    """Return how many turns were taken before, and take one, in one instruction."""
    turn: int = _take(taken)
    return turn


@leaf
def next_in_turn(i: int, end: int, bounds: IntArray, taken: IntArray) -> tuple[int, int]:
    """Return the next item and the end of its share.

    Parameters
    ----------
    i, end
        Where this thread is in its share; after its last item, it takes another one.
    bounds
        Where each share begins; then where the last one ends.
    taken
        (1,) how many shares were taken.

    Returns
    -------
    i, end
        Equal if all shares are taken.
    """
    if i < end:
        return i, end
    share = _next_turn(taken)
    if share >= len(bounds) - 1:
        return end, end
    return bounds[share], bounds[share + 1]
