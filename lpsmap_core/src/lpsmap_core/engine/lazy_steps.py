"""Steps of the loop that many solves do not need, compiled when the loop first calls them.

Each function returns false if its kernel could not be compiled; all kernels then return.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.engine.anderson import History, accelerate
from lpsmap_core.engine.faces import FaceWorkspace
from lpsmap_core.engine.newton_start import start_from_multipliers
from lpsmap_core.engine.polish import Polish, polish_settled
from lpsmap_core.engine.problem import LoopProblem
from lpsmap_core.engine.selection import Selection
from lpsmap_jit.arrays import IntArray
from lpsmap_jit.by_address import address_type_of, type_of
from lpsmap_jit.compile import COMPILED, interpreted_by, leaf
from lpsmap_jit.lazy_kernels import kernel_at, place_of
from lpsmap_jit.native import invoke

__all__ = ["PLACES", "call_acceleration", "call_polish", "call_start"]

_START, _POLISH, _ACCELERATE = 0, 1, 2

if COMPILED:
    from lpsmap_jit.numba_names import types

    _selection, _problem = type_of(Selection), address_type_of(LoopProblem)
    _table = types.Array(types.int64, 2, "C")
    _memory = address_type_of(Polish), address_type_of(FaceWorkspace)
    PLACES: IntArray = np.array(
        [
            place_of(start_from_multipliers, _selection, _problem),
            place_of(polish_settled, _selection, _table, _problem, *_memory, types.float64),
            place_of(accelerate, types.int64, _problem, type_of(History)),
        ]
    )

else:
    PLACES = np.zeros(3, dtype=np.int64)


def _start(places: IntArray, selection: Selection, problem: LoopProblem) -> bool:
    start_from_multipliers(selection, problem)
    return True


def _polish(places: IntArray, *arguments: Any) -> bool:
    polish_settled(*arguments)
    return True


def _accelerate(places: IntArray, *arguments: Any) -> bool:
    accelerate(*arguments)
    return True


@interpreted_by(_start)
@leaf
def call_start(places: IntArray, selection: Selection, problem: LoopProblem) -> bool:
    """Call `start_from_multipliers`."""
    address = kernel_at(places[_START])
    if address != 0:
        invoke(address, (selection, problem))
    return address != 0


@interpreted_by(_polish)
@leaf
def call_polish(
    places: IntArray,
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: FaceWorkspace,
    tol: float,
) -> bool:
    """Call `polish_settled`."""
    address = kernel_at(places[_POLISH])
    if address != 0:
        invoke(address, (selection, solver_table, problem, polish, work, tol))
    return address != 0


@interpreted_by(_accelerate)
@leaf
def call_acceleration(places: IntArray, c: int, problem: LoopProblem, history: History) -> bool:
    """Call `accelerate`."""
    address = kernel_at(places[_ACCELERATE])
    if address != 0:
        invoke(address, (c, problem, history))
    return address != 0
