"""Leaves that would lose memory are refused, and caches of other versions are forgotten."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from forks import Server
from lpsmap_core import kernel, leaf

pytestmark = pytest.mark.compiled

# -------------------------------------------------------------------- leaves


@kernel
def _fresh(n):
    return np.ones(n)


@kernel
def _fresh_pair(n):
    return n, np.ones(n)


@kernel
def _fresh_total(n):
    return np.ones(n).sum()


@leaf
def _inner(x, y):
    return x[0] * y[-1]


@pytest.mark.parametrize("maker", [_fresh, _fresh_pair])
def test_a_leaf_may_not_be_handed_memory(maker) -> None:
    @leaf
    def careless(n):
        maker(n)
        return 0.0

    with pytest.raises(
        TypeError, match=r"leaf .*careless calls _fresh.*Make it a leaf as well, or"
    ):
        careless(3)


def test_a_leaf_may_not_make_arrays() -> None:
    @leaf
    def wasteful(n):
        return np.ones(n)[0]

    with pytest.raises(TypeError, match=r"leaf .*wasteful allocates an array.* Make it a kernel"):
        wasteful(3)


def test_a_leaf_slices_and_calls_leaves_and_kernels_that_return_numbers() -> None:
    @leaf
    def good(x):
        return _inner(x[1:3], x[2:]) + _fresh_total(4)

    x = np.arange(6.0)
    references = sys.getrefcount(x)
    assert good(x) == 1.0 * 5.0 + 4.0
    assert sys.getrefcount(x) == references


# -------------------------------------------------------------------- the cache

MODULE = """
from typing import NamedTuple
import numpy as np
from lpsmap_jit import kernel

class {name}(NamedTuple):
    x: np.ndarray

@kernel
def total(record):
    return record.x.sum()

print(total({name}(np.ones(3))))
"""


def test_a_cache_that_names_what_is_gone_is_forgotten(tmp_path: Path, server: Server) -> None:
    """As after an upgrade in place: the folder keeps what an older version compiled."""
    for name in ("Before", "After"):
        (tmp_path / "module.py").write_text(MODULE.format(name=name), encoding="utf-8")
        program = server.begin("import module", tmp_path, os.environ)
        printed, errors = program.communicate()
        assert (program.returncode, printed) == (0, "3.0\n"), errors
