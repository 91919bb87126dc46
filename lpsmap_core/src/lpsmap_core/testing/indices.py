"""Check that kernels stay within their arrays, before any runs compiled.

Compiled code looks at no index: one far out of bounds ends the process without a word.
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
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.oracle import oracles_of
from lpsmap_core.testing.purity import compiled_questions
from lpsmap_core.testing.rules import broken
from lpsmap_jit.tiers import CAN_INTERPRET, interpreted

__all__ = ["check_indices"]

INTERPRETED = 3
"""Problems that kernels solve as the Python that they are, which is slow."""


def check_indices(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Interpreted, no kernel or method asks for an entry that its arrays do not have."""
    if not CAN_INTERPRET:
        return
    for name, ask in _questions(factor, seed, min(draws, INTERPRETED)):
        try:
            with interpreted():
                ask()
        except IndexError as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise broken(
                "kernels and methods stay within their arrays, because compiled code does not look "
                "at indices, and ends the process or overwrites other numbers",
                f"{type(factor).__name__}.{name}: IndexError: {error}, in line {last.lineno} of "
                f"{Path(last.filename).name}: {last.line}",
                "indices of the arrays' own entries; of factor r, offsets[r] to offsets[r + 1]",
                repr(factor),
            ) from error
        except Exception:  # is for the check of what raised it, or for none: compiled code differs
            continue


def _questions(factor: Factor, seed: int, draws: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield calls of all that may run compiled, by the names of the attributes."""
    rng = np.random.default_rng(seed)
    for oracle in oracles_of(factor):
        for scores in random_scores(rng, draws, oracle.size):
            yield "solve_map", functools.partial(oracle.of, scores)
    problems = local_problems(factor, rng, draws, decades=1.0)
    names = {
        "compiled closed form": "projection_kernel or jvp_kernel",
        "array closed form": "solve_sparsemap or jvp",
    }
    try:
        asked = compiled_questions(problems)
    except Exception:  # likewise
        return
    for name, ask in asked.items():
        yield names.get(name, name), ask
