"""Check that kernels stay within their arrays, before they run compiled.

Compiled code does not validate indices: one far out of bounds ends the process without a message.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import local_problems
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.oracle import queries, shared_arrays
from lpsmap_core.testing.purity import compiled_calls
from lpsmap_core.testing.rules import broken
from lpsmap_jit.tiers import CAN_INTERPRET, interpreted

INTERPRETED = 3
"""Number of problems for interpreted kernels, which are slow."""


def check_indices(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Interpreted, all indices of kernels and methods are within bounds."""
    if not CAN_INTERPRET:
        return
    for name, call in _calls(factor, seed, min(draws, INTERPRETED)):
        try:
            with interpreted():
                call()
        except IndexError as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            expected = "indices within the arrays; offsets[r] to offsets[r + 1] for factor r"
            if name == "solve_map" and shared_arrays(factor):
                expected = f"indices within the arrays; {shared_arrays(factor)}"
            raise broken(
                "kernels and methods stay within their arrays, because compiled code does not "
                "validate indices, and ends the process or overwrites other numbers",
                f"{type(factor).__name__}.{name}: IndexError: {error}, in line {last.lineno} of "
                f"{Path(last.filename).name}: {last.line}",
                expected,
                repr(factor),
            ) from error
        except Exception:  # other checks report it, unless compiled code does not raise it
            continue


def _calls(factor: Factor, seed: int, draws: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield calls of all methods and kernels that may be compiled, with their names."""
    rng = np.random.default_rng(seed)
    for oracle, scores in queries(factor, rng, draws):
        yield "solve_map", functools.partial(oracle.of, scores)
    problems = local_problems(factor, rng, draws, decades=1.0)
    names = {
        "compiled closed form": "projection_kernel or jvp_kernel",
        "array closed form": "solve_sparsemap or jvp",
    }
    try:
        calls = compiled_calls(problems)
    except Exception:  # other checks report it
        return
    for name, call in calls.items():
        yield names.get(name, name), call
