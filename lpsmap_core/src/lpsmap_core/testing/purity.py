"""Checks that answers depend on the question alone: no memory, no side effects, no races."""

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

from lpsmap_core.local.solvers import every_solver
from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.buckets import LocalProblems, Solved, local_problems
from lpsmap_core.testing.compiled import ask_kernel
from lpsmap_core.testing.draws import DRAWS, random_scores
from lpsmap_core.testing.graphs import declared_again
from lpsmap_core.testing.oracle import Oracle, oracles_of
from lpsmap_core.testing.rules import broken
from lpsmap_jit.arrays import FloatArray

__all__ = [
    "check_determinism",
    "check_hidden_state",
    "check_immutable",
    "check_inputs_unchanged",
    "check_pickling",
    "check_threads",
    "compiled_questions",
]

THREADS = 4
"""How many threads ask at the same time."""


def check_determinism(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """The same call gives the same answer, to the last bit."""
    problems, questions = _questions(factor, seed, draws)
    for oracle, scores in questions:
        first, again = oracle.of(scores).vertex, oracle.of(scores).vertex
        if not np.array_equal(first, again, equal_nan=True):  # a NaN is for check_zero_one
            raise broken(
                "equal calls of solve_map give equal structures, because experiments are repeated",
                f"{first.tolist()}, then {again.tolist()}",
                "the same twice; break ties by position, and use no random numbers",
                oracle.where(scores),
            )
    for name, ask in compiled_questions(problems).items():
        _require_same(factor, name, ask(), ask(), "twice in a row")


def check_hidden_state(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """An answer does not depend on what was asked before.

    Factors are shared by threads and graphs, and whatever a gradient needs lives on the solution.
    """
    problems, questions = _questions(factor, seed, draws)
    fresh = [Oracle(factor, oracle.i).of(scores).vertex for oracle, scores in questions]
    for (oracle, scores), expected in zip(reversed(questions), reversed(fresh), strict=True):
        found = oracle.of(scores).vertex
        if not np.array_equal(found, expected, equal_nan=True):
            raise broken(
                "a row's answer depends on its scores and parameters alone, because the engine "
                "asks in any order",
                f"{found.tolist()} after other calls",
                f"{expected.tolist()}, as asked first",
                oracle.where(scores),
            )
    asked = compiled_questions(problems)
    before = {name: ask() for name, ask in asked.items()}
    for ask in compiled_questions(problems.moved(problems.a, -problems.eta_v)).values():
        ask()
    for name, ask in asked.items():
        _require_same(factor, name, before[name], ask(), "before and after other calls")


def check_inputs_unchanged(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """No method or kernel writes into the arrays that it is given."""
    problems, questions = _questions(factor, seed, draws)
    for oracle, scores in questions:
        eta_u, eta_v = oracle.shaped(scores[: oracle.arity]), scores[oracle.arity :].copy()
        label = oracle.row.solve_map(eta_u, eta_v)
        oracle.row.vertex(label)
        given = np.concatenate([np.ravel(eta_u), eta_v])
        if not np.array_equal(given, scores):
            raise broken(
                "solve_map leaves eta_u and eta_v as they are, because the caller goes on with "
                "them; copy what you need to change",
                f"scores {given.tolist()} after the call",
                scores.tolist(),
                oracle.name,
            )
    for name, ask in compiled_questions(problems).items():
        with _unchanged(factor, name, _arrays_of(problems)):
            ask()


def check_immutable(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Answering changes no attribute of the factor, nor the arrays that they hold."""
    before = {name: (value, _bytes_of(value)) for name, value in vars(factor).items()}
    problems, questions = _questions(factor, seed, draws)
    for oracle, scores in questions:
        oracle.of(scores)
    for ask in compiled_questions(problems).values():
        ask()
    after = vars(factor)
    changed = sorted(set(after) ^ set(before)) + [
        name
        for name, (value, content) in before.items()
        if name in after and (after[name] is not value or _bytes_of(value) != content)
    ]
    if changed:
        raise broken(
            "a factor is immutable once made, because graphs and threads share it",
            f"other attributes after solve_map and vertex: {', '.join(changed)}",
            "the same attributes with the same contents",
            repr(factor),
        )


def check_pickling(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """A factor pickles with its graph, and its copy gives the same answers."""
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
    _, found, _ = declared._replace(graph=graph, factors=[copied]).solve()
    same = np.array_equal(found, expected)
    for i, oracle in enumerate(oracles_of(factor)):
        twin = Oracle(copied, i)
        for x in random_scores(rng, draws, oracle.size):
            same = same and np.array_equal(oracle.of(x).vertex, twin.of(x).vertex)
    if not same:
        raise broken(
            "a factor from a pickle answers as the one that was pickled, because other processes "
            "work with it",
            f"other answers, such as marginals {found.tolist()}",
            expected.tolist(),
            repr(factor),
        )


def check_threads(factor: Factor, *, seed: int = 0, draws: int = DRAWS) -> None:
    """Threads that ask one factor at the same time get the answers that one thread gets."""
    problems, questions = _questions(factor, seed, draws)

    def ask_all(shift: int) -> list[FloatArray]:
        order = np.roll(np.arange(len(questions)), shift)
        answers = {k: questions[k][0].of(questions[k][1]).vertex for k in order.tolist()}
        compiled = [part for ask in compiled_questions(problems).values() for part in ask()]
        return [answers[k] for k in range(len(questions))] + compiled

    expected = ask_all(0)
    barrier = Barrier(THREADS)

    def together(thread: int) -> list[FloatArray]:
        barrier.wait()
        return ask_all(thread * len(questions) // THREADS)

    with _frequent_switches(), ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(together, range(THREADS)))
    for result in results:
        for k, (found, wanted) in enumerate(zip(result, expected, strict=True)):
            if not np.array_equal(found, wanted, equal_nan=True):
                oracle = f"{questions[k][0].name}" if k < len(questions) else repr(factor)
                raise broken(
                    "answers do not depend on what other threads ask, because parts of a graph "
                    "are solved in threads; keep scratch arrays local to the call",
                    f"{found.tolist()} among {THREADS} threads",
                    f"{wanted.tolist()}, as in one thread",
                    oracle,
                )


def _questions(
    factor: Factor, seed: int, draws: int
) -> tuple[LocalProblems, list[tuple[Oracle, FloatArray]]]:
    """Draw local problems, and scores to ask every factor's plain oracle with."""
    rng = np.random.default_rng(seed)
    problems = local_problems(factor, rng, draws, decades=1.0)
    questions = [
        (oracle, scores)
        for oracle in oracles_of(factor)
        for scores in random_scores(rng, draws, oracle.size)
    ]
    return problems, questions


def compiled_questions(problems: LocalProblems) -> dict[str, Callable[[], list[Any]]]:
    """Return calls of everything that answers for many rows at once, by name.

    Every call makes its own solver: a solver may start from the faces that it found last.
    """
    bucket, rows = problems.bucket, problems.everything
    asked: dict[str, Callable[[], list[Any]]] = {}
    if bucket.type.map_kernel is not None:
        asked["map_kernel"] = lambda: [
            *ask_kernel(bucket, rows, problems.a, problems.eta_v).structures
        ]
    for name in every_solver(bucket, problems.delta):
        if name != "active set":
            asked[name] = functools.partial(_solution_and_product, problems, name)
    return asked


def _solution_and_product(problems: LocalProblems, name: str) -> list[FloatArray]:
    solver = every_solver(problems.bucket, problems.delta)[name]
    z, v = np.full_like(problems.a, np.nan), np.full_like(problems.eta_v, np.nan)
    solver.solve(problems.everything, problems.a, problems.eta_v, z, v, 1)
    out = Solved(np.full_like(z, np.nan), np.full_like(v, np.nan))
    solver.jvp(problems.everything, problems.a, problems.eta_v, *out)
    return [z, v, *out]


def _require_same(factor: Factor, name: str, first: Any, again: Any, when: str) -> None:
    for one, other in zip(first, again, strict=True):
        if not np.array_equal(one, other, equal_nan=True):
            raise broken(
                "equal calls give equal answers to the last bit, because experiments are repeated "
                "and rows are asked in any order",
                f"{name}: {np.ravel(other).tolist()}",
                f"{np.ravel(one).tolist()} {when}",
                repr(factor),
            )


def _arrays_of(problems: LocalProblems) -> dict[str, npt.NDArray[Any]]:
    """Return all arrays that kernels read, by the names of their arguments."""
    asked = {"eta_u or a": problems.a, "eta_v": problems.eta_v, "delta": problems.delta}
    return asked | problems.bucket.factors._asdict()


@contextmanager
def _unchanged(factor: Factor, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Iterator[None]:
    before = {argument: array.tobytes() for argument, array in arrays.items()}
    yield
    for argument, array in arrays.items():
        if array.tobytes() != before[argument]:
            raise broken(
                "kernels and array code leave their inputs as they are, because the caller goes "
                "on with them",
                f"{name} changed {argument} to {array.tolist()}",
                "the array as it was",
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
