"""Shares of work that threads take in turn."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from lpsmap_jit.arrays import IntArray
from lpsmap_jit.threads import COUPLED_WORK, MIN_SHARE, MIN_WORK, cut, in_shares


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_item_is_taken_once(threads: int, rng: np.random.Generator) -> None:
    for n in (1, 2, 40, 3000):
        items, sizes = rng.permutation(n), rng.integers(0, 2_000, n)
        seen = np.zeros(n, dtype=np.int64)

        def count(share: IntArray, seen: IntArray = seen) -> int:
            seen[share] += 1
            time.sleep(0)
            return len(share)

        assert sum(in_shares(count, items, sizes, threads)) == n
        assert (seen == 1).all()
    assert in_shares(len, items[:0], sizes[:0], threads) == []


def test_shares_become_smaller_and_end_small(rng):
    for n, threads, most in [(16, 2, 400), (4096, 2, 64), (999, 7, 300), (50, 3, 10_000)]:
        sizes = rng.integers(most // 2, most + 1, n)
        bounds, used = cut(sizes, threads)
        assert bounds[0] == 0
        assert bounds[-1] == n
        assert (np.diff(bounds) > 0).all()
        work = np.diff(np.append(0, np.cumsum(sizes))[bounds])
        assert used == min(threads, sizes.sum() // MIN_WORK, len(work))
        assert work.max() <= sizes.sum() / (2 * used) + most
        assert work[-1] <= MIN_SHARE + most
    for n, threads in [(0, 4), (1, 4), (7, 1), (7, 4)]:  # nothing to share
        bounds, used = cut(np.full(n, 400), threads)
        assert (bounds.tolist(), used) == ([0, n], 1)


@pytest.mark.parametrize(
    ("sizes", "threads", "works"),
    [
        ([25_000] * 4, 2, [50_000] * 2),  # side by side, in place of four shares
        ([8_000] * 40, 2, [80_000, 64_000, 64_000, 64_000, 48_000]),
        ([12_000] * 4, 4, [12_000] * 4),
        ([3_000] * 7, 2, [21_000]),
    ],
)
def test_cheap_work_comes_in_blocks(sizes: list[int], threads: int, works: list[int]) -> None:
    bounds, used = cut(np.array(sizes), threads, COUPLED_WORK)
    assert np.diff(np.append(0, np.cumsum(sizes))[bounds]).tolist() == works
    assert used == min(threads, len(works))


@pytest.mark.compiled
def test_what_a_thread_raises_comes_out_once_all_are_done():
    done = []

    def fail_in_helpers(share: IntArray) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise LookupError("in a helper")
        time.sleep(0.01)
        done.append(len(share))

    with pytest.raises(LookupError, match="in a helper"):
        in_shares(fail_in_helpers, np.arange(40), np.full(40, 1_000), 2)
    assert sum(done) > 20
