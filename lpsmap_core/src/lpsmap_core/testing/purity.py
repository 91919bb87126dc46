"""Checks that results depend only on arguments: no hidden state, no side effects, no races."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import LocalProblems, Solved, local_problems
from lpsmap_core.testing.compiled_oracle import run_kernel
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.graphs import declared_again
from lpsmap_core.testing.oracle import Oracle, oracles_of, queries
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

THREADS = 4
"""Number of concurrent threads."""


def check_determinism(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The same call gives the same answer, to the last bit."""
    problems, drawn = _draw_queries(factor, seed, draws)
    for oracle, scores in drawn:
        first, again = oracle.of(scores).vertex, oracle.of(scores).vertex
        if not np.array_equal(first, again, equal_nan=True):  # check_zero_one reports NaN
            raise broken(
                "equal calls of solve_map return equal structures, because experiments are "
                "repeated",
                f"{first.tolist()}, then {again.tolist()}",
                "the same structure twice; break ties by position, without random numbers",
                oracle.where(scores),
            )
    for name, call in compiled_calls(problems).items():
        _require_same(factor, name, call(), call(), "twice in a row")


def check_hidden_state(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Answers do not depend on earlier calls.

    Threads and graphs share factors. The state that a gradient needs belongs to the solution.
    """
    problems, drawn = _draw_queries(factor, seed, draws)
    fresh = [Oracle(factor, oracle.i).of(scores).vertex for oracle, scores in drawn]
    for (oracle, scores), expected in zip(reversed(drawn), reversed(fresh), strict=True):
        got = oracle.of(scores).vertex
        if not np.array_equal(got, expected, equal_nan=True):
            raise broken(
                "the structure of a row depends only on its scores and parameters, because the "
                "engine calls the oracle in any order",
                f"{got.tolist()} after other calls",
                f"{expected.tolist()}, as in the first call",
                oracle.where(scores),
            )
    calls = compiled_calls(problems)
    before = {name: call() for name, call in calls.items()}
    for call in compiled_calls(problems.moved(problems.a, -problems.eta_v)).values():
        call()
    for name, call in calls.items():
        _require_same(factor, name, before[name], call(), "before and after other calls")


def check_inputs_unchanged(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Methods and kernels do not modify their arguments."""
    problems, drawn = _draw_queries(factor, seed, draws)
    for oracle, scores in drawn:
        eta_u, eta_v = oracle.shaped(scores[: oracle.arity]), scores[oracle.arity :].copy()
        label = oracle.row.solve_map(eta_u, eta_v)
        oracle.row.vertex(label)
        after = np.concatenate([np.ravel(eta_u), eta_v])
        if not np.array_equal(after, scores):
            raise broken(
                "solve_map does not modify eta_u and eta_v, because the caller uses them again; "
                "modify a copy instead",
                f"scores {after.tolist()} after the call",
                scores.tolist(),
                oracle.name,
            )
    for name, call in compiled_calls(problems).items():
        with _unchanged(factor, name, _arrays_of(problems)):
            call()


def check_immutable(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Calls change no attribute of the factor, nor the arrays in its attributes."""
    before = {name: (value, _bytes_of(value)) for name, value in vars(factor).items()}
    problems, drawn = _draw_queries(factor, seed, draws)
    for oracle, scores in drawn:
        oracle.of(scores)
    for call in compiled_calls(problems).values():
        call()
    after = vars(factor)
    changed = sorted(set(after) ^ set(before)) + [
        name
        for name, (value, content) in before.items()
        if name in after and (after[name] is not value or _bytes_of(value) != content)
    ]
    if changed:
        raise broken(
            "a factor is immutable, because graphs and threads share it",
            f"other attributes after solve_map and vertex: {', '.join(changed)}",
            "the same attributes with the same contents",
            repr(factor),
        )


def check_pickling(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A factor can be pickled with its graph, and the copy gives the same answers."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((1, int(factor.offsets[-1])))
    eta_v = rng.standard_normal((1, factor.n_factors, factor.n_additionals))
    declared = declared_again(factor, scores, eta_v)
    try:
        data = pickle.dumps((declared.graph, declared.factors[0]))
        graph, copied = pickle.loads(data)
    except Exception as error:
        raise broken(
            "a factor can be pickled, because data loaders and parallel jobs send it to other "
            "processes",
            f"{type(error).__name__}: {error}",
            "a round trip; keep locks, open files, lambdas and generators out of the attributes",
            repr(factor),
        ) from error
    _, expected, _ = declared.solve()
    _, got, _ = declared._replace(graph=graph, factors=[copied]).solve()
    same = np.array_equal(got, expected)
    for i, oracle in enumerate(oracles_of(factor)):
        twin = Oracle(copied, i)
        for x in random_scores(rng, draws, oracle.size):
            same = same and np.array_equal(oracle.of(x).vertex, twin.of(x).vertex)
    if not same:
        raise broken(
            "a copy from a pickle gives the results of its original, because other processes use "
            "the copy",
            f"other results, such as marginals {got.tolist()}",
            expected.tolist(),
            repr(factor),
        )


def check_threads(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Concurrent calls give the answers of a single thread."""
    problems, drawn = _draw_queries(factor, seed, draws)

    def call_all(shift: int) -> list[FloatArray]:
        order = np.roll(np.arange(len(drawn)), shift)
        vertices = {k: drawn[k][0].of(drawn[k][1]).vertex for k in order.tolist()}
        compiled = [part for call in compiled_calls(problems).values() for part in call()]
        return [vertices[k] for k in range(len(drawn))] + compiled

    expected = call_all(0)
    barrier = Barrier(THREADS)

    def run(thread: int) -> list[FloatArray]:
        barrier.wait()
        return call_all(thread * len(drawn) // THREADS)

    with _frequent_switches(), ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(run, range(THREADS)))
    for result in results:
        for k, (got, single) in enumerate(zip(result, expected, strict=True)):
            if not np.array_equal(got, single, equal_nan=True):
                oracle = f"{drawn[k][0].name}" if k < len(drawn) else repr(factor)
                raise broken(
                    "results do not depend on other threads, because parts of a graph are solved "
                    "in threads; keep scratch arrays local to the call",
                    f"{got.tolist()} with {THREADS} threads",
                    f"{single.tolist()}, as in one thread",
                    oracle,
                )


def _draw_queries(
    factor: Factor, seed: int, draws: int
) -> tuple[LocalProblems, list[tuple[Oracle, FloatArray]]]:
    """Draw local problems, and scores for the plain oracle of every factor."""
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws, decades=1.0)
    return problems, list(queries(factor, rng, draws))


def compiled_calls(problems: LocalProblems) -> dict[str, Callable[[], list[Any]]]:
    """Return calls of all kernels and solvers for many rows at once, by name.

    Every call creates a new solver, since a solver may start from the faces of its last solution.
    """
    bucket, rows = problems.bucket, problems.everything
    calls: dict[str, Callable[[], list[Any]]] = {}
    if bucket.type.map_kernel is not None:
        calls["map_kernel"] = lambda: [
            *run_kernel(bucket, rows, problems.a, problems.eta_v).structures
        ]
    for name in problems.solvers():
        if name != "active set":
            calls[name] = functools.partial(_solution_and_product, problems, name)
    return calls


def _solution_and_product(problems: LocalProblems, name: str) -> list[FloatArray]:
    solver = problems.solvers()[name]
    z, v = np.full_like(problems.a, np.nan), np.full_like(problems.eta_v, np.nan)
    solver.solve(problems.everything, problems.a, problems.eta_v, z, v, 1)
    out = Solved(np.full_like(z, np.nan), np.full_like(v, np.nan))
    solver.jvp(problems.everything, problems.a, problems.eta_v, *out)
    return [z, v, *out]


def _require_same(factor: Factor, name: str, first: Any, again: Any, when: str) -> None:
    for one, other in zip(first, again, strict=True):
        if not np.array_equal(one, other, equal_nan=True):
            raise broken(
                "equal calls give equal results to the last bit, because experiments are repeated "
                "and rows are solved in any order",
                f"{name}: {np.ravel(other).tolist()}",
                f"{np.ravel(one).tolist()} {when}",
                repr(factor),
            )


def _arrays_of(problems: LocalProblems) -> dict[str, npt.NDArray[Any]]:
    """Return all arrays that kernels read, by the names of their arguments."""
    scores = {"eta_u or a": problems.a, "eta_v": problems.eta_v, "delta": problems.delta}
    return scores | problems.bucket.factors._asdict()


@contextmanager
def _unchanged(factor: Factor, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Iterator[None]:
    before = {argument: array.tobytes() for argument, array in arrays.items()}
    yield
    for argument, array in arrays.items():
        if array.tobytes() != before[argument]:
            raise broken(
                "kernels and array code do not modify their inputs, because the caller uses them "
                "again",
                f"{name} changed {argument} to {array.tolist()}",
                "an unchanged array",
                repr(factor),
            )


def _bytes_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_bytes_of, value))
    return value.tobytes() if isinstance(value, np.ndarray) and value.dtype != object else None


@contextmanager
def _frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
