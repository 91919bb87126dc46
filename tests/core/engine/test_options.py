"""Options of a solve: what is taken for a number, and what is refused in which words."""

from __future__ import annotations

import gc
import inspect
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from lpsmap import AtMostOne, FactorGraph, Xor
from lpsmap_core.engine.options import CONVERTERS, Options, checked_options


def matching() -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    return graph


@pytest.fixture(scope="module")
def kernels() -> list[Dispatcher]:
    """All kernels, once solves have been as far as they go."""
    for tol in (1e-6, 0.0):  # which goes on to other kernels
        matching().solve(max_inner_iter=9, tol=tol, threads=1)
    gc.unfreeze()
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), Dispatcher)]
    gc.freeze()
    return found


def compiled(kernels: list[Dispatcher]) -> int:
    """How many signatures of kernels were compiled or loaded."""
    return sum(len(kernel.overloads) for kernel in kernels)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"tol": 0},
        {"tol": np.float32(1e-6)},
        {"tol": np.array(1e-6)},
        {"max_iter": np.int32(50)},
        {"max_iter": np.uint64(50), "step_size": np.float16(2.0)},
        {"max_inner_iter": np.int8(9)},
        {"relaxation": 1, "step_size": 2},
        {"adapt": np.True_, "trace": np.False_},
        {"adapt": 1, "trace": 0, "verbose": np.True_},
        {"threads": np.int16(2), "max_time": 60},
    ],
)
def test_no_kernel_is_compiled_for_another_kind_of_number(
    options: dict[str, Any], kernels: list[Dispatcher]
) -> None:
    before = compiled(kernels)
    assert before > 0
    matching().solve(**{"max_inner_iter": 9, "threads": 1, **options})
    assert compiled(kernels) == before


def test_options_are_numbers_of_python() -> None:
    found = checked_options(
        max_iter=np.uint8(7),
        max_inner_iter=np.array(2**63 - 1),
        tol=np.float32(0.5),
        step_size=Fraction(1, 4),
        adapt=np.False_,
        relaxation=np.int8(1),
        trace=1,
        max_time=math.inf,
        threads=np.int8(1),
    )
    expected = Options(7, 2**63 - 1, 0.5, math.inf, 0.25, False, trace=True, relaxation=1.0)
    assert repr(found) == repr(expected)  # an equal number may be of another type


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("max_iter", 0, "got 0; expected an integer of at least 1."),
        ("max_iter", -3, "got -3; expected an integer of at least 1."),
        ("max_inner_iter", 0, "got 0; expected an integer of at least 1, or None for no limit."),
        ("max_inner_iter", 2**65, "got 36893488147419103232; expected .*, and less than 2.*63"),
        ("tol", -1e-3, "got -0.001; expected a number that is not negative."),
        ("tol", np.nan, "got nan; expected a number that is not negative."),
        ("tol", np.inf, "got inf; expected a number that is not negative."),
        ("tol", 10**400, "got 10+; expected a number that is not negative."),
        ("step_size", -1.0, "got -1.0; expected a number that is not negative, or None"),
        ("step_size", np.nan, "got nan; expected a number that is not negative, or None"),
        ("relaxation", 0, "got 0; expected a number between 0 and 2"),
        ("relaxation", 2.0, "got 2.0; expected a number between 0 and 2"),
        ("relaxation", np.nan, "got nan; expected a number between 0 and 2"),
        ("step_size", 0.0, "got 0, .*expected a positive number"),
        ("max_time", 0, "got 0; expected a positive number of seconds, or None for no limit."),
        ("max_time", np.nan, "got nan; expected a positive number of seconds, or None"),
        ("threads", 0, "got 0; expected an integer of at least 1, or None for all cores."),
        ("verbose", -1, "got -1; expected an integer of at least 0."),
    ],
)
def test_options_out_of_range(option: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{option}: {words}"):
        matching().solve(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("max_iter", 50.0, "got 50.0; expected an integer of at least 1."),
        ("max_iter", True, "got True; expected an integer of at least 1."),
        ("max_iter", None, "got None; expected an integer of at least 1."),
        ("max_inner_iter", "9", "got '9'; expected an integer of at least 1, or None"),
        ("tol", "1e-6", "got '1e-6'; expected a number that is not negative."),
        ("tol", 1e-6j, "got 1e-06j; expected a number that is not negative."),
        ("tol", np.complex64(1), r"got .*1\+0j.*; expected a number that is not negative."),
        ("tol", [1e-6], r"got \[1e-06\]; expected a number that is not negative."),
        ("tol", np.full(1, 1e-6), r"got array\(.*\); expected a number that is not negative."),
        ("tol", np.False_, "got .*False.*; expected a number that is not negative."),
        ("step_size", True, "got True; expected a number that is not negative, or None"),
        ("step_size", "big", "got 'big'; expected a number that is not negative, or None"),
        ("relaxation", True, "got True; expected a number between 0 and 2"),
        ("relaxation", None, "got None; expected a number between 0 and 2"),
        ("adapt", "no", "got 'no'; expected True or False."),
        ("adapt", None, "got None; expected True or False."),
        ("trace", 2, "got 2; expected True or False."),
        ("trace", 1.0, "got 1.0; expected True or False."),
        ("max_time", "1 h", "got '1 h'; expected a positive number of seconds, or None"),
        ("max_time", True, "got True; expected a positive number of seconds, or None"),
        ("threads", True, "got True; expected an integer of at least 1, or None for all cores."),
        ("threads", "all", "got 'all'; expected an integer of at least 1, or None for all cores."),
        ("verbose", "yes", "got 'yes'; expected an integer of at least 0."),
        ("warm_start", "x", "got a str; expected a Solution."),
    ],
)
def test_options_of_another_type(option: str, value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^{option}: {words}"):
        matching().solve(**{option: value})


def test_more_threads_than_anything() -> None:
    graph = matching()
    expected = graph.solve(threads=1).values
    np.testing.assert_array_equal(graph.solve(threads=2**63 - 1).values, expected)
    graph = FactorGraph()
    graph.add(Xor(graph.variable((2, 5_000))))
    assert graph.plan(threads=2**63 - 1).available_threads == 2**63 - 1
    assert graph.solve(threads=2**63 - 1).ok


def test_options_of_a_plan() -> None:
    with pytest.raises(TypeError, match="^threads: got '4'; expected an integer of at least 1"):
        matching().plan(threads="4")
    with pytest.raises(TypeError, match="^limited: got 'no'; expected True or False"):
        matching().plan(limited="no")


def test_a_solve_offers_the_options_that_are_checked_with_their_defaults() -> None:
    offered = inspect.signature(FactorGraph.solve).parameters
    others = {"self", "verbose", "warm_start", "engine"}
    assert set(offered) - others == set(CONVERTERS)
    defaults = {name: offered[name].default for name in CONVERTERS if name != "threads"}
    fields = {name: "quadratic" if name == "temperature" else name for name in defaults}
    assert defaults == {name: Options._field_defaults[fields[name]] for name in defaults}
    assert offered["threads"].default is None  # for all cores, which machines differ in
