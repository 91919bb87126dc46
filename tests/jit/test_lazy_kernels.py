"""Kernels that are compiled when compiled code first calls them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from forks import Server
from lpsmap import FactorGraph, Xor
from lpsmap_core import FREE, kernel, leaf
from lpsmap_jit import lazy_kernels
from lpsmap_jit.lazy_kernels import kernel_at, place_of, raise_late
from lpsmap_jit.native import invoke

pytestmark = pytest.mark.compiled


@kernel
def double(values):
    for i in range(len(values)):
        values[i] *= 2.0


@kernel
def broken(values):
    values.no_such_attribute()


@kernel
def call(place, values, n):
    from_place = 0
    for _ in range(n):
        address = kernel_at(place)
        if address == 0:
            return from_place
        invoke(address, (values,))
        from_place += 1
    return from_place


def _place(function) -> int:
    import numba

    return place_of(function, numba.types.Array(numba.types.float64, 1, "C"))


def test_a_kernel_is_compiled_by_the_first_call_from_compiled_code() -> None:
    place, values = _place(double), np.ones(3)
    assert place < 0
    assert not double.overloads
    assert call(place, values, 0) == 0
    assert not double.overloads
    threads = [threading.Thread(target=call, args=(place, np.ones(3), 1)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert call(place, values, 3) == 3
    for thread in threads:
        thread.join()
    assert len(double.overloads) == 1
    np.testing.assert_array_equal(values, np.full(3, 8.0))
    raise_late()


def test_a_strided_array_is_not_read_as_a_contiguous_one() -> None:
    from numba.core.errors import NumbaError

    place, values = _place(double), np.ones(6)
    with pytest.raises(NumbaError, match="expected a contiguous array"):
        call(place, values[::2], 1)
    assert call(place, values[3:], 1) == 1
    np.testing.assert_array_equal(values, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0])


def test_errors_of_compiling_are_raised_once_the_loop_is_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba.core.errors import TypingError

    # a kernel that others would compile, too, keeps no place
    monkeypatch.setattr(lazy_kernels, "_kernels", list(lazy_kernels._kernels))
    monkeypatch.setattr(lazy_kernels, "_numbers", dict(lazy_kernels._numbers))
    place = _place(broken)
    for _ in range(2):
        assert call(place, np.ones(1), 5) == 0
        with pytest.raises(TypingError, match="no_such_attribute"):
            raise_late()
    raise_late()


@leaf
def _refuse(rows, factors, scores, solution):
    for r in rows:
        if scores.a[factors.offsets[r]] > 8.0:
            raise ValueError("above 8")
        for i in range(factors.offsets[r], factors.offsets[r + 1]):
            solution.z[i] = min(max(scores.a[i], 0.0), 1.0 / scores.delta[i])
            solution.face[i] = FREE


class Refusing(Xor):
    """A type whose kernel raises."""

    projection_kernel = _refuse


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_that_kernels_raise_come_out_of_a_solve(threads: int) -> None:
    graph = FactorGraph()
    scores = np.zeros((4000, 3))
    u = graph.variable_from(scores)
    graph.add(Refusing(u))

    def solved() -> np.ndarray:
        graph.rescore(u, scores)
        graph.solve(threads=threads)
        return u.value

    solved()
    scores[3999, 0] = 9.0
    with pytest.raises(ValueError, match="above 8"):
        solved()
    scores[3999, 0] = 0.5
    np.testing.assert_array_equal(solved(), scores)


SOLVES = """
import numpy as np
from lpsmap import FactorGraph, Pair, Sequence, Xor
from lpsmap_core.engine import anderson, newton_start, polish
from lpsmap_factors_struct.flows import chain_kernels, forest_kernels

def compiled():
    units = newton_start.start_from_multipliers, polish.polish_settled, anderson.accelerate
    return [bool(unit.overloads) for unit in units]

graph = FactorGraph()
u = graph.variable_from(np.arange(24.0).reshape(6, 4) % 7)
graph.add(Sequence(u, np.eye(4)))
graph.solve()
print(bool(chain_kernels.solve_flows.overloads or forest_kernels.solve_forests.overloads))
graph = FactorGraph()
u = graph.variable_from(np.array([0.3, -0.2, 0.9, 0.4]))
graph.add(Xor(u))
graph.solve()
print(compiled())
graph.add(Xor(u[:2]))
print(graph.solve().ok, compiled())
graph.add(Pair(u[:1], u[1:2], [0.3]))
print(graph.solve().ok, compiled())
"""


def test_a_solve_compiles_no_units_that_it_does_without(server: Server) -> None:
    done = server.run(SOLVES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "False",
        "[False, False, False]",
        "True [True, False, False]",
        "True [True, True, False]",
    ]
