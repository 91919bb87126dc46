"""Gibbs distributions of every type, at every scale and with every mask, in exact arithmetic."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

import test_dmv_tree
import test_gibbs
import test_matrix_tree
from exact_gibbs import MASKS, check_draw, check_scores
from forks import Server
from lpsmap import DepTree, FactorGraph, Sequence
from test_interrupts import GENEROUS, run

CASES = {
    **test_gibbs.CASES,
    **{f"crossing {name}": make for name, make in test_matrix_tree.CASES.items()},
    "trees of the dependency model": lambda: test_dmv_tree.case(4),
}

QUICK, SLOW = 15, 280
"""Draws of scores for each of nineteen cases: a few hundred, and five thousand."""


@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact(name: str) -> None:
    case = CASES[name]()
    for seed in range(QUICK):
        check_draw(case, np.random.default_rng([seed, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact_for_many_scores(name: str) -> None:
    case = CASES[name]()
    for seed in range(SLOW):
        check_draw(case, np.random.default_rng([seed, 1]))


# -------------------------------------------------------------------- trees that may cross


def sums(scores, **options):
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(DepTree(graph.variable_from(scores), **options)))
    return gibbs.log_partition, gibbs.marginals, gibbs.entropy


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("single_root", [False, True])
def test_masks_of_arcs_do_what_forbids(mask, single_root):
    """Masked arcs are beyond what the root's scores are moved by, and beyond entropies."""
    rng = np.random.default_rng(0)
    scores, forbidden = rng.standard_normal((5, 5)), rng.random((5, 5)) < 0.3
    forbidden[:, 0] = False
    found = sums(np.where(forbidden, mask, scores), single_root=single_root)
    expected = sums(np.where(forbidden, -np.inf, scores), single_root=single_root)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mask", MASKS[:5])
def test_masks_that_trees_cannot_avoid_cancel(mask):
    """Words of which all arcs are masked, and a root all of whose arcs are."""
    scores = np.random.default_rng(0).standard_normal((4, 4))
    rows = scores.copy()
    rows[1] = mask
    plain = scores.copy()
    plain[1] = 0.0
    found, expected = sums(rows), sums(plain)
    np.testing.assert_allclose(found[0], expected[0] + mask, rtol=1e-14)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-14)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-12)
    words = np.arange(4)
    rooted, plain = scores.copy(), scores.copy()
    rooted[words, words], plain[words, words] = mask, 0.0
    found, expected = sums(rooted), sums(plain, single_root=True)
    np.testing.assert_allclose(found[0], expected[0] + mask, rtol=1e-14)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-14)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-12)


LARGE = MASKS[4]

TWICE = {
    "trees of a root": (
        [
            *(150897.7, -213553.1, LARGE, -63736.7, -1393318.9, -275199.1, -575046.7, 152932.3),
            *(782207.3, 151932.1, LARGE, LARGE, LARGE, LARGE, 422562.4, LARGE),
        ],
        [0, 1, 2, 8, 10, 11, 14],
    ),
    "labelled trees": (
        [
            *(LARGE, LARGE, LARGE, -373762.1, LARGE, 26412.3, LARGE, -382639.5, LARGE),
            *(-202164.5, LARGE, 252005.4, LARGE, -153983.1, LARGE, LARGE, LARGE, LARGE),
        ],
        [0, 3, 5, 8, 9, 11, 14, 16],
    ),
}
"""Scores and negated slots, by which masks are taken off or count twice: both occur in a tree."""


@pytest.mark.parametrize("name", TWICE)
def test_masks_of_negated_arcs_count_once_and_twice(name: str) -> None:
    case, (scores, slots) = test_matrix_tree.CASES[name](), TWICE[name]
    negated = np.zeros(len(scores), dtype=np.bool_)
    negated[slots] = True
    check_scores(case, np.array(scores), np.empty(0), negated)


