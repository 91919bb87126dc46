"""The kit's checks of sums: each finds the fault that is planted for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap_core import FactorGraph, Scores
from lpsmap_core.api import row_view
from lpsmap_core.testing import ConformanceError, check_factor, run_checks
from lpsmap_core.testing.gibbs import (
    check_best_derivation,
    check_hessian,
    check_log_partition,
    check_samples,
    check_structures_once,
    check_sums,
)
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row
from lpsmap_dynamic.derivations import HypergraphInference

GRAPH = FactorGraph()


class Path(DynamicProgram):
    """Steps of one or two up to the length; the additional is a first step of two."""

    def __init__(self, variables: Any, leap: Any) -> None:
        super().__init__(variables, leap)

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the end; slot t is on if a step begins at t."""
        (length,) = row.event_shape
        build.edge(0)
        for t in range(length):
            build.edge(t + 1, [t], [t])
            if t + 2 <= length:
                build.edge(t + 2, [t], [t], [0] if t == 0 else [])
        return length

    @classmethod
    def examples(cls) -> list[Any]:
        """Return two declarations."""
        return [cls(GRAPH.variable(5), np.zeros(1)), cls(GRAPH.variable((2, 3)), np.zeros((2, 1)))]


@pytest.mark.parametrize("factor", Path.examples(), ids=repr)
def test_a_sound_type_passes(factor: Any) -> None:
    check_factor(factor, draws=6)


class Ambiguous(Path):
    """The same step twice."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the end."""
        build.edge(1, [0], [0])
        return super().hypergraph(row, build)


class Lost(Path):
    """Only steps of one, while solve_map knows all."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the end."""
        (length,) = row.event_shape
        build.edges(np.arange(length + 1), np.arange(length + 1) - 1, None)
        return length

    def solve_map(self, eta_u: Any, eta_v: Any) -> Any:
        """Return what the sound type does."""
        return sound(self).solve_map(eta_u, eta_v)


class Extra(Path):
    """A derivation with nothing on, which solve_map does not know."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> int:
        """Return the end."""
        build.edge(row.event_shape[0])
        return super().hypergraph(row, build)

    solve_map = Lost.solve_map


class Short(Path):
    """Counts one structure too few."""

    def inference(self) -> Any:
        """Return the faulty one."""
        return Faulty(self, count=lambda counts: [count - 1 for count in counts])


class Timid(Path):
    """Its solve_map does not like steps of two, while its sums are those of all paths."""

    inference = Path.inference

    def solve_map(self, eta_u: Any, eta_v: Any) -> Any:
        """Return the best after a fee."""
        return super().solve_map(eta_u, np.asarray(eta_v) - 0.5)


class Faulty:
    """An `Inference` of which some answers are changed."""

    def __init__(self, factor: Any, **changes: Any) -> None:
        self._sound = HypergraphInference(factor.offsets, factor.n_additionals, factor.hypergraphs)
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sound, name)
        change = self._changes.get(name)
        if change is None:
            return method
        return lambda *arguments: change(method(*arguments))


def sound(view: Any) -> Any:
    """Return a sound view of the same row."""
    other = Path(GRAPH.variable(view.event_shape), np.zeros(1))
    return row_view(other, 0)


def with_fault(name: str, change: Any) -> type[Path]:
    """Return a type whose inference has a fault in one method."""

    class Changed(Path):
        def inference(self) -> Any:
            return Faulty(self, **{name: change})

    return Changed


def biased(found: Any) -> Any:
    """Return samples of which every other one is the first again."""
    start, size = found.structures.start.copy(), found.structures.size.copy()
    start[1::2], size[1::2] = start[0], size[0]
    return found._replace(structures=found.structures._replace(start=start, size=size))


FAULTS = [
    (Ambiguous, check_structures_once, "a structure has one derivation"),
    (Lost, check_structures_once, "every structure has a derivation|every derivation is a"),
    (Extra, check_structures_once, "every derivation is a structure"),
    (Short, check_structures_once, "as many structures as count"),
    (Timid, check_best_derivation, "k_best and solve_map agree"),
    (
        with_fault("beliefs", lambda b: b._replace(log_partition=b.log_partition + 1e-6)),
        check_sums,
        "log_partition is",
    ),
    (
        with_fault("beliefs", lambda b: b._replace(entropy=1.001 * b.entropy)),
        check_sums,
        "entropy is",
    ),
    (
        with_fault("beliefs", lambda b: b._replace(m=b.m[::-1].copy())),
        check_sums,
        "m and n are",
    ),
    (
        with_fault("beliefs", lambda b: b._replace(n=b.n * 1.001)),
        check_sums,
        "m and n are",
    ),
    (
        with_fault("hessian_product", lambda p: Scores(p.eta_u * 1.01, p.eta_v)),
        check_hessian,
        "all marginals",
    ),
    (
        with_fault("hessian_product", lambda p: Scores(p.eta_u, p.eta_v * 1.01)),
        check_hessian,
        "all additionals",
    ),
    (
        with_fault("beliefs", lambda b: b._replace(log_partition=1.01 * b.log_partition)),
        check_hessian,
        "all log-partition functions",
    ),
    (with_fault("sample", biased), check_samples, "the mean of samples"),
    (Ambiguous, check_log_partition, "each structure counts once"),
    (Lost, check_log_partition, "at least that of the known structures|each structure counts once"),
    (
        with_fault("beliefs", lambda b: b._replace(log_partition=b.log_partition - 1.0)),
        check_log_partition,
        "at least that of the known structures",
    ),
    (
        with_fault("beliefs", lambda b: b._replace(m=np.maximum(b.m, 1e-9))),
        check_log_partition,
        "entries with a score of -inf have marginals of 0",
    ),
]


@pytest.mark.parametrize(("faulty", "check", "words"), FAULTS)
def test_faults_are_found(faulty: Any, check: Any, words: str) -> None:
    factor = faulty(GRAPH.variable(5), np.zeros(1))
    with pytest.raises(ConformanceError, match=words):
        check(factor)


def test_samples_that_do_not_repeat_are_found() -> None:
    def shuffled(found: Any) -> Any:
        order = np.random.default_rng().permutation(len(found.score))
        structures = found.structures
        return found._replace(
            structures=structures._replace(
                start=structures.start[order], size=structures.size[order]
            )
        )

    factor = with_fault("sample", shuffled)(GRAPH.variable(5), np.zeros(1))
    with pytest.raises(ConformanceError, match="equal random numbers draw equal samples"):
        check_samples(factor)


def test_samples_that_are_no_structures_are_found() -> None:
    def emptied(found: Any) -> Any:
        size = found.structures.size.copy()
        size[7] = 0
        return found._replace(structures=found.structures._replace(size=size))

    factor = with_fault("sample", emptied)(GRAPH.variable(5), np.zeros(1))
    with pytest.raises(ConformanceError, match="samples are structures"):
        check_samples(factor)


def test_a_type_without_sums_is_not_asked_for_them() -> None:
    from lpsmap import Matching

    names = {result.check for result in run_checks(Matching(GRAPH.variable((2, 2))), draws=3)}
    assert "check_sums" not in names
