"""Sequences whose visits form spans, against the filtered list of all sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lpsmap_core import FactorGraph
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct import SequenceSpans

LIMITS = [
    pytest.param(budget, least, most, exact, id=f"{budget} {least} {most} {exact}")
    for budget, least, most, exact in itertools.product(
        (2, 4, 9), (1, 2, 3), (0, 1, 2, None), (False, True)
    )
    if not exact or (budget >= least and budget <= 5 and most != 0)
]


def spans_of(tags: tuple[int, ...], counted: int) -> list[int]:
    runs = itertools.groupby(tags, lambda tag: tag == counted)
    return [len(list(run)) for is_counted, run in runs if is_counted]


def allowed(
    tags: tuple[int, ...], counted: int, budget: int, least: int, most: int | None, exact: bool
) -> bool:
    spans = spans_of(tags, counted)
    visits = sum(spans)
    return (
        (visits == budget if exact else visits <= budget)
        and min(spans, default=least) >= least
        and (most is None or len(spans) <= most)
    )


def score(tags: tuple[int, ...], eta: FloatArray, steps: FloatArray) -> float:
    pairs = itertools.pairwise(tags)
    return float(sum(eta[t, s] for t, s in enumerate(tags)) + sum(steps[a, b] for a, b in pairs))


@pytest.mark.parametrize(("budget", "least", "most", "exact"), LIMITS)
@pytest.mark.parametrize("n_states", [2, 3])
def test_all_sequences(
    budget: int, least: int, most: int | None, exact: bool, n_states: int
) -> None:
    rng = np.random.default_rng(0)
    counted, length = n_states - 1, 5
    eta, steps = rng.normal(size=(length, n_states)), rng.normal(size=(n_states, n_states))
    graph = FactorGraph()
    factor = graph.add(
        SequenceSpans(graph.variable_from(eta), steps, budget, least, most, exact, counted)
    )
    tags = [
        y
        for y in itertools.product(range(n_states), repeat=length)
        if allowed(y, counted, budget, least, most, exact)
    ]
    tags.sort(key=lambda y: -score(y, eta, steps))
    gibbs = graph.gibbs(factor)
    assert gibbs.count().item() == len(tags)
    scores = np.array([score(y, eta, steps) for y in tags])
    np.testing.assert_allclose(gibbs.log_partition, np.logaddexp.reduce(scores), atol=1e-12)
    best = [structure.decoded["tags"] for structure in gibbs.k_best(3)[()]] if tags else []
    assert best == [list(y) for y in tags[:3]]
    graph.solve_map()
    assert factor.variables.value.argmax(axis=-1).tolist() == list(tags[0])


def test_limits_of_every_sequence() -> None:
    graph = FactorGraph()
    u = graph.variable((3, 5, 2))
    factor = graph.add(
        SequenceSpans(u, np.zeros((2, 2)), [4, 4, 0], [2, 1, 1], [1, 2, 1], True, lengths=[5, 4, 0])
    )
    # one span of four of five positions; all of four; nothing
    assert graph.gibbs(factor).count().tolist() == [2, 1, 1]


def test_limits_without_a_sequence() -> None:
    u = FactorGraph().variable((2, 5, 2))
    steps = np.zeros((2, 2))
    with pytest.raises(ValueError, match="factor 1 needs 1 positions .* min_span is 2"):
        SequenceSpans(u, steps, [2, 1], 2, force_budget=True)
    with pytest.raises(ValueError, match="max_spans is 0"):
        SequenceSpans(u, steps, 1, max_spans=0, force_budget=True)
    with pytest.raises(ValueError, match="budget is 6"):
        SequenceSpans(u, steps, 6, force_budget=True)


def test_spans_longer_than_the_sequence_cannot_be() -> None:
    for least in (6, 2**40, 2**70):
        graph = FactorGraph()
        factor = graph.add(SequenceSpans(graph.variable((5, 2)), np.zeros((2, 2)), 5, least))
        assert graph.gibbs(factor).count().tolist() == 1  # without visits to the counted state
        assert factor.min_span.tolist() == [6]


@pytest.mark.parametrize("least", [0, -1, [1, 0]])
def test_spans_have_a_position(least: object) -> None:
    u = FactorGraph().variable((2, 5, 2))
    with pytest.raises(ValueError, match="min_span holds (0|-1); expected integers of 1 or more"):
        SequenceSpans(u, np.zeros((2, 2)), 2, least)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SequenceSpans: min_span"):
        SequenceSpans(u, np.zeros((2, 2)), 2, "two")  # type: ignore[arg-type]
