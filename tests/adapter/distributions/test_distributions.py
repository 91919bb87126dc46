"""Distributions over structures against the enumeration of all structures."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import AtMostOne, ConvergenceWarning, Sequence, Xor
from lpsmap_dynamic.forest_sums import ForestSums
from lpsmap_torch.distributions import (
    Alignment,
    BinaryTree,
    Chain,
    LabelledTree,
    ProjectiveTree,
    SemiMarkov,
    SparseStructures,
    StructuredDistribution,
    Subset,
    Tree,
)
from lpsmap_torch.forms import PADDING

# -------------------------------------------------------------------- structures, in Python

Value = tuple[Any, ...]


def chains(n: int, n_tags: int) -> Iterator[Value]:
    return itertools.product(range(n_tags), repeat=n)


def score_of_chain(tags: Value, scores: Tensor, transitions: Tensor, initial: Any, final: Any):
    if not tags:
        return scores.sum() * 0.0
    total = initial[tags[0]] + final[tags[-1]] + sum(scores[t, y] for t, y in enumerate(tags))
    return total + sum(transitions[a, b] for a, b in itertools.pairwise(tags))


def is_tree(heads: Value) -> bool:
    for word in range(len(heads)):
        seen = set()
        while word >= 0 and word not in seen:
            seen.add(word)
            word = heads[word]
        if word >= 0:
            return False
    return True


def crosses(heads: Value) -> bool:
    """Whether two arcs cross; the root stands before the first word."""
    arcs = [tuple(sorted((m, h))) for m, h in enumerate(heads)]
    return any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))


def trees(n: int) -> Iterator[Value]:
    for heads in itertools.product(range(-1, n), repeat=n):
        if all(h != m for m, h in enumerate(heads)) and is_tree(heads):
            yield heads


def score_of_tree(heads: Value, scores: Tensor) -> Tensor:
    arcs = [scores[m, m if h < 0 else h] for m, h in enumerate(heads)]
    return sum(arcs, scores.sum() * 0.0)


def labelled_trees(n: int, n_labels: int) -> Iterator[Value]:
    for heads in trees(n):
        for labels in itertools.product(range(n_labels), repeat=n):
            yield tuple(zip(heads, labels, strict=True))


def score_of_labelled(tree: Value, scores: Tensor) -> Tensor:
    arcs = [scores[m, m if h < 0 else h, y] for m, (h, y) in enumerate(tree)]
    return sum(arcs, scores.sum() * 0.0)


def segmentations(n: int, longest: int, n_states: int, begin: int = 0) -> Iterator[Value]:
    if begin == n:
        yield ()
    for end in range(begin + 1, min(begin + longest, n) + 1):
        for state in range(n_states):
            for rest in segmentations(n, longest, n_states, end):
                yield ((begin, end, state), *rest)


def score_of_segments(segments: Value, scores: Tensor, transitions: Tensor) -> Tensor:
    total = sum((scores[b, e - b - 1, s] for b, e, s in segments), scores.sum() * 0.0)
    return total + sum(transitions[a[2], b[2]] for a, b in itertools.pairwise(segments))


def binary_trees(i: int, j: int) -> Iterator[Value]:
    if i > j:
        yield ()
    if i == j:
        yield ((i, i),)
    for k in range(i, j):
        for left, right in itertools.product(binary_trees(i, k), binary_trees(k + 1, j)):
            yield ((i, j), *left, *right)


def labelled_binary_trees(n: int, n_labels: int) -> Iterator[Value]:
    for spans in binary_trees(0, n - 1):
        for labels in itertools.product(range(n_labels), repeat=len(spans)):
            yield tuple((*span, y) for span, y in zip(spans, labels, strict=True))


def paths(m: int, n: int, i: int = 0, j: int = 0) -> Iterator[Value]:
    if i >= m or j >= n:
        return
    if (i, j) == (m - 1, n - 1):
        yield ((i, j),)
    for di, dj in ((0, 1), (1, 0), (1, 1)):
        for rest in paths(m, n, i + di, j + dj):
            yield ((i, j), *rest)


def score_of_cells(cells: Value, scores: Tensor) -> Tensor:
    return sum((scores[cell] for cell in cells), scores.sum() * 0.0)


def subsets(n: int, k: int) -> Iterator[Value]:
    for size in range(k + 1):
        yield from itertools.combinations(range(n), size)


def single_root(n: int) -> Iterator[Value]:
    return (y for y in trees(n) if y.count(-1) == 1)


def tables(positions: Iterable[Value], n_rows: int, n_columns: int) -> Iterator[Value]:
    """Yield zeros and ones with a position that is on in each of the first rows."""
    for columns in positions:
        on = set(enumerate(columns))
        yield tuple(tuple(int((i, j) in on) for j in range(n_columns)) for i in range(n_rows))


def score_of_table(table: Value, scores: Tensor, transitions: Tensor | None = None) -> Tensor:
    on = torch.tensor(table).double()
    steps = [] if transitions is None else [a @ transitions @ b for a, b in itertools.pairwise(on)]
    return sum(steps, (on * scores).sum())


def matchings(u: Any, lengths: Any = None) -> list[Any]:
    """Matchings of all rows to the first columns."""
    m, n = u.shape[1:]
    widths = np.full(len(u), n) if lengths is None else np.asarray(lengths)
    heights = np.where(np.arange(n) < widths[:, None], m, 0)
    return [Xor(u, lengths=np.tile(widths[:, None], m)), AtMostOne(u, axis=1, lengths=heights)]


# -------------------------------------------------------------------- cases


class Case(NamedTuple):
    """A distribution over a batch of two, and the structures of each."""

    build: Callable[..., StructuredDistribution]
    """Maps the tensors to the distribution."""
    shapes: list[tuple[int, ...]]
    """The shapes of the tensors, the scores first."""
    structures: list[Callable[[], Iterator[Value]]]
    score: Callable[..., Tensor]
    """The score of a structure, given the tensors of an instance."""


TREES = [(2, 4, 4)]
CASES = {
    "chain": Case(
        lambda *x: Chain(*x, lengths=torch.tensor([4, 2])),
        [(2, 4, 3), (3, 3), (3,), (3,)],
        [lambda: chains(4, 3), lambda: chains(2, 3)],
        score_of_chain,
    ),
    "tree": Case(
        lambda x: Tree(x, lengths=[4, 2]),
        TREES,
        [lambda: trees(4), lambda: trees(2)],
        score_of_tree,
    ),
    "single root": Case(
        lambda x: Tree(x, single_root=True, lengths=[4, 3]),
        TREES,
        [lambda: single_root(4), lambda: single_root(3)],
        score_of_tree,
    ),
    "projective": Case(
        lambda x: ProjectiveTree(x, lengths=[4, 0]),
        TREES,
        [lambda: (y for y in trees(4) if not crosses(y)), lambda: iter([()])],
        score_of_tree,
    ),
    "labelled": Case(
        lambda x: LabelledTree(x, lengths=torch.tensor([3, 1])),
        [(2, 3, 3, 2)],
        [lambda: labelled_trees(3, 2), lambda: labelled_trees(1, 2)],
        score_of_labelled,
    ),
    "labelled projective": Case(
        lambda x: LabelledTree(x, projective=True, lengths=[3, 2]),
        [(2, 3, 3, 2)],
        [
            lambda: (y for y in labelled_trees(3, 2) if not crosses([h for h, _ in y])),
            lambda: labelled_trees(2, 2),
        ],
        score_of_labelled,
    ),
    "segments": Case(
        lambda *x: SemiMarkov(*x, lengths=[4, 3]),
        [(2, 4, 3, 2), (2, 2)],
        [lambda: segmentations(4, 3, 2), lambda: segmentations(3, 3, 2)],
        score_of_segments,
    ),
    "binary": Case(
        lambda x: BinaryTree(x, lengths=[4, 3]),
        TREES,
        [lambda: binary_trees(0, 3), lambda: binary_trees(0, 2)],
        score_of_cells,
    ),
    "labelled binary": Case(
        lambda x: BinaryTree(x, labelled=True, lengths=[3, 2]),
        [(2, 3, 3, 2)],
        [lambda: labelled_binary_trees(3, 2), lambda: labelled_binary_trees(2, 2)],
        score_of_cells,
    ),
    "alignment": Case(
        lambda x: Alignment(x, lengths=torch.tensor([[3, 4], [2, 2]])),
        [(2, 3, 4)],
        [lambda: paths(3, 4), lambda: paths(2, 2)],
        score_of_cells,
    ),
    "subset": Case(
        lambda x: Subset(x, torch.tensor([2, 3]), exact=False, lengths=[5, 4]),
        [(2, 5)],
        [lambda: subsets(5, 2), lambda: subsets(4, 3)],
        score_of_cells,
    ),
    "exact subset": Case(
        lambda x: Subset(x, 2, lengths=[5, 3]),
        [(2, 5)],
        [lambda: itertools.combinations(range(5), 2), lambda: itertools.combinations(range(3), 2)],
        score_of_cells,
    ),
    "any factor": Case(
        lambda x, w: StructuredDistribution(Sequence, x, transitions=w, lengths=[3, 2]),
        [(2, 3, 2), (2, 2)],
        [lambda: tables(chains(3, 2), 3, 2), lambda: tables(chains(2, 2), 3, 2)],
        score_of_table,
    ),
}
INTERACTING = Case(
    lambda x: StructuredDistribution(matchings, x, lengths=[3, 2]),
    [(2, 2, 3)],
    [
        lambda: tables(itertools.permutations(range(3), 2), 2, 3),
        lambda: tables(itertools.permutations(range(2), 2), 2, 3),
    ],
    score_of_table,
)

each_of_one_factor = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
ALL = {**CASES, "factors that interact": INTERACTING}
each = pytest.mark.parametrize("case", ALL.values(), ids=ALL)
close = {"rtol": 0.0, "atol": 1e-9}


def tensors_of(case: Case, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in case.shapes]
    return [x.requires_grad_() for x in made]


def padded(value: Value, shape: torch.Size) -> Tensor:
    full = torch.full(shape, PADDING)
    if value:
        full[: len(value)] = torch.tensor(value)
    return full


def numbers_of(structures: list[Value], shape: torch.Size) -> dict[Value, int]:
    """Return the number of every structure, by the flat form in which values show it."""
    return {tuple(padded(y, shape).flatten().tolist()): i for i, y in enumerate(structures)}


def enumerated(case: Case, tensors: list[Tensor], b: int) -> tuple[list[Value], Tensor]:
    """Return all structures of an instance, and their scores."""
    structures = list(case.structures[b]())
    arguments = [tensors[0][b], *tensors[1:]]
    return structures, torch.stack([case.score(y, *arguments) for y in structures])


def checked(ours: Tensor, theirs: Tensor, tensors: list[Tensor]) -> None:
    """Compare values, and the gradients of a weighted sum."""
    torch.testing.assert_close(ours, theirs, **close)
    weights = torch.linspace(0.5, 1.5, ours.numel(), dtype=torch.float64).reshape(ours.shape)
    pairs = [
        torch.autograd.grad((x * weights).sum(), tensors, retain_graph=True, allow_unused=True)
        for x in (ours, theirs)
    ]
    for x, a, b in zip(tensors, *pairs, strict=True):
        a, b = (torch.zeros_like(x) if gradient is None else gradient for gradient in (a, b))
        torch.testing.assert_close(a, b, **close)


# -------------------------------------------------------------------- sums


@each
def test_sums_and_their_gradients(case: Case) -> None:
    tensors = tensors_of(case)
    d = case.build(*tensors)
    of_items = [enumerated(case, tensors, b)[1].log_softmax(0) for b in range(2)]
    scores = [enumerated(case, tensors, b)[1] for b in range(2)]
    checked(d.log_partition, torch.stack([x.logsumexp(0) for x in scores]), tensors)
    d = case.build(*tensors)
    checked(d.entropy(), torch.stack([-(x.exp() * x).sum() for x in of_items]), tensors)
    log_z = torch.stack([x.logsumexp(0) for x in scores]).sum()
    (marginals,) = torch.autograd.grad(log_z, tensors[0], create_graph=True)
    checked(case.build(*tensors).marginals, marginals, tensors)


@each
def test_log_probabilities_of_all_structures(case: Case) -> None:
    tensors = tensors_of(case)
    d = case.build(*tensors)
    for b in range(2):
        structures, scores = enumerated(case, tensors, b)
        values = torch.stack([padded(y, d.event_shape) for y in structures])
        other = padded(next(case.structures[1 - b]()), d.event_shape).expand_as(values)
        both = torch.stack([values, other] if b == 0 else [other, values], 1)
        ours = d.log_prob(both)
        assert ours.shape == (len(structures), 2)
        checked(ours[:, b], scores.log_softmax(0), tensors)


@each
def test_divergence(case: Case) -> None:
    ours, others = tensors_of(case), tensors_of(case, 1)
    p, q = case.build(*ours), case.build(*others)
    expected = []
    for b in range(2):
        a, c = (enumerated(case, x, b)[1].log_softmax(0) for x in (ours, others))
        expected.append((a.exp() * (a - c)).sum())
    checked(p.kl(q), torch.stack(expected), [*ours, *others])
    torch.testing.assert_close(torch.distributions.kl_divergence(p, q), p.kl(q))
    torch.testing.assert_close(p.kl(p), torch.zeros(2, dtype=torch.float64), **close)


# -------------------------------------------------------------------- some structures


@each
def test_best_structures_in_order(case: Case) -> None:
    tensors = tensors_of(case)
    d = case.build(*tensors)
    n = max(len(list(make())) for make in case.structures) + 1
    ranked = d.k_best(n)
    for b in range(2):
        structures, scores = enumerated(case, tensors, b)
        order = scores.argsort(descending=True)
        expected = torch.stack([padded(structures[i], d.event_shape) for i in order])
        assert torch.equal(ranked.values[: len(order), b].long(), expected)
        assert torch.equal(d.argmax[b].long(), expected[0])
        checked(ranked.log_probs[: len(order), b], scores[order].log_softmax(0), tensors)
        assert (ranked.log_probs[len(order) :, b] == -torch.inf).all()


@each
def test_samples_have_their_probabilities(case: Case) -> None:
    torch.manual_seed(0)
    tensors = tensors_of(case)
    d, n = case.build(*tensors), 4000
    samples = d.sample((n,))
    assert samples.shape == (n, 2, *d.event_shape) and not samples.requires_grad
    for b in range(2):
        structures, scores = enumerated(case, tensors, b)
        number = {
            tuple(padded(y, d.event_shape).flatten().tolist()): i for i, y in enumerate(structures)
        }
        drawn = [number[tuple(x.flatten().tolist())] for x in samples[:, b]]
        p = scores.softmax(0)
        shares = torch.bincount(torch.tensor(drawn), minlength=len(p)) / n
        assert ((shares - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1 / n).all()


@each_of_one_factor
def test_sparse_distribution_is_optimal(case: Case) -> None:
    """Structures of the support attain the maximum for the gradient, others do not exceed it."""
    tensors = tensors_of(case)
    d = case.build(*tensors)
    marginals, sparse = d.sparse_marginals, d.sparse()
    written = d.form.write(sparse.support).double()
    mean = (sparse.probs.reshape(*sparse.probs.shape, *(1,) * (written.ndim - 2)) * written).sum(0)
    torch.testing.assert_close(mean, marginals, **close)
    moved = [(tensors[0] - marginals).detach(), *tensors[1:]]
    for b in range(2):
        structures, values = enumerated(case, moved, b)
        if len(structures) < 2:
            continue
        on = sparse.probs[:, b] > 0
        torch.testing.assert_close(sparse.probs[:, b].sum(), torch.ones(()).double())
        number = {
            tuple(padded(y, d.event_shape).flatten().tolist()): i for i, y in enumerate(structures)
        }
        found = [number[tuple(x.flatten().tolist())] for x in sparse.support[on, b]]
        assert len(set(found)) == len(found)
        assert (values[found] > values.max() - 1e-9).all()


@each_of_one_factor
def test_gradients_of_sparse_distributions(case: Case) -> None:
    """Central differences of an expectation over the structures, within a face."""
    tensors, directions = tensors_of(case), tensors_of(case, 1)
    steps = -1e-4, 0.0, 1e-4
    pairs = list(zip(tensors, directions, strict=True))
    moved = [case.build(*(x + step * d.detach() for x, d in pairs)) for step in steps]
    below, here, above = (d.sparse() for d in moved)
    # of several distributions with one mean, neighbours can have others, which only means compare
    same = all(torch.equal(x.support, here.support) for x in (below, above))

    def expectation(found: SparseStructures) -> Tensor:
        written = moved[0].form.write(found.support).double().flatten(2)
        numbers = written @ torch.linspace(0.5, 1.5, written.shape[-1], dtype=torch.float64)
        return (found.probs * (numbers.sin() if same else numbers)).sum()

    def marginal(d: StructuredDistribution) -> Tensor:
        weights = torch.linspace(0.5, 1.5, d.scores.numel(), dtype=torch.float64)
        return d.sparse_marginals.reshape(-1) @ weights

    for values in map(expectation, (below, here, above)), map(marginal, moved):
        low, middle, high = values
        torch.testing.assert_close(high - middle, middle - low, rtol=0.0, atol=1e-9)  # no kink
        gradients = torch.autograd.grad(middle, tensors, allow_unused=True, retain_graph=True)
        products = [
            (g * d).sum() for g, (_, d) in zip(gradients, pairs, strict=True) if g is not None
        ]
        torch.testing.assert_close(sum(products), (high - low) / 2e-4, rtol=0.0, atol=1e-6)


# -------------------------------------------------------------------- the idiom of torch


@each
def test_shapes(case: Case) -> None:
    tensors = [x.detach() for x in tensors_of(case)]
    d = case.build(*tensors)
    assert d.batch_shape == (2,)
    assert d.sample().shape == (2, *d.event_shape)
    assert d.sample((0,)).shape == (0, 2, *d.event_shape)
    samples = d.sample((3, 1))
    assert samples.shape == (3, 1, 2, *d.event_shape)
    assert d.log_prob(samples).shape == (3, 1, 2)
    of_both = torch.distributions.Independent(d, 1)
    torch.testing.assert_close(of_both.log_prob(samples), d.log_prob(samples).sum(-1))


@each
def test_expanded_distributions(case: Case) -> None:
    tensors, others = tensors_of(case), [x.detach() for x in tensors_of(case, 1)]
    d, other = case.build(*tensors), case.build(*others)
    wide = d.expand((3, 2))
    assert wide.batch_shape == (3, 2) and wide.event_shape == d.event_shape
    value, ranked, best = d.sample(), wide.k_best(2), d.k_best(2)
    assert torch.equal(wide.argmax, d.argmax.expand(3, *d.argmax.shape))
    assert torch.equal(ranked.values, best.values[:, None].expand_as(ranked.values))
    checked(wide.kl(other), d.kl(other).expand(3, 2), tensors)
    for ours, theirs in (
        (wide.log_partition, d.log_partition),
        (wide.entropy(), d.entropy()),
        (wide.log_prob(value), d.log_prob(value)),
        (wide.marginals, d.marginals),
        (wide.sparse_marginals, d.sparse_marginals),
    ):
        checked(ours, theirs.expand_as(ours), tensors)
    assert wide.log_prob(wide.sample((5,))).isfinite().all()


def test_copies_of_a_batch_have_the_factors_of_the_batch() -> None:
    """A function of one batch axis is called for every copy, also after `to` and twice."""

    def different_rows(u: Any) -> list[Any]:
        return [Xor(u[:, 0]), AtMostOne(u[:, 1])]

    scores = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(0))
    d = StructuredDistribution(different_rows, scores)
    for wide in (d.expand((2, 2)), d.to(torch.float64).expand((2,)).expand((2, 2))):
        assert torch.equal(wide.argmax, d.argmax.expand(2, 2, 2, 2).to(wide.scores.dtype))
        expected = d.entropy().expand(2, 2).to(wide.scores.dtype)
        torch.testing.assert_close(wide.entropy(), expected, rtol=0.0, atol=1e-6)
    one = StructuredDistribution(different_rows, scores[:1])
    torch.testing.assert_close(one.expand((3,)).entropy(), one.entropy().expand(3))


EMPTY = {
    "chain": lambda: Chain(torch.zeros(0, 4, 3), torch.zeros(3, 3)),
    "tree": lambda: Tree(torch.zeros(0, 3, 3)),
    "projective": lambda: ProjectiveTree(torch.zeros(0, 3, 3)),
    "labelled": lambda: LabelledTree(torch.zeros(0, 3, 3, 2)),
    "segments": lambda: SemiMarkov(torch.zeros(0, 3, 2, 2), torch.zeros(2, 2)),
    "binary": lambda: BinaryTree(torch.zeros(0, 3, 3)),
    "alignment": lambda: Alignment(torch.zeros(0, 3, 4)),
    "labelled binary": lambda: BinaryTree(torch.zeros(0, 3, 3, 2), labelled=True),
    "subset": lambda: Subset(torch.zeros(0, 4), 2),
    "any factor": lambda: StructuredDistribution(Xor, torch.zeros(0, 3)),
    "no words": lambda: Chain(torch.zeros(0, 0, 3), torch.zeros(3, 3)),
}


@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
def test_empty_batches(make: Callable[[], StructuredDistribution]) -> None:
    d = make()
    value = d.argmax
    assert value.shape == (0, *d.event_shape)
    assert d.log_prob(value).shape == d.entropy().shape == d.log_partition.shape == (0,)
    assert d.kl(d).shape == (0,)
    assert d.marginals.shape == d.sparse_marginals.shape == d.scores.shape
    assert d.sample((3,)).shape == (3, 0, *d.event_shape)
    assert d.k_best(2).values.shape == (2, 0, *d.event_shape)
    assert d.sparse().probs.shape[1:] == (0,)


def test_gradients_of_an_empty_batch() -> None:
    scores, transitions = torch.zeros(0, 4, 3).requires_grad_(), torch.eye(3).requires_grad_()
    d = Chain(scores, transitions)
    total = d.entropy().sum() + d.log_prob(d.argmax).sum() + d.sparse_marginals.sum()
    gradients = torch.autograd.grad(
        total + d.marginals.sum() + d.kl(d).sum(), [scores, transitions]
    )
    assert gradients[0].shape == scores.shape and not gradients[1].any()


def test_one_instance_without_a_batch() -> None:
    d = Chain(torch.zeros(2, 3), torch.zeros(3, 3))
    assert d.batch_shape == () and d.log_prob(d.sample((4,))).shape == (4,)
    assert d.k_best(2).values.shape == (2, 2)
    torch.testing.assert_close(d.log_partition.exp(), torch.tensor(9.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_precision(dtype: torch.dtype) -> None:
    tensors = [x.detach() for x in tensors_of(CASES["chain"])]
    exact, d = CASES["chain"].build(*tensors), CASES["chain"].build(*tensors).to(dtype)
    assert d.scores.dtype == d.marginals.dtype == d.sparse_marginals.dtype == dtype
    assert d.entropy().dtype == d.log_partition.dtype == torch.float32
    assert d.log_prob(d.sample()).dtype == torch.float32
    torch.testing.assert_close(d.entropy().double(), exact.entropy(), rtol=0.0, atol=0.1)


def test_a_sum_beyond_half_precision() -> None:
    d = Chain(torch.full((1, 40, 2), 3000.0).half(), torch.zeros(2, 2).half())
    torch.testing.assert_close(d.log_partition, torch.tensor([120000.0]), rtol=0.0, atol=30.0)


def test_gradients_after_a_sample_without_gradients() -> None:
    scores = torch.zeros(1, 2, 2, requires_grad=True)
    d = Chain(scores, torch.eye(2))
    with torch.no_grad():
        value = d.sample()
        d.log_prob(value)
    d.log_prob(value).sum().backward()
    assert scores.grad is not None and scores.grad.any()


def test_results_share_their_sums_and_have_gradients_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    init = ForestSums.__init__
    monkeypatch.setattr(ForestSums, "__init__", lambda *args: made.append(init(*args)))
    scores = torch.arange(12.0).reshape(2, 3, 2).sin().requires_grad_()
    d = Chain(scores, torch.eye(2))
    for result in (d.log_partition, d.entropy(), d.marginals, d.log_prob(d.sample())):
        scores.grad = None
        result.square().sum().backward()
        assert scores.grad is not None and scores.grad.any()
    assert len(made) == 1


# -------------------------------------------------------------------- masks


def test_skipped_positions_of_a_chain() -> None:
    scores, transitions, initial, final = tensors_of(CASES["chain"])
    mask = torch.tensor([[False, True, False, True], [True, False, False, False]])
    skipped = Chain(scores, transitions, initial, final, mask=mask)
    first = Chain(scores[:1, [1, 3]], transitions, initial, final)
    value = skipped.argmax
    assert value[0].tolist() == [PADDING, *first.argmax[0, :1], PADDING, *first.argmax[0, 1:]]
    assert value[1].tolist()[1:] == [PADDING] * 3
    checked(skipped.entropy()[:1], first.entropy(), [scores, transitions, initial, final])
    torch.testing.assert_close(skipped.marginals[:1, [1, 3]], first.marginals, **close)
    assert not skipped.marginals[~mask].any()
    assert skipped.log_prob(value.where(mask, 7))[0] == first.log_prob(first.argmax)[0]


def test_skipped_words_of_trees() -> None:
    (scores,) = tensors_of(CASES["tree"])
    mask = torch.tensor([[True, False, True, True], [False, False, False, False]])
    words, number = [0, 2, 3], {-1: -1, 0: 0, 1: 2, 2: 3}
    for made in (Tree, ProjectiveTree):
        skipped, dense = made(scores, mask=mask), made(scores[:1, words][..., words])
        torch.testing.assert_close(skipped.entropy()[:1], dense.entropy(), **close)
        heads = [number[h] for h in dense.argmax[0].tolist()]
        assert skipped.argmax[0, words].tolist() == heads
        assert skipped.argmax[1].tolist() == [PADDING] * 4
        assert skipped.log_prob(skipped.argmax)[1] == 0.0


MASK = torch.tensor([[True, False, True, True], [False, True, False, True]])
MASKED = {
    "chain": (lambda x, **k: Chain(x, torch.eye(3).double(), **k), (2, 4, 3)),
    "tree": (Tree, (2, 4, 4)),
    "single root": (functools.partial(Tree, single_root=True), (2, 4, 4)),
    "projective": (ProjectiveTree, (2, 4, 4)),
    "labelled": (LabelledTree, (2, 4, 4, 2)),
    "labelled projective": (functools.partial(LabelledTree, projective=True), (2, 4, 4, 2)),
    "binary": (BinaryTree, (2, 4, 4)),
    "labelled binary": (functools.partial(BinaryTree, labelled=True), (2, 4, 4, 2)),
    "subset": (lambda x, **k: Subset(x, 2, **k), (2, 4)),
}


@pytest.mark.parametrize(("build", "shape"), MASKED.values(), ids=MASKED)
def test_masks_leave_out_what_is_not_there(build: Any, shape: tuple[int, ...]) -> None:
    """All queries are those of the distribution over the positions that take part."""
    generator = torch.Generator().manual_seed(0)
    scores, others = torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    scores.requires_grad_()
    d, other = build(scores, mask=MASK, validate_args=False), build(others, mask=MASK)
    n_axes = 1 if shape in [(2, 4, 3), (2, 4)] else 2
    ranked, samples = d.k_best(3), d.sample((20,))
    assert torch.equal(d.argmax, ranked.values[0])
    assert (d.log_prob(samples) <= ranked.log_probs[0] + 1e-9).all()
    for b in range(2):
        at = torch.meshgrid(*[MASK[b].nonzero()[:, 0]] * n_axes, indexing="ij")
        alone = build(scores[b][at][None])
        best = alone.k_best(3)
        for ours, theirs in (
            (d.log_partition[b], alone.log_partition[0]),
            (d.entropy()[b], alone.entropy()[0]),
            (d.kl(other)[b], alone.kl(build(others[b][at][None]))[0]),
            (ranked.log_probs[:, b], best.log_probs[:, 0]),
            (d.log_prob(ranked.values)[:, b], best.log_probs[:, 0]),
            (d.marginals[b][at], alone.marginals[0]),
            (d.sparse_marginals[b][at], alone.sparse_marginals[0]),
        ):
            checked(ours, theirs, [scores])
        on, expected = d.form.write(ranked.values)[:, b], alone.form.write(best.values)[:, 0]
        there = torch.zeros(shape[1:], dtype=torch.bool)
        there[at] = True
        for k in range(3):
            assert torch.equal(on[k][at], expected[k])
        for values in (on, d.form.write(samples)[:, b], d.marginals[b], d.sparse_marginals[b]):
            assert not values.masked_select(~there).any()


@pytest.mark.parametrize("low", [-1e9, -torch.inf])
def test_forbidden_tags(low: float) -> None:
    scores, transitions, initial, final = tensors_of(CASES["chain"])
    forbidden = torch.zeros(2, 4, 3, dtype=torch.bool)
    forbidden[0, 1, :2] = forbidden[1, 0, 2] = True
    d = Chain(scores.masked_fill(forbidden, low), transitions, initial, final)
    assert not d.marginals[forbidden].any()
    tags = d.sample((50,))
    assert (tags[:, 0, 1] == 2).all() and (tags[:, 1, 0] != 2).all()
    (gradient,) = torch.autograd.grad(d.entropy().sum() + d.log_prob(tags).sum(), scores)
    assert gradient.isfinite().all() and not gradient[forbidden].any()
    wrong = d.argmax.clone()
    wrong[0, 1] = 0
    assert d.log_prob(wrong)[0] < -1e8
    torch.testing.assert_close(d.kl(d), torch.zeros(2).double(), **close)


def test_forbidden_transitions() -> None:
    transitions = torch.zeros(2, 2)
    transitions[0, 1] = -torch.inf
    d = Chain(torch.zeros(1, 2, 2), transitions)
    assert d.log_prob(torch.tensor([[0, 1]])).tolist() == [-torch.inf]
    assert set(map(tuple, d.sample((100,))[:, 0].tolist())) == {(0, 0), (1, 0), (1, 1)}
    free = Chain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    assert free.kl(d).tolist() == [torch.inf] and d.kl(free) > 0


# -------------------------------------------------------------------- any factors


def test_factors_that_interact() -> None:
    scores = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    d = StructuredDistribution(matchings, scores.requires_grad_())
    orders = list(itertools.permutations(range(3), 2))
    values = torch.eye(3).double()[torch.tensor(orders)]
    worth = (values[:, None] * scores).sum((-1, -2))
    torch.testing.assert_close(
        d.log_prob(values[:, None].expand(-1, 2, -1, -1)), worth.log_softmax(0), **close
    )
    ranked, order = d.k_best(7), worth.argsort(dim=0, descending=True)
    assert torch.equal(ranked.values[:6], values[order])
    assert (ranked.log_probs[6] == -torch.inf).all()
    assert torch.equal(d.argmax, values[order[0]])
    with pytest.raises(ValueError, match="several factors for an instance"):
        d.sparse()


def test_instances_of_several_components() -> None:
    scores = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    rows = StructuredDistribution(Xor, scores)
    both = list(itertools.product(range(3), repeat=2))
    values = torch.eye(3).double()[torch.tensor(both)]
    worth = (values[:, None] * scores).sum((-1, -2))
    order = worth.argsort(dim=0, descending=True)
    ranked = rows.k_best(9)
    assert torch.equal(ranked.values, values[order])
    torch.testing.assert_close(ranked.log_probs, worth.log_softmax(0).gather(0, order), **close)


# -------------------------------------------------------------------- errors


def test_values_that_are_no_structures() -> None:
    d = Tree(torch.zeros(1, 3, 3), validate_args=True)  # torch.compile changes the default
    cycle = torch.tensor([[1, 0, -1]])
    with pytest.raises(ValueError, match="a value of instance 0 is no structure of Tree"):
        d.log_prob(cycle)
    lenient = Tree(torch.zeros(1, 3, 3), validate_args=False)
    assert lenient.log_prob(cycle).tolist() == [-torch.inf]
    for heads in ([0, 0, 0], [-100, 0, 0], [5, 0, 0], [-2, 0, 0]):
        assert lenient.log_prob(torch.tensor([heads])).tolist() == [-torch.inf]
    with pytest.raises(ValueError, match=r"value has shape \(1, 2\); expected \(1, 3\)"):
        d.log_prob(torch.tensor([[1, 0]]))
    with pytest.raises(TypeError, match="expected integers"):
        d.log_prob(torch.zeros(1, 3))
    subset = Subset(torch.zeros(1, 3), 2, exact=False, lengths=[2])
    with pytest.raises(ValueError, match="an index twice"):
        subset.log_prob(torch.tensor([[1, 1]]))
    with pytest.raises(ValueError, match=r"which is no variable of shape \(3,\)"):
        subset.log_prob(torch.tensor([[0, 3]]))
    with pytest.raises(ValueError, match="beyond the lengths"):
        subset.log_prob(torch.tensor([[0, 2]]))
    pairs = StructuredDistribution(matchings, torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match="expected zeros and ones"):
        pairs.log_prob(torch.full((1, 2, 2), 0.5))


def test_arguments() -> None:
    scores, steps = torch.zeros(2, 3, 2), torch.zeros(2, 2)
    with pytest.raises(TypeError, match="Chain: scores is a list"):
        Chain(scores.tolist(), steps)
    with pytest.raises(ValueError, match="Chain: scores has shape"):
        Chain(scores[0, 0], steps)
    with pytest.raises(ValueError, match="transitions has shape"):
        Chain(scores, torch.zeros(3, 3))
    with pytest.raises(TypeError, match="mask is .* expected booleans"):
        Chain(scores, steps, mask=torch.ones(2, 3))
    with pytest.raises(ValueError, match="mask has shape"):
        Chain(scores, steps, mask=torch.ones(2, 4) > 0)
    with pytest.raises(TypeError, match="lengths are .* expected integers"):
        Chain(scores, steps, lengths=torch.ones(2))
    with pytest.raises(ValueError, match="every step has transitions of its own"):
        Chain(scores, torch.zeros(2, 2, 2), mask=torch.tensor([True, False, True]))
    with pytest.raises(ValueError, match="k_best: k"):
        Chain(scores, steps).k_best(0)
    with pytest.raises(ValueError, match="whose structures differ"):
        Chain(scores, steps).kl(Chain(scores, steps, lengths=[3, 2]))
    with pytest.raises(ValueError, match="whose structures differ"):
        Subset(scores[..., 0], 1).kl(Subset(scores[..., 0], 2))


# -------------------------------------------------------------------- hostile scores


def test_nan_stays_in_its_instance() -> None:
    scores = torch.zeros(2, 3, 2)
    scores[0, 1, 0] = torch.nan
    d = Chain(scores.requires_grad_(), torch.eye(2))
    value = torch.zeros(2, 3, dtype=torch.long)
    for query in (d.log_partition, d.entropy(), d.log_prob(value), d.marginals.sum((1, 2))):
        assert query.isnan().tolist() == [True, False]
    assert d.sample()[0].tolist() == [PADDING] * 3
    d.log_prob(value).nansum().backward()
    assert scores.grad is not None and scores.grad[1].isfinite().all() and scores.grad[1].any()


def test_an_instance_without_a_structure() -> None:
    scores = torch.zeros(2, 3, 2)
    scores[0, 1] = -torch.inf
    d = Chain(scores, torch.eye(2))
    assert d.log_partition[0] == -torch.inf and d.log_partition[1].isfinite()
    assert d.entropy()[0] == 0.0
    assert d.sample()[0].tolist() == [PADDING] * 3
    assert d.k_best(2).log_probs[:, 0].tolist() == [-torch.inf] * 2
    with pytest.warns(ConvergenceWarning):
        assert not d.marginals[0].any()
    with pytest.warns(ConvergenceWarning):
        assert d.argmax[0].tolist() == [PADDING] * 3


@pytest.mark.parametrize("name", ["chain", "tree", "alignment", "subset"])
def test_several_batch_axes(name: str) -> None:
    tensors = [x.detach() for x in tensors_of(CASES[name])]
    flat = CASES[name].build(*tensors)
    lengths = flat.arguments["lengths"]
    stacked = {
        "chain": lambda x: Chain(x, *tensors[1:], lengths=lengths),
        "tree": lambda x: Tree(x, lengths=lengths),
        "alignment": lambda x: Alignment(x, lengths=lengths),
        "subset": lambda x: Subset(x, torch.tensor([2, 3]), exact=False, lengths=lengths),
    }[name](torch.stack([tensors[0], 2 * tensors[0], 0 * tensors[0]]))
    assert stacked.batch_shape == (3, 2)
    for ours, theirs in (
        (stacked.entropy()[0], flat.entropy()),
        (stacked.marginals[0], flat.marginals),
        (stacked.k_best(3).log_probs[:, 0], flat.k_best(3).log_probs),
        (stacked.log_prob(flat.argmax)[0], flat.log_prob(flat.argmax)),
        (stacked.sparse_marginals[0], flat.sparse_marginals),
    ):
        torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.parametrize("kind", [Tree, ProjectiveTree, LabelledTree])
def test_errors_of_trees_are_in_their_names(kind: Any) -> None:
    more = (2,) if kind is LabelledTree else ()
    with pytest.raises(TypeError, match=f"^{kind.__name__}: mask"):
        kind(torch.zeros(2, 3, 3, *more), mask=torch.ones(2, 3))
    with pytest.raises(ValueError, match=f"^{kind.__name__}: scores has shape .*n, n"):
        kind(torch.zeros(2, 3, 4, *more), lengths=[3, 4])


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ([[2, 0, 2]], Tree, "heads counted from 0, with -1 for the root"),
        ([[-1, 0, -100]], Tree, "without gaps"),
        ([[[-1, 0], [0, 1], [0, 3]]], LabelledTree, "labels counted from 0"),
    ],
)
def test_errors_say_how_values_are_written(value: Any, kind: Any, words: str) -> None:
    scores = torch.zeros(1, 3, 3, 3) if kind is LabelledTree else torch.zeros(1, 3, 3)
    with pytest.raises(ValueError, match=words):  # torch.compile sets the default to False
        kind(scores, validate_args=True).log_prob(torch.tensor(value))


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("kind", [Tree, ProjectiveTree, Alignment, BinaryTree])
def test_sentences_of_no_words(kind: type[StructuredDistribution], batch: int) -> None:
    distribution = kind(torch.zeros(batch, 0, 0))
    assert distribution.event_shape[0] == 0
    assert distribution.argmax.shape == (batch, *distribution.event_shape)
    assert distribution.sample((3,)).shape == (3, batch, *distribution.event_shape)
    assert distribution.log_prob(distribution.argmax).tolist() == [0.0] * batch
