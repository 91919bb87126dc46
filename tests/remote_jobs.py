"""What tests let other processes do, in a module that these can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from lpsmap_core import FactorGraph
from lpsmap_factors_logic import Xor

__all__ = ["fails_at_three", "first_waits", "kills_always_at_two", "kills_once", "marginals"]
__all__ += ["positions", "row", "slow_row"]


def marginals(graph: Any) -> list[Any]:
    """Solve a graph; return the marginals of every factor's variables."""
    graph.solve()
    return [factor.variables.value for factor in graph.factors]


def row(number: int) -> FactorGraph:
    """Return a graph of one factor whose best variable is a number's last digit."""
    graph = FactorGraph()
    u = graph.variable_from(np.where(np.arange(10) == number % 10, 1.0, 0.0))
    graph.add(Xor(u))
    return graph


def slow_row(number: int) -> FactorGraph:
    """Return `row`, late."""
    time.sleep(0.02)
    return row(number)


def first_waits(problem: tuple[int, Path]) -> FactorGraph:
    """Return `row`; number 0 waits until there is a file."""
    number, go = problem
    while number == 0 and not go.exists():
        time.sleep(0.01)
    return row(number)


def fails_at_three(number: int) -> FactorGraph:
    """Return `row`, but for 3 raise an error that no pickle can hold."""
    if number == 3:
        error = ValueError("three")
        error.args = ("three", lambda: None)
        raise error
    return row(number)


def kills_once(problem: tuple[int, Path]) -> FactorGraph:
    """Return `row`; number 5 kills its worker the first time, which a file remembers."""
    number, mark = problem
    if number == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return slow_row(number)


def kills_always_at_two(number: int) -> FactorGraph:
    """Return `row`; number 2 kills its worker each time."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return slow_row(number)


def positions(graph: FactorGraph, found: Any) -> list[int]:
    """Return what is on, in the words of the graph's factor."""
    return [structures[0].decoded["on"][0] for structures in found.structures(graph.factors[0])]