@pytest.mark.parametrize("single_root", [False, True])
def test_far_sets_of_words_are_entered_once_however_far(single_root: bool) -> None:
    """Nested sets, each by far too dear to be entered twice: by how much does not count."""
    scores = np.random.default_rng(0).integers(-32, 32, (9, 9)) / 16.0  # no digit is hidden

    def apart(*distances: float) -> tuple[Any, ...]:
        own = scores.copy()
        for size, distance in zip((2, 3, 5, 7), distances, strict=True):
            own[size:, :size] -= distance
            own[np.arange(size), np.arange(size)] -= distance  # and from the root
        return sums(own, single_root=single_root)

    near = apart(2e3, 2e3, 2e3, 2e3)
    for far in (apart(1e4, 1e6, 1e9, 1e13), apart(1e13, 1e4, 1e10, 1e5)):
        np.testing.assert_allclose(far[1], near[1], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(far[2], near[2], rtol=1e-12)


@pytest.mark.parametrize("n", [30, 60])
def test_entropies_of_huge_scores_are_those_of_one_tree(n):
    """They are not negative, and not the rounding errors of sums of scores."""
    scores = 1e12 * np.random.default_rng(0).standard_normal((n, n))
    log_partition, marginals, entropy = sums(scores)
    assert 0.0 <= entropy < 1e-12
    np.testing.assert_allclose(marginals.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(log_partition, (scores * marginals).sum(), rtol=1e-14)


MEMORY = r"""
import re
from pathlib import Path
import numpy as np
from lpsmap import DepTree, FactorGraph

def peak(n):
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(DepTree(graph.variable_from(np.zeros((n, n))))))
    assert np.isclose(gibbs.log_partition, (n - 1) * np.log(n + 1.0), rtol=1e-12)
    status = Path("/proc/self/status").read_text()  # ru_maxrss counts what the parent had, too
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])

print(peak(2), peak(500))
"""


@pytest.mark.compiled
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no /proc elsewhere")
def test_memory_is_that_of_a_few_tables(warm_server: Server) -> None:
    """Tables of 500 words take 2 MB; n^3 / 3 numbers take 330."""
    done = warm_server.run(MEMORY, LPSMAP_COMPILE_AFTER="0")
    assert done.returncode == 0, done.stderr
    small, large = map(int, done.stdout.split())
    assert large - small < 60_000


@pytest.mark.compiled
@pytest.mark.parametrize("scale", ["1.0", "1e6"])
def test_sums_over_trees_are_interrupted(scale: str, warm_server: Server) -> None:
    code = f"""
graph, u = near_uniform(1500, 1500)
few = graph.add(DepTree(graph.variable((2, 2))))
graph.gibbs(few).log_partition
graph.rescore(u, {scale} * rng.normal(size=(1500, 1500)))
tree = graph.add(DepTree(u))
begin = None
def sums():
    global begin
    begin = time.perf_counter()
    graph.gibbs(tree).log_partition
interrupted(sums)
print(time.perf_counter() - begin)
"""
    ((word, seconds),) = run(warm_server, code, 0.4)
    assert word == "interrupted"
    assert float(seconds) < GENEROUS  # a second after the first, and head-room for other work


# -------------------------------------------------------------------- dynamic programs


def sequence(scores, negated=False):
    graph = FactorGraph()
    u = graph.variable_from(scores)
    n = np.shape(scores)[-1]
    return graph.gibbs(graph.add(Sequence(~u if negated else u, np.zeros((n, n)))))


@pytest.mark.parametrize("mask", MASKS[:5])
def test_masked_positions_hide_no_digit_of_the_others(mask):
    """All structures have the mask: sums, the k best and samples are those without it."""
    scores = np.random.default_rng(0).standard_normal((4, 3))
    scores[2] = 0.0
    plain = sequence(scores)
    scores[2] = mask
    masked = sequence(scores)
    np.testing.assert_allclose(masked.log_partition, plain.log_partition + mask, rtol=1e-14)
    np.testing.assert_allclose(masked.marginals, plain.marginals, rtol=1e-12)
    np.testing.assert_allclose(masked.entropy, plain.entropy, rtol=1e-12)
    np.testing.assert_array_equal(masked.sample(9, 0).variables, plain.sample(9, 0).variables)
    found, expected = masked.k_best(81), plain.k_best(81)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-12)
    logs = masked.log_probability(found.variables, found.additionals)
    np.testing.assert_allclose(np.exp(logs), expected.probabilities, rtol=1e-12)


@pytest.mark.parametrize("mask", MASKS[:5])
def test_masks_of_negated_variables_cancel(mask):
    """A slot of ~u with u masked is on in all that counts."""
    scores = np.zeros((2, 2))
    scores[0, 1] = mask
    gibbs = sequence(scores, negated=True)
    np.testing.assert_allclose(gibbs.log_partition, np.log(2.0), rtol=1e-12)
    np.testing.assert_allclose(gibbs.entropy, np.log(2.0), rtol=1e-12)
    np.testing.assert_allclose(gibbs.k_best(2).scores, [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(gibbs.k_best(2).probabilities, [0.5, 0.5], rtol=1e-12)


def test_small_entropies_have_their_digits() -> None:
    gap = 40.0  # the other structure's probability is below what 1 plus it can tell
    gibbs = sequence(np.array([[0.0, gap]]))
    p = np.exp(-gap)
    np.testing.assert_allclose(gibbs.entropy, p * (1.0 + gap), rtol=1e-12)


# -------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("kind", [DepTree, lambda u: Sequence(u, np.zeros((3, 3)))])
def test_sums_beyond_float64_are_refused(kind, sign):
    graph = FactorGraph()
    factor = graph.add(kind(graph.variable_from(np.full((3, 3), sign * 1e308))))
    with pytest.raises(ValueError, match=r"up to 1e\+308, whose sums overflow float64"):
        _ = graph.gibbs(factor).log_partition
    allowed = graph.add(kind(graph.variable_from(np.full((3, 3), sign * 3e307))))
    np.testing.assert_allclose(graph.gibbs(allowed).log_partition, sign * 9e307)


def test_more_structures_than_there_are_cost_nothing() -> None:
    gibbs = sequence(np.zeros((2, 2)))
    gibbs.k_best(10**4)  # compiles what there is to compile
    tracemalloc.start()
    found = gibbs.k_best(10**6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000  # bytes
    assert found.probabilities.shape == (4,)


BILLION = """
import resource
import numpy as np
from lpsmap import FactorGraph, Sequence

graph = FactorGraph()
gibbs = graph.gibbs(graph.add(Sequence(graph.variable_from(np.zeros((50, 3))), np.zeros((3, 3)))))
gibbs.sample(1)
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # where they are drawn, all is taken
try:
    gibbs.sample(10**9)
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_a_billion_samples_are_refused(warm_server: Server) -> None:
    """Of 50 positions they take hundreds of gigabytes."""
    done = warm_server.run(BILLION)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sample: n: got 1000000000, which needs "), done.stdout


@pytest.mark.parametrize("number", [10**11, 2**62])
def test_more_structures_than_memory_holds_are_refused(number):
    gibbs = sequence(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=f"sample: n: got {number}, which needs .* GiB"):
        gibbs.sample(number)
    assert len(gibbs.k_best(number)[0]) == 4  # no more exist
    with pytest.raises(
        ValueError, match=rf"k_best: k: got {number}, which needs .* expected at most"
    ):
        sequence(np.zeros((80, 2))).k_best(number)
